//! Room for log blocks: allocation and claims; see `log_space`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::devices::config::VdevClass;
use crate::devices::vdev::Vdev;
use crate::error::{PoolError, Result};
use crate::ids::{Place, UNIT_BYTES};
use crate::log_space::blocks::{LOG_BLOCK_BYTES_MAX, LogExtent};
use crate::pool::Pool;
use crate::space::alloc::Allocator;
use crate::space::room::Claim;
use crate::state::Shared;
use crate::upkeep::check::CheckReport;
use fastness_sync::order::lock;

/// How a vdev is used for log blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogUsage {
    /// Number of the vdev.
    pub vdev: u16,
    /// What it is for.
    pub class: VdevClass,
    /// Bytes of log blocks on it.
    pub used_bytes: u64,
    /// Bytes of its data area.
    pub total_bytes: u64,
    /// Nothing is allocated on it because it was retired on request.
    pub is_retired: bool,
    /// Nothing is allocated on it because it lost a write or flush.
    pub has_failed: bool,
}

/// Space for log blocks on the vdevs of a pool, and I/O to it.
///
/// Concurrency: any number of threads, but one block must not be read or written by two threads at a time.
/// The pool's devices stay open while this exists.
#[derive(Clone)]
pub struct LogSpace {
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for LogSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogSpace")
    }
}

impl Pool {
    /// Space for log blocks on the vdevs of this pool; all calls return the same one.
    pub fn log_space(&self) -> LogSpace {
        LogSpace { shared: self.shared.clone() }
    }
}

fn units_of(len_bytes: u32) -> u64 {
    let is_len =
        len_bytes.is_multiple_of(UNIT_BYTES as u32) && (1..=LOG_BLOCK_BYTES_MAX).contains(&len_bytes);
    assert!(is_len, "a log block of {len_bytes} bytes");
    u64::from(len_bytes) / UNIT_BYTES
}

impl LogSpace {
    /// Allocates a block of `len_bytes`, a multiple of [`UNIT_BYTES`] up to [`LOG_BLOCK_BYTES_MAX`]: on the
    /// vdevs for logs, which take turns of 1 MiB, the emptiest first; if none of them is writable and has
    /// space, on the other vdevs. Waits for no I/O.
    ///
    /// Persistence: none; a crash frees it.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`], [`PoolError::ReadOnly`], [`PoolError::Closed`].
    ///
    /// # Panics
    /// On any other length.
    pub fn allocate(&self, len_bytes: u32) -> Result<Place> {
        let units = units_of(len_bytes);
        self.check_writable()?;
        let reserved_bytes = self.shared.reserved_bytes();
        let mut log = lock(&self.shared.space.log);
        let place = match log.allocate_own(units) {
            Some(place) => place,
            None => self.shared.allocate_log_among_data(units, reserved_bytes)?,
        };
        log.insert(place, units, Vec::new());
        let hurries = log.hurries(self.shared.txgs.pipeline.open_txg());
        drop(log);
        if hurries {
            self.shared.txgs.pipeline.end_soon();
        }
        Ok(place)
    }

    /// Frees a block that was allocated or claimed as a whole. No durable txg may need it: its space can be
    /// reused at once.
    ///
    /// # Panics
    /// If the block does not exist.
    pub fn free(&self, extent: LogExtent) {
        self.shared.free_log_block(extent.place, units_of(extent.len_bytes));
    }

    /// Claims a block after an import, before txgs run ([`Pool::import_paused`]).
    ///
    /// # Errors
    /// [`PoolError::BadValue`] if it is not inside the pool, or part of it is in use; [`PoolError::Invalid`]
    /// if txgs may have run; [`PoolError::ReadOnly`], [`PoolError::Closed`].
    pub fn claim(&self, extent: LogExtent) -> Result<()> {
        self.check_writable()?;
        let bad = |what: &str| PoolError::bad_value("log blocks", format!("{}: {what}", extent.place));
        if !self.contains(extent) {
            return Err(bad("outside of the pool"));
        }
        let vdev =
            self.shared.devices.vdevs.get(extent.place.vdev).ok_or_else(|| bad("outside of the pool"))?;
        let is_free = self.shared.claim_log_block(&vdev, extent.place, units_of(extent.len_bytes))?;
        if is_free { Ok(()) } else { Err(bad("in use already")) }
    }

    /// Whether a block could be there at all; says nothing about whether it is in use. Any value is allowed.
    pub fn contains(&self, extent: LogExtent) -> bool {
        let is_len =
            extent.len_bytes.is_multiple_of(UNIT_BYTES as u32) && extent.len_bytes <= LOG_BLOCK_BYTES_MAX;
        let units = u64::from(extent.len_bytes) / UNIT_BYTES;
        is_len
            && (lock(&self.shared.space.log).own.can_hold_log(extent.place, units)
                || lock(&self.shared.space.allocator).can_hold_log(extent.place, units))
    }

    /// The paths of a vdev's devices, where they are or were last; `None` if the vdev does not exist.
    pub fn device_name(&self, vdev: u16) -> Option<String> {
        let sides = self.shared.devices.vdevs.get(vdev)?.sides();
        Some(sides.iter().map(|side| side.path.as_str()).collect::<Vec<_>>().join(", "))
    }

    /// All blocks that are allocated or claimed.
    pub fn extents(&self) -> Vec<LogExtent> {
        lock(&self.shared.space.log).extents()
    }

    /// The use of each vdev: those for logs, and any others that have log blocks.
    pub fn usage(&self) -> Vec<LogUsage> {
        let vdevs = self.shared.devices.vdevs.all();
        let log = lock(&self.shared.space.log);
        let usage = |vdev: &Arc<Vdev>| LogUsage {
            vdev: vdev.id,
            class: vdev.class,
            used_bytes: log.used_bytes(vdev.id),
            total_bytes: vdev.units() * UNIT_BYTES,
            is_retired: log.is_retired(vdev.id),
            has_failed: log.has_failed(vdev.id),
        };
        vdevs
            .iter()
            .map(usage)
            .filter(|usage| usage.class == VdevClass::Log || usage.used_bytes > 0)
            .collect()
    }

    /// Stops allocating on a vdev for logs, until [`restore`](Self::restore) or the next import. Blocks on it
    /// stay until their owner frees them; then [`Pool::remove`] succeeds.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a vdev that is not for logs.
    pub fn retire(&self, vdev: u16) -> Result<()> {
        lock(&self.shared.space.log).retire(vdev, true)
    }

    /// Undoes [`retire`](Self::retire); also puts a vdev that lost a write or flush back into use.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a vdev that is not for logs.
    pub fn restore(&self, vdev: u16) -> Result<()> {
        lock(&self.shared.space.log).retire(vdev, false)
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        if self.shared.options.is_read_only {
            return Err(PoolError::ReadOnly("the log space of a read-only pool".to_owned()));
        }
        if self.shared.is_closed.load(Ordering::SeqCst) {
            return Err(PoolError::Closed);
        }
        Ok(())
    }
}

impl Shared {
    fn allocate_log_among_data(&self, units: u64, reserved_bytes: u64) -> Result<Place> {
        self.take_among_data(units, reserved_bytes, |allocator| allocator.allocate_log(units, &|_| true))
    }

    /// Takes space among the data that has not been promised: without it a txg could not sync.
    pub(super) fn take_among_data(
        &self,
        units: u64,
        reserved_bytes: u64,
        take: impl FnOnce(&mut Allocator) -> Option<Place>,
    ) -> Result<Place> {
        let wanted_bytes = units * UNIT_BYTES;
        let refuse = |free_bytes| PoolError::NoSpace { wanted_bytes, free_bytes, is_quota: false };
        // Reserved until the free space is lowered, so that no write ever sees neither.
        self.space.room.take(wanted_bytes as i64, Claim::Data, reserved_bytes).map_err(refuse)?;
        let place = self.change_log_among_data(take);
        self.space.room.give(wanted_bytes as i64);
        place.ok_or_else(|| refuse(self.space.room.left(Claim::Data).max(0) as u64))
    }

    /// Claims units of a vdev, which has them, for a log block; `false` if they are in use.
    pub(super) fn claim_log_block(&self, vdev: &Vdev, place: Place, units: u64) -> Result<bool> {
        let mut log = lock(&self.space.log);
        if log.has_ended_claims {
            return Err(PoolError::invalid("claim before the first txg", place));
        }
        let is_free = if vdev.class == VdevClass::Log {
            log.own.claim_log(place, units)
        } else {
            self.change_log_among_data(|allocator| allocator.claim_log(place, units))
        };
        if is_free {
            // Current sides have everything that was acknowledged; a stale side may have anything.
            let stale = vdev.sides().iter().filter(|side| side.is_stale()).map(|side| side.guid).collect();
            log.insert(place, units, stale);
        }
        Ok(is_free)
    }

    pub(super) fn free_log_block(&self, place: Place, units: u64) {
        let mut log = lock(&self.space.log);
        assert!(log.remove(place, units).is_some(), "{units} units at {place} are no log block");
        if log.own.free_of(place.vdev).is_some() {
            log.own.free_log(place, units);
        } else {
            self.change_log_among_data(|allocator| allocator.free_log(place, units));
        }
    }

    /// Changes log blocks among the data, and with them the space that data may use.
    pub(super) fn change_log_among_data<T>(&self, change: impl FnOnce(&mut Allocator) -> T) -> T {
        let mut allocator = lock(&self.space.allocator);
        let result = change(&mut allocator);
        self.note_free(&allocator);
        result
    }

    /// Adds log blocks to what is in use, and compares the total with what is busy. `units`: all that the
    /// tables refer to.
    pub(crate) fn check_log_blocks(&self, units: &mut BTreeSet<Place>, report: &mut CheckReport) {
        let log = lock(&self.space.log);
        let mut busy = lock(&self.space.allocator).busy_units();
        busy.extend(log.own.busy_units());
        for (first, block) in &log.blocks {
            for unit in first.unit..first.unit + block.units {
                let place = Place { vdev: first.vdev, unit };
                report.log_units += 1;
                if !units.insert(place) {
                    report.shared.push(place);
                }
                if !busy.contains(&place) {
                    report.missing.push(place);
                }
            }
        }
        let known: BTreeSet<Place> = report.leaked.iter().copied().collect();
        report.leaked.extend(busy.difference(units).filter(|place| !known.contains(place)).copied());
    }
}
