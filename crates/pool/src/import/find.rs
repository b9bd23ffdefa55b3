//! From devices to a pool: which configuration is valid, which devices are missing, and the newest uberblock.
//!
//! The newest configuration wins, among those of devices that have an uberblock. A missing side is harmless
//! if the others know that it is stale. Otherwise the others may be the ones left behind: nothing on them can
//! tell, and only the caller's consent helps. ZFS imports in that case without a word; mdadm and Btrfs ask,
//! as we do.
//!
//! A device that is an older copy of itself, put back, is recognised by its marks (`label`): as a side of a
//! mirror it is stale, alone it is refused. It is also refused if the only device that knows better is a side
//! that the copy's label calls stale.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::devices::config::{DeviceConfig, DeviceState, PoolConfig, VdevClass, VdevConfig};
use crate::devices::label::{Labels, Uberblock, data_units, read_labels};
use crate::devices::vdev::{Device, Side, Vdev, Vdevs};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Txg};
use crate::import::options::{ImportOptions, MissingLog};

/// What an import needs.
pub(crate) struct Found {
    pub(crate) config: PoolConfig,
    pub(crate) vdevs: Arc<Vdevs>,
    /// The newest.
    pub(crate) uberblock: Uberblock,
}

/// Reads all labels and determines what the pool is, and its last synced txg. Changes nothing.
pub(crate) fn find(devices: &[Device], import: &ImportOptions) -> Result<Found> {
    let mut labelled: Vec<(&Device, Labels)> = Vec::new();
    for device in devices {
        labelled.push((device, read_labels(&device.path, &device.device)?));
    }
    // A device without an uberblock was being added: until another device names it too, it is ignored here.
    let newest = labelled.iter().max_by_key(|(_, labels)| {
        (
            labels.uberblock.is_some(),
            labels.config.generation,
            labels.uberblock.as_ref().map(|uberblock| uberblock.txg),
        )
    });
    let config = match newest {
        Some((_, labels)) => labels.config.clone(),
        None => return Err(PoolError::NoDevice),
    };
    for (device, labels) in &labelled {
        if labels.config.guid != config.guid {
            return Err(PoolError::ForeignPool {
                path: device.path.clone(),
                found: labels.config.guid,
                found_name: labels.config.name.clone(),
                expected: config.guid,
                expected_name: config.name,
            });
        }
        if config.find(labels.device).is_none() {
            return Err(PoolError::Removed {
                path: device.path.clone(),
                guid: labels.device,
                pool: config.name,
            });
        }
    }
    check_split(&config, &labelled)?;
    if import.name.as_ref().is_some_and(|name| *name != config.name) {
        return Err(PoolError::OtherName(config.name));
    }
    let by_guid: BTreeMap<Guid, (&Device, &Labels)> =
        labelled.iter().map(|(device, labels)| (labels.device, (*device, labels))).collect();
    let mut uberblock = None::<&Uberblock>;
    let mut vdevs = Vec::new();
    for vdev in &config.vdevs {
        let open = |known: &DeviceConfig| Arc::new(open_side(vdev, known, by_guid.get(&known.guid).copied()));
        let sides: Vec<_> = vdev.devices.iter().map(open).collect();
        for side in sides.iter().filter(|side| !side.is_stale()) {
            let found = by_guid.get(&side.guid).and_then(|(_, labels)| labels.uberblock.as_ref());
            uberblock = uberblock.into_iter().chain(found).max_by_key(|uberblock| uberblock.txg);
        }
        vdevs.push((vdev, sides));
    }
    let here = Here { config: &config, import, by_guid };
    let Some(uberblock) = uberblock.cloned() else {
        // Nothing current is left; an error about what is missing says more than that.
        vdevs.iter().try_for_each(|(vdev, sides)| here.check_missing(vdev, sides))?;
        return Err(PoolError::NoUberblock { pool: config.name });
    };
    here.check_ahead(&vdevs, &uberblock)?;
    for (vdev, sides) in &vdevs {
        here.check_copies(vdev, sides, &uberblock)?;
        here.check_missing(vdev, sides)?;
    }
    let vdevs = vdevs.into_iter().map(|(vdev, sides)| Vdev::new(vdev.id, vdev.class, vdev.units, sides));
    let vdevs = Vdevs::new(vdevs.map(Arc::new));
    Ok(Found { config, vdevs: Arc::new(vdevs), uberblock })
}

fn open_side(vdev: &VdevConfig, known: &DeviceConfig, here: Option<(&Device, &Labels)>) -> Side {
    let path = here.map_or(&known.path, |(device, _)| &device.path).clone();
    let side = Side::new(known.guid, path, here.map(|(device, _)| device.device.clone()), known.state);
    if here.is_some_and(|(device, _)| data_units(device.device.len_bytes()) < vdev.units) {
        // The device has shrunk: the part that is gone may have held data.
        side.set_stale(true);
    }
    side
}

/// The devices that were found.
struct Here<'a> {
    config: &'a PoolConfig,
    import: &'a ImportOptions,
    by_guid: BTreeMap<Guid, (&'a Device, &'a Labels)>,
}

impl Here<'_> {
    /// Marks sides as stale that are older copies of themselves: they have no mark of the newest uberblock.
    /// Refuses a vdev that has no other side, if what it lacks counts.
    fn check_copies(&self, vdev: &VdevConfig, sides: &[Arc<Side>], newest: &Uberblock) -> Result<()> {
        let marks = |side: &Side| self.by_guid.get(&side.guid).map_or(&[][..], |(_, labels)| &labels.marks);
        let (current, old): (Vec<_>, Vec<_>) = sides
            .iter()
            .filter(|side| !side.is_stale())
            .partition(|side| marks(side).contains(&newest.mark()));
        if let (Some(side), true) = (old.first(), current.is_empty()) {
            let is_log = vdev.class == VdevClass::Log;
            // It may have failed to take this txg, and still count.
            if is_log && newest.lacks(vdev.id, marks(side)) {
                return Ok(());
            }
            if !(is_log && self.import.missing_log == MissingLog::Drop) {
                return Err(self.old_copy(vdev, side, newest.txg));
            }
        }
        old.iter().for_each(|side| side.set_stale(true));
        Ok(())
    }

    /// Refuses current sides that are older copies of themselves, when the only device that knows better is a
    /// side that they call stale. A writable side takes every txg, stale or not, so a crash leaves it ahead
    /// by one at most.
    fn check_ahead(&self, vdevs: &[(&VdevConfig, Vec<Arc<Side>>)], newest: &Uberblock) -> Result<()> {
        let its_txg = |side: &Arc<Side>| Some(self.by_guid.get(&side.guid)?.1.uberblock.as_ref()?.txg);
        let current = |sides: &[Arc<Side>]| sides.iter().find(|side| !side.is_stale()).cloned();
        for (vdev, sides) in vdevs {
            let ahead = sides.iter().filter(|side| side.is_stale()).filter_map(its_txg).max();
            let Some(txg) = ahead.filter(|txg| *txg > newest.txg.next()) else { continue };
            // The other sides of its vdev; for a vdev without others, every device found.
            let all = [(*vdev, sides)].into_iter().chain(vdevs.iter().map(|(vdev, sides)| (*vdev, sides)));
            let mut old = all.filter_map(|(vdev, sides)| Some((vdev, current(sides)?)));
            if let Some((vdev, side)) = old.next() {
                return Err(self.old_copy(vdev, &side, txg));
            }
        }
        Ok(())
    }

    fn old_copy(&self, vdev: &VdevConfig, side: &Side, expected: Txg) -> PoolError {
        let marks = self.by_guid.get(&side.guid).map_or(&[][..], |(_, labels)| &labels.marks);
        PoolError::OldCopy {
            pool: self.config.name.clone(),
            vdev: vdev.id,
            guid: side.guid,
            path: side.path.clone(),
            found: marks.iter().map(|mark| mark.txg).max(),
            expected,
        }
    }

    /// Refuses a vdev with a missing device that counts, unless the caller chose to go on without it.
    fn check_missing(&self, vdev: &VdevConfig, sides: &[Arc<Side>]) -> Result<()> {
        let pool = || self.config.name.clone();
        let is_lost = sides.iter().all(|side| side.is_stale());
        let is_log = vdev.class == VdevClass::Log;
        let online = vdev.devices.iter().find(|device| device.state == DeviceState::Online);
        if is_lost && !is_log {
            let DeviceConfig { guid, path, .. } = online.unwrap_or(&vdev.devices[0]).clone();
            return Err(PoolError::MissingDevice { pool: pool(), vdev: vdev.id, guid, path });
        }
        if is_lost {
            return match (online, self.import.missing_log) {
                (Some(DeviceConfig { guid, path, .. }), MissingLog::Refuse) => {
                    let (guid, path) = (*guid, path.clone());
                    Err(PoolError::MissingLog { pool: pool(), vdev: vdev.id, guid, path })
                }
                // Labels that call all of its sides stale show that the pool has gone on without it.
                _ => Ok(()),
            };
        }
        let is_missed = |known: &&DeviceConfig| {
            known.state == DeviceState::Online && !self.by_guid.contains_key(&known.guid)
        };
        match vdev.devices.iter().find(is_missed).filter(|_| !self.import.allows_degraded) {
            Some(DeviceConfig { guid, path, .. }) => {
                let (guid, path) = (*guid, path.clone());
                Err(PoolError::MissingSide { pool: pool(), vdev: vdev.id, guid, path })
            }
            None => Ok(()),
        }
    }
}

/// Refuses sides of a mirror that call each other stale: each was used without the other, and one must give
/// way. Also refuses a side that failed just when the other had been resilvered from it; that is as bad as a
/// split.
fn check_split(config: &PoolConfig, labelled: &[(&Device, Labels)]) -> Result<()> {
    let find = |guid| labelled.iter().find(|(_, labels)| labels.device == guid);
    for vdev in &config.vdevs {
        let sides = |state| vdev.devices.iter().filter(move |side| side.state == state);
        for stale in vdev.devices.iter().filter(|side| side.state != DeviceState::Online) {
            let Some((other, labels)) = find(stale.guid) else { continue };
            let says_stale = |guid| {
                let devices = labels.config.vdevs.iter().flat_map(|vdev| &vdev.devices);
                devices.into_iter().any(|side| side.guid == guid && side.state != DeviceState::Online)
            };
            let mut current = sides(DeviceState::Online).filter(|side| says_stale(side.guid));
            if let Some((device, _)) = current.find_map(|side| find(side.guid)) {
                let (path, other_path) = (device.path.clone(), other.path.clone());
                return Err(PoolError::Split { pool: config.name.clone(), path, other_path });
            }
        }
    }
    Ok(())
}
