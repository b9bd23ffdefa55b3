//! How FR reacts to its period, to the size of PM, and to the number of files.
//!
//! Source: figures 21 and 25 of the dissertation.

use std::time::Duration;

use fastness_responder::ProtocolKind;

use super::cached::Cached;
use super::mix::{Behind, PERIOD, REGION_BYTES, kinds, round};
use crate::Row;
use crate::error::Result;
use crate::folder::Folder;
use crate::measure::{by_turns, in_parallel};
use crate::pool::{Numbers, noise};
use crate::sync_write::one::{median, swapped};

const TURNS: usize = 5;

pub(super) fn rows(folder: &Folder) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for micros in [100, 1_000, 100_000] {
        let period = Duration::from_micros(micros);
        rows.push(mixes(folder, &format!("flushed every {period:?}"), (REGION_BYTES, period))?);
    }
    for divisor in [2, 4, 8] {
        let name = format!("PM divided by {divisor}");
        rows.push(mixes(folder, &name, (REGION_BYTES / divisor, PERIOD))?);
    }
    for files in [10, 100, 1000] {
        rows.push(many(folder, files)?);
    }
    Ok(rows)
}

/// A changed cache against the usual one, under the light mix.
fn mixes(folder: &Folder, name: &str, (region_bytes, period): (usize, Duration)) -> Result<Row> {
    let kinds = kinds();
    let usual = Cached::new(folder, "usual", (ProtocolKind::Fr, REGION_BYTES), Some(PERIOD))?;
    let changed = Cached::new(folder, "changed", (ProtocolKind::Fr, region_bytes), Some(period))?;
    let (of_usual, of_changed) = (Behind::new(&usual, &kinds)?, Behind::new(&changed, &kinds)?);
    let turn = |target: &Behind<'_>| round(&kinds, target, 6, 4, 1);
    let pair = by_turns(TURNS, 1, || turn(&of_changed), || turn(&of_usual))?;
    let forced = changed.cache.status()?.forced_flushes;
    of_usual.close()?;
    of_changed.close()?;
    Ok(Row {
        name: format!("FR, light mix, {name}: bytes a second ({forced} forced flushes)"),
        value: Some(1e9 / median(&pair.a)),
        unit: "MiB/s",
        baseline: Some("256 MiB of PM, flushed every 10ms".to_owned()),
        threads: 6,
        ..Row::ratio(swapped(&pair).ratio(), None)
    })
}

/// Overwrites of 4 KiB in many files against one of the same length in all.
fn many(folder: &Folder, files: u64) -> Result<Row> {
    const ALL_BYTES: u64 = 128 << 20;
    const WRITES: u64 = 20_000;
    let data = noise(4096, 3);
    let sides: Vec<(u64, &str)> = vec![(files, "many"), (1, "single")];
    let mut caches = Vec::new();
    for (count, name) in &sides {
        let cached = Cached::new(folder, name, (ProtocolKind::Fr, REGION_BYTES), Some(PERIOD))?;
        let len = ALL_BYTES / count / 4096 * 4096;
        let open = (0..*count).map(|file| cached.file(&file.to_string(), len)).collect::<Result<Vec<_>>>()?;
        caches.push((cached, open, len));
    }
    let turn = |side: usize| -> Result<f64> {
        let (cached, open, len) = &caches[side];
        let work = |thread: usize| -> Result<()> {
            let mut numbers = Numbers(thread as u64);
            for _ in 0..WRITES / 2 {
                let file = &open[numbers.below(open.len() as u64) as usize];
                cached.cache.write(file, numbers.below(len / 4096) * 4096, &data)?;
            }
            Ok(())
        };
        Ok(in_parallel(0..2, work)?.wall / WRITES as f64)
    };
    let pair = by_turns(TURNS, 1, || turn(0), || turn(1))?;
    let forced = caches[0].0.cache.status()?.forced_flushes;
    for (cached, open, _) in caches {
        cached.cache.flush()?;
        for file in open {
            cached.cache.close(file)?;
        }
    }
    Ok(Row {
        name: format!("FR, 2 threads, {files} files: 4 KiB overwrites a second ({forced} forced flushes)"),
        value: Some(median(&pair.a)),
        unit: "ns",
        baseline: Some(format!("1 file, {:.0} ns", median(&pair.b))),
        threads: 2,
        ..Row::ratio(swapped(&pair).ratio(), None)
    })
}
