//! One thread, one volume: against the floor, against `sync=disabled`, and against waiting for txgs.

use fastness_pmem::WriteMethod;
use fastness_prb::Alignment;
use fastness_store::PoolOptions;

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
    count: u64,
}

impl<'a> Turns<'a> {
    pub(super) fn new(stack: &'a Stack, volume: usize) -> Self {
        Self { stack, writer: Writer::new(&stack.volumes[volume], volume as u64 + 2), count: 0 }
    }

    pub(super) fn turn(&mut self) -> Result<f64> {
        if self.count.is_multiple_of(TURNS_PER_SYNC) {
            self.stack.settle()?;
        }
        self.count += 1;
        time_ns(|| self.writer.write(WRITES))
    }
}

pub(super) fn rows(site: &Site, options: Options) -> Result<Vec<Row>> {
    let stack = Stack::new(site, "one", &Plan { volumes: 2, ..Plan::default() })?;
    stack.disable(1)?;
    stack.warm()?;
    let turns = options.turns();
    let row =
        |name: &str, ratio: Row| Row { name: name.to_owned(), unit: "ns", medium: site.medium(), ..ratio };

    let mut logged = Turns::new(&stack, 0);
    let mut floor = Floor::new(cut(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, CHUNKS)?);
    let entry = vec![0xa5; (HEAD_BYTES + BLOCK_BYTES) as usize];
    let of_floor = || floor.turn(&entry, Alignment::Optane, WRITES as usize);
    let to_floor = by_turns(turns, WRITES as usize, || logged.turn(), of_floor)?;
    let mut disabled = Turns::new(&stack, 1);
    let to_disabled = by_turns(turns, WRITES as usize, || logged.turn(), || disabled.turn())?;
    let fallbacks = match stack.fallbacks() {
        0 => String::new(),
        count => format!(" ({count} writes waited for a txg)"),
    };
    drop((logged, disabled));
    let mut rows = vec![
        Row {
            value: Some(median(&to_floor.a)),
            baseline: Some(format!("floor, {:.0} ns", median(&to_floor.b))),
            ..row(
                &format!("write 4 KiB with FUA, kind pmem{fallbacks}"),
                Row::ratio(to_floor.ratio(), Some((3.0, "at most"))),
            )
        },
        Row {
            value: Some(median(&to_disabled.a)),
            baseline: Some(format!("sync=disabled, {:.0} ns; writes a second", median(&to_disabled.b))),
            ..row(
                "the same with sync=disabled (upper bound)",
                Row::ratio(swapped(&to_disabled).ratio(), Some((0.6, "at least"))),
            )
        },
    ];
    rows.push(against_txgs(site, options)?);
    Ok(rows)
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
