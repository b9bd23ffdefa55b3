//! Units for log blocks: busy, but in no stored bitmap.
//!
//! So a crash frees all of them; an import claims what their owner still needs before it allocates anything
//! else. Freed units can be reused at once, also for data: their owner frees them only when no durable txg
//! names them.
//!
//! They are allocated first from a part of each vdev that is set aside for them, so that they neither end up
//! between data nor force bitmaps for all of a large vdev.

use std::collections::BTreeSet;

use crate::ids::{Place, UNIT_BYTES};
use crate::space::alloc::{Allocator, REGION_UNITS, Slot, Space, Span, TURN_UNITS};

/// Length of that part, 256 MiB.
const WINDOW_UNITS: u64 = 16 * REGION_UNITS;
/// Of the slop: enough for one block of 1 MiB on top of what the slop is for.
const SLOP_BYTES_MIN: u64 = 8 << 20;
const SLOP_BYTES_MAX: u64 = 128 << 30;

/// Where that part begins: far from data and metadata.
pub(super) fn home(units: u64) -> u64 {
    units / 8 * 6
}

impl Space {
    fn take_log(&mut self, units: u64) -> Option<u64> {
        let unit = self.find(self.log_cursor, units)?;
        self.mark(unit, units, false);
        let (home, end) = (home(self.units), unit + units);
        let is_inside = (home..home + WINDOW_UNITS).contains(&end) && end < self.units;
        self.log_cursor = if is_inside { end } else { home };
        Some(unit)
    }

    fn are_free(&self, unit: u64, units: u64) -> bool {
        match &self.regions[(unit / REGION_UNITS) as usize] {
            Slot::Empty => true,
            Slot::Full => false,
            Slot::Mixed(region) => (0..units).all(|at| !region.busy.get(unit % REGION_UNITS + at)),
        }
    }
}

impl Allocator {
    pub(crate) fn remove_vdev(&mut self, id: u16) {
        self.spaces.remove(&id);
        self.log_turn = self.log_turn.filter(|(vdev, _)| *vdev != id);
    }

    /// A run of units for a log block, on a usable vdev: vdevs take turns, the emptiest first.
    pub(crate) fn allocate_log(&mut self, units: u64, may_use: &dyn Fn(u16) -> bool) -> Option<Place> {
        let (first, rest) = match self.log_turn {
            Some((vdev, rest)) if rest >= units && may_use(vdev) && !self.is_full(vdev) => (vdev, rest),
            last => (self.next_turn(last.map(|(vdev, _)| vdev), may_use)?, TURN_UNITS.max(units)),
        };
        let others =
            self.spaces.keys().copied().filter(|id| *id != first && may_use(*id) && !self.is_full(*id));
        let ids: Vec<u16> = std::iter::once(first).chain(others).collect();
        for id in ids {
            let space = self.spaces.get_mut(&id).expect("a number from the map");
            if let Some(unit) = space.take_log(units) {
                self.log_units += units;
                self.log_turn = Some((id, if id == first { rest - units } else { 0 }));
                return Some(Place { vdev: id, unit });
            }
        }
        None
    }

    /// A run of units for a block that a txg may turn into data ([`log_to_data`](Self::log_to_data)):
    /// allocated where data goes.
    pub(crate) fn allocate_stored(&mut self, units: u64) -> Option<Place> {
        let place = self.allocate_near_data(units, false)?;
        self.log_units += units;
        Some(place)
    }

    /// Turns a log block into data, in the syncing txg.
    pub(crate) fn log_to_data(&mut self, place: Place, units: u64) {
        let space = self.spaces.get_mut(&place.vdev).expect("allocated inside of the pool");
        let region = space.region((place.unit / REGION_UNITS) as usize);
        let at = place.unit % REGION_UNITS;
        assert!(
            (at..at + units).all(|at| region.busy.get(at) && !region.data.get(at)),
            "{place} is no log block"
        );
        region.data.set(at, units, true);
        region.is_dirty = true;
        self.log_units -= units;
    }

    /// Whether a log block can be at this place: inside a vdev, and inside a region.
    pub(crate) fn can_hold_log(&self, place: Place, units: u64) -> bool {
        let end = place.unit.checked_add(units);
        let space = self.spaces.get(&place.vdev);
        space.is_some_and(|space| end.is_some_and(|end| end <= space.units))
            && units > 0
            && place.unit % REGION_UNITS + units <= REGION_UNITS
    }

    /// Whether none of these units is busy. The caller has checked [`can_hold_log`](Self::can_hold_log).
    pub(crate) fn is_free(&self, place: Place, units: u64) -> bool {
        self.spaces.get(&place.vdev).is_some_and(|space| space.are_free(place.unit, units))
    }

    /// Takes exactly these units; `false` if one is busy. The caller has checked
    /// [`can_hold_log`](Self::can_hold_log).
    pub(crate) fn claim_log(&mut self, place: Place, units: u64) -> bool {
        let space = self.spaces.get_mut(&place.vdev).expect("a place inside of the pool");
        let is_free = space.are_free(place.unit, units);
        if is_free {
            space.mark(place.unit, units, false);
            self.log_units += units;
        }
        is_free
    }

    /// Frees a log block, at once.
    pub(crate) fn free_log(&mut self, place: Place, units: u64) {
        let space = self.spaces.get_mut(&place.vdev).expect("allocated inside of the pool");
        let region = space.region((place.unit / REGION_UNITS) as usize);
        let at = place.unit % REGION_UNITS;
        assert!(
            (at..at + units).all(|at| region.busy.get(at) && !region.data.get(at)),
            "{place} is no log block"
        );
        space.unmark(place.unit, units);
        let is_full = space.is_full;
        self.note_freed(Span { place, units });
        self.log_units -= units;
        if is_full {
            // Only the remaining space there can be used.
            self.synced_free_bytes -= units * UNIT_BYTES;
        }
    }

    /// Bytes kept back so that a txg can always be written; see `room`.
    pub(crate) fn slop_bytes(&self) -> u64 {
        let total = self.usable_bytes();
        (total / 32).clamp(SLOP_BYTES_MIN, SLOP_BYTES_MAX).min(total / 3)
    }

    /// A txg is durable: what is free now is what the next ones may use.
    pub(crate) fn note_synced(&mut self) {
        self.synced_free_bytes = self.free_bytes() + self.held_bytes() + self.log_units * UNIT_BYTES;
    }

    /// Bytes that are free as of the last durable txg, less those of log blocks. What unsynced txgs have
    /// taken is not subtracted: it is reserved.
    pub(crate) fn room_bytes(&self) -> i64 {
        self.synced_free_bytes as i64 - (self.log_units * UNIT_BYTES) as i64
    }

    /// Free and all units of a vdev.
    pub(crate) fn free_of(&self, id: u16) -> Option<(u64, u64)> {
        self.spaces.get(&id).map(|space| (space.free, space.units))
    }

    /// Units that are busy, other than those that the syncing txg frees; for a full check.
    pub(crate) fn busy_units(&self) -> BTreeSet<Place> {
        let mut busy = BTreeSet::new();
        for (id, space) in &self.spaces {
            for (index, slot) in space.regions.iter().enumerate() {
                let is_busy = |at: &u64| match slot {
                    Slot::Empty => false,
                    Slot::Full => true,
                    Slot::Mixed(region) => region.busy.get(*at),
                };
                let units = (0..space.region_units(index)).filter(is_busy);
                busy.extend(units.map(|at| Place { vdev: *id, unit: index as u64 * REGION_UNITS + at }));
            }
        }
        for freed in &self.freed {
            (freed.place.unit..freed.place.unit + freed.units).for_each(|unit| {
                busy.remove(&Place { vdev: freed.place.vdev, unit });
            });
        }
        busy
    }
}
