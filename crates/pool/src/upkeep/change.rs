//! Changing a pool's devices while it is in use.

use std::sync::Arc;

use crate::devices::config::{DeviceState, PoolState, VdevClass};
use crate::devices::label::{self, data_units};
use crate::devices::vdev::{Device, Side, Vdev};
use crate::error::{PoolError, Result};
use crate::ids::Guid;
#[cfg(doc)]
use crate::import::options::ImportOptions;
use crate::import::options::VdevSpec;
use crate::pool::Pool;
use crate::state::Shared;
use crate::upkeep::damage::Found;
use crate::upkeep::online::NO_OTHER;
use crate::upkeep::scrub::ScrubReport;
use fastness_sync::order::{lock, write};

impl Pool {
    /// Adds a vdev. Returns its number.
    ///
    /// Persistence: on return the vdev belongs to the pool. A crash during the call leaves the pool with or
    /// without it. Until the next txg the other devices cannot be told from copies taken just before; a
    /// caller that relies on the vdev must sync first.
    ///
    /// # Errors
    /// Those of [`Pool::create`] for the devices, [`PoolError::Suspended`].
    pub fn add(&self, spec: &VdevSpec) -> Result<u16> {
        let shared = &self.shared;
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        self.check_changeable()?;
        let last = shared.devices.vdevs.all().iter().map(|vdev| vdev.id).max();
        let id = last.map_or(Some(0), |last| last.checked_add(1));
        let id = id.ok_or_else(|| PoolError::invalid("number of a new vdev", u32::from(u16::MAX) + 1))?;
        let vdev = Arc::new(spec.build(id)?);
        for device in &spec.devices {
            label::erase(&*device.device)?;
        }
        shared.devices.vdevs.add(vdev.clone());
        // It has everything of the txgs so far, which is nothing. The flush of its label makes the mark
        // durable.
        let label = |side: &Arc<Side>| shared.write_last_mark(side).and_then(|()| shared.label_first(side));
        let labelled = vdev.sides().iter().try_for_each(label);
        let named = labelled.and_then(|()| shared.write_labels(|_| ()));
        if let Err(error) = named.and_then(|()| shared.tell_of_last_txg(&vdev)) {
            shared.devices.vdevs.remove(id);
            // Some labels may name it already, and it will not get the next txg.
            let _ = shared.write_labels(|_| ());
            return Err(error);
        }
        if spec.class == VdevClass::Normal {
            // Only now: nothing may be stored on a vdev that no label names.
            let mut allocator = lock(&shared.space.allocator);
            allocator.add_vdev(id, vdev.units());
            // At once: a full pool has nothing to sync before it.
            shared.note_free(&allocator);
        } else {
            lock(&shared.space.log).add_vdev(&vdev);
        }
        Ok(id)
    }

    /// Removes a log vdev that holds no log blocks. Nothing is allocated on it from the call on, whether the
    /// call succeeds or not; see [`LogSpace::retire`](crate::LogSpace::retire).
    ///
    /// Persistence: on return the vdev no longer belongs to the pool. A crash during the call leaves the pool
    /// with or without it.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a vdev that is not for logs; [`PoolError::LogInUse`]; [`PoolError::Busy`]
    /// before txgs may run, when blocks may not have been claimed yet.
    pub fn remove(&self, id: u16) -> Result<()> {
        let shared = &self.shared;
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        self.check_changeable()?;
        let vdev = shared.devices.vdevs.get(id).filter(|vdev| vdev.class == VdevClass::Log);
        let vdev = vdev.ok_or_else(|| PoolError::invalid("number of a log vdev", id))?;
        lock(&shared.space.log).remove_vdev(&vdev)?;
        shared.devices.vdevs.remove(id);
        shared.write_labels(|_| ())?;
        for side in vdev.sides() {
            if let Some(device) = side.writable() {
                label::erase(&**device)?;
                device.flush()?;
            }
        }
        Ok(())
    }

    /// Refuses what [`destroy`](Self::destroy) would refuse; changes nothing.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`], [`PoolError::Suspended`], [`PoolError::Closed`].
    pub fn check_destroyable(&self) -> Result<()> {
        self.check_changeable()
    }

    /// Syncs everything, says in the labels that the pool is destroyed, and closes it. Its devices are free
    /// for other pools; until one takes them, an import with [`ImportOptions::allows_destroyed`] brings it
    /// back.
    ///
    /// Persistence: on return the pool is destroyed. A crash during the call leaves it as it was, or
    /// destroyed.
    ///
    /// # Errors
    /// As [`check_destroyable`](Self::check_destroyable): nothing was changed. Those of a sync and of the
    /// devices: the pool is closed, and an import finds it as after a crash, or destroyed.
    pub fn destroy(&self) -> Result<()> {
        self.check_destroyable()?;
        let result = self.last_sync(PoolState::Destroyed).and_then(|()| {
            let _syncing = lock(&self.shared.txgs.syncing);
            // In the slot of the generation before as well: no reader goes back to a pool that is in use.
            self.shared.write_labels(|_| ())
        });
        self.stop();
        result
    }

    /// Adds a side to the vdev of device `to`, and copies everything onto it. If `progress` returns `false`,
    /// the side stays stale; [`resilver`](Self::resilver) continues.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for an unknown device, [`PoolError::TooSmall`].
    pub fn attach(
        &self,
        to: Guid,
        device: Device,
        progress: impl FnMut(&ScrubReport) -> bool,
    ) -> Result<ScrubReport> {
        let guid = Guid::random();
        {
            let shared = &self.shared;
            let _syncing = lock(&shared.txgs.syncing);
            let _naming = lock(&shared.devices.naming);
            self.check_changeable()?;
            let (vdev, mut sides, _) = self.find_side(to)?;
            let len_bytes = device.device.len_bytes();
            if data_units(len_bytes) < vdev.units() {
                return Err(label::too_small(device.path, len_bytes, vdev.units()));
            }
            label::erase(&*device.device)?;
            let state = DeviceState::Stale;
            let before = sides.clone();
            let side = Arc::new(Side::new(guid, device.path, Some(device.device), state));
            sides.push(side.clone());
            shared.set_sides_with_new(&vdev, sides, guid);
            if let Err(error) = shared.label_first(&side).and_then(|()| shared.write_labels(|_| ())) {
                vdev.set_sides(before);
                return Err(error);
            }
        }
        self.resilver(guid, progress)
    }

    /// Brings a stale device up to date.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for an unknown device; those of reading the tables.
    pub fn resilver(
        &self,
        device: Guid,
        mut progress: impl FnMut(&ScrubReport) -> bool,
    ) -> Result<ScrubReport> {
        let (vdev, sides, at) = self.find_side(device)?;
        self.check_changeable()?;
        let mut found = Found::default();
        let report = self.shared.resilver(&vdev, &sides[at], &mut found, &mut progress);
        self.keep_damage(found, false);
        report
    }

    /// Removes a side from its mirror.
    ///
    /// # Errors
    /// [`PoolError::Busy`] if no other side is current.
    pub fn detach(&self, device: Guid) -> Result<()> {
        let shared = &self.shared;
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        self.check_changeable()?;
        let (vdev, mut sides, at) = self.find_side(device)?;
        let side = sides.remove(at);
        {
            let _no_log_io = write(&vdev.log_io);
            if sides.iter().all(|side| side.is_stale()) {
                return Err(PoolError::Busy { name: side.path.clone(), why: NO_OTHER });
            }
            vdev.set_sides(sides);
        }
        shared.write_labels(|_| ())?;
        if let Some(device) = side.writable() {
            // The pool is already correct without it; an import recognises an old label.
            let _ = label::erase(&**device);
        }
        Ok(())
    }

    /// Replaces a device: attaches the new one, and detaches the old one once the new one is current. If
    /// something could not be read, both stay.
    ///
    /// # Errors
    /// As [`attach`](Self::attach) and [`detach`](Self::detach).
    pub fn replace(
        &self,
        old: Guid,
        new: Device,
        progress: impl FnMut(&ScrubReport) -> bool,
    ) -> Result<ScrubReport> {
        let path = new.path.clone();
        let report = self.attach(old, new, progress)?;
        let (_, sides, _) = self.find_side(old)?;
        let is_current = sides.iter().any(|side| side.path == path && side.guid != old && !side.is_stale());
        if is_current {
            self.detach(old)?;
        }
        Ok(report)
    }

    pub(crate) fn check_changeable(&self) -> Result<()> {
        if self.shared.options.is_read_only {
            return Err(PoolError::ReadOnly(self.name()));
        }
        self.shared.check_alive()
    }

    pub(crate) fn find_side(&self, guid: Guid) -> Result<(Arc<Vdev>, Vec<Arc<Side>>, usize)> {
        for vdev in self.shared.devices.vdevs.all() {
            let sides = vdev.sides();
            if let Some(at) = sides.iter().position(|side| side.guid == guid) {
                return Ok((vdev, sides, at));
            }
        }
        Err(PoolError::invalid("device", guid))
    }
}

impl Shared {
    /// Gives a new device its label before any other device names it: a crash in between must not leave a
    /// pool that requires a device without a label.
    fn label_first(&self, side: &Side) -> Result<()> {
        let device = side.writable().ok_or_else(|| side.unusable())?;
        let mut config = lock(&self.devices.config).clone();
        config.generation += 1;
        config.txg = self.txgs.pipeline.open_txg();
        config.vdevs = self.devices.vdevs.all().iter().map(|vdev| vdev.config()).collect();
        label::write_config(&**device, side.guid, &config)
    }

    /// Gives a new vdev the last uberblock, as soon as other devices name it: whatever is acknowledged next
    /// may be on it, and it must then be able to tell if the others are older copies.
    fn tell_of_last_txg(&self, vdev: &Vdev) -> Result<()> {
        for side in vdev.sides() {
            self.write_last_uberblock(&side)?;
            // PERSIST: before anything is acknowledged because of it.
            side.writable().ok_or_else(|| side.unusable())?.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastness_blkdev::MemDevice;

    use crate::devices::vdev::Device;
    use crate::error::PoolError;
    use crate::import::options::VdevSpec;
    use crate::pool::Pool;
    use crate::state::options::PoolOptions;

    /// A label may say any number.
    #[test]
    fn when_the_last_number_is_taken_no_vdev_is_added() {
        let spec = || VdevSpec::single(Device::new("disk", Arc::new(MemDevice::new("disk", 24 << 20))));
        let pool = Pool::create("tank", &[spec()], PoolOptions::default()).unwrap();
        assert_eq!(pool.add(&spec().log()).unwrap(), 1);
        let vdevs = &pool.shared.devices.vdevs;
        vdevs.add(Arc::new(spec().build(u16::MAX).unwrap()));
        assert!(matches!(pool.add(&spec().log()), Err(PoolError::Invalid { .. })));
        vdevs.remove(u16::MAX);
    }
}
