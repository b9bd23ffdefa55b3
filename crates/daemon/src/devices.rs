//! Devices on command lines: opened for a new pool, or scanned for the parts of an existing one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastness_base::ErrorKind;
use fastness_blkdev::{AlignedBuf, BlockDevice};
use fastness_remote::is_remote;
use fastness_store::{
    Device, Guid, PoolConfig, PoolError, PoolState, Probe, RegionWitness, Txg, VdevClass, VdevSpec,
};

use crate::error::StartError;
use crate::paths::absolute;
use crate::protocol::VdevRequest;

/// Signatures that other owners write at the start of a device: offset, bytes, name.
const SIGNATURES: [(usize, &[u8], &str); 6] = [
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (512, b"EFI PART", "a partition table"),
    (0x218, b"LVM2", "an LVM physical volume"),
    (0xff6, b"SWAPSPACE2", "swap space"),
];
const SIGNATURE_BYTES: usize = 128 << 10;

/// Opens the devices of new vdevs. A path that does not exist becomes a file of `create_bytes`, if given;
/// `created` gets the paths of these. On an error they are removed again, before another process can take
/// them.
///
/// # Errors
/// [`StartError::InUse`] for a device that holds data, unless `is_forced`; errors of opening.
pub fn open_vdevs(
    requests: &[VdevRequest],
    create_bytes: Option<u64>,
    is_forced: bool,
    created: &mut Vec<PathBuf>,
) -> Result<Vec<VdevSpec>, StartError> {
    let mut specs: Vec<VdevSpec> = Vec::new();
    for request in requests {
        let class = if request.is_log { VdevClass::Log } else { VdevClass::Normal };
        let mut spec = VdevSpec { class, devices: Vec::new() };
        for path in &request.devices {
            match open_or_create(path, create_bytes, is_forced, created) {
                Ok(device) => spec.devices.push(device),
                Err(error) => {
                    created.drain(..).for_each(|path| drop(fs::remove_file(path)));
                    return Err(error);
                }
            }
        }
        specs.push(spec);
    }
    Ok(specs)
}

fn open_or_create(
    path: &str,
    create_bytes: Option<u64>,
    is_forced: bool,
    created: &mut Vec<PathBuf>,
) -> Result<Device, StartError> {
    let place = absolute(Path::new(path))?;
    if let (Some(len_bytes), false) = (create_bytes, is_remote(&place) || place.exists()) {
        let device = Device::create_sparse(&place, len_bytes)?;
        created.push(place);
        return Ok(device);
    }
    open_new(path, is_forced)
}

/// Opens a device that is to become part of a pool.
pub(crate) fn open_new(path: &str, is_forced: bool) -> Result<Device, StartError> {
    let device = Device::open_within(absolute(Path::new(path))?, Device::LOOK)?;
    if !is_forced && let Some(what) = contents(&device) {
        return Err(StartError::InUse { path: path.to_owned(), what });
    }
    Ok(device)
}

/// What data on a device may be worth keeping.
fn contents(device: &Device) -> Option<String> {
    match device.probe() {
        // Whoever destroyed it gave the device away.
        Ok(probe) if probe.config.state == PoolState::Destroyed => {}
        Ok(probe) => return Some(format!("a device of pool {} on it", probe.config.name)),
        Err(PoolError::OtherVersion { .. }) => return Some("a pool of another version on it".to_owned()),
        Err(PoolError::DamagedLabels { .. }) => return Some("damaged labels of a pool on it".to_owned()),
        Err(_) => {}
    }
    if let Some(region) = RegionWitness::at(Path::new(&device.path)) {
        return Some(format!("the log of pool {} on it", region.pool));
    }
    let len = SIGNATURE_BYTES.min(device.device.len_bytes() as usize);
    let mut bytes = AlignedBuf::zeroed(len, device.device.info().memory_align_bytes.max(4096));
    // A read error shows again when the device is used.
    device.device.read_at(0, &mut bytes).ok()?;
    let is_there = |(at, magic, _): &&(usize, &[u8], &str)| bytes.get(*at..at + magic.len()) == Some(*magic);
    SIGNATURES.iter().find(is_there).map(|(_, _, name)| format!("{name} on it"))
}

/// Clears the labels of a device that no process uses; durable on return. The device of a pool that was
/// destroyed needs no force.
///
/// # Errors
/// [`StartError::InUse`] for a device of a pool that could be imported, unless `is_forced`;
/// [`PoolError::NoLabel`]; errors of opening, among them a pool that runs.
pub fn clear_labels(path: &Path, is_forced: bool) -> Result<(), StartError> {
    let device = Device::open_within(absolute(path)?, Device::LOOK)?;
    match device.probe() {
        Err(error @ PoolError::NoLabel { .. }) => return Err(error.into()),
        Err(error @ PoolError::Device(_)) => return Err(error.into()),
        _ => {}
    }
    if !is_forced && let Some(what) = contents(&device) {
        return Err(StartError::InUse { path: path.display().to_string(), what });
    }
    Ok(device.clear_labels()?)
}

/// A device with a label.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Where.
    pub path: String,
    /// Its own name.
    pub guid: Guid,
    /// What it says of its pool.
    pub config: PoolConfig,
    /// Its newest txg; `None` if it was being added when the power failed.
    pub txg: Option<Txg>,
}

/// A pool that was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// The newest description of it.
    pub config: PoolConfig,
    /// Its devices.
    pub devices: Vec<Candidate>,
    /// Last known paths of devices that were not found.
    pub missing: Vec<String>,
}

impl Found {
    /// Whether it was destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.config.state == PoolState::Destroyed
    }

    /// Whether its last process ended without exporting it.
    pub fn was_left_open(&self) -> bool {
        self.config.state == PoolState::Active
    }
}

/// A device that could not be examined.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Where.
    pub path: String,
    /// The reason.
    pub why: String,
    /// Another process has it.
    pub is_busy: bool,
}

/// Default time to wait for a device that is in use: the kernel releases the devices of a process that just
/// exited, or was killed, only after its requests have completed, which can take a while on a busy disk.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Looks for devices of pools: `places` are devices, folders of them, or pools of RBD images. Also returns
/// those that could not be examined.
pub fn scan(places: &[PathBuf]) -> (Vec<Found>, Vec<Unreadable>) {
    let scan = Scan::of(places);
    (scan.found(), scan.unreadable)
}

/// The labels of devices.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    by_pool: BTreeMap<Guid, Vec<Candidate>>,
    /// Devices that could not be examined.
    pub(crate) unreadable: Vec<Unreadable>,
    /// Regions of logs, of whatever pools.
    pub(crate) regions: Vec<PathBuf>,
}

impl Scan {
    /// Scans devices, and all devices in folders.
    pub(crate) fn of(places: &[PathBuf]) -> Scan {
        let mut scan = Scan::default();
        for place in places {
            match images(place) {
                Ok(Some(images)) => images.iter().for_each(|image| scan.look(Path::new(image))),
                Ok(None) => expand(place).iter().for_each(|path| scan.look(path)),
                Err(error) => scan.unreadable.push(Unreadable {
                    path: place.display().to_string(),
                    why: fastness_base::chain(&error),
                    is_busy: false,
                }),
            }
        }
        scan
    }

    /// Scans again the devices that were in use.
    pub(crate) fn look_again(&mut self) {
        let busy: Vec<_> = self.unreadable.extract_if(.., |device| device.is_busy).collect();
        busy.iter().for_each(|device| self.look(Path::new(&device.path)));
    }

    fn look(&mut self, path: &Path) {
        let name = path.display().to_string();
        let probe = Device::open_to_look(path).and_then(|device| device.probe());
        match probe {
            Ok(probe) => {
                let Probe { guid, config, txg, .. } = probe;
                let candidate = Candidate { path: name, guid, config, txg };
                self.by_pool.entry(candidate.config.guid).or_default().push(candidate);
            }
            // In use or not: it is not a device of a pool, and it is only read.
            Err(_) if RegionWitness::at(path).is_some() => self.regions.push(path.to_owned()),
            Err(PoolError::NoLabel { .. }) => {}
            Err(error) => {
                let is_busy = error.kind() == ErrorKind::Retry;
                self.unreadable.push(Unreadable { path: name, why: fastness_base::chain(&error), is_busy });
            }
        }
    }

    /// The pools that they belong to.
    pub(crate) fn found(&self) -> Vec<Found> {
        self.by_pool.values().cloned().map(together).collect()
    }
}

/// One pool's devices: those that the newest label names. A label without a txg is not considered, as at
/// import.
fn together(mut devices: Vec<Candidate>) -> Found {
    devices.sort_by_key(|device| {
        std::cmp::Reverse((device.txg.is_some(), device.config.generation, device.txg))
    });
    let config = devices[0].config.clone();
    let known: Vec<_> = config.vdevs.iter().flat_map(|vdev| &vdev.devices).collect();
    // Drop devices removed from the pool since, and those listed twice under two names.
    let mut seen = Vec::new();
    devices.retain(|device| {
        let is_new = known.iter().any(|known| known.guid == device.guid) && !seen.contains(&device.guid);
        seen.push(device.guid);
        is_new
    });
    let is_missing = |guid: Guid| devices.iter().all(|device| device.guid != guid);
    let missing =
        known.iter().filter(|known| is_missing(known.guid)).map(|known| known.path.clone()).collect();
    Found { config, devices, missing }
}

/// The images of a place, if that is a pool of them.
fn images(place: &Path) -> Result<Option<Vec<String>>, fastness_remote::OpenError> {
    place.to_str().map_or(Ok(None), fastness_remote::images)
}

/// The files, block devices and device-DAX devices of a place.
fn expand(place: &Path) -> Vec<PathBuf> {
    if is_remote(place) || !place.is_dir() {
        return vec![place.to_owned()];
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_dax = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("dax"))
    };
    let is_possible = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| {
            found.file_type().is_block_device()
                || found.file_type().is_char_device() && is_dax(path)
                || found.is_file() && found.len() >= fastness_store::DEVICE_BYTES_MIN
        })
    };
    let mut paths: Vec<_> = entries.filter(is_possible).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_being_added_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let device =
            |name: &str| Device::create(dir.path().join(name), fastness_store::DEVICE_BYTES_MIN).unwrap();
        let (first, second) = (device("first"), device("second"));
        let specs = [VdevSpec::single(first)];
        let pool =
            fastness_store::Pool::create("tank", &specs, fastness_store::PoolOptions::default()).unwrap();
        let before = pool.config();
        pool.add(&VdevSpec::single(second)).unwrap();
        let after = pool.config();
        drop(pool);
        assert!(after.generation > before.generation);
        let candidate = |config: &PoolConfig, index: usize, txg| Candidate {
            path: format!("disk {index}"),
            guid: after.vdevs[index].devices[0].guid,
            config: config.clone(),
            txg,
        };
        // The power failed after only the new device had its label.
        let found = together(vec![candidate(&before, 0, Some(Txg(5))), candidate(&after, 1, None)]);
        assert_eq!(found.config.generation, before.generation);
        assert_eq!(found.devices.len(), 1);
        assert!(found.missing.is_empty());
        // And after both had theirs.
        let found = together(vec![candidate(&after, 0, Some(Txg(5))), candidate(&after, 1, None)]);
        assert_eq!((found.devices.len(), found.missing.len()), (2, 0));
    }
}
