//! Asynchronous writes: into memory, durable with a later txg.

use std::time::Instant;

use fastness_store::{Object, Pool};

use super::place::{Numbers, Place, noise, told_to, volume, write_one};
use crate::error::Result;
use crate::measure::{Pair, Spread, by_turns, in_parallel};
use crate::{Options, Row};

const BLOCK_BYTES: usize = 4096;
/// Writes that are timed together: one alone is not much longer than the clock takes.
const GROUP: usize = 64;
const OBJECT_BLOCKS: u64 = (8 << 30) / BLOCK_BYTES as u64;
const WRITES_PER_TURN: usize = 32 << 10;
const DIRTY_MAX_BYTES: u64 = 1 << 30;

/// One thread's share of the work: scattered writes into one object, or for the floor into plain memory.
struct Writer {
    object: Object,
    numbers: Numbers,
    block: Vec<u8>,
}

impl Writer {
    fn new(pool: &Pool, name: &str) -> Result<Self> {
        let object = volume(pool, name, BLOCK_BYTES as u64)?;
        let tx = pool.begin_tx()?;
        object.truncate(&tx, OBJECT_BLOCKS * BLOCK_BYTES as u64)?;
        Ok(Self { object, numbers: Numbers(1), block: noise(BLOCK_BYTES, 7) })
    }

    /// Times of `count` writes, one for each group, in ns for one write. The same places each time: a pool of
    /// bounded length takes any number of turns.
    fn write(&mut self, pool: &Pool, count: usize, times: &mut Vec<f64>) -> Result<()> {
        self.numbers = Numbers(1);
        for _ in 0..count / GROUP {
            let since = Instant::now();
            for _ in 0..GROUP {
                let offset = self.numbers.below(OBJECT_BLOCKS) * BLOCK_BYTES as u64;
                write_one(pool, &self.object, offset, &self.block)?;
            }
            times.push(since.elapsed().as_nanos() as f64 / GROUP as f64);
        }
        Ok(())
    }
}

/// The same bytes into scattered places of memory that was touched before.
struct Copier {
    memory: Vec<u8>,
    numbers: Numbers,
    block: Vec<u8>,
}

impl Copier {
    fn new() -> Self {
        let memory = noise(WRITES_PER_TURN * BLOCK_BYTES, 3);
        Self { memory, numbers: Numbers(1), block: noise(BLOCK_BYTES, 7) }
    }

    fn copy(&mut self, count: usize, times: &mut Vec<f64>) -> Result<()> {
        for _ in 0..count / GROUP {
            let since = Instant::now();
            for _ in 0..GROUP {
                let at = self.numbers.below(WRITES_PER_TURN as u64) as usize * BLOCK_BYTES;
                std::hint::black_box(&mut self.memory[at..at + BLOCK_BYTES]).copy_from_slice(&self.block);
            }
            times.push(since.elapsed().as_nanos() as f64 / GROUP as f64);
        }
        Ok(())
    }
}

pub(super) fn rows(place: &Place, options: Options) -> Result<Vec<Row>> {
    let mut rows = in_a_pool(place, |pool| {
        let mut rows = vec![one_thread(pool, options)?];
        rows.extend(two_threads(pool, options)?);
        Ok(rows)
    })?;
    rows.push(Row { medium: place.medium(), ..two_copiers(options)? });
    Ok(rows)
}

/// The first row alone: one thread.
pub(super) fn row(place: &Place, options: Options) -> Result<Row> {
    let mut rows = in_a_pool(place, |pool| Ok(vec![one_thread(pool, options)?]))?;
    Ok(rows.remove(0))
}

fn in_a_pool(place: &Place, rows: impl FnOnce(&Pool) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    // Twice what is written between two syncs of two writers, and the space of the txg before.
    let pool = place.pool("write", 2 << 30, told_to(DIRTY_MAX_BYTES))?;
    let rows = rows(&pool)?;
    drop(pool);
    place.remove("write")?;
    Ok(rows.into_iter().map(|row| Row { medium: place.medium(), ..row }).collect())
}

/// Median of the groups of one turn, times the writes: what `by_turns` divides again.
fn turn(times: &mut Vec<f64>) -> f64 {
    let median = Spread::of(times.clone()).median;
    times.clear();
    median
}

fn one_thread(pool: &Pool, options: Options) -> Result<Row> {
    let (mut writer, mut copier) = (Writer::new(pool, "one")?, Copier::new());
    let (mut times, mut copies, mut all) = (Vec::new(), Vec::new(), Vec::new());
    let pair = by_turns(
        if options.quick { 5 } else { 15 },
        1,
        || {
            writer.write(pool, WRITES_PER_TURN, &mut times)?;
            all.extend_from_slice(&times);
            // Not timed: the txg that these writes become durable with.
            pool.sync()?;
            Ok(turn(&mut times))
        },
        || {
            copier.copy(WRITES_PER_TURN, &mut copies)?;
            Ok(turn(&mut copies))
        },
    )?;
    all.sort_by(f64::total_cmp);
    let value = Spread::of(pair.a.clone()).median;
    Ok(Row {
        name: format!("asynchronous random write, 4096 B, 8 GiB object (groups of {GROUP})"),
        value: Some(value),
        unit: "ns",
        baseline: Some(format!("copy to scattered memory, {:.0} ns", Spread::of(pair.b.clone()).median)),
        p50_ns: Some(all[all.len() / 2]),
        p99_ns: Some(all[all.len() * 99 / 100]),
        goal: Some("at most 1000 ns".to_owned()),
        met: Some(value <= 1000.0),
        ..Row::ratio(pair.ratio(), None)
    })
}

fn two_threads(pool: &Pool, options: Options) -> Result<Vec<Row>> {
    let mut writers = [Writer::new(pool, "left")?, Writer::new(pool, "right")?];
    let mut alone = Writer::new(pool, "alone")?;
    let run = |writer: &mut Writer, count| writer.write(pool, count, &mut Vec::new());
    // CPU time beside: on a machine with other work on it, two threads do not get two CPUs.
    let mut cpu = Pair::default();
    let pair = by_turns(
        if options.quick { 5 } else { 15 },
        WRITES_PER_TURN,
        || {
            let cost = in_parallel(std::iter::once(&mut alone), |writer| run(writer, WRITES_PER_TURN))?;
            pool.sync()?;
            cpu.a.push(cost.cpu / WRITES_PER_TURN as f64);
            Ok(cost.wall)
        },
        || {
            let cost = in_parallel(writers.iter_mut(), |writer| run(writer, WRITES_PER_TURN / 2))?;
            pool.sync()?;
            cpu.b.push(cost.cpu / WRITES_PER_TURN as f64);
            Ok(cost.wall)
        },
    )?;
    let wall = scaling("2 threads on 2 objects in 2 datasets, 4096 B", &pair, Some((1.8, "at least")));
    let median = |times: &[f64]| Spread::of(times.to_vec()).median;
    let per_write = Row {
        name: "the same, CPU time of a write with 2 threads".to_owned(),
        value: Some(median(&cpu.b)),
        unit: "ns",
        baseline: Some(format!("1 thread, {:.0} ns", median(&cpu.a))),
        threads: 2,
        ..Row::ratio(Pair { a: cpu.b, b: cpu.a }.ratio(), None)
    };
    Ok(vec![wall, per_write])
}

fn two_copiers(options: Options) -> Result<Row> {
    let mut copiers = [Copier::new(), Copier::new()];
    let mut alone = Copier::new();
    let run = |copier: &mut Copier, count| copier.copy(count, &mut Vec::new());
    let pair = by_turns(
        if options.quick { 5 } else { 15 },
        WRITES_PER_TURN,
        || Ok(in_parallel(std::iter::once(&mut alone), |copier| run(copier, WRITES_PER_TURN))?.wall),
        || Ok(in_parallel(copiers.iter_mut(), |copier| run(copier, WRITES_PER_TURN / 2))?.wall),
    )?;
    Ok(scaling("copies to scattered memory on 2 threads (upper bound)", &pair, None))
}

fn scaling(name: &str, one_and_two: &Pair, goal: Option<(f64, &str)>) -> Row {
    let per_second = |times: &[f64]| 1e9 / Spread::of(times.to_vec()).median;
    Row {
        name: name.to_owned(),
        value: Some(per_second(&one_and_two.b)),
        unit: "writes/s",
        baseline: Some(format!("1 thread, {:.0}", per_second(&one_and_two.a))),
        threads: 2,
        ..Row::ratio(one_and_two.ratio(), goal)
    }
}
