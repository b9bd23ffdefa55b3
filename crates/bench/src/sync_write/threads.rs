//! Several threads, on one volume and on one each; and how many of them may write to the medium at one time.

use fastness_pmem::WriteMethod;
use fastness_prb::Alignment;
use fastness_store::Tuning;

use super::one::median;
use super::stack::{Plan, Site, Stack, Writer};
use crate::error::Result;
use crate::measure::{Pair, by_turns, in_parallel};
use crate::medium::{emulated_pm, two_sides};
use crate::prb::work::{CHUNKS, Floor, REGION_BYTES};
use crate::{Options, Row};

/// Writes of a turn, of all threads together: long enough that starting them does not show.
const WRITES: u64 = 16_000;

/// How many threads there are; the goals are for one and for two.
pub(super) fn numbers_of_threads(options: Options) -> &'static [usize] {
    if options.quick { &[1, 2, 8] } else { &[1, 2, 4, 8] }
}

/// One turn of `writes` writes of all threads together; thread `i` writes to volume `i` modulo their number.
pub(super) fn turn(
    stack: &Stack,
    threads: usize,
    volumes: usize,
    writes: u64,
    seed: &mut u64,
) -> Result<f64> {
    stack.settle()?;
    *seed += 100;
    let first = *seed;
    let writers: Vec<_> = (0..threads)
        .map(|index| Writer::new(&stack.volumes[index % volumes], first + index as u64))
        .collect();
    let each = writes / threads as u64;
    Ok(in_parallel(writers.into_iter(), |mut writer| writer.write(each))?.wall)
}

pub(super) fn scaling(site: &Site, options: Options) -> Result<Vec<Row>> {
    let plan = Plan { volumes: 8, volume_bytes: 32 << 20, ..Plan::default() };
    let stack = Stack::new(site, "threads", &plan)?;
    stack.warm()?;
    let turns = if options.quick { 9 } else { 61 };
    let mut rows = Vec::new();
    let (mut seed, mut other) = (0, 50);
    for (volumes, name) in [(8, "one volume each"), (1, "one volume")] {
        for &threads in numbers_of_threads(options) {
            if threads == 1 && volumes > 1 {
                continue;
            }
            let goal = match (threads, volumes) {
                (2, 1) => Some((1.5, "at least")),
                (2, _) => Some((1.8, "at least")),
                _ => None,
            };
            let pair = by_turns(
                turns,
                WRITES as usize,
                || turn(&stack, 1, 1, WRITES, &mut seed),
                || turn(&stack, threads, volumes, WRITES, &mut other),
            )?;
            rows.push(throughput(site, &format!("{threads} threads, {name}"), threads, &pair, goal));
        }
    }
    rows.push(floor(site, options)?);
    Ok(rows)
}

/// What the machine makes of two threads that share nothing.
fn floor(site: &Site, options: Options) -> Result<Row> {
    let (one, mut halves) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?;
    let mut one = Floor::new(one);
    let mut two = [Floor::new(halves.split_off(CHUNKS / 2)), Floor::new(halves)];
    let body = vec![0xa5; 4160];
    let run = |floor: &mut Floor, count| floor.turn(&body, Alignment::Optane, count).map(|_| ());
    let count = WRITES as usize;
    let pair = by_turns(
        if options.quick { 31 } else { 101 },
        count,
        || Ok(in_parallel(std::iter::once(&mut one), |floor| run(floor, count))?.wall),
        || Ok(in_parallel(two.iter_mut(), |floor| run(floor, count / 2))?.wall),
    )?;
    Ok(throughput(site, "the floor on 2 threads (upper bound)", 2, &pair, None))
}

fn throughput(
    site: &Site,
    name: &str,
    threads: usize,
    one_and_many: &Pair,
    goal: Option<(f64, &str)>,
) -> Row {
    Row {
        name: name.to_owned(),
        value: Some(1e9 / median(&one_and_many.b)),
        unit: "writes/s",
        baseline: Some(format!("1 thread, {:.0}", 1e9 / median(&one_and_many.a))),
        medium: site.medium(),
        threads,
        ..Row::ratio(one_and_many.ratio(), goal)
    }
}

/// The same threads with other numbers of commit slots, against as many as there are CPUs.
pub(super) fn committers(site: &Site, options: Options) -> Result<Vec<Row>> {
    const THREADS: usize = 4;
    let plan = Plan { volumes: THREADS, volume_bytes: 32 << 20, region_bytes: 384 << 20, ..Plan::default() };
    let usual = Stack::new(site, "usual", &plan)?;
    usual.warm()?;
    let counts: &[u32] = if options.quick { &[1, 8] } else { &[1, 2, 3, 4, 5, 6, 7, 8] };
    let (mut seed, mut other) = (0, 50);
    counts
        .iter()
        .map(|&count| {
            let plan =
                Plan { tuning: Tuning { ncommitters: Some(count), ..Tuning::default() }, ..plan.clone() };
            let stack = Stack::new(site, "committers", &plan)?;
            stack.warm()?;
            let pair = by_turns(
                if options.quick { 7 } else { 31 },
                WRITES as usize,
                || turn(&usual, THREADS, THREADS, WRITES, &mut seed),
                || turn(&stack, THREADS, THREADS, WRITES, &mut other),
            )?;
            let name = format!("{THREADS} threads, one volume each, ncommitters {count}");
            let usual = format!("ncommitters as CPUs, {:.0}", 1e9 / median(&pair.a));
            Ok(Row { baseline: Some(usual), ..throughput(site, &name, THREADS, &pair, None) })
        })
        .collect()
}
