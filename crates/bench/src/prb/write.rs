//! One thread, one log: an entry against the same bytes and fences without a log.

use std::sync::Arc;

use fastness_pmem::{Medium, NoSum, PmRange, WriteMethod};
use fastness_prb::{
    Alignment, ChecksumKind, Config, HEADER_BYTES, Hdl, HdlHeader, Insertion, Prb, Txg, Wait,
};

use crate::measure::{by_turns, time_ns};
use crate::medium::{cut, emulated_pm, medium_name};
use crate::{Options, Row};

/// Bytes of each region: beyond every cache but the largest.
const REGION_BYTES: usize = 256 << 20;

/// A log that is written and collected by turns.
pub(crate) struct Writer {
    pub(crate) prb: Arc<Prb<PmRange>>,
    pub(crate) hdl: Hdl<PmRange>,
    txg: u64,
}

impl Writer {
    pub(crate) fn new(config: Config, chunks: Vec<PmRange>) -> anyhow::Result<Self> {
        let prb = Prb::format(config, chunks)?;
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil)?;
        let _update = hdl.create_log()?;
        hdl.header_synced()?;
        Ok(Self { prb, hdl, txg: 1 })
    }

    /// Writes entries as ZIL-PMEM does, each in a generation of its own; the time of the collection behind it
    /// is not in the figure (it belongs to the thread that syncs).
    pub(crate) fn turn(&mut self, body: &[u8], count: usize) -> anyhow::Result<f64> {
        let txg = Txg(self.txg);
        let ns = time_ns(|| {
            for _ in 0..count {
                self.hdl.write_dependent_entry(txg, body, Wait::Fail)?;
            }
            Ok(())
        })?;
        self.prb.collect(txg)?;
        self.txg += 1;
        Ok(ns)
    }
}

/// The floor: the bytes and fences of an entry, one after the other through a region.
pub(crate) struct Floor {
    range: PmRange,
    position: usize,
    alignment: Alignment,
    fences: usize,
}

impl Floor {
    pub(crate) fn new(range: PmRange, alignment: Alignment, insertion: Insertion) -> Self {
        let fences = if insertion == Insertion::TwoFences { 2 } else { 1 };
        Self { range, position: 0, alignment, fences }
    }

    pub(crate) fn turn(&mut self, body: &[u8], count: usize) -> anyhow::Result<f64> {
        let padded = body.len().next_multiple_of(self.alignment.bytes());
        let header = [0x5a; HEADER_BYTES];
        time_ns(|| {
            for _ in 0..count {
                if self.position + HEADER_BYTES + padded + HEADER_BYTES > self.range.len_bytes() {
                    self.position = 0;
                }
                self.range.copy(self.position + HEADER_BYTES, body, padded + HEADER_BYTES, &mut NoSum);
                if self.fences == 2 {
                    self.range.fence()?;
                }
                self.range.copy(self.position, &header, HEADER_BYTES, &mut NoSum);
                self.range.fence()?;
                self.position += HEADER_BYTES + padded;
            }
            Ok(())
        })
    }
}

pub(crate) fn bench_config() -> Config {
    Config { verify_collected: false, ..Config::default() }
}

pub(crate) fn rows(options: Options) -> anyhow::Result<Vec<Row>> {
    let turns = if options.quick { 15 } else { 61 };
    let mut rows = Vec::new();
    let mut floor_range = Some(emulated_pm(REGION_BYTES, WriteMethod::Auto)?);
    for (body_bytes, goal) in [(4096, 1.15), (256, 1.4)] {
        for checksum in ChecksumKind::ALL {
            for insertion in [Insertion::TwoFences, Insertion::OneFence] {
                if insertion == Insertion::OneFence && !checksum.is_strong() {
                    continue;
                }
                let body = vec![0xa5; body_bytes];
                let count = (32 << 20) / (body_bytes + 512);
                let config = Config { checksum, insertion, ..bench_config() };
                let chunks = cut(emulated_pm(REGION_BYTES, WriteMethod::Auto)?, 16)?;
                let mut writer = Writer::new(config.clone(), chunks)?;
                let range = floor_range.take().expect("put back below");
                let mut floor = Floor::new(range, config.alignment, Insertion::TwoFences);
                let pair = by_turns(turns, count, || writer.turn(&body, count), || floor.turn(&body, count))?;
                floor_range = Some(floor.range);
                let (ratio, value) = (pair.ratio(), crate::measure::Spread::of(pair.a.clone()));
                let base = crate::measure::Spread::of(pair.b.clone());
                rows.push(Row {
                    name: format!("write entry, {body_bytes} B, {}, {insertion:?}", checksum.name()),
                    value: value.median,
                    unit: "ns",
                    ratio: Some(ratio.median),
                    ratio_interval: Some([ratio.low, ratio.high]),
                    baseline: Some(format!("floor {:.0} ns", base.median)),
                    goal: Some(format!("<= {goal}")),
                    met: Some(ratio.median <= goal),
                    medium: medium_name(),
                    threads: 1,
                    ..Row::default()
                });
            }
        }
    }
    Ok(rows)
}
