//! Large synchronous writes to a volume of a pool without a vdev for logs: data written once (indirect
//! records) against data that goes through the log. Each turn ends with the sync of its txg: without it the
//! second time that data is written would not show.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_blkdev::Operation;
use fastness_store::{Device, Pool, PoolOptions, Store, Tuning, VdevSpec};
use fastness_zvol::{Volume, VolumeOptions};

use crate::error::Result;
use crate::measure::{Spread, by_turns, in_parallel};
use crate::pool::{Place, noise, store_options};
use crate::{Options, Row};

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 384 * MIB;
const VOLUME_BYTES: u64 = 64 * MIB;
/// Acknowledged in a turn, by all threads together.
const TURN_BYTES: u64 = 16 * MIB;
/// Less than all measured writes, so that the figures show what the default should be.
const INDIRECT_BYTES_MIN: u64 = 64 << 10;

/// A pool with a volume of the default block size, whose data cannot be compressed.
struct Stack {
    device: Device,
    store: Arc<Store>,
    volume: Volume,
    data: Vec<u8>,
    acknowledged: u64,
    written_before: u64,
}

impl Stack {
    fn new(place: &Place, name: &str, indirect_bytes_min: Option<u64>, bytes: u64) -> Result<Stack> {
        drop(place.written_file(name, DEVICE_BYTES)?);
        let device = Device::open(place.path(name))?;
        place.remove(name)?;
        let options = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
        let pool = Pool::create("bench", &[VdevSpec::single(device.clone())], options.clone())?;
        let tuning = Tuning { indirect_bytes_min, ..Tuning::default() };
        let store = Store::create(pool, store_options(options, tuning))?;
        let options = VolumeOptions::default();
        let volume = Volume::create(&store, "bench/v", VOLUME_BYTES, &options)?;
        store.pool().sync()?;
        let data = noise(bytes as usize, 5);
        let mut stack = Stack { device, store, volume, data, acknowledged: 0, written_before: 0 };
        // Every byte once: what is measured then writes over it.
        for _ in 0..VOLUME_BYTES / TURN_BYTES {
            stack.turn(1)?;
        }
        stack.acknowledged = 0;
        stack.written_before = stack.written();
        Ok(stack)
    }

    fn written(&self) -> u64 {
        self.device.device.stats().of(Operation::Write).bytes
    }

    /// Writes, and waits for the txg; nanoseconds.
    fn turn(&mut self, threads: usize) -> Result<f64> {
        let bytes = self.data.len() as u64;
        let count = TURN_BYTES / bytes / threads as u64;
        let start = self.acknowledged;
        let since = Instant::now();
        in_parallel(0..threads, |thread| {
            for at in 0..count {
                let offset = start + (thread as u64 * count + at) * bytes;
                self.volume.write(offset % VOLUME_BYTES, &self.data, true)?;
            }
            Ok(())
        })?;
        self.store.pool().sync()?;
        self.acknowledged += count * threads as u64 * bytes;
        Ok(since.elapsed().as_nanos() as f64)
    }

    /// Bytes that the device was given for each that was acknowledged.
    fn amplification(&self) -> f64 {
        (self.written() - self.written_before) as f64 / self.acknowledged as f64
    }
}

pub(super) fn row(place: &Place, options: Options, bytes: u64, threads: usize) -> Result<Row> {
    let mut twice = Stack::new(place, "twice", None, bytes)?;
    let mut once = Stack::new(place, "once", Some(INDIRECT_BYTES_MIN), bytes)?;
    let turns = if options.quick { 7 } else { 41 };
    let pair = by_turns(turns, 1, || twice.turn(threads), || once.turn(threads))?;
    let mib = |times: &[f64]| TURN_BYTES as f64 / MIB as f64 * 1e9 / Spread::of(times.to_vec()).median;
    Ok(Row {
        name: format!(
            "{threads} threads write {} KiB with FUA, data written once, with the txgs ({:.2} bytes to the disk for each)",
            bytes >> 10,
            once.amplification()
        ),
        value: Some(mib(&pair.b)),
        unit: "MiB/s",
        baseline: Some(format!(
            "through the log, {:.0} ({:.2} bytes for each)",
            mib(&pair.a),
            twice.amplification()
        )),
        medium: place.medium(),
        threads,
        ..Row::ratio(pair.ratio(), None)
    })
}
