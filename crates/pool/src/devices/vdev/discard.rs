//! Discards on the sides of a vdev.

use crate::devices::vdev::Vdev;
use crate::error::Result;
use crate::ids::{Guid, UNIT_BYTES};

impl Vdev {
    /// Whether a side can discard: one of all, or the one that is meant.
    pub(crate) fn can_discard(&self, only: Option<Guid>) -> bool {
        let sides = self.sides();
        let mut meant = sides.iter().filter(|side| only.is_none_or(|only| only == side.guid));
        meant.any(|side| side.writable().is_some_and(|device| device.info().can_discard))
    }

    /// Discards runs of units (first, number) that nobody uses, on all sides that can, or on one.
    pub(crate) fn discard(&self, runs: &[(u64, u64)], only: Option<Guid>) -> Result<()> {
        let sides = self.sides();
        for side in sides.iter().filter(|side| only.is_none_or(|only| only == side.guid)) {
            let Some(device) = side.writable().filter(|device| device.info().can_discard) else { continue };
            for (unit, units) in runs {
                device.discard(self.offset(*unit), units * UNIT_BYTES)?;
            }
        }
        Ok(())
    }
}
