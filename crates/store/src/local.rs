//! The parts of a store on this machine, by their paths.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastness_base::{chain, is_busy, patiently};
use fastness_pool::{Device, Pool, PoolError};

use crate::config::LogConfig;
use crate::error::StoreError;
use crate::import::LogImportStep;
use crate::log::PoolLog;
use crate::options::Consent;
use crate::region::RegionParts;
use crate::source::Source;
use crate::witness::RegionWitness;

type Open = dyn Fn(&str) -> Result<Device, PoolError> + Send + Sync;

/// How devices are opened again.
#[derive(Clone)]
pub struct Opener(Arc<Open>);

impl Opener {
    /// Opens devices some other way than by path, for those that have none.
    pub fn new(open: impl Fn(&str) -> Result<Device, PoolError> + Send + Sync + 'static) -> Opener {
        Opener(Arc::new(open))
    }
}

impl Default for Opener {
    fn default() -> Opener {
        // A side that another process looks at just now is not one that is missing.
        Opener::new(|path| Device::open_within(path, Device::LOOK))
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

/// Where the parts of a store may be.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// How devices are opened when a suspended pool is imported again.
    pub opener: Opener,
    /// Where regions of the log may be, besides where they were last.
    pub log_paths: Vec<PathBuf>,
    /// Files that may be regions of a log of the pool; they are only read. One that has seen a later txg
    /// become durable than the pool has shows that the pool's devices are older copies.
    pub witnesses: Vec<PathBuf>,
    /// What may be given up.
    pub consent: Consent,
    /// How long to wait for a region that another process has: one that just ended, or was killed, keeps its
    /// files for a moment.
    pub patience: Duration,
}

/// The parts of a store, by their paths.
pub struct Local<'a> {
    places: &'a Places,
    devices: Vec<Device>,
    /// Takes notes for the user.
    note: &'a dyn Fn(String),
    tell: &'a mut dyn FnMut(LogImportStep<'_>),
    /// What the pool said of its log.
    known: LogConfig,
    is_earlier_copy: bool,
    /// This process had the pool before.
    is_resumed: bool,
}

impl<'a> Local<'a> {
    /// `devices`: those of the first import, opened.
    pub fn new(
        places: &'a Places,
        devices: Vec<Device>,
        note: &'a dyn Fn(String),
        tell: &'a mut dyn FnMut(LogImportStep<'_>),
    ) -> Local<'a> {
        let known = LogConfig::default();
        Local { places, devices, note, tell, known, is_earlier_copy: false, is_resumed: false }
    }

    /// What the pool said of its log, before the import.
    pub fn known(&self) -> &LogConfig {
        &self.known
    }

    /// A region shows that the devices are older copies, and the caller consented to the loss.
    pub fn is_earlier_copy(&self) -> bool {
        self.is_earlier_copy
    }

    /// Asks all regions with known paths whether they have seen a later txg than the pool has.
    fn ask_witnesses(&mut self, pool: &Pool) -> Result<(), StoreError> {
        let Places { log_paths, witnesses, consent, .. } = self.places;
        let given = log_paths.iter().chain(witnesses);
        let paths = given.chain(self.known.regions.iter().map(|region| &region.path));
        match RegionWitness::ask(pool, paths.map(PathBuf::as_path)) {
            Err(error) if consent.missing => {
                (self.note)(format!(
                    "{error}; the pool goes on as it is, and what became durable later is lost"
                ));
                self.is_earlier_copy = true;
                Ok(())
            }
            asked => asked,
        }
    }

    /// Opens the log's regions that can be found, at their last known paths and at the given ones. Their
    /// headers tell which is which.
    fn open_regions(&self) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        let config = &self.known;
        let emulates = config.in_use().any(|region| region.emulates);
        let mut places: Vec<(&Path, bool)> = match config.in_use().next() {
            Some(_) => self.places.log_paths.iter().map(|path| (path.as_path(), emulates)).collect(),
            None => Vec::new(),
        };
        places.extend(config.in_use().map(|region| (region.path.as_path(), region.emulates)));
        let (mut regions, mut tried, mut failed) = (Vec::new(), Vec::new(), None);
        for (path, emulates) in places {
            if path.as_os_str().is_empty() || tried.contains(&real(path)) {
                continue;
            }
            tried.push(real(path));
            if !path.exists() {
                (self.note)(format!("the log's region {} is not here", path.display()));
                continue;
            }
            let open = || PoolLog::open_region(path, emulates);
            match patiently(self.places.patience, open, is_busy) {
                Ok(region) => regions.push(RegionParts::of(region)),
                Err(error) => {
                    (self.note)(format!("{} is left out: {}", path.display(), chain(&error)));
                    failed.get_or_insert(error);
                }
            }
        }
        match failed {
            // One side of a mirror suffices; the log itself checks whether it has one.
            Some(error) if regions.is_empty() && !self.places.consent.missing => Err(error),
            _ => Ok(regions),
        }
    }
}

/// A path without links, if the file exists: two names of one file are the same.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Source for Local<'_> {
    fn devices(&mut self, known: Option<&[String]>) -> Result<Vec<Device>, StoreError> {
        let Some(paths) = known else { return Ok(std::mem::take(&mut self.devices)) };
        self.is_resumed = true;
        let open = |path: &String| match self.places.opener.0(path) {
            Ok(device) => Some(device),
            Err(error) => {
                (self.note)(format!("{path}: {}", chain(&error)));
                None
            }
        };
        Ok(paths.iter().filter_map(open).collect())
    }

    fn regions(
        &mut self,
        pool: &Pool,
        config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        (self.tell)(LogImportStep::Open);
        self.known = config.clone();
        // A resumed pool is the one this process had.
        if !self.is_resumed {
            self.ask_witnesses(pool)?;
        }
        self.open_regions()
    }

    fn tell(&mut self, _pool: &Pool, step: LogImportStep<'_>) {
        (self.tell)(step);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_device_that_a_search_looks_at_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        drop(Device::create_sparse(&path, 64 << 20).unwrap());
        let looked_at = Device::open_to_look(&path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                drop(looked_at);
            });
            Opener::default().0(path.to_str().unwrap()).unwrap();
        });
    }
}
