//! The devices of a pool, by its name.
//!
//! A killed process holds its devices until the kernel has completed its requests, which can be a while after
//! its parent has reaped it. An import at that time must neither fail nor continue without a side of a
//! mirror. So the search waits, for a bounded time, for devices in use: for the named ones, and, while the
//! pool is incomplete, for all others in the folders. Only these are scanned again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastness_base::{ErrorKind, PAUSE};
use fastness_store::{Device, PoolError};

use crate::devices::{Found, Scan, Unreadable};
use crate::error::StartError;
use crate::paths::known_devices;

/// Progress of a search.
#[derive(Debug, Clone, Copy)]
pub enum Search<'a> {
    /// These devices are in use, and waited for; reported after each attempt.
    Waiting(&'a [&'a str]),
    /// Something that does not stop the search.
    Note(&'a str),
}

/// The result of a search.
#[derive(Debug)]
pub struct FoundDevices {
    /// The pool's name.
    pub name: String,
    /// The pool's devices, opened.
    pub devices: Vec<Device>,
    /// Regions of logs, of any pool, that the search came across; see
    /// [`Places::witnesses`](fastness_store::Places::witnesses).
    pub regions: Vec<PathBuf>,
}

/// Which pools a search is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Among {
    /// Those that exist.
    Existing,
    /// Those that were destroyed.
    Destroyed,
}

struct Wanted<'a> {
    name: &'a str,
    among: Among,
    places: Vec<PathBuf>,
    /// The caller said where to look; otherwise it is all of /dev, where some device is always in use.
    is_somewhere: bool,
}

impl Wanted<'_> {
    fn pools(&self, scan: &Scan) -> Vec<Found> {
        self.named(scan, self.among)
    }

    fn named(&self, scan: &Scan, among: Among) -> Vec<Found> {
        let is_it = |pool: &Found| {
            (pool.config.name == self.name || pool.config.guid.to_string() == self.name)
                && pool.is_destroyed() == (among == Among::Destroyed)
        };
        scan.found().into_iter().filter(is_it).collect()
    }

    /// What is in the places; waits for devices in use as long as it may.
    fn scan(&self, may_wait: impl Fn() -> bool, tell: &mut dyn FnMut(Search<'_>)) -> Scan {
        let mut scan = Scan::of(&self.places);
        loop {
            let busy = self.busy(&scan);
            if busy.is_empty() || !may_wait() {
                return scan;
            }
            tell(Search::Waiting(&busy));
            std::thread::sleep(PAUSE);
            scan.look_again();
        }
    }

    /// Devices that are in use and may belong to the pool.
    fn busy<'a>(&self, scan: &'a Scan) -> Vec<&'a str> {
        let is_named = |path: &str| self.places.iter().any(|place| place.as_os_str() == path);
        let is_whole = self.pools(scan).iter().any(|pool| pool.missing.is_empty());
        let is_meant = |device: &&Unreadable| {
            device.is_busy && (is_named(&device.path) || self.is_somewhere && !is_whole)
        };
        scan.unreadable.iter().filter(is_meant).map(|device| device.path.as_str()).collect()
    }
}

/// The devices of a pool, by its name or GUID: among `given`, devices and folders of them, or at their last
/// known paths, or in /dev. Waits up to `patience` for devices that another process holds.
///
/// # Errors
/// [`StartError::NotFound`], [`StartError::Busy`], [`StartError::Ambiguous`]; the pool is
/// not one of `among`; errors of opening a device.
pub fn find_devices(
    name: &str,
    given: &[PathBuf],
    among: Among,
    patience: Duration,
    tell: &mut dyn FnMut(Search<'_>),
) -> Result<FoundDevices, StartError> {
    let mut places = given.to_vec();
    if places.is_empty() {
        places = known_devices(name).into_iter().map(PathBuf::from).collect();
    }
    let is_somewhere = !places.is_empty();
    if !is_somewhere {
        places.push(PathBuf::from("/dev"));
    }
    let wanted = Wanted { name, among, places, is_somewhere };
    let begun = Instant::now();
    loop {
        let scan = wanted.scan(|| begun.elapsed() < patience, tell);
        let pool = choose(&wanted, &scan, tell)?;
        let devices = match open(&pool) {
            // Another search looks at it, or another process has imported it since: what holds now decides.
            Err((path, error)) if error.kind() == ErrorKind::Retry && begun.elapsed() < patience => {
                tell(Search::Waiting(&[path]));
                std::thread::sleep(PAUSE);
                continue;
            }
            opened => opened.map_err(|(_, error)| error)?,
        };
        for path in &pool.missing {
            tell(Search::Note(&format!("device {path} of pool {name} was not found")));
        }
        return Ok(FoundDevices { name: pool.config.name, devices, regions: scan.regions });
    }
}

/// Opens the devices of a pool; an error comes with the path that it is about.
fn open(pool: &Found) -> Result<Vec<Device>, (&str, PoolError)> {
    let paths = pool.devices.iter().map(|device| device.path.as_str());
    paths.map(|path| Device::open(path).map_err(|error| (path, error))).collect()
}

fn choose(wanted: &Wanted<'_>, scan: &Scan, tell: &mut dyn FnMut(Search<'_>)) -> Result<Found, StartError> {
    let mut pools = wanted.pools(scan);
    let pool = || wanted.name.to_owned();
    if pools.len() > 1 {
        let guids = pools.iter().map(|pool| pool.config.guid.to_string()).collect();
        return Err(StartError::Ambiguous { pool: pool(), guids });
    }
    let busy = wanted.busy(scan);
    if let Some(found) = pools.pop() {
        for path in busy {
            tell(Search::Note(&format!("{path} is in use by another process")));
        }
        return Ok(found);
    }
    match wanted.among {
        Among::Existing if !wanted.named(scan, Among::Destroyed).is_empty() => {
            return Err(PoolError::Destroyed { pool: pool() }.into());
        }
        Among::Destroyed if !wanted.named(scan, Among::Existing).is_empty() => {
            let text = format!("pool {} is not destroyed; import it without -D", pool());
            return Err(StartError::Invalid(text));
        }
        _ => {}
    }
    if !busy.is_empty() {
        let devices = busy.into_iter().map(str::to_owned).collect();
        return Err(StartError::Busy { pool: pool(), devices });
    }
    for Unreadable { path, why, .. } in scan.unreadable.iter().filter(|_| wanted.is_somewhere) {
        tell(Search::Note(&format!("{path}: {why}")));
    }
    let places = wanted.places.iter().map(|place| Path::display(place).to_string()).collect();
    Err(StartError::NotFound { pool: pool(), places })
}
