//! Trim: tells the devices which space is free, so that they need not keep it.
//!
//! Design: step by step. Each step holds some free runs of a vdev (`space::alloc::hold`), so that nobody
//! takes them meanwhile, discards them on all sides, and gives them back. What a txg frees is free only when
//! that txg is durable, so no step discards what an import could still need; an import goes back to no older
//! txg.
//!
//! Room: a step holds no more than it could reserve as a user, without what others have reserved, and only a
//! part of that. A change that finds no room waits for the step, and tries again
//! ([`Pool::reclaim`](crate::Pool::reclaim)).
//!
//! Crash cases: a discard changes nothing that a durable txg refers to, so it needs no flush: whatever it
//! leaves, the next write to the place is made, and flushed, after it.
//!
//! Shutdown: a pool that is closed or abandoned waits for the step that runs; none begins after that. So no
//! discard reaches a device that another import has.

use crate::devices::config::VdevClass;
use crate::devices::vdev::Vdev;
use crate::error::{PoolError, Result};
use crate::ids::{Guid, UNIT_BYTES};
use crate::pool::Pool;
use crate::space::room::Claim;
use crate::state::Shared;
use fastness_sync::order::lock;

/// Shorter runs are left alone: a discard costs more than it gives.
const RUN_UNITS_MIN: u64 = 8;
/// Most that a step holds.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// Of what users could still store, a step holds one part in so many.
const HELD_PART: u64 = 8;
/// Units that a step looks at, if it finds nothing free.
const LOOK_UNITS: u64 = 1 << 20;

/// How far a trim has come: vdev, and the first unit that it has not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrimPoint {
    /// Number of the vdev.
    pub vdev: u16,
    /// Unit of it.
    pub unit: u64,
}

/// What a step of a trim did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimStep {
    /// Where to go on; `None`: it is done.
    pub next: Option<TrimPoint>,
    /// Bytes that were discarded.
    pub discarded_bytes: u64,
}

impl Pool {
    /// Discards some of the free space from a point on; of one side only, if that is asked for.
    ///
    /// Concurrency: changes go on meanwhile; one step at a time.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`], [`PoolError::Closed`], [`PoolError::Suspended`]; a device failed the discard.
    /// What was discarded before that stays so.
    pub fn trim_step(&self, from: TrimPoint, side: Option<Guid>) -> Result<TrimStep> {
        if self.shared.options.is_read_only {
            return Err(PoolError::ReadOnly(self.name()));
        }
        let _trimming = lock(&self.shared.space.trimming);
        self.shared.check_alive()?;
        let vdevs = self.shared.devices.vdevs.all();
        let mut data = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Normal && vdev.id >= from.vdev);
        let Some(vdev) = data.next() else { return Ok(TrimStep { next: None, discarded_bytes: 0 }) };
        let start = if vdev.id == from.vdev { from.unit } else { 0 };
        let end = vdev.units().min(start + LOOK_UNITS);
        let (discarded_bytes, at) = match vdev.can_discard(side) {
            true => self.shared.trim_run(vdev, (start, end), side)?,
            false => (0, vdev.units()),
        };
        let next = match at < vdev.units() {
            true => Some(TrimPoint { vdev: vdev.id, unit: at }),
            false => data.next().map(|vdev| TrimPoint { vdev: vdev.id, unit: 0 }),
        };
        Ok(TrimStep { next, discarded_bytes })
    }

    /// Discards what was freed since the last call, as far as it is still free and
    /// [noted](Self::note_freed). Returns the bytes.
    ///
    /// # Errors
    /// As [`trim_step`](Self::trim_step).
    pub fn trim_freed(&self) -> Result<u64> {
        let noted = lock(&self.shared.space.allocator).take_noted();
        let mut discarded_bytes = 0;
        for (id, (unit, units)) in noted {
            let _trimming = lock(&self.shared.space.trimming);
            self.shared.check_alive()?;
            let Some(vdev) = self.shared.devices.vdevs.all().into_iter().find(|vdev| vdev.id == id) else {
                continue;
            };
            let mut at = unit;
            while units >= RUN_UNITS_MIN && vdev.can_discard(None) && at < unit + units {
                let (bytes, next) = self.shared.trim_run(&vdev, (at, unit + units), None)?;
                discarded_bytes += bytes;
                at = next;
            }
        }
        Ok(discarded_bytes)
    }

    /// Whether to note what is freed, for [`trim_freed`](Self::trim_freed). Nothing of it is stored.
    pub fn note_freed(&self, notes: bool) {
        lock(&self.shared.space.allocator).set_noting(notes);
    }

    /// Bytes of the vdevs for data up to a point: how far a trim has come, and how far it has to go.
    pub fn trim_progress(&self, point: Option<TrimPoint>) -> (u64, u64) {
        let vdevs = self.shared.devices.vdevs.all();
        let data = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Normal);
        let (mut done, mut total) = (0, 0);
        for vdev in data {
            total += vdev.units();
            done += match point {
                Some(point) if point.vdev == vdev.id => point.unit,
                Some(point) if point.vdev < vdev.id => 0,
                _ => vdev.units(),
            };
        }
        (done * UNIT_BYTES, total * UNIT_BYTES)
    }

    /// Waits for the step of a trim that runs; returns whether there was one that held space.
    pub(crate) fn wait_trimmed(&self) -> bool {
        let holds = lock(&self.shared.space.allocator).holds_any();
        if holds {
            drop(lock(&self.shared.space.trimming));
        }
        holds
    }
}

impl Shared {
    /// What a step may hold now: it is reserved on return.
    fn reserve_for_trim(&self) -> i64 {
        let left_bytes = self.space.room.left(Claim::Data).max(0) as u64;
        let free_bytes = left_bytes.saturating_sub(self.reserved_bytes());
        let wanted = (free_bytes / HELD_PART).min(HELD_BYTES_MAX) as i64;
        let is_there = wanted > 0 && self.space.room.take(wanted, Claim::Data, 0).is_ok();
        if is_there { wanted } else { 0 }
    }

    /// Discards free runs between two units of a vdev; returns the bytes, and where to go on. The caller
    /// holds `trimming`.
    fn trim_run(&self, vdev: &Vdev, (from, end): (u64, u64), side: Option<Guid>) -> Result<(u64, u64)> {
        let reserved = self.reserve_for_trim();
        let units = reserved as u64 / UNIT_BYTES;
        if units < RUN_UNITS_MIN {
            self.space.room.give(reserved);
            // A pool that is this full has next to nothing to discard.
            return Ok((0, end));
        }
        let (held, next) = lock(&self.space.allocator).hold_free(vdev.id, (from, end), RUN_UNITS_MIN, units);
        self.devices.vdevs.crash_point("trim_after_hold");
        let discarded = vdev.discard(&held, side);
        self.devices.vdevs.crash_point("trim_after_discard");
        lock(&self.space.allocator).let_go(vdev.id, &held);
        // Only now: until then others had to do without it.
        self.space.room.give(reserved);
        discarded?;
        Ok((held.iter().map(|(_, units)| units * UNIT_BYTES).sum(), next))
    }
}
