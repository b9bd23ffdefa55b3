//! Devices that lose their power together, and the oracle: what each txg should have left.
#![allow(dead_code, unused_imports, unreachable_pub)]

mod faults;
mod ops;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastness_blkdev::{
    BlockDevice, BlockError, DeviceInfo, FaultPlan, Faulty, MemDevice, MemImage, StatsSnapshot,
};
use fastness_pool::{Device, Host, ImportOptions, PoolError, PoolOptions, VdevSpec};
pub use faults::{Faults, Met};
pub use ops::*;

/// A small generator; one seed, one sequence.
#[derive(Debug, Clone)]
pub struct Rng(fastness_testkit::Rng);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
        Rng(fastness_testkit::Rng(state))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        match self.below(3) {
            0 => self.0.bytes(len),
            1 => vec![self.next() as u8; len],
            _ => {
                let word = self.next().to_le_bytes();
                (0..len).map(|at| word[at % 8] & 0x3f).collect()
            }
        }
    }
}

/// Several devices on one power supply, which fails at a chosen operation, counted over all of them.
pub struct Rig {
    pub devices: Vec<Arc<Faulty<MemDevice>>>,
    pub ops: AtomicU64,
    pub cut_at: AtomicU64,
}

impl Rig {
    pub fn new(images: Vec<MemImage>, seed: u64) -> Arc<Rig> {
        let device = |(index, image): (usize, MemImage)| {
            let device = MemDevice::from_image(&format!("disk{index}"), image, 512);
            Arc::new(Faulty::new(device, FaultPlan::new(seed + index as u64)))
        };
        Arc::new(Rig {
            devices: images.into_iter().enumerate().map(device).collect(),
            ops: AtomicU64::new(0),
            cut_at: AtomicU64::new(u64::MAX),
        })
    }

    pub fn fresh(count: usize, len_bytes: u64, seed: u64) -> Arc<Rig> {
        Rig::new(vec![MemImage::zeroed(len_bytes); count], seed)
    }

    pub fn device(self: &Arc<Rig>, index: usize) -> Device {
        Device::new(format!("disk{index}"), Arc::new(Wire { rig: self.clone(), index }))
    }

    pub fn all(self: &Arc<Rig>) -> Vec<Device> {
        (0..self.devices.len()).map(|index| self.device(index)).collect()
    }

    /// What the devices may hold after the power failed now.
    pub fn crash(&self, seed: u64) -> Vec<MemImage> {
        let image = |(index, device): (usize, &Arc<Faulty<MemDevice>>)| {
            device.crash(seed.wrapping_mul(31).wrapping_add(index as u64)).unwrap()
        };
        self.devices.iter().enumerate().map(image).collect()
    }

    /// Only a power cut, which may hit the healing of a block, lets an operation of a pool fail.
    pub fn check<T: std::fmt::Debug>(&self, result: Result<T, PoolError>) -> Option<T> {
        let is_cut = self.devices[0].is_power_cut();
        assert!(result.is_ok() || is_cut, "{result:?}");
        result.ok()
    }

    /// Counts an operation; `true`: the power fails during it.
    fn tick(&self) -> bool {
        self.ops.fetch_add(1, Ordering::SeqCst) + 1 == self.cut_at.load(Ordering::SeqCst)
    }

    fn cut(&self) {
        self.devices.iter().for_each(|device| device.cut_power());
    }
}

/// One device of a rig, as the pool sees it.
struct Wire {
    rig: Arc<Rig>,
    index: usize,
}

impl Wire {
    fn change(
        &self,
        act: impl FnOnce(&Faulty<MemDevice>) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let device = &self.rig.devices[self.index];
        if !self.rig.tick() {
            return act(device);
        }
        // The operation is under way when the power fails: the crash image decides how much of it was done.
        act(device)?;
        self.rig.cut();
        device.flush()
    }
}

impl BlockDevice for Wire {
    fn info(&self) -> &DeviceInfo {
        self.rig.devices[self.index].info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.rig.devices[self.index].read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(|device| device.write_at(offset, data))
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(|device| device.write_fua(offset, data))
    }
    fn flush(&self) -> Result<(), BlockError> {
        // A flush that the power cut short has flushed nothing for certain.
        if self.rig.tick() {
            self.rig.cut();
        }
        self.rig.devices[self.index].flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.change(|device| device.discard(offset, len_bytes))
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.change(|device| device.write_zeroes(offset, len_bytes))
    }
    fn stats(&self) -> StatsSnapshot {
        self.rig.devices[self.index].stats()
    }
    fn is_poisoned(&self) -> bool {
        self.rig.devices[self.index].is_poisoned()
    }
    fn crash_point(&self, name: &'static str) {
        self.rig.devices[self.index].crash_point(name);
    }
}

pub fn manual() -> PoolOptions {
    PoolOptions {
        has_txg_thread: false,
        // Nothing is evicted: what is would depend on more than the seed.
        cache_bytes: 64 << 20,
        meta_cache_bytes: 1 << 20,
        ..PoolOptions::default()
    }
}

pub fn host() -> ImportOptions {
    ImportOptions { host: Host::current(), ..ImportOptions::default() }
}

/// As [`host`], content with less than all current devices.
pub fn degraded() -> ImportOptions {
    ImportOptions { allows_degraded: true, ..host() }
}

/// How the devices of a rig become a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Single,
    Stripe,
    Mirror,
    /// Two mirrors of two.
    Mirrors,
}

impl Shape {
    pub const ALL: [Shape; 4] = [Shape::Single, Shape::Stripe, Shape::Mirror, Shape::Mirrors];

    pub fn count(self) -> usize {
        match self {
            Shape::Single => 1,
            Shape::Stripe | Shape::Mirror => 2,
            Shape::Mirrors => 4,
        }
    }

    pub fn is_mirrored(self) -> bool {
        matches!(self, Shape::Mirror | Shape::Mirrors)
    }

    pub fn specs(self, devices: Vec<Device>) -> Vec<VdevSpec> {
        match self {
            Shape::Mirror | Shape::Mirrors => {
                devices.chunks(2).map(|sides| VdevSpec::mirror(sides.to_vec())).collect()
            }
            _ => devices.into_iter().map(VdevSpec::single).collect(),
        }
    }
}
