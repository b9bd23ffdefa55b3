//! One power supply for persistent memory and for disks: one count of events over both, and a cut at any of them.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fastness_blkdev::{
    BlockDevice, BlockError, Cause, DeviceInfo, FaultPlan, Faulty, MemDevice, MemImage, Operation,
    StatsSnapshot,
};
use fastness_intent::{FRONT_BYTES, RegionParts};
use fastness_pm_model::{Config, FlushKind, Machine, RecordStyle, Recorder, RecordingRange};
use fastness_pmem::{Medium, PersistError, ReadError, Region, RegionInfo, Summer};
use fastness_pool::Device;

/// A small generator; one seed, one sequence.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5eed_0f57_ac4b_0001)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The power, and when it fails. A process that dies is the same without what a power cut does to the media.
#[derive(Debug, Default)]
pub struct Power {
    pub events: AtomicU64,
    cut_at: AtomicU64,
    is_off: AtomicBool,
}

enum Event {
    On,
    /// The power fails during it: it was begun, and nobody hears of its end.
    Last,
    Off,
}

impl Power {
    /// Lets it fail at the `nth` event from now on.
    pub fn cut_in(&self, nth: u64) {
        self.cut_at.store(self.events.load(Ordering::SeqCst) + nth, Ordering::SeqCst);
    }

    pub fn turn_off(&self) {
        self.is_off.store(true, Ordering::SeqCst);
    }

    pub fn turn_on(&self) {
        self.cut_at.store(0, Ordering::SeqCst);
        self.is_off.store(false, Ordering::SeqCst);
    }

    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }

    fn event(&self) -> Event {
        if self.is_off() {
            return Event::Off;
        }
        if self.events.fetch_add(1, Ordering::SeqCst) + 1 == self.cut_at.load(Ordering::SeqCst) {
            self.turn_off();
            return Event::Last;
        }
        Event::On
    }
}

/// A disk with a volatile cache.
#[derive(Clone)]
pub struct Disk {
    path: String,
    pub faulty: Arc<Faulty<MemDevice>>,
    power: Arc<Power>,
}

impl Disk {
    pub fn new(path: &str, image: MemImage, power: &Arc<Power>, seed: u64) -> Disk {
        let faulty = Faulty::new(MemDevice::from_image(path, image, 512), FaultPlan::new(seed));
        Disk { path: path.to_owned(), faulty: Arc::new(faulty), power: power.clone() }
    }

    pub fn device(&self) -> Device {
        Device::new(self.path.clone(), Arc::new(self.clone()))
    }

    /// As the power cut leaves it.
    pub fn crashed(&self, seed: u64) -> Disk {
        Disk::new(&self.path, self.faulty.crash(seed).unwrap(), &self.power, seed)
    }

    fn gone(&self, operation: Operation, offset: u64, len: u64) -> BlockError {
        self.info().error(operation, offset, len, Cause::Gone(io::Error::from_raw_os_error(19)))
    }

    fn change(
        &self,
        operation: Operation,
        offset: u64,
        len: u64,
        act: impl FnOnce(bool) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        match self.power.event() {
            Event::On => act(true),
            Event::Last => act(false).and(Err(self.gone(operation, offset, len))),
            Event::Off => Err(self.gone(operation, offset, len)),
        }
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> &DeviceInfo {
        self.faulty.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        if self.power.is_off() {
            return Err(self.gone(Operation::Read, offset, buf.len() as u64));
        }
        self.faulty.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(Operation::Write, offset, data.len() as u64, |_| self.faulty.write_at(offset, data))
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(Operation::WriteFua, offset, data.len() as u64, |ends| match ends {
            true => self.faulty.write_fua(offset, data),
            false => self.faulty.write_at(offset, data),
        })
    }
    fn flush(&self) -> Result<(), BlockError> {
        // One that the power cut short has flushed nothing for certain.
        self.change(Operation::Flush, 0, 0, |ends| if ends { self.faulty.flush() } else { Ok(()) })
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.change(Operation::Discard, offset, len, |_| self.faulty.discard(offset, len))
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.change(Operation::WriteZeroes, offset, len, |_| self.faulty.write_zeroes(offset, len))
    }
    fn stats(&self) -> StatsSnapshot {
        self.faulty.stats()
    }
    fn is_poisoned(&self) -> bool {
        self.faulty.is_poisoned()
    }
}

/// A region of persistent memory.
#[derive(Debug, Clone)]
pub struct Bank {
    recorder: Recorder,
    chunk_bytes: usize,
    style: RecordStyle,
    power: Arc<Power>,
}

impl Bank {
    pub fn new(chunks: usize, chunk_bytes: usize, rng: &mut Rng, power: &Arc<Power>) -> Bank {
        let styles = [RecordStyle::NonTemporal, RecordStyle::StoreFlush(FlushKind::Clwb)];
        let style = styles[rng.below(2) as usize];
        // Whatever was there before.
        let image = vec![rng.below(3) as u8 * 85; FRONT_BYTES + chunks * chunk_bytes];
        Bank { recorder: Recorder::new(image, style), chunk_bytes, style, power: power.clone() }
    }

    /// Its parts, of which there may be one set at a time.
    pub fn parts(&self) -> RegionParts<Pm> {
        let len = self.recorder.image().len();
        let pm = |at, len| Pm { range: self.recorder.range(at, len), power: self.power.clone() };
        let chunks = (FRONT_BYTES..len).step_by(self.chunk_bytes).map(|at| pm(at, self.chunk_bytes));
        RegionParts { info: info(), front: pm(0, FRONT_BYTES), chunks: chunks.collect() }
    }

    /// As the power cut leaves it: one of the states that the model allows.
    pub fn crashed(&self, rng: &mut Rng) -> Bank {
        let trace = self.recorder.trace();
        let mut machine =
            Machine::new(trace.initial, Config { strict_nt: rng.one_in(2), ..Config::default() });
        trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
        // The first two are the least and the most; behind them they lean four ways.
        let (nth, mut seen, mut image) = (1 + rng.below(8) as usize, 0, Vec::new());
        machine.sample_crash_images(rng.next(), nth, &mut |found| {
            seen += 1;
            if seen <= nth {
                image = found.to_vec();
            }
            std::ops::ControlFlow::Continue(())
        });
        Bank { recorder: Recorder::new(image, self.style), power: self.power.clone(), ..*self }
    }
}

fn info() -> RegionInfo {
    static INFO: OnceLock<RegionInfo> = OnceLock::new();
    INFO.get_or_init(|| Region::anonymous(4096).unwrap().info().clone()).clone()
}

/// A part of a region.
#[derive(Debug)]
pub struct Pm {
    range: RecordingRange,
    power: Arc<Power>,
}

impl Medium for Pm {
    fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.range.region_offset()
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        match self.power.event() {
            // Of stores that no fence has completed any part may be there.
            Event::On | Event::Last => self.range.copy(offset, src, extent_bytes, summer),
            Event::Off => src.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block)),
        }
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        if !self.power.is_off() {
            self.range.write_back(offset, len_bytes);
        }
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        match self.power.event() {
            // PERSIST: what it completes is what the code under test asked for.
            Event::On => self.range.fence(),
            Event::Last | Event::Off => {
                let start = self.region_offset();
                let source = io::Error::from_raw_os_error(19);
                Err(PersistError { start, end: start + self.len_bytes() as u64, source })
            }
        }
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.range.read(offset, dst)
    }
}
