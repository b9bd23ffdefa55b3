//! One thread, one log: an entry against the same bytes and fences without a log.

use fastness_pmem::{OpenOptions, PmRange, Protection, WriteMethod, protection_keys_available};
use fastness_prb::{ChecksumKind, Config, Insertion};

use super::work::{CHUNKS, Floor, REGION_BYTES, Writer, config, entries_per_turn};
use crate::error::Result;
use crate::measure::{Spread, by_turns};
use crate::medium::{cut, emulated_pm, emulated_pm_with, medium_name, two_sides};
use crate::{Options, Row};

pub(super) fn goals(options: Options) -> Result<Vec<Row>> {
    let turns = options.turns();
    let mut rows = Vec::new();
    for (body_bytes, goal) in [(4096, 1.15), (256, 1.4)] {
        for checksum in ChecksumKind::ALL {
            let goal = (checksum == Config::default().checksum).then_some(goal);
            let config = Config { checksum, ..config() };
            rows.push(against_floor(config, body_bytes, turns, goal)?);
        }
        let one_fence = Config { checksum: ChecksumKind::Xxh3, insertion: Insertion::OneFence, ..config() };
        rows.push(against_floor(one_fence, body_bytes, turns, None)?);
    }
    Ok(rows)
}

/// One row: a configuration against the floor with the same alignment.
pub(super) fn against_floor(
    config: Config,
    body_bytes: usize,
    turns: usize,
    goal: Option<f64>,
) -> Result<Row> {
    let body = vec![0xa5; body_bytes];
    let count = entries_per_turn(body_bytes);
    let (chunks, under) = two_sides(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?;
    let mut writer = Writer::new(config.clone(), chunks)?;
    let mut floor = Floor::new(under);
    let pair =
        by_turns(turns, count, || writer.turn(&body, count), || floor.turn(&body, config.alignment, count))?;
    let (p50, p99) = writer.percentiles(&body, count)?;
    let (entry, floor, ratio) = (Spread::of(pair.a.clone()), Spread::of(pair.b.clone()), pair.ratio());
    let fences = if config.insertion == Insertion::OneFence { ", one fence" } else { "" };
    Ok(Row {
        name: format!("write entry, {body_bytes} B, {}{fences}", config.checksum.name()),
        value: Some(entry.median),
        unit: "ns",
        baseline: Some(format!("floor, {:.0} ns", floor.median)),
        p50_ns: Some(p50),
        p99_ns: Some(p99),
        ..Row::ratio(ratio, goal.map(|goal| (goal, "at most")))
    })
}

/// Scribble protection on against off.
pub(super) fn protection(options: Options) -> Result<Row> {
    let name = "scribble protection on, 4096 B".to_owned();
    if let Err(refusal) = protection_keys_available() {
        return Ok(Row {
            name: format!("{name}: not measured, {refusal}"),
            medium: medium_name(),
            threads: 1,
            ..Row::default()
        });
    }
    let (turns, body, count) = (options.turns(), [0xa5; 4096], entries_per_turn(4096));
    let region = |protection| -> Result<Vec<PmRange>> {
        cut(emulated_pm_with(REGION_BYTES, &OpenOptions::new().protection(protection))?, CHUNKS)
    };
    let mut on = Writer::new(config(), region(Protection::Keys)?)?;
    let mut off = Writer::new(config(), region(Protection::None)?)?;
    let pair = by_turns(turns, count, || on.turn(&body, count), || off.turn(&body, count))?;
    let (with, without) = (Spread::of(pair.a.clone()), Spread::of(pair.b.clone()));
    Ok(Row {
        name,
        value: Some(with.median),
        unit: "ns",
        baseline: Some(format!("off, {:.0} ns", without.median)),
        ..Row::ratio(pair.ratio(), Some((1.15, "at most")))
    })
}
