//! Devices of a mirror that go away and come back.
//!
//! A device that failed a flush is poisoned until its last handle is closed, so it must be released before it
//! is opened again; and what it missed must be copied onto it.

use std::sync::Arc;

use crate::devices::config::DeviceState;
use crate::devices::label::{self, data_units};
use crate::devices::vdev::{Device, Side};
use crate::error::{PoolError, Result};
use crate::ids::Guid;
use crate::pool::Pool;
use fastness_sync::order::{lock, write};

/// Why a side cannot go.
pub(crate) const NO_OTHER: &str =
    "no other side of its mirror has everything; attach one, or wait until it is resilvered";

impl Pool {
    /// Releases a device: it is stale, and missing until [`online`](Self::online). Nothing is copied.
    ///
    /// Persistence: on return the labels of the others say that it is stale.
    ///
    /// # Errors
    /// [`PoolError::Busy`] if no other side is current; [`PoolError::Invalid`] for an unknown device.
    pub fn offline(&self, device: Guid) -> Result<()> {
        let shared = &self.shared;
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        self.check_changeable()?;
        let (vdev, mut sides, at) = self.find_side(device)?;
        {
            let _no_log_io = write(&vdev.log_io);
            let is_other = |index: &usize| *index != at && !sides[*index].is_stale();
            if (0..sides.len()).find(is_other).is_none() {
                return Err(PoolError::Busy { name: sides[at].path.clone(), why: NO_OTHER });
            }
            sides[at] = Arc::new(sides[at].taken_offline());
            vdev.set_sides(sides);
        }
        shared.write_labels(|_| ())
    }

    /// Returns a missing device to the pool, under this path or another. It is stale until
    /// [`resilver`](Self::resilver) has brought it up to date; new txgs write to it at once.
    ///
    /// # Errors
    /// [`PoolError::Busy`] if the device is not missing; [`PoolError::ForeignPool`] or [`PoolError::Removed`]
    /// if it is a different device; [`PoolError::TooSmall`].
    pub fn online(&self, guid: Guid, device: Device) -> Result<()> {
        let shared = &self.shared;
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        self.check_changeable()?;
        let (vdev, mut sides, at) = self.find_side(guid)?;
        if sides[at].device.is_some() {
            return Err(PoolError::Busy { name: device.path, why: "the pool has this device already" });
        }
        let probe = device.probe()?;
        let config = lock(&shared.devices.config).clone();
        if probe.config.guid != config.guid {
            return Err(PoolError::ForeignPool {
                path: device.path,
                found: probe.config.guid,
                found_name: probe.config.name,
                expected: config.guid,
                expected_name: config.name,
            });
        }
        if probe.guid != guid {
            return Err(PoolError::Removed { path: device.path, guid: probe.guid, pool: config.name });
        }
        let len_bytes = device.device.len_bytes();
        if data_units(len_bytes) < vdev.units() {
            return Err(label::too_small(device.path, len_bytes, vdev.units()));
        }
        let before = sides.clone();
        sides[at] = Arc::new(sides[at].with_device(device.path, Some(device.device)));
        debug_assert!(sides[at].is_stale(), "what it missed is not there yet");
        shared.set_sides_with_new(&vdev, sides, guid);
        let written = shared.write_labels(|_| ());
        if written.is_err() {
            vdev.set_sides(before);
        }
        written
    }
}

impl Side {
    /// The same side, stale, released because a user said so.
    fn taken_offline(&self) -> Side {
        let mut side = self.with_device(self.path.clone(), None);
        side.is_offline = true;
        side
    }

    /// The same side, stale, with another device or none.
    pub(crate) fn with_device(
        &self,
        path: String,
        device: Option<Arc<dyn fastness_blkdev::BlockDevice>>,
    ) -> Side {
        let state = match self.state() {
            DeviceState::GivenUp => DeviceState::GivenUp,
            _ => DeviceState::Stale,
        };
        let side = Side::new(self.guid, path, device, state);
        side.take_counters(self);
        side
    }
}
