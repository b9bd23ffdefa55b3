//! Random reads, from the cache and from the medium.

use fastness_blkdev::{AlignedBuf, BlockDevice, FileDevice};
use fastness_store::{Object, PoolOptions};

use super::place::{Numbers, Place, noise, told_to, volume, write_one};
use crate::error::Result;
use crate::measure::{Spread, by_turns, time_ns};
use crate::{Options, Row};

const BLOCK_BYTES: usize = 4096;
const CACHED_BYTES: u64 = 128 << 20;

pub(super) fn rows(place: &Place, options: Options) -> Result<Vec<Row>> {
    let mut rows = cached(place, options)?;
    rows.push(uncached(place, options)?);
    Ok(rows)
}

/// A pool with one filled object.
fn filled(place: &Place, len_bytes: u64, cache_bytes: u64) -> Result<(fastness_store::Pool, Object)> {
    let options = PoolOptions { cache_bytes, ..told_to(len_bytes * 5) };
    let pool = place.pool("read", len_bytes * 3 / 2 + (64 << 20), options)?;
    let object = volume(&pool, "read", BLOCK_BYTES as u64)?;
    let mut numbers = Numbers(5);
    for offset in (0..len_bytes).step_by(BLOCK_BYTES) {
        write_one(&pool, &object, offset, &noise(BLOCK_BYTES, numbers.next()))?;
    }
    pool.sync()?;
    Ok((pool, object))
}

/// Twice: alone, as the goal is a time, and by turns with a copy, whose memory then takes the CPU's caches
/// away.
pub(super) fn cached(place: &Place, options: Options) -> Result<Vec<Row>> {
    let (pool, object) = filled(place, CACHED_BYTES, CACHED_BYTES * 2)?;
    let mut buf = vec![0; BLOCK_BYTES];
    let blocks = CACHED_BYTES / BLOCK_BYTES as u64;
    for at in 0..blocks {
        object.read(at * BLOCK_BYTES as u64, &mut buf)?;
    }
    let memory = noise(CACHED_BYTES as usize, 3);
    let mut copy = vec![0; BLOCK_BYTES];
    let (mut ours, mut floor) = (Numbers(1), Numbers(1));
    let count = 2000;
    let mut reads = || {
        time_ns(|| {
            for _ in 0..count {
                object.read(ours.below(blocks) * BLOCK_BYTES as u64, &mut buf)?;
            }
            Ok(())
        })
    };
    let alone: Vec<_> = (0..options.turns()).map(|_| reads()).collect::<Result<_>>()?;
    let alone = Spread::of(alone).median / count as f64;
    let pair = by_turns(options.turns(), count, reads, || {
        time_ns(|| {
            for _ in 0..count {
                let at = floor.below(blocks) as usize * BLOCK_BYTES;
                std::hint::black_box(&mut copy).copy_from_slice(&memory[at..at + BLOCK_BYTES]);
            }
            Ok(())
        })
    })?;
    drop((object, pool));
    place.remove("read")?;
    let name = format!("cached random read, 4096 B of {} MiB", CACHED_BYTES >> 20);
    let goal = Row {
        name: name.clone(),
        value: Some(alone),
        unit: "ns",
        goal: Some("at most 500 ns".to_owned()),
        met: Some(alone <= 500.0),
        medium: place.medium(),
        threads: 1,
        ..Row::default()
    };
    let beside = Row {
        name: format!("{name}, by turns with the copy"),
        value: Some(Spread::of(pair.a.clone()).median),
        unit: "ns",
        baseline: Some(format!("copy from scattered memory, {:.0} ns", Spread::of(pair.b.clone()).median)),
        medium: place.medium(),
        ..Row::ratio(pair.ratio(), None)
    };
    Ok(vec![goal, beside])
}

fn uncached(place: &Place, options: Options) -> Result<Row> {
    let len_bytes: u64 = if options.quick { 256 << 20 } else { 1 << 30 };
    // As good as no cache: less than one read in a hundred finds its block.
    let (pool, object) = filled(place, len_bytes, 1 << 20)?;
    let raw = place.written_file("read.raw", len_bytes)?;
    let blocks = len_bytes / BLOCK_BYTES as u64;
    let (mut ours, mut floor) = (Numbers(1), Numbers(2));
    let mut buf = vec![0; BLOCK_BYTES];
    let mut raw_buf = AlignedBuf::zeroed(BLOCK_BYTES, raw.info().memory_align_bytes.max(512));
    let count = 100;
    let pair = by_turns(
        options.turns() / 4,
        count,
        || time_ns(|| read_raw(&raw, count, &mut floor, blocks, &mut raw_buf)),
        || {
            time_ns(|| {
                for _ in 0..count {
                    object.read(ours.below(blocks) * BLOCK_BYTES as u64, &mut buf)?;
                }
                Ok(())
            })
        },
    )?;
    drop((object, pool, raw));
    place.remove("read")?;
    place.remove("read.raw")?;
    let per_second = |times: &[f64]| 1e9 / Spread::of(times.to_vec()).median;
    Ok(Row {
        name: format!("uncached random read, 4096 B of {} MiB", len_bytes >> 20),
        value: Some(per_second(&pair.b)),
        unit: "reads/s",
        baseline: Some(format!("pread, {:.0}", per_second(&pair.a))),
        medium: place.medium(),
        ..Row::ratio(pair.ratio(), Some((0.9, "at least")))
    })
}

fn read_raw(
    raw: &FileDevice,
    count: usize,
    numbers: &mut Numbers,
    blocks: u64,
    buf: &mut [u8],
) -> Result<()> {
    for _ in 0..count {
        raw.read_at(numbers.below(blocks) * BLOCK_BYTES as u64, buf)?;
    }
    Ok(())
}
