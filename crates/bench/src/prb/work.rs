//! The two jobs that are compared: writing entries, and the floor under it.

use std::sync::Arc;
use std::time::Instant;

use fastness_pmem::{Medium, NoSum, PmRange};
use fastness_prb::{Alignment, Config, HEADER_BYTES, Hdl, HdlHeader, Prb, Txg, Wait};

use crate::error::Result;
use crate::measure::time_ns;

/// Bytes of a region, which two sides share: beyond every cache but the largest.
pub(crate) const REGION_BYTES: usize = 256 << 20;
/// Chunks of each side.
pub(crate) const CHUNKS: usize = 16;

/// The default configuration, without the read-back at collection: collection is not what is timed here.
pub(super) fn config() -> Config {
    Config { verify_collected: false, ..Config::default() }
}

/// Entries of one turn: about a millisecond's.
pub(super) fn entries_per_turn(body_bytes: usize) -> usize {
    ((8 << 20) / (body_bytes + 2 * HEADER_BYTES)).min(2000)
}

/// A log that is ready to be written.
pub(super) fn new_log(prb: &Arc<Prb<PmRange>>) -> Result<Hdl<PmRange>> {
    let mut hdl = prb.setup_hdl(&HdlHeader::NoZil)?;
    // There is no owner that could lose the header: the log ends with the benchmark.
    let _update = hdl.create_log()?;
    hdl.header_synced()?;
    Ok(hdl)
}

/// A log that is written and collected by turns.
pub(super) struct Writer {
    prb: Arc<Prb<PmRange>>,
    hdl: Hdl<PmRange>,
    txg: u64,
}

impl Writer {
    pub(super) fn new(config: Config, chunks: Vec<PmRange>) -> Result<Self> {
        let prb = Prb::format(config, chunks)?;
        let hdl = new_log(&prb)?;
        Ok(Self { prb, hdl, txg: 0 })
    }

    /// Writes entries as ZIL-PMEM does, each in a generation of its own; returns the ns that it took. The
    /// collection after it is not in the figure: it belongs to the thread that syncs txgs.
    pub(super) fn turn(&mut self, body: &[u8], count: usize) -> Result<f64> {
        self.txg += 1;
        let txg = Txg(self.txg);
        let ns = time_ns(|| {
            for _ in 0..count {
                self.hdl.write_dependent_entry(txg, body, Wait::Fail)?;
            }
            Ok(())
        })?;
        self.prb.collect(txg)?;
        Ok(ns)
    }

    /// Latency of single entries in ns, clock included: median and 99th percentile.
    pub(super) fn percentiles(&mut self, body: &[u8], count: usize) -> Result<(f64, f64)> {
        self.txg += 1;
        let mut latencies = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.hdl.write_dependent_entry(Txg(self.txg), body, Wait::Fail)?;
            latencies.push(start.elapsed().as_nanos() as u64);
        }
        self.prb.collect(Txg(self.txg))?;
        latencies.sort_unstable();
        Ok((latencies[count / 2] as f64, latencies[count * 99 / 100] as f64))
    }
}

/// The floor: the bytes and the two fences of an entry, one after the other through its ranges.
pub(crate) struct Floor {
    ranges: Vec<PmRange>,
    current: usize,
    position: usize,
}

impl Floor {
    pub(crate) fn new(ranges: Vec<PmRange>) -> Self {
        Self { ranges, current: 0, position: 0 }
    }

    pub(crate) fn turn(&mut self, body: &[u8], alignment: Alignment, count: usize) -> Result<f64> {
        let padded = body.len().next_multiple_of(alignment.bytes());
        let header = [0x5a; HEADER_BYTES];
        time_ns(|| {
            for _ in 0..count {
                if self.position + HEADER_BYTES + padded + HEADER_BYTES
                    > self.ranges[self.current].len_bytes()
                {
                    self.position = 0;
                    self.current = (self.current + 1) % self.ranges.len();
                }
                let range = &mut self.ranges[self.current];
                // PERSIST: the floor has the fences of an insertion, so that the ratio is the log's own cost.
                range.copy(self.position + HEADER_BYTES, body, padded + HEADER_BYTES, &mut NoSum);
                range.fence()?;
                range.copy(self.position, &header, HEADER_BYTES, &mut NoSum);
                range.fence()?;
                self.position += HEADER_BYTES + padded;
            }
            Ok(())
        })
    }
}
