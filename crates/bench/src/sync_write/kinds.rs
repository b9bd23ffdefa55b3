//! The kinds of logs against each other, on the same medium; and kind pmem by way of the commit list.

use super::one::median;
use super::stack::{LogKind, Plan, Site, Stack};
use super::threads::{numbers_of_threads, turn};
use crate::error::Result;
use crate::measure::by_turns;
use crate::{Options, Row};

/// Writes of a turn of the slower kind, of all threads together.
const LWB_WRITES: u64 = 2_000;
const PMEM_WRITES: u64 = 16_000;

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let plan = Plan { volumes: 8, volume_bytes: 32 << 20, ..Plan::default() };
    let pmem = Stack::new(site, "pmem", &plan)?;
    pmem.warm()?;
    let lwb = Stack::new(site, "lwb", &Plan { kind: LogKind::LwbInMemory, ..plan.clone() })?;
    lwb.warm()?;
    let listed = Stack::new(site, "listed", &Plan { has_bypass: false, ..plan })?;
    listed.warm()?;
    let turns = if options.quick { 9 } else { 61 };
    let (mut seed, mut other) = (0, 50);
    let mut rows = Vec::new();
    for (volumes, name) in [(1, "one volume"), (8, "one volume each")] {
        for &threads in numbers_of_threads(options) {
            if threads == 1 && volumes > 1 {
                continue;
            }
            let pair = by_turns(
                turns,
                1,
                || Ok(turn(&lwb, threads, volumes, LWB_WRITES, &mut seed)? / LWB_WRITES as f64),
                || Ok(turn(&pmem, threads, volumes, PMEM_WRITES, &mut other)? / PMEM_WRITES as f64),
            )?;
            let waits = lwb.fallbacks();
            let waited =
                if waits > 0 { format!(" ({waits} writes waited for a txg)") } else { String::new() };
            rows.push(Row {
                name: format!("kind pmem, {threads} threads, {name}"),
                value: Some(1e9 / median(&pair.b)),
                unit: "writes/s",
                baseline: Some(format!("kind lwb, {:.0}{waited}", 1e9 / median(&pair.a))),
                medium: site.medium(),
                threads,
                ..Row::ratio(pair.ratio(), (threads == 1).then_some((5.0, "at least")))
            });
        }
    }
    let pair = by_turns(
        turns,
        PMEM_WRITES as usize,
        || turn(&listed, 1, 1, PMEM_WRITES, &mut seed),
        || turn(&pmem, 1, 1, PMEM_WRITES, &mut other),
    )?;
    rows.push(Row {
        name: "kind pmem, 1 thread, with the ITXG bypass".to_owned(),
        value: Some(1e9 / median(&pair.b)),
        unit: "writes/s",
        baseline: Some(format!("without, {:.0}", 1e9 / median(&pair.a))),
        medium: site.medium(),
        threads: 1,
        ..Row::ratio(pair.ratio(), None)
    });
    Ok(rows)
}
