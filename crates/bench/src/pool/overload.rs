//! Writers that are faster than the device for a long time: how long they wait, and how much memory is used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastness_store::{Pool, PoolOptions};

use super::place::{Numbers, Place, noise, volume, write_one};
use crate::error::{Result, wrong};
use crate::measure::rss_bytes;
use crate::{Options, Row};

const WRITERS: u64 = 4;
const OBJECT_BYTES: u64 = 256 << 20;
const DIRTY_MAX_BYTES: u64 = 256 << 20;
const CACHE_BYTES: u64 = 32 << 20;

/// What was measured.
struct Seen {
    longest_ns: u64,
    p99_ns: u64,
    written_bytes: u64,
    dirty_max_bytes: u64,
    rss_growth_bytes: u64,
    elapsed: Duration,
}

pub(super) fn rows(place: &Place, options: Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let seconds = if options.quick { 5 } else { 60 };
    for block_bytes in [4096, 128 << 10] {
        let seen = overload(place, block_bytes, Duration::from_secs(seconds))?;
        rows.extend(three_rows(place, block_bytes, &seen));
    }
    Ok(rows)
}

fn three_rows(place: &Place, block_bytes: u64, seen: &Seen) -> Vec<Row> {
    let title = format!("overload for {} s, {block_bytes} B", seen.elapsed.as_secs());
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    let row = |name: &str, value: f64, unit, goal: String, met| Row {
        name: format!("{title}: {name}"),
        value: Some(value),
        unit,
        goal: Some(goal),
        met: Some(met),
        medium: place.medium(),
        threads: WRITERS as usize,
        ..Row::default()
    };
    let longest_ms = seen.longest_ns as f64 / 1e6;
    let rate = mib(seen.written_bytes) / seen.elapsed.as_secs_f64();
    // The metadata engine's cache is bounded by its default.
    let bound = DIRTY_MAX_BYTES + CACHE_BYTES + PoolOptions::default().meta_cache_bytes as u64;
    let memory = |used: u64, bound: u64| Row {
        ratio: Some(used as f64 / bound as f64),
        ..row("", mib(used), "MiB", format!("at most {:.0} MiB", mib(bound)), used <= bound)
    };
    vec![
        Row {
            p99_ns: Some(seen.p99_ns as f64),
            ..row(
                &format!("longest wait of a write, at {rate:.0} MiB/s"),
                longest_ms,
                "ms",
                "at most 100 ms".to_owned(),
                longest_ms <= 100.0,
            )
        },
        Row {
            name: format!("{title}: peak of unsynced bytes"),
            baseline: Some("the limit".to_owned()),
            ..memory(seen.dirty_max_bytes, DIRTY_MAX_BYTES)
        },
        Row {
            name: format!("{title}: growth of resident memory"),
            baseline: Some("the limits of unsynced bytes and of both caches".to_owned()),
            ..memory(seen.rss_growth_bytes, bound)
        },
    ]
}

fn overload(place: &Place, block_bytes: u64, length: Duration) -> Result<Seen> {
    let options =
        PoolOptions { dirty_max_bytes: DIRTY_MAX_BYTES, cache_bytes: CACHE_BYTES, ..PoolOptions::default() };
    let pool = place.pool("overload", 2 << 30, options)?;
    let before = rss_bytes()?;
    let (is_done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let since = Instant::now();
    let (waits, peaks) = std::thread::scope(|scope| {
        let spawn = |number| {
            let (pool, is_done, written) = (&pool, &is_done, &written);
            scope.spawn(move || write_until(pool, number, block_bytes, is_done, written))
        };
        let writers: Vec<_> = (0..WRITERS).map(spawn).collect();
        let watcher = scope.spawn(|| watch(&pool, &is_done));
        std::thread::sleep(length);
        is_done.store(true, Ordering::Relaxed);
        let mut waits = Vec::new();
        for writer in writers {
            waits.extend(writer.join().map_err(|_| wrong("a writer panicked"))??);
        }
        let peaks = watcher.join().map_err(|_| wrong("the watcher panicked"))??;
        Result::<_>::Ok((waits, peaks))
    })?;
    let elapsed = since.elapsed();
    drop(pool);
    place.remove("overload")?;
    let mut waits = waits;
    waits.sort_unstable();
    Ok(Seen {
        longest_ns: u64::from(*waits.last().unwrap_or(&0)),
        p99_ns: u64::from(waits.get(waits.len() * 99 / 100).copied().unwrap_or(0)),
        written_bytes: written.load(Ordering::Relaxed),
        dirty_max_bytes: peaks.0,
        rss_growth_bytes: peaks.1.saturating_sub(before),
        elapsed,
    })
}

/// One writer; the longest wait in each group of 16 writes, so that the figures stay small.
fn write_until(
    pool: &Pool,
    number: u64,
    block_bytes: u64,
    is_done: &AtomicBool,
    written: &AtomicU64,
) -> Result<Vec<u32>> {
    let object = volume(pool, &format!("writer{number}"), block_bytes)?;
    let (block, mut numbers) = (noise(block_bytes as usize, number), Numbers(number));
    let mut waits = Vec::new();
    while !is_done.load(Ordering::Relaxed) {
        let mut longest = 0;
        for _ in 0..16 {
            let offset = numbers.below(OBJECT_BYTES / block_bytes) * block_bytes;
            let since = Instant::now();
            write_one(pool, &object, offset, &block)?;
            longest = longest.max(u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        waits.push(longest);
        written.fetch_add(16 * block_bytes, Ordering::Relaxed);
    }
    Ok(waits)
}

/// Peaks of unsynced bytes and resident memory, sampled every few milliseconds.
fn watch(pool: &Pool, is_done: &AtomicBool) -> Result<(u64, u64)> {
    let mut peaks = (0, 0);
    while !is_done.load(Ordering::Relaxed) {
        peaks.0 = peaks.0.max(pool.status().dirty_bytes);
        peaks.1 = peaks.1.max(rss_bytes()?);
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(peaks)
}
