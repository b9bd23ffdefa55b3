//! Free units that are held for a moment: nobody may take them while they are discarded.
//!
//! They stay free in what the pool counts: who holds them has reserved as much room, so that what is left is
//! enough for everybody else. Only what [`release`](Allocator::release) has given back can be held, or what
//! was never used: no durable txg refers to it, nor does one that is being written.

use crate::ids::UNIT_BYTES;
use crate::space::alloc::{Allocator, REGION_UNITS, Slot, Space, Span};

/// Most freed runs that are noted; with more, the oldest are left to a trim of everything.
const NOTED_MAX: usize = 1 << 16;

/// A run of units: first, number.
pub(crate) type Run = (u64, u64);

impl Space {
    /// Free runs of a region from a unit on, at least so long each; a run ends with its region.
    fn free_runs(&self, from: u64, end: u64, units_min: u64) -> Vec<Run> {
        let index = (from / REGION_UNITS) as usize;
        let start = index as u64 * REGION_UNITS;
        let region = match &self.regions[index] {
            Slot::Full => return Vec::new(),
            Slot::Empty => {
                return if end - from >= units_min { vec![(from, end - from)] } else { Vec::new() };
            }
            Slot::Mixed(region) => region,
        };
        let (mut runs, mut at) = (Vec::new(), from);
        while at < end {
            let is_free = |unit: &u64| !region.busy.get(unit - start);
            let len = (at..end).take_while(is_free).count() as u64;
            if len >= units_min {
                runs.push((at, len));
            }
            at += len;
            at += (at..end).take_while(|unit| !is_free(unit)).count() as u64;
        }
        runs
    }
}

impl Allocator {
    /// Holds free runs of a vdev between two units, at least `units_min` long each and `units_max` together.
    /// Returns them, and the unit to go on with.
    pub(crate) fn hold_free(
        &mut self,
        vdev: u16,
        (from, end): (u64, u64),
        units_min: u64,
        units_max: u64,
    ) -> (Vec<Run>, u64) {
        let Some(space) = self.spaces.get_mut(&vdev) else { return (Vec::new(), end) };
        let (mut held, mut left, mut at) = (Vec::new(), units_max, from);
        let end = end.min(space.units);
        // Its device is out of space: nothing there is free, and discarding would not help.
        if space.is_full {
            return (held, end);
        }
        while at < end {
            let region_end = (at / REGION_UNITS + 1) * REGION_UNITS;
            for (unit, len) in space.free_runs(at, region_end.min(end), units_min) {
                let len = len.min(left);
                if len < units_min {
                    return (held, unit);
                }
                space.mark(unit, len, false);
                space.held += len;
                left -= len;
                held.push((unit, len));
                if left < units_min {
                    return (held, unit + len);
                }
            }
            at = region_end.min(end);
        }
        (held, end)
    }

    /// Gives back what was held.
    pub(crate) fn let_go(&mut self, vdev: u16, runs: &[Run]) {
        let Some(space) = self.spaces.get_mut(&vdev) else { return };
        for (unit, units) in runs {
            space.unmark(*unit, *units);
            space.held -= units;
        }
    }

    /// Bytes that are held, and count as free.
    pub(super) fn held_bytes(&self) -> u64 {
        let usable = self.spaces.values().filter(|space| !space.is_full);
        usable.map(|space| space.held).sum::<u64>() * UNIT_BYTES
    }

    /// Whether anything is held.
    pub(crate) fn holds_any(&self) -> bool {
        self.spaces.values().any(|space| space.held > 0)
    }

    /// Whether to note what is freed.
    pub(crate) fn set_noting(&mut self, notes: bool) {
        self.noted = notes.then(|| self.noted.take().unwrap_or_default());
    }

    pub(super) fn note_freed(&mut self, span: Span) {
        if let Some(noted) = &mut self.noted {
            if noted.len() == NOTED_MAX {
                noted.pop_front();
            }
            noted.push_back(span);
        }
    }

    /// What was freed since the last call: vdev and run, in order, neighbours as one.
    pub(crate) fn take_noted(&mut self) -> Vec<(u16, Run)> {
        let Some(noted) = &mut self.noted else { return Vec::new() };
        let noted = std::mem::take(noted);
        let mut all: Vec<_> = noted.iter().map(|of| (of.place.vdev, (of.place.unit, of.units))).collect();
        all.sort_unstable();
        let mut joined: Vec<(u16, Run)> = Vec::new();
        for (vdev, (unit, units)) in all {
            match joined.last_mut() {
                Some((last, run)) if *last == vdev && run.0 + run.1 >= unit => {
                    run.1 = run.1.max(unit + units - run.0);
                }
                _ => joined.push((vdev, (unit, units))),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(units: u64) -> Allocator {
        let mut allocator = Allocator::default();
        allocator.add_vdev(0, units);
        allocator
    }

    #[test]
    fn what_is_held_is_free_and_nobody_gets_it() {
        let mut allocator = allocator(2 * REGION_UNITS + 100);
        let place = allocator.allocate_data(100).unwrap();
        assert_eq!(place.unit, 0);
        allocator.note_synced();
        let room = allocator.room_bytes();
        let (held, next) = allocator.hold_free(0, (0, u64::MAX), 8, 5000);
        assert_eq!((held.clone(), next), (vec![(100, 3996), (4096, 1004)], 5100));
        allocator.note_synced();
        assert_eq!(allocator.room_bytes(), room, "it counts as free");
        assert_eq!(allocator.allocate_data(1).unwrap().unit, 5100);
        allocator.let_go(0, &held);
        assert_eq!(allocator.held_bytes(), 0);
        let (held, next) = allocator.hold_free(0, (0, 200), 101, u64::MAX);
        assert_eq!((held, next), (Vec::new(), 200), "too short");
        let (held, _) = allocator.hold_free(0, (8192, u64::MAX), 8, u64::MAX);
        assert_eq!(held, [(8192, 100)]);
    }

    #[test]
    fn what_a_txg_frees_is_not_free_before_it_is_durable() {
        let mut allocator = allocator(REGION_UNITS);
        let place = allocator.allocate_data(64).unwrap();
        allocator.set_noting(true);
        allocator.free_data(place, 64).unwrap();
        assert_eq!(allocator.hold_free(0, (0, 64), 1, 64).0, []);
        assert_eq!(allocator.take_noted(), []);
        allocator.release();
        assert_eq!(allocator.take_noted(), [(0, (0, 64))]);
        assert_eq!(allocator.hold_free(0, (0, 64), 1, 64).0, [(0, 64)]);
    }
}
