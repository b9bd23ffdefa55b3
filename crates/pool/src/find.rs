//! From devices to a pool: which configuration counts, who is missing, and the newest uberblock.
//!
//! The newest configuration counts, of those that a device with an uberblock has. A missing side is harmless if the
//! others know that it is stale. Otherwise the others may be the ones left behind: then nothing on them can tell,
//! and only the caller's consent helps. ZFS imports in that case without a word; mdadm and Btrfs ask, as we do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{DeviceConfig, DeviceState, PoolConfig, VdevClass};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Txg};
use crate::import::{ImportOptions, MissingLog};
use crate::label::{Labels, data_units, read_labels};
use crate::vdev::{Device, Side, Vdev, Vdevs};

/// What an import needs.
pub(crate) struct Found {
    pub(crate) config: PoolConfig,
    pub(crate) vdevs: Arc<Vdevs>,
    /// Payload of the newest, with its txg.
    pub(crate) uberblock: (Txg, Vec<u8>),
}

/// Reads all labels and decides what the pool is, and its last synced txg. Changes nothing.
pub(crate) fn find(devices: &[Device], import: &ImportOptions) -> Result<Found> {
    let mut labelled: Vec<(&Device, Labels)> = Vec::new();
    for device in devices {
        labelled.push((device, read_labels(&device.path, &device.device)?));
    }
    // A device without an uberblock was being added: until another device names it too, it decides nothing.
    let newest = labelled.iter().max_by_key(|(_, labels)| {
        (labels.uberblock.is_some(), labels.config.generation, labels.uberblock.as_ref().map(|(txg, _)| *txg))
    });
    let config = match newest {
        Some((_, labels)) => labels.config.clone(),
        None => return Err(PoolError::BadConfig("no device was given".to_owned())),
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
        return Err(PoolError::BadConfig(format!("the devices belong to pool {}", config.name)));
    }
    let by_guid: BTreeMap<Guid, (&Device, &Labels)> =
        labelled.iter().map(|(device, labels)| (labels.device, (*device, labels))).collect();
    let mut uberblock = None::<(Txg, Vec<u8>)>;
    let mut vdevs = Vec::new();
    for vdev in &config.vdevs {
        let mut sides = Vec::new();
        for known in &vdev.devices {
            let here = by_guid.get(&known.guid);
            let path = here.map_or(&known.path, |(device, _)| &device.path).clone();
            let side =
                Side::new(known.guid, path, here.map(|(device, _)| device.device.clone()), known.state);
            if let Some((device, labels)) = here {
                if data_units(device.device.len_bytes()) < vdev.units {
                    // It has shrunk: what is gone may hold data.
                    side.set_stale(true);
                }
                let newer =
                    |(txg, _): &&(Txg, Vec<u8>)| uberblock.as_ref().is_none_or(|(newest, _)| txg > newest);
                if !side.is_stale()
                    && let Some(newer) = labels.uberblock.as_ref().filter(newer)
                {
                    uberblock = Some(newer.clone());
                }
            }
            sides.push(Arc::new(side));
        }
        if vdev.class == VdevClass::Normal && sides.iter().all(|side| side.is_stale()) {
            let missing = vdev.devices.iter().find(|device| device.state == DeviceState::Online);
            let missing = missing.unwrap_or(&vdev.devices[0]);
            return Err(PoolError::MissingDevice {
                pool: config.name,
                vdev: vdev.id,
                guid: missing.guid,
                path: missing.path.clone(),
            });
        }
        let is_lost_log = vdev.class == VdevClass::Log && sides.iter().all(|side| side.is_stale());
        // Labels that call all of its sides stale say that an import was told to go on without it.
        if let Some(missing) = vdev.devices.iter().find(|device| device.state == DeviceState::Online)
            && is_lost_log
            && import.missing_log == MissingLog::Refuse
        {
            return Err(PoolError::MissingLog {
                pool: config.name,
                vdev: vdev.id,
                guid: missing.guid,
                path: missing.path.clone(),
            });
        }
        let is_missed =
            |known: &&DeviceConfig| known.state == DeviceState::Online && !by_guid.contains_key(&known.guid);
        if let Some(missed) = vdev.devices.iter().find(is_missed)
            && !is_lost_log
            && !import.allows_degraded
        {
            return Err(PoolError::MissingSide {
                pool: config.name,
                vdev: vdev.id,
                guid: missed.guid,
                path: missed.path.clone(),
            });
        }
        vdevs.push(Arc::new(Vdev::new(vdev.id, vdev.class, vdev.units, sides)));
    }
    let uberblock = uberblock.ok_or_else(|| PoolError::NoUberblock { pool: config.name.clone() })?;
    Ok(Found { config, vdevs: Arc::new(Vdevs::new(vdevs)), uberblock })
}

/// Refuses sides of a mirror that call each other stale: each was used without the other, and one must give way.
/// Also refused is a side that failed just when the other had been resilvered from it; that is as good as a split.
fn check_split(config: &PoolConfig, labelled: &[(&Device, Labels)]) -> Result<()> {
    let find = |guid| labelled.iter().find(|(_, labels)| labels.device == guid);
    for vdev in &config.vdevs {
        let sides = |state| vdev.devices.iter().filter(move |side| side.state == state);
        for stale in sides(DeviceState::Stale) {
            let Some((other, labels)) = find(stale.guid) else { continue };
            let says_stale = |guid| {
                let devices = labels.config.vdevs.iter().flat_map(|vdev| &vdev.devices);
                devices.into_iter().any(|side| side.guid == guid && side.state == DeviceState::Stale)
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
