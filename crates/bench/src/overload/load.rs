//! Writers on a modelled device: through a gate, or as entries of a PM log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastness_pmem::gate::Gate;
use fastness_pmem::model::{DeviceModel, Modelled, Node};
use fastness_pmem::{PmRange, WriteMethod};
use fastness_prb::{Config, Hdl, HdlHeader, Prb, Txg, Wait};

use crate::error::Result;
use crate::measure::{Cost, in_parallel};
use crate::medium::{cut, emulated_pm};

const RANGE_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 1 << 20;

/// Something that one thread writes, again and again.
pub(super) trait Writer: Send {
    /// Writes the next block, durably.
    fn write(&mut self, block: &[u8]) -> Result<()>;
}

/// A range of its own, and a gate that all of them share.
pub(super) struct Gated {
    medium: Modelled<PmRange>,
    gate: Arc<Gate>,
    at: usize,
}

impl Writer for Gated {
    fn write(&mut self, block: &[u8]) -> Result<()> {
        if self.at + block.len() > RANGE_BYTES {
            self.at = 0;
        }
        self.gate.write_pm(&mut self.medium, self.at, block)?;
        self.at += block.len();
        Ok(())
    }
}

/// So many writers that pass through `gate`.
pub(super) fn gated(
    writers: usize,
    gate: &Arc<Gate>,
    device: &Arc<DeviceModel>,
    node: Node,
) -> Result<Vec<Gated>> {
    let ranges = cut(emulated_pm(writers * RANGE_BYTES, WriteMethod::Auto)?, writers)?;
    let of = |range| Gated { medium: Modelled::new(range, device.clone(), node), gate: gate.clone(), at: 0 };
    Ok(ranges.into_iter().map(of).collect())
}

/// A log of its own on a PRB that all of them share. Its chunks are emptied when they are full: by its
/// writer, once it is the only one that has entries of a txg.
pub(super) struct Logged {
    prb: Arc<Prb<Modelled<PmRange>>>,
    hdl: Hdl<Modelled<PmRange>>,
    written_bytes: usize,
    txg: u64,
}

impl Writer for Logged {
    fn write(&mut self, block: &[u8]) -> Result<()> {
        self.hdl.write_dependent_entry(Txg(self.txg), block, Wait::Fail)?;
        self.written_bytes += block.len();
        Ok(())
    }
}

/// So many writers with as many commit slots as `slots` says, and room for `bytes` of each.
pub(super) fn logged(
    writers: usize,
    slots: u32,
    device: &Arc<DeviceModel>,
    node: Node,
    bytes: usize,
) -> Result<Vec<Logged>> {
    // A third more for headers and for the ends of chunks, and an open chunk for each slot.
    let chunks = writers * bytes * 4 / 3 / CHUNK_BYTES + 2 * slots as usize + 2;
    let ranges = cut(emulated_pm(chunks * CHUNK_BYTES, WriteMethod::Auto)?, chunks)?;
    let media = ranges.into_iter().map(|range| Modelled::new(range, device.clone(), node)).collect();
    let config = Config { ncommitters: slots, verify_collected: false, ..Config::default() };
    let prb = Prb::format(config, media)?;
    let log = |_| {
        let mut hdl = prb.setup_hdl(&HdlHeader::NoZil)?;
        // There is no owner that could lose the header: the log ends with the benchmark.
        let _update = hdl.create_log()?;
        hdl.header_synced()?;
        Ok(Logged { prb: prb.clone(), hdl, written_bytes: 0, txg: 1 })
    };
    (0..writers).map(log).collect()
}

/// Empties the chunks of logs that have written for a turn.
pub(super) fn collect(logs: &mut [Logged]) -> Result<()> {
    let txg = logs.first().map_or(0, |log| log.txg);
    for log in logs.iter_mut() {
        log.txg += 1;
        log.written_bytes = 0;
    }
    if let Some(log) = logs.first() {
        log.prb.collect(Txg(txg))?;
    }
    Ok(())
}

/// `count` blocks in all, shared out evenly over the writers; wall and CPU time.
pub(super) fn turn<W: Writer>(writers: &mut [W], block: &[u8], count: usize) -> Result<Cost> {
    let each = count / writers.len();
    in_parallel(writers.iter_mut(), |writer| (0..each).try_for_each(|_| writer.write(block)))
}

/// What writers did in a time of the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) writers: usize,
    pub(super) gib_per_s: f64,
    /// CPU time: stalls, and the writers' own work.
    pub(super) cpu_s_per_gib: f64,
    /// Stalls for each block, in us.
    pub(super) stall_us: f64,
}

/// Has the writers write blocks for a real time, with work of their own before each; the device's time is
/// slow.
pub(super) fn point<W: Writer>(
    mut writers: Vec<W>,
    device: &DeviceModel,
    block: &[u8],
    own_work: Duration,
    real: Duration,
) -> Result<Point> {
    let (count, before_ns) = (AtomicU64::new(0), device.stalled_ns());
    let (until, begun) = (Instant::now() + real, Instant::now());
    in_parallel(writers.iter_mut(), |writer| {
        while Instant::now() < until {
            device.work(own_work);
            writer.write(block)?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })?;
    let seconds = device.time_of(begun.elapsed()).as_secs_f64();
    let blocks = count.into_inner().max(1) as f64;
    let gib = blocks * block.len() as f64 / (1_u64 << 30) as f64;
    let cpu_s = (device.stalled_ns() - before_ns) as f64 / 1e9;
    Ok(Point {
        writers: writers.len(),
        gib_per_s: gib / seconds,
        cpu_s_per_gib: cpu_s / gib,
        stall_us: (cpu_s / blocks - own_work.as_secs_f64()) * 1e6,
    })
}
