//! Which units hold data.

use crate::ids::Place;
use crate::space::alloc::{Allocator, REGION_UNITS, Slot};

impl Allocator {
    /// Units that hold data, for a full check.
    pub(crate) fn data_units(&self) -> impl Iterator<Item = Place> + '_ {
        self.spaces.iter().flat_map(|(id, space)| {
            space.regions.iter().enumerate().flat_map(move |(index, region)| {
                let set = move |at: &u64| match region {
                    Slot::Empty => false,
                    Slot::Full => true,
                    Slot::Mixed(region) => region.data.get(*at),
                };
                (0..REGION_UNITS)
                    .filter(set)
                    .map(move |at| Place { vdev: *id, unit: index as u64 * REGION_UNITS + at })
            })
        })
    }
}
