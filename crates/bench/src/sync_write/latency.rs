//! Latency of single writes, and its parts.
//!
//! The parts are those of the thesis' figure 7.6. *async*: the write under `sync=disabled`. *log*: what the
//! PRB takes inside of the logged writes, by its own sample of one entry in 64 (up to the return of the last
//! fence). *itx*: the rest: the record, the locks that order it, the release of the commit slot, what a write
//! with FUA does after it.

use std::time::Instant;

use super::stack::{Plan, Site, Stack, Writer};
use crate::error::{Result, wrong};
use crate::histogram::Histogram;
use crate::{Options, Row};

const SHARES: [(&str, f64); 5] =
    [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];
const WRITES: u64 = 1000;

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let stack = Stack::new(site, "latency", &Plan { volumes: 2, ..Plan::default() })?;
    stack.disable(1)?;
    stack.warm()?;
    let log = stack.store.log().ok_or_else(|| wrong("kind pmem has a log"))?;
    let medium_stats = || log.medium_stats().ok_or_else(|| wrong("kind pmem has them"));
    let before = medium_stats()?;
    let (mut logged, mut disabled) = (Histogram::default(), Histogram::default());
    let mut writers = [Writer::new(&stack.volumes[0], 3), Writer::new(&stack.volumes[1], 4)];
    for turn in 0..options.turns() {
        if turn % 8 == 0 {
            stack.settle()?;
        }
        timed(&mut writers[0], &mut logged)?;
        timed(&mut writers[1], &mut disabled)?;
    }
    let after = medium_stats()?;
    let in_log =
        (after.timed_ns - before.timed_ns) as f64 / (after.timed_entries - before.timed_entries) as f64;
    let mut rows = vec![breakdown(site, &logged, &disabled, in_log)];
    rows.extend(SHARES.map(|(name, share)| Row {
        name: format!("latency of a write with FUA, {name} of {}", logged.count()),
        value: Some(logged.quantile(share) as f64),
        unit: "ns",
        ratio: Some(logged.quantile(share) as f64 / disabled.quantile(share) as f64),
        baseline: Some(format!("sync=disabled, {} ns", disabled.quantile(share))),
        medium: site.medium(),
        threads: 1,
        ..Row::default()
    }));
    Ok(rows)
}

fn timed(writer: &mut Writer<'_>, into: &mut Histogram) -> Result<()> {
    for _ in 0..WRITES {
        let since = Instant::now();
        writer.write_one()?;
        into.add(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// By medians: on a machine with other work, means depend on which thread the kernel preempted.
fn breakdown(site: &Site, logged: &Histogram, disabled: &Histogram, in_log: f64) -> Row {
    let (all, plain) = (logged.quantile(0.5) as f64, disabled.quantile(0.5) as f64);
    let itx = (all - plain - in_log).max(0.0);
    Row {
        name: format!(
            "where a write with FUA spends its time: async {plain:.0} + itx {itx:.0} + log {in_log:.0} ns"
        ),
        value: Some(all),
        unit: "ns",
        p50_ns: Some(logged.quantile(0.5) as f64),
        p99_ns: Some(logged.quantile(0.99) as f64),
        parts: vec![("async", plain), ("itx", itx), ("log", in_log)],
        medium: site.medium(),
        threads: 1,
        ..Row::default()
    }
}
