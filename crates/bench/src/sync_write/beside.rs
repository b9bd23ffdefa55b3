//! Small writes beside large ones with a flush after each, on one volume.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::stack::{Plan, Site, Stack, Writer};
use crate::error::{Result, wrong};
use crate::histogram::Histogram;
use crate::measure::Spread;
use crate::pool::noise;
use crate::{Options, Row};

const WRITES: u64 = 2000;
const LARGE_BYTES: usize = 1 << 20;

pub(super) fn row(site: &Site, options: Options) -> Result<Row> {
    let stack = Stack::new(site, "beside", &Plan { region_bytes: 1 << 30, ..Plan::default() })?;
    stack.warm()?;
    let mut small = Writer::new(&stack.volumes[0], 7);
    let large = noise(LARGE_BYTES, 8);
    let large_writes = AtomicU64::new(0);
    let (mut ratios, mut p99s) = (Vec::new(), (Vec::new(), Vec::new()));
    for _ in 0..if options.quick { 41 } else { 201 } {
        stack.settle()?;
        let alone = timed(&mut small)?.quantile(0.99) as f64;
        stack.settle()?;
        let is_done = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            let writes_large = scope.spawn(|| {
                let volume = &stack.volumes[0];
                let mut offset = 0;
                while !is_done.load(Ordering::Relaxed) {
                    volume.write(offset, &large, false)?;
                    volume.flush()?;
                    offset = (offset + LARGE_BYTES as u64) % volume.size_bytes();
                    large_writes.fetch_add(1, Ordering::Relaxed);
                }
                Result::<_>::Ok(())
            });
            let beside = timed(&mut small);
            is_done.store(true, Ordering::Relaxed);
            writes_large.join().map_err(|_| wrong("a writer panicked"))??;
            beside
        })?;
        let beside = beside.quantile(0.99) as f64;
        ratios.push(beside / alone);
        p99s.0.push(alone);
        p99s.1.push(beside);
    }
    let (alone, beside) = (Spread::of(p99s.0).median, Spread::of(p99s.1).median);
    let large_writes = large_writes.into_inner() as f64 / ratios.len() as f64;
    Ok(Row {
        name: format!(
            "p99 of 4 KiB with FUA beside 1 MiB + flush on the same volume ({large_writes:.1} in {WRITES} writes)"
        ),
        value: Some(beside),
        unit: "ns",
        baseline: Some(format!("alone, {alone:.0} ns")),
        medium: site.medium(),
        threads: 2,
        ..Row::ratio(Spread::of(ratios), Some((3.0, "at most")))
    })
}

fn timed(writer: &mut Writer<'_>) -> Result<Histogram> {
    let mut seen = Histogram::default();
    for _ in 0..WRITES {
        let since = Instant::now();
        writer.write_one()?;
        seen.add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(seen)
}
