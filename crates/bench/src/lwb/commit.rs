//! Commits per second, by turns with the floor.

use std::sync::Mutex;
use std::time::Instant;

use fastness_blkdev::{AlignedBuf, BlockDevice};
use fastness_lwb::{DeviceSpace, Log, Options as LogOptions, Txg};

use crate::error::Result;
use crate::measure::{Spread, by_turns, in_parallel};
use crate::pool::{Place, noise};
use crate::{Options, Row};

pub(super) const DISK_BYTES: u64 = 256 << 20;

/// Latencies of one side, in ns.
#[derive(Default)]
struct Latencies(Mutex<Vec<f64>>);

impl Latencies {
    fn add(&self, mut taken: Vec<f64>) {
        self.0.lock().expect("no thread panics with it").append(&mut taken);
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut all = self.0.lock().expect("no thread panics with it");
        all.sort_by(f64::total_cmp);
        all[((all.len() - 1) as f64 * share) as usize]
    }
}

/// What commits, and in what pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) threads: usize,
    /// Of a record.
    pub(super) bytes: usize,
    pub(super) goal: Option<f64>,
}

pub(super) fn row(place: &Place, options: Options, load: Load) -> Result<Row> {
    let raw = place.written_file("lwb.raw", DISK_BYTES)?;
    let disk = place.written_file("lwb.log", DISK_BYTES)?;
    let row = of_disks(raw, disk, &place.medium(), options, load)?;
    place.remove("lwb.raw")?;
    place.remove("lwb.log")?;
    Ok(row)
}

/// Threads that write to `raw` and flush it themselves, by turns with as many that commit to a log on `disk`.
/// Each device has [`DISK_BYTES`].
pub(super) fn of_disks<D: BlockDevice>(
    raw: D,
    disk: D,
    medium: &str,
    options: Options,
    load: Load,
) -> Result<Row> {
    let Load { threads, bytes, goal } = load;
    let log = Log::new(DeviceSpace::new(disk, 0..DISK_BYTES)?, Txg(0), LogOptions::default());
    let record = noise(bytes, 5);
    let per_thread = if options.quick { 20 } else { 50 };
    let (mut txg, mut turn) = (1, 0);
    log.start();
    sync(&log, &mut txg);
    let latencies = Latencies::default();
    let pair = by_turns(
        if options.quick { 15 } else { 41 },
        threads * per_thread,
        || {
            turn += 1;
            Ok(in_parallel(0..threads, |thread| write_alone(&raw, &record, thread, turn, per_thread))?.wall)
        },
        || {
            // Outside of the figure: a pool does it in its own thread.
            sync(&log, &mut txg);
            let cost = in_parallel(0..threads, |_| {
                let mut taken = Vec::with_capacity(per_thread);
                for _ in 0..per_thread {
                    let since = Instant::now();
                    let lsn = log.append(Txg(txg), &record);
                    log.commit(lsn)?;
                    taken.push(since.elapsed().as_nanos() as f64);
                }
                latencies.add(taken);
                Ok(())
            })?;
            Ok(cost.wall)
        },
    )?;
    let status = log.status();
    let per_second = |times: &[f64]| 1e9 / Spread::of(times.to_vec()).median;
    let records = status.commits as f64;
    Ok(Row {
        name: format!(
            "{threads} threads commit {bytes} B ({:.1} records a block, {:.1} a flush)",
            records / status.blocks as f64,
            records / status.flushes as f64
        ),
        value: Some(per_second(&pair.b)),
        unit: "commits/s",
        baseline: Some(format!("as many threads, pwrite + fdatasync, {:.0}", per_second(&pair.a))),
        medium: medium.to_owned(),
        threads,
        p50_ns: Some(latencies.quantile(0.5)),
        p99_ns: Some(latencies.quantile(0.99)),
        ..Row::ratio(pair.ratio(), goal.map(|goal| (goal, "at least")))
    })
}

/// A txg syncs: blocks of records before it become free.
fn sync<D: BlockDevice>(log: &Log<DeviceSpace<D>>, txg: &mut u64) {
    let _header = log.sync_header(Txg(*txg));
    log.synced(Txg(*txg));
    *txg += 1;
}

/// The floor: whole blocks at places of the thread's own.
fn write_alone<D: BlockDevice>(raw: &D, record: &[u8], thread: usize, turn: u64, count: usize) -> Result<()> {
    const BLOCK_BYTES: usize = 4096;
    const RANGE_BYTES: u64 = 4 << 20;
    let mut block = AlignedBuf::zeroed(record.len().next_multiple_of(BLOCK_BYTES), BLOCK_BYTES);
    block[..record.len()].copy_from_slice(record);
    let len = block.len() as u64;
    let start = thread as u64 * RANGE_BYTES;
    for at in 0..count as u64 {
        let offset = start + (turn * count as u64 + at) * len % RANGE_BYTES;
        raw.write_at(offset, &block)?;
        // PERSIST: the floor's promise to its caller, as the log's commit is.
        raw.flush()?;
    }
    Ok(())
}
