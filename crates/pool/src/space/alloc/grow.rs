//! A vdev that becomes larger.

use crate::ids::UNIT_BYTES;
use crate::space::alloc::{Allocator, REGION_UNITS, Slot, Space};

impl Space {
    /// Makes it larger; returns by how many units.
    fn grow(&mut self, units: u64) -> u64 {
        let more = units.saturating_sub(self.units);
        if more == 0 {
            return 0;
        }
        // The last region may become longer. One that is full to its shorter end has bitmaps.
        let last = self.regions.len().saturating_sub(1);
        let before = self.regions.get(last).map_or(0, |_| self.region_units(last));
        self.units = units;
        self.free += more;
        if let Some(Slot::Mixed(region)) = self.regions.get_mut(last) {
            region.free += (units - last as u64 * REGION_UNITS).min(REGION_UNITS) - before;
        }
        self.regions.resize(units.div_ceil(REGION_UNITS) as usize, Slot::Empty);
        more
    }
}

impl Allocator {
    /// A vdev has more space: it is free at once, as that of a new one.
    pub(crate) fn grow_vdev(&mut self, id: u16, units: u64) {
        let Some(space) = self.spaces.get_mut(&id) else { return };
        let more = space.grow(units);
        if !space.is_full {
            self.synced_free_bytes += more * UNIT_BYTES;
        }
    }
}
