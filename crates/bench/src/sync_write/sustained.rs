//! Writers that are faster than the pool, for a long time: does the log ever make one wait for long?

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastness_store::PoolOptions;

use super::stack::{BLOCK_BYTES, Plan, Site, Stack, Writer};
use crate::error::{Result, foreign, wrong};
use crate::histogram::Histogram;
use crate::{Options, Row};

const WRITERS: usize = 2;
const DIRTY_MAX_BYTES: u64 = 256 << 20;
const CACHE_BYTES: u64 = 32 << 20;
const REGION_BYTES: u64 = 512 << 20;
const STALL_MS: f64 = 100.0;

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let pool =
        PoolOptions { dirty_max_bytes: DIRTY_MAX_BYTES, cache_bytes: CACHE_BYTES, ..PoolOptions::default() };
    // The metadata engine's cache is bounded by its default.
    let bound = DIRTY_MAX_BYTES + CACHE_BYTES + pool.meta_cache_bytes as u64;
    let plan = Plan {
        volumes: WRITERS,
        volume_bytes: 256 << 20,
        device_bytes: 2 << 30,
        region_bytes: REGION_BYTES,
        pool,
        ..Plan::default()
    };
    let stack = Stack::new(site, "sustained", &plan)?;
    let before = anonymous_bytes()?;
    let is_done = AtomicBool::new(false);
    let length = Duration::from_secs(if options.quick { 4 } else { 60 });
    let since = Instant::now();
    let (seen, peak) = std::thread::scope(|scope| {
        let spawn = |index: usize| {
            let writer = Writer::new(&stack.volumes[index], index as u64 + 9);
            let is_done = &is_done;
            scope.spawn(move || write_until(writer, is_done))
        };
        let writers: Vec<_> = (0..WRITERS).map(spawn).collect();
        let watcher = scope.spawn(|| watch(&is_done));
        std::thread::sleep(length);
        is_done.store(true, Ordering::Relaxed);
        let mut seen = Histogram::default();
        for writer in writers {
            seen.merge(&writer.join().map_err(|_| wrong("a writer panicked"))??);
        }
        let peak = watcher.join().map_err(|_| wrong("the watcher panicked"))??;
        Result::<_>::Ok((seen, peak))
    })?;
    let seconds = since.elapsed().as_secs_f64();
    let rate = seen.count() as f64 * BLOCK_BYTES as f64 / 1_048_576.0 / seconds;
    let (longest_ms, mib) = (seen.max() as f64 / 1e6, |bytes: u64| bytes as f64 / 1_048_576.0);
    let grown = peak.saturating_sub(before);
    let title = format!("{WRITERS} threads, log faster than the pool for {seconds:.0} s");
    let row = |name: String, value, unit, goal, met| Row {
        name: format!("{title}: {name}"),
        value: Some(value),
        unit,
        goal: Some(goal),
        met: Some(met),
        medium: site.medium(),
        threads: WRITERS,
        ..Row::default()
    };
    let waited = stack.fallbacks();
    Ok(vec![
        Row {
            p50_ns: Some(seen.quantile(0.5) as f64),
            p99_ns: Some(seen.quantile(0.99) as f64),
            ..row(
                format!("longest write, at {rate:.0} MiB/s ({waited} writes waited for a txg)"),
                longest_ms,
                "ms",
                format!("at most {STALL_MS} ms"),
                longest_ms <= STALL_MS,
            )
        },
        Row {
            ratio: Some(grown as f64 / bound as f64),
            baseline: Some("the limits of unsynced bytes and of both caches".to_owned()),
            ..row(
                "growth of memory, without the region".to_owned(),
                mib(grown),
                "MiB",
                format!("at most {:.0} MiB", mib(bound)),
                grown <= bound,
            )
        },
    ])
}

fn write_until(mut writer: Writer<'_>, is_done: &AtomicBool) -> Result<Histogram> {
    let mut seen = Histogram::default();
    while !is_done.load(Ordering::Relaxed) {
        let since = Instant::now();
        writer.write_one()?;
        seen.add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(seen)
}

/// Most memory that is no file's, looked at every few milliseconds.
fn watch(is_done: &AtomicBool) -> Result<u64> {
    let mut peak = 0;
    while !is_done.load(Ordering::Relaxed) {
        peak = peak.max(anonymous_bytes()?);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(peak)
}

fn anonymous_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().map_err(foreign)?;
    Ok(kib << 10)
}
