//! Several threads, a log each: how writers scale, and what waiting for a slot costs.

use std::sync::Arc;

use fastness_pmem::{PmRange, WriteMethod};
use fastness_prb::{Alignment, Config, Hdl, Prb, Txg, Wait};

use super::work::{CHUNKS, Floor, REGION_BYTES, config, new_log};
use crate::error::Result;
use crate::measure::{Cost, Pair, Spread, by_turns, in_parallel};
use crate::medium::{emulated_pm, two_sides};
use crate::{Options, Row};

const BODY: [u8; 4096] = [0xa5; 4096];
/// Long turns, so that starting and joining the threads does not show.
const ENTRIES_PER_TURN: usize = 16_000;

/// A PRB and a log for each thread.
struct Writers {
    prb: Arc<Prb<PmRange>>,
    hdls: Vec<Hdl<PmRange>>,
    txg: u64,
}

impl Writers {
    fn new(threads: usize, slots: u32, chunks: Vec<PmRange>) -> Result<Self> {
        let prb = Prb::format(Config { ncommitters: slots, ..config() }, chunks)?;
        let hdls = (0..threads).map(|_| new_log(&prb)).collect::<Result<_>>()?;
        Ok(Self { prb, hdls, txg: 0 })
    }

    /// `count` entries in all, shared out evenly.
    fn turn(&mut self, count: usize) -> Result<Cost> {
        self.txg += 1;
        let (txg, each) = (Txg(self.txg), count / self.hdls.len());
        let cost = in_parallel(self.hdls.iter_mut(), |hdl| {
            for _ in 0..each {
                hdl.write_dependent_entry(txg, &BODY, Wait::Fail)?;
            }
            Ok(())
        })?;
        self.prb.collect(txg)?;
        Ok(cost)
    }
}

/// Throughput of two threads on two logs against one; and what the floor makes of two threads.
pub(super) fn scaling(options: Options) -> Result<Vec<Row>> {
    let (turns, count) = (options.turns() / 4, ENTRIES_PER_TURN);
    let (a, b) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?;
    let (mut one, mut two) = (Writers::new(1, 4, a)?, Writers::new(2, 4, b)?);
    let pair = by_turns(turns, count, || Ok(one.turn(count)?.wall), || Ok(two.turn(count)?.wall))?;
    let log = throughput("2 threads on 2 logs, 4096 B", &pair, Some((1.8, "at least")));

    let (a, b) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?;
    let mut one = Floor::new(a);
    let mut halves = b;
    let mut two = [Floor::new(halves.split_off(CHUNKS / 2)), Floor::new(halves)];
    let run = |floor: &mut Floor, count| floor.turn(&BODY, Alignment::Optane, count).map(|_| ());
    let pair = by_turns(
        turns,
        count,
        || Ok(in_parallel(std::iter::once(&mut one), |floor| run(floor, count))?.wall),
        || Ok(in_parallel(two.iter_mut(), |floor| run(floor, count / 2))?.wall),
    )?;
    Ok(vec![log, throughput("the floor on 2 threads (upper bound)", &pair, None)])
}

fn throughput(name: &str, one_and_two: &Pair, goal: Option<(f64, &str)>) -> Row {
    Row {
        name: name.to_owned(),
        value: Some(1e9 / Spread::of(one_and_two.b.clone()).median),
        unit: "entries/s",
        baseline: Some(format!("1 thread, {:.0}", 1e9 / Spread::of(one_and_two.a.clone()).median)),
        threads: 2,
        ..Row::ratio(one_and_two.ratio(), goal)
    }
}

/// CPU time per entry with more threads than slots, against as many threads as slots.
pub(super) fn oversubscription(options: Options) -> Result<Vec<Row>> {
    let (turns, count) = (options.turns() / 4, ENTRIES_PER_TURN);
    let mut rows = Vec::new();
    for (slots, threads) in [(1, 4), (2, 8)] {
        let (a, b) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?;
        let (mut many, mut few) = (Writers::new(threads, slots, a)?, Writers::new(slots as usize, slots, b)?);
        let pair = by_turns(turns, count, || Ok(many.turn(count)?.cpu), || Ok(few.turn(count)?.cpu))?;
        let few = Spread::of(pair.b.clone()).median;
        rows.push(Row {
            name: format!("CPU time per entry, {threads} threads with ncommitters {slots}, 4096 B"),
            value: Some(Spread::of(pair.a.clone()).median),
            unit: "ns",
            baseline: Some(format!("as many threads as slots, {few:.0} ns")),
            threads,
            ..Row::ratio(pair.ratio(), Some((1.2, "at most")))
        });
    }
    Ok(rows)
}
