//! `fastness bench sync-write`: 4 KiB writes with FUA into a volume, in process, with a log in emulated PM.
//!
//! Beside them, by turns: the same writes under `sync=disabled`, which is as quick as the pool can be, and, in rows of
//! their own, writes that wait for a transaction group because there is no log.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use fastness_intent::{PoolLog, Tuning};
use fastness_pool::{Device, Pool, PoolOptions, Property, VdevSpec};
use fastness_zvol::{Volume, VolumeOptions};

use crate::measure::{Spread, by_turns, time_ns};
use crate::{Options, Row};

const BLOCK_BYTES: u64 = 4096;
const VOLUME_BYTES: u64 = 64 << 20;
const REGION_BYTES: u64 = 512 << 20;
/// Writes of a turn.
const WRITES: u64 = 1000;
/// Writes of a turn without a log.
const SLOW_WRITES: u64 = 20;

/// A folder of its own, gone in the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        // What is left then is for the user to see.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn volume(pool: &Arc<Pool>, log: Option<&PoolLog>, name: &str) -> anyhow::Result<Volume> {
    let options = VolumeOptions { properties: vec![(Property::VolBlockSize, BLOCK_BYTES)] };
    Ok(Volume::create(pool, log, name, VOLUME_BYTES, &options)?)
}

/// Writes to all blocks in an order that no cache knows.
struct Writer<'a> {
    volume: &'a Volume,
    next: u64,
    data: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(volume: &'a Volume) -> Self {
        Self { volume, next: 0, data: vec![0x5a; BLOCK_BYTES as usize] }
    }

    fn write(&mut self, count: u64) -> anyhow::Result<f64> {
        time_ns(|| {
            for _ in 0..count {
                self.next += 1;
                let block = self.next.wrapping_mul(2_654_435_761) % (VOLUME_BYTES / BLOCK_BYTES);
                self.volume.write(block * BLOCK_BYTES, &self.data, true)?;
            }
            Ok(())
        })
    }
}

/// Runs the benchmark.
///
/// # Errors
/// If a folder has no room, or the pool reports an error.
pub(crate) fn run(options: Options) -> anyhow::Result<Vec<Row>> {
    let parent = std::env::var_os("FASTNESS_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let place = Place(parent.join(format!("fastness-bench-sync-{}", std::process::id())));
    std::fs::create_dir(&place.0).with_context(|| format!("cannot create {}", place.0.display()))?;
    let memory = Place(PathBuf::from(format!("/dev/shm/fastness-bench-sync-{}", std::process::id())));
    std::fs::create_dir(&memory.0).with_context(|| format!("cannot create {}", memory.0.display()))?;

    let device = Device::create(place.0.join("pool"), 1 << 30)?;
    let pool = Arc::new(Pool::create("bench", &[VdevSpec::single(device)], PoolOptions::default())?);
    let log = PoolLog::create(&pool, Tuning::default())?;
    let path = memory.0.join("log");
    log.add_region(PoolLog::create_region(&path, REGION_BYTES, true)?, path, true)?;
    let logged = volume(&pool, Some(&log), "bench/logged")?;
    let disabled = volume(&pool, Some(&log), "bench/disabled")?;
    let value = Property::Sync.parse("disabled")?;
    pool.transact(|tx| disabled.dataset().set(tx, Property::Sync, Some(value)))?;
    let waiting = volume(&pool, None, "bench/waiting")?;
    pool.sync()?;

    let turns = if options.quick { 41 } else { 201 };
    let (mut of_logged, mut of_disabled) = (Writer::new(&logged), Writer::new(&disabled));
    let pair = by_turns(turns, WRITES as usize, || of_logged.write(WRITES), || of_disabled.write(WRITES))?;
    let slow = by_turns(
        turns / 4,
        1,
        || Ok(of_logged.write(SLOW_WRITES)? / SLOW_WRITES as f64),
        || Ok(Writer::new(&waiting).write(SLOW_WRITES)? / SLOW_WRITES as f64),
    )?;
    let stats = logged_stats(&log);
    let median = |values: &[f64]| Spread::of(values.to_vec()).median;
    let medium = "emulated PM (DRAM, tmpfs) for the log, a file for the pool".to_owned();
    let swapped =
        |pair: &crate::measure::Pair| crate::measure::Pair { a: pair.b.clone(), b: pair.a.clone() }.ratio();
    Ok(vec![
        Row {
            name: format!("write 4 KiB with FUA, kind pmem, 1 thread{stats}"),
            value: Some(median(&pair.a)),
            unit: "ns",
            baseline: Some(format!("sync=disabled, {:.0} ns; ratio of writes a second", median(&pair.b))),
            medium: medium.clone(),
            ..Row::ratio(swapped(&pair), Some((0.6, "at least")))
        },
        Row {
            name: "the same beside a volume without a log, which waits for txgs".to_owned(),
            value: Some(median(&slow.a)),
            unit: "ns",
            baseline: Some(format!("no log, {:.0} us; ratio of writes a second", median(&slow.b) / 1e3)),
            medium,
            ..Row::ratio(swapped(&slow), None)
        },
    ])
}

/// What of the writes did not get into the log: the row would be about something else.
fn logged_stats(log: &PoolLog) -> String {
    let waits: u64 = log.stats().iter().map(|(_, stats)| stats.fallbacks_total()).sum();
    if waits == 0 { String::new() } else { format!(" ({waits} writes waited for a txg)") }
}
