//! Top-level vdevs: one device, or a mirror of several.
//!
//! A write goes to every side. A side that fails a write is *stale* from then on: it is not read until it has
//! been resilvered, and the labels of the other sides say so before the next txg reports success. The
//! caller's checksum verifies each read; if one side is wrong and another is right, the wrong one is
//! rewritten and counted.

mod counters;
mod device;
mod discard;
mod log_io;
mod sides;
mod stripe;
mod write;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use fastness_blkdev::{AlignedBuf, BlockDevice, BlockError};

pub use counters::DeviceErrors;
pub use device::Device;
pub(crate) use stripe::{Vdevs, failed};
pub(crate) use write::Write;

use crate::codec::{checksum, sum_of_lost};
use crate::devices::config::{DeviceConfig, DeviceState, VdevClass, VdevConfig};
use crate::devices::label::DATA_START_BYTES;
use crate::devices::vdev::counters::Counters;
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Place, UNIT_BYTES};
use crate::order;
use fastness_sync::order as ordered;
use fastness_sync::order::{lock, read, write};

/// One device of a vdev.
pub(crate) struct Side {
    pub(crate) guid: Guid,
    pub(crate) path: String,
    /// `None`: missing.
    pub(crate) device: Option<Arc<dyn BlockDevice>>,
    /// A user has taken it offline. Not stored: an import finds it stale.
    pub(crate) is_offline: bool,
    is_stale: AtomicBool,
    is_given_up: AtomicBool,
    counters: Counters,
}

impl Side {
    pub(crate) fn new(
        guid: Guid,
        path: String,
        device: Option<Arc<dyn BlockDevice>>,
        state: DeviceState,
    ) -> Side {
        let is_stale = AtomicBool::new(state != DeviceState::Online || device.is_none());
        let is_given_up = AtomicBool::new(state == DeviceState::GivenUp);
        Side { guid, path, device, is_offline: false, is_stale, is_given_up, counters: Counters::default() }
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::SeqCst)
    }

    pub(crate) fn set_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Ordering::SeqCst);
        if !is_stale {
            self.is_given_up.store(false, Ordering::SeqCst);
        }
    }

    /// Marks it stale, with nothing on it counting any more.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        self.set_stale(true);
    }

    pub(crate) fn state(&self) -> DeviceState {
        match (self.is_stale(), self.is_given_up.load(Ordering::SeqCst)) {
            (false, _) => DeviceState::Online,
            (true, false) => DeviceState::Stale,
            (true, true) => DeviceState::GivenUp,
        }
    }

    pub(crate) fn note_write_error(&self) {
        self.counters.write.fetch_add(1, Ordering::Relaxed);
    }

    /// The side gave bytes that do not have the checksum. Those of a block that a log had lost never do, and
    /// the device is not to blame for that.
    fn note_other_bytes(&self, bytes: &[u8], sum: u64) {
        if checksum(bytes) != sum_of_lost(sum) {
            self.counters.checksum.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Continues the counters of another side.
    pub(crate) fn take_counters(&self, other: &Side) {
        self.counters.set(other.errors());
    }

    pub(crate) fn clear_errors(&self) {
        self.counters.set(DeviceErrors::default());
    }

    pub(crate) fn errors(&self) -> DeviceErrors {
        self.counters.get()
    }

    /// Why the side is not writable.
    pub(crate) fn unusable(&self) -> PoolError {
        let why = match self.device {
            Some(_) => "it failed a flush; take it offline, and online again",
            None if self.is_offline => "it is offline; bring it online first",
            None => "it is missing",
        };
        PoolError::Busy { name: self.path.clone(), why }
    }

    /// The device, if it is present and has not lost a flush.
    pub(crate) fn writable(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.device.as_ref().filter(|device| !device.is_poisoned())
    }
}

/// A top-level vdev.
pub(crate) struct Vdev {
    pub(crate) id: u16,
    pub(crate) class: VdevClass,
    units: AtomicU64,
    sides: RwLock<Vec<Arc<Side>>>,
    turn: AtomicU64,
    /// A write failed because the device is out of space.
    has_no_room: AtomicBool,
    /// A write failed because of the medium.
    has_failed_writes: AtomicBool,
    /// The same sides, for callers that must not wait for I/O, as a lock of `sides` may.
    listed: Mutex<Vec<Arc<Side>>>,
    /// Held while deciding whether a write succeeded, and which sides are stale because of it.
    judging: Mutex<()>,
    /// Held shared while log blocks are written, flushed or healed; exclusively while a side is made current,
    /// added or removed.
    pub(crate) log_io: ordered::RwLock<(), { order::LOG_IO }>,
}

/// What a read found, besides the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// The first copy that was read was right.
    Good,
    /// A copy was wrong or unreadable; another was right.
    Healed,
}

impl Vdev {
    pub(crate) fn new(id: u16, class: VdevClass, units: u64, sides: Vec<Arc<Side>>) -> Vdev {
        Vdev {
            id,
            class,
            units: AtomicU64::new(units),
            listed: Mutex::new(sides.clone()),
            sides: RwLock::new(sides),
            turn: AtomicU64::new(0),
            has_no_room: AtomicBool::new(false),
            has_failed_writes: AtomicBool::new(false),
            judging: Mutex::new(()),
            log_io: ordered::RwLock::new(()),
        }
    }

    /// Units of its data area.
    pub(crate) fn units(&self) -> u64 {
        self.units.load(Ordering::SeqCst)
    }

    /// It has more space. Nothing may be allocated there before the labels say so.
    pub(crate) fn set_units(&self, units: u64) {
        self.units.store(units, Ordering::SeqCst);
    }

    pub(crate) fn sides(&self) -> Vec<Arc<Side>> {
        read(&self.sides).clone()
    }

    pub(crate) fn set_sides(&self, sides: Vec<Arc<Side>>) {
        lock(&self.listed).clone_from(&sides);
        *write(&self.sides) = sides;
    }

    /// Releases all devices for good: nothing reads or writes any more.
    pub(crate) fn let_go(&self) {
        let _no_log_io = write(&self.log_io);
        let sides =
            self.sides().iter().map(|side| Arc::new(side.with_device(side.path.clone(), None))).collect();
        self.set_sides(sides);
    }

    pub(crate) fn config(&self) -> VdevConfig {
        let device =
            |side: &Arc<Side>| DeviceConfig { guid: side.guid, path: side.path.clone(), state: side.state() };
        VdevConfig {
            id: self.id,
            class: self.class,
            units: self.units(),
            devices: read(&self.sides).iter().map(device).collect(),
        }
    }

    fn offset(&self, unit: u64) -> u64 {
        DATA_START_BYTES + unit * UNIT_BYTES
    }

    /// Flushes every side. As [`write`](Self::write).
    pub(crate) fn flush(&self) -> Result<(), Option<BlockError>> {
        self.on_all_sides(|_, device| device.flush())
    }

    /// Reads `len_bytes`, the first `sum_bytes` of which must have the checksum `sum`, from any side; wrong
    /// sides are rewritten. `what` names the bytes in an error.
    pub(crate) fn read_verified(
        &self,
        unit: u64,
        sum_bytes: usize,
        sum: u64,
        what: &'static str,
    ) -> Result<(AlignedBuf, Health)> {
        let len_bytes = sum_bytes.next_multiple_of(UNIT_BYTES as usize);
        let sides = read(&self.sides);
        let first = if sides.len() > 1 { self.turn.fetch_add(1, Ordering::Relaxed) as usize } else { 0 };
        let mut wrong: Vec<&Side> = Vec::new();
        let (mut failed, mut is_damaged) = (None, false);
        for step in 0..sides.len() {
            let side = &sides[(first + step) % sides.len()];
            let Some(device) = side.device.as_ref().filter(|_| !side.is_stale()) else { continue };
            let mut buf = AlignedBuf::zeroed(len_bytes, device.info().memory_align_bytes.max(512));
            match device.read_at(self.offset(unit), &mut buf) {
                Ok(()) if checksum(&buf[..sum_bytes]) == sum => {
                    for bad in &wrong {
                        self.heal(bad, unit, &buf);
                    }
                    let health = if wrong.is_empty() { Health::Good } else { Health::Healed };
                    return Ok((buf, health));
                }
                Ok(()) => {
                    side.note_other_bytes(&buf[..sum_bytes], sum);
                    is_damaged = true;
                }
                Err(error) => {
                    side.counters.read.fetch_add(1, Ordering::Relaxed);
                    failed = Some(error);
                }
            }
            wrong.push(side);
        }
        match failed {
            Some(error) if !is_damaged => Err(error.into()),
            _ => Err(PoolError::Damaged { what, place: Place { vdev: self.id, unit } }),
        }
    }

    /// Reads from the first current side; counts nothing, because nothing is verified.
    pub(crate) fn read_unverified(&self, unit: u64, units: usize) -> Option<AlignedBuf> {
        let sides = read(&self.sides);
        let device = sides.iter().filter(|side| !side.is_stale()).find_map(|side| side.device.as_ref())?;
        let align = device.info().memory_align_bytes.max(512);
        let mut buf = AlignedBuf::zeroed(units * UNIT_BYTES as usize, align);
        device.read_at(self.offset(unit), &mut buf).ok().map(|()| buf)
    }

    fn heal(&self, side: &Side, unit: u64, data: &[u8]) {
        let Some(device) = side.writable() else { return };
        match device.write_at(self.offset(unit), data) {
            Ok(()) => {
                side.counters.healed.fetch_add(1, Ordering::Relaxed);
            }
            // The next write of a txg decides whether the side is stale; this write added nothing.
            Err(_) => side.note_write_error(),
        }
    }

    /// Reads every side that is not stale and compares it with the checksum; wrong sides are rewritten from a
    /// right one. Returns how many were wrong, and whether one was right.
    pub(crate) fn scrub(&self, unit: u64, sum_bytes: usize, sum: u64) -> (u64, bool) {
        let len_bytes = sum_bytes.next_multiple_of(UNIT_BYTES as usize);
        let (mut wrong, mut right) = (Vec::new(), None);
        let sides = read(&self.sides);
        for side in sides.iter().filter(|side| !side.is_stale()) {
            let Some(device) = &side.device else { continue };
            let mut buf = AlignedBuf::zeroed(len_bytes, device.info().memory_align_bytes.max(512));
            match device.read_at(self.offset(unit), &mut buf) {
                Ok(()) if checksum(&buf[..sum_bytes]) == sum => right = Some(buf),
                Ok(()) => {
                    side.note_other_bytes(&buf[..sum_bytes], sum);
                    wrong.push(side);
                }
                Err(_) => {
                    side.counters.read.fetch_add(1, Ordering::Relaxed);
                    wrong.push(side);
                }
            }
        }
        if let Some(data) = &right {
            for side in &wrong {
                self.heal(side, unit, data);
            }
        }
        (wrong.len() as u64, right.is_some())
    }

    /// Copies a verified block onto one side; for resilvering.
    pub(crate) fn write_side(&self, side: &Side, unit: u64, data: &[u8]) -> Result<()> {
        let device = side.writable().ok_or_else(|| side.unusable())?;
        device.write_at(self.offset(unit), data)?;
        Ok(())
    }
}
