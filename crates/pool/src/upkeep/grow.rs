//! Devices that have become larger since their vdev was made.

use std::sync::Arc;

use crate::devices::config::VdevClass;
use crate::devices::label::data_units;
use crate::devices::vdev::Vdev;
use crate::error::{PoolError, Result};
use crate::ids::{Guid, UNIT_BYTES};
use crate::pool::Pool;
use crate::state::Shared;
use fastness_sync::order::lock;

impl Pool {
    /// Uses the space by which all sides of the vdev of this device have grown. Returns by how many bytes the
    /// vdev is larger; 0: a side has not grown, and nothing was changed.
    ///
    /// Persistence: on return the labels say how large the vdev is. A crash during the call leaves it as
    /// large as it was, or as it is now.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for an unknown device, or one for logs; [`PoolError::Busy`] unless all of its
    /// sides are there and have everything; those of the devices.
    pub fn expand(&self, device: Guid) -> Result<u64> {
        let shared = &self.shared;
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        self.check_changeable()?;
        let (vdev, sides, at) = self.find_side(device)?;
        if vdev.class != VdevClass::Normal {
            return Err(PoolError::invalid("device to expand, for logs", &sides[at].path));
        }
        // Labels are at the end of a device, so they move. A side that missed generations needs both of its
        // labels until it has the newest.
        if let Some(side) = sides.iter().find(|side| side.is_stale() || side.writable().is_none()) {
            let name = side.path.clone();
            let why = "all sides of a mirror must be there, and resilvered, before it grows";
            return Err(PoolError::Busy { name, why });
        }
        shared.expand(&vdev)
    }
}

impl Shared {
    fn expand(&self, vdev: &Arc<Vdev>) -> Result<u64> {
        let (mut units, mut has_grown) = (u64::MAX, false);
        for side in vdev.sides() {
            let device = side.writable().ok_or_else(|| side.unusable())?;
            let before = device.len_bytes();
            let len_bytes = device.take_growth()?;
            units = units.min(data_units(len_bytes));
            if len_bytes > before {
                has_grown = true;
                self.write_last_mark(&side)?;
                self.write_last_uberblock(&side)?;
                device.flush()?;
            }
        }
        let before = vdev.units();
        if units <= before && !has_grown {
            return Ok(0);
        }
        vdev.set_units(units.max(before));
        if let Err(error) = self.write_labels(|_| ()) {
            // Some labels may say otherwise; nothing is there.
            vdev.set_units(before);
            return Err(error);
        }
        // Only now: nothing may be stored where no label says that the vdev is.
        let mut allocator = lock(&self.space.allocator);
        allocator.grow_vdev(vdev.id, vdev.units());
        // At once: a full pool has nothing to sync before it.
        self.note_free(&allocator);
        Ok((vdev.units() - before) * UNIT_BYTES)
    }
}
