//! One thread, one volume: against the floor, against `sync=disabled`, and against waiting for txgs.

use fastness_pmem::WriteMethod;
use fastness_prb::Alignment;
use fastness_store::{LogData, PoolOptions};

use super::stack::{BLOCK_BYTES, LogKind, Plan, Site, Stack, Writer};
use crate::error::Result;
use crate::measure::{Pair, Spread, by_turns, time_ns};
use crate::medium::{cut, emulated_pm};
use crate::prb::work::{CHUNKS, Floor, REGION_BYTES};
use crate::{Options, Row};

/// Writes of a turn: about a millisecond.
const WRITES: u64 = 500;
/// Turns between two syncs.
const TURNS_PER_SYNC: u64 = 16;
/// Writes of a turn without a log.
const SLOW_WRITES: u64 = 10;
/// Bytes of a record's head, before the data.
const HEAD_BYTES: u64 = 64;

/// Turns of one writer, with a sync after every 16th that is in no figure.
pub(super) struct Turns<'a> {
    stack: &'a Stack,
    writer: Writer<'a>,
    writes: u64,
    count: u64,
}

impl<'a> Turns<'a> {
    pub(super) fn new(stack: &'a Stack, volume: usize) -> Self {
        Self::of_bytes(stack, volume, BLOCK_BYTES)
    }

    fn of_bytes(stack: &'a Stack, volume: usize, write_bytes: u64) -> Self {
        let writer = Writer::of_bytes(&stack.volumes[volume], volume as u64 + 2, write_bytes);
        Self { stack, writer, writes: writes(write_bytes), count: 0 }
    }

    pub(super) fn turn(&mut self) -> Result<f64> {
        if self.count.is_multiple_of(TURNS_PER_SYNC) {
            self.stack.settle()?;
        }
        self.count += 1;
        time_ns(|| self.writer.write(self.writes))
    }
}

/// Writes of a turn.
fn writes(write_bytes: u64) -> u64 {
    (WRITES * BLOCK_BYTES / write_bytes).max(50)
}

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let plan = Plan { volumes: 2, ..Plan::default() };
    let both = Stack::new(site, "one", &plan)?;
    let pm = Stack::new(site, "one-copy", &Plan { log_data: LogData::Pm, ..plan })?;
    for stack in [&both, &pm] {
        stack.disable(1)?;
        stack.warm()?;
    }
    let mut rows = Vec::new();
    for (stack, log_data, goals) in [(&both, "both", (3.0, 0.6)), (&pm, "pm", (2.0, 0.9))] {
        rows.push(against_floor(
            site,
            options,
            stack,
            &format!("4 KiB with FUA, logdata={log_data}"),
            BLOCK_BYTES,
            goals.0,
        )?);
        rows.push(against_disabled(site, options, stack, log_data, goals.1)?);
    }
    for (stack, log_data) in [(&both, "both"), (&pm, "pm")] {
        rows.push(against_floor(
            site,
            options,
            stack,
            &format!("64 KiB with FUA, logdata={log_data}"),
            64 << 10,
            1.5,
        )?);
    }
    rows.push(one_copy(site, options, &pm, &both)?);
    rows.push(against_txgs(site, options)?);
    Ok(rows)
}

fn note_fallbacks(stack: &Stack) -> String {
    match stack.fallbacks() {
        0 => String::new(),
        count => format!(" ({count} writes waited for a txg)"),
    }
}

fn against_floor(
    site: &Site,
    options: Options,
    stack: &Stack,
    what: &str,
    write_bytes: u64,
    goal: f64,
) -> Result<Row> {
    let mut logged = Turns::of_bytes(stack, 0, write_bytes);
    let mut floor = Floor::new(cut(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?);
    let entry = vec![0xa5; (HEAD_BYTES + write_bytes) as usize];
    let count = writes(write_bytes) as usize;
    let of_floor = || floor.turn(&entry, Alignment::Optane, count);
    let pair = by_turns(options.turns(), count, || logged.turn(), of_floor)?;
    Ok(Row {
        name: format!("write {what}, kind pmem{}", note_fallbacks(stack)),
        value: Some(median(&pair.a)),
        unit: "ns",
        baseline: Some(format!("floor, {:.0} ns", median(&pair.b))),
        medium: site.medium(),
        ..Row::ratio(pair.ratio(), Some((goal, "at most")))
    })
}

fn against_disabled(site: &Site, options: Options, stack: &Stack, log_data: &str, goal: f64) -> Result<Row> {
    let (mut logged, mut disabled) = (Turns::new(stack, 0), Turns::new(stack, 1));
    let pair = by_turns(options.turns(), WRITES as usize, || logged.turn(), || disabled.turn())?;
    Ok(Row {
        name: format!("4 KiB, logdata={log_data}, beside sync=disabled (upper bound)"),
        value: Some(median(&pair.a)),
        unit: "ns",
        baseline: Some(format!("sync=disabled, {:.0} ns; writes a second", median(&pair.b))),
        medium: site.medium(),
        ..Row::ratio(swapped(&pair).ratio(), Some((goal, "at least")))
    })
}

/// What one copy saves; and what the sync that reads it back from the log costs.
fn one_copy(site: &Site, options: Options, pm: &Stack, both: &Stack) -> Result<Row> {
    let (mut one, mut two) = (Turns::new(pm, 0), Turns::new(both, 0));
    let pair = by_turns(options.turns(), WRITES as usize, || one.turn(), || two.turn())?;
    Ok(Row {
        name: "4 KiB, logdata=pm beside logdata=both".to_owned(),
        value: Some(median(&pair.a)),
        unit: "ns",
        baseline: Some(format!("both, {:.0} ns", median(&pair.b))),
        medium: site.medium(),
        ..Row::ratio(pair.ratio(), None)
    })
}

/// Beside a volume whose writes wait for their txgs, in a pool whose txgs run as they do in use.
fn against_txgs(site: &Site, options: Options) -> Result<Row> {
    let plan = Plan { pool: PoolOptions::default(), ..Plan::default() };
    let with = Stack::new(site, "with", &plan)?;
    let without = Stack::new(site, "without", &Plan { kind: LogKind::Txg, ..plan })?;
    with.warm()?;
    let (mut logged, mut waiting) = (Writer::new(&with.volumes[0], 5), Writer::of_txgs(&without, 6));
    let each = |count: u64, ns: f64| ns / count as f64;
    let pair = by_turns(
        if options.quick { 21 } else { 101 },
        1,
        || Ok(each(WRITES, time_ns(|| logged.write(WRITES))?)),
        || Ok(each(SLOW_WRITES, time_ns(|| waiting.write(SLOW_WRITES))?)),
    )?;
    Ok(Row {
        name: "the same beside the txgs of a pool, and a volume whose writes wait for them".to_owned(),
        value: Some(median(&pair.a)),
        unit: "ns",
        baseline: Some(format!("txgs, {:.0} us; writes a second", median(&pair.b) / 1e3)),
        medium: site.medium(),
        ..Row::ratio(swapped(&pair).ratio(), None)
    })
}

pub(crate) fn median(values: &[f64]) -> f64 {
    Spread::of(values.to_vec()).median
}

/// For a ratio of rates in place of times.
pub(crate) fn swapped(pair: &Pair) -> Pair {
    Pair { a: pair.b.clone(), b: pair.a.clone() }
}
