//! A large txg, against the same bytes written by the plainest loop.

use super::place::{Place, noise, scattered, told_to, volume, write_one, write_through};
use crate::error::Result;
use crate::measure::{Spread, by_turns, time_ns};
use crate::{Options, Row};

pub(super) fn rows(place: &Place, options: Options) -> Result<Vec<Row>> {
    [(4096, 0.5), (128 << 10, 0.85)]
        .into_iter()
        .map(|(block_bytes, goal)| one_size(place, options, block_bytes, goal))
        .collect()
}

fn one_size(place: &Place, options: Options, block_bytes: u64, goal: f64) -> Result<Row> {
    let len_bytes: u64 = if options.quick { 256 << 20 } else { 1 << 30 };
    let raw = place.written_file("sync.raw", len_bytes)?;
    // Room for two txgs and the metadata, for which each block reserves as much again as for 8 KiB of data
    // until it has synced; dirty data of one txg must not start another one by itself.
    let pool = place.pool("sync.pool", len_bytes * 5 + (128 << 20), told_to(len_bytes * 5))?;
    let object = volume(&pool, "sync", block_bytes)?;
    let block = noise(block_bytes as usize, 3);
    let pair = by_turns(
        if options.quick { 3 } else { 7 },
        1,
        || time_ns(|| write_through(&raw, len_bytes)),
        || {
            for at in scattered(len_bytes / block_bytes) {
                write_one(&pool, &object, at * block_bytes, &block)?;
            }
            time_ns(|| Ok(pool.sync()?))
        },
    )?;
    let mib_per_s =
        |times: &[f64]| len_bytes as f64 / 1_048_576.0 / (Spread::of(times.to_vec()).median / 1e9);
    let row = Row {
        name: format!("txg sync of {} MiB in dirty blocks of {block_bytes} B", len_bytes >> 20),
        value: Some(mib_per_s(&pair.b)),
        unit: "MiB/s",
        baseline: Some(format!("sequential pwrite of 1 MiB + fdatasync, {:.0} MiB/s", mib_per_s(&pair.a))),
        medium: place.medium(),
        ..Row::ratio(pair.ratio(), Some((goal, "at least")))
    };
    drop((object, pool, raw));
    place.remove("sync.pool")?;
    place.remove("sync.raw")?;
    Ok(row)
}
