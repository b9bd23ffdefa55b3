//! Disks: a volatile cache, faults, and a power supply that they share with everything else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_blkdev::{
    BlockDevice, BlockError, Cause, DeviceInfo, Fault, FaultPlan, Faulty, MemDevice, MemImage, On, Operation,
    StatsSnapshot, When,
};
use fastness_pool::Device;

use super::power::{Event, Power};
use crate::Rng;

/// A disk with a volatile cache.
#[derive(Debug, Clone)]
pub struct Disk {
    /// What it is called.
    pub path: String,
    faulty: Arc<Faulty<MemDevice>>,
    power: Arc<Power>,
    /// It has been told to fail.
    is_loud: Arc<AtomicBool>,
}

/// How a disk fails; it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// Reads fail.
    Reads,
    /// Whatever changes it fails.
    Writes,
    /// A write is made in part.
    Torn,
    /// Flushes fail.
    Flushes,
    /// It goes away.
    Gone,
    /// There is no room for data below it; labels are where they were. As long as it lasts.
    NoRoom,
}

/// Both ends of a disk are labels.
const LABEL_BYTES: u64 = 256 << 10;

impl Failing {
    /// All ways.
    pub const ALL: [Failing; 6] =
        [Failing::Reads, Failing::Writes, Failing::Torn, Failing::Flushes, Failing::Gone, Failing::NoRoom];

    fn plan(self, len_bytes: u64, rng: &mut Rng) -> FaultPlan {
        let plan = FaultPlan::new(rng.next());
        let from = rng.pick(&[1, 1, 4, 12]);
        let from = 1 + rng.below(from);
        // Once, for good, or now and then.
        let when = match rng.below(3) {
            0 => When::Nth(from),
            1 => When::From(from),
            _ => When::PerMillion(200_000),
        };
        let flush = On::Only(Operation::Flush);
        match self {
            Failing::Reads => plan.rule(On::Only(Operation::Read), when, Fault::Errno(5)),
            Failing::Writes => plan.rule(On::Changes, when, Fault::Errno(5)),
            Failing::Torn => plan.rule(On::Writes, when, Fault::Torn),
            Failing::Flushes => plan.rule(flush, when, Fault::Errno(5)),
            Failing::Gone => plan.rule(On::Changes, When::Nth(from), Fault::Vanish),
            Failing::NoRoom => {
                let data = LABEL_BYTES..len_bytes - LABEL_BYTES - 4096;
                plan.rule_in(data, On::Writes, When::From(from), Fault::Errno(28))
            }
        }
    }
}

impl Disk {
    /// A disk that holds `image`; `seed` decides what a crash leaves.
    pub fn new(path: &str, image: MemImage, power: &Arc<Power>, seed: u64) -> Disk {
        let faulty = Faulty::new(MemDevice::from_image(path, image, 512), FaultPlan::new(seed));
        let (faulty, is_loud) = (Arc::new(faulty), Arc::default());
        Disk { path: path.to_owned(), faulty, power: power.clone(), is_loud }
    }

    /// The pool's handle of it.
    pub fn device(&self) -> Device {
        Device::new(self.path.clone(), Arc::new(self.clone()))
    }

    /// What a reader sees now.
    pub fn image(&self) -> MemImage {
        self.faulty.inner().image()
    }

    /// As the power cut leaves it.
    pub fn crashed(&self, seed: u64) -> Disk {
        Disk::new(&self.path, self.faulty.crash_image(seed), &self.power, seed)
    }

    /// The same disk with other contents.
    pub fn with(&self, image: MemImage) -> Disk {
        Disk::new(&self.path, image, &self.power, 0)
    }

    /// Lets it fail from now on.
    pub fn fail(&self, how: Failing, rng: &mut Rng) {
        self.faulty.set_plan(how.plan(self.info().len_bytes, rng));
        self.is_loud.store(true, Ordering::SeqCst);
    }

    /// It fails no more. After a failed flush it refuses writes until it is opened again.
    pub fn heal(&self) {
        self.faulty.set_plan(FaultPlan::new(0));
        self.faulty.come_back();
        self.is_loud.store(false, Ordering::SeqCst);
    }

    /// Opened again, after nothing had it open.
    pub fn reopen(&self, seed: u64) {
        if self.faulty.is_poisoned() {
            self.faulty.reopen(seed).expect("memory");
        }
    }

    /// It may fail, or refuse.
    pub fn is_loud(&self) -> bool {
        self.is_loud.load(Ordering::SeqCst) || self.faulty.is_poisoned()
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
        self.power.pass();
        if self.power.is_off() {
            return Err(self.gone(Operation::Read, offset, buf.len() as u64));
        }
        match self.power.is_quiet() {
            true => self.faulty.inner().read_at(offset, buf),
            false => self.faulty.read_at(offset, buf),
        }
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
