//! The log of a node's pool: taken into use at import, its devices added and removed.

use std::path::Path;
use std::sync::Arc;

use fastness_error::ErrorKind;
use fastness_intent::{PoolLog, Tuning};
use fastness_pmem::{Region, RegionKind};
use fastness_pool::Pool;
use fastness_zil::KindId;
use serde::{Deserialize, Serialize};

use crate::error::StartError;
use crate::journal::{Journal, chain};
use crate::node::{Node, NodeOptions};
use crate::protocol::{Failure, VdevRequest};

/// How a device for logs is to be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmUse {
    /// An ordinary file, or one in memory, is used as if it were persistent memory: fast, and gone with the power.
    pub emulates: bool,
    /// Make a file of this length where there is none.
    pub create_bytes: Option<u64>,
}

/// Whether a path is persistent memory: a devdax device, or a file on a DAX file system.
pub fn is_persistent_memory(path: &Path) -> bool {
    let found = Region::open(path, &fastness_pmem::OpenOptions::new());
    found.is_ok_and(|region| matches!(region.info().kind, RegionKind::DevDax | RegionKind::FsDax))
}

/// Takes the pool's log into use; lets txgs run. `None` for a pool that is read-only: nothing is replayed there.
pub(crate) fn import_log(
    pool: &Arc<Pool>,
    options: &NodeOptions,
    journal: &Journal,
) -> Result<Option<Arc<PoolLog>>, StartError> {
    let config = PoolLog::config(pool);
    if options.pool.is_read_only {
        // What is in a log on vdevs was not looked at either.
        journal.note("the log is not replayed into a read-only pool: synchronous writes of the last seconds may be missing");
        return Ok(None);
    }
    let mut regions = Vec::new();
    for region in config.as_ref().map_or(&[][..], |config| &config.regions) {
        let places = options.log_paths.iter().chain([&region.path]);
        let Some(path) = places.filter(|path| !path.as_os_str().is_empty()).find(|path| path.exists()) else {
            journal.note(format!("the log's region {} is not here", region.path.display()));
            continue;
        };
        match PoolLog::open_region(path, region.emulates) {
            Ok(region) => regions.push(region),
            Err(error) if options.consent.missing => {
                journal.note(format!("{} is left out: {}", path.display(), chain(&error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut told = 0;
    let mut tell = |progress: fastness_intent::ReplayProgress<'_>| {
        let percent = progress.done_records * 100 / progress.total_records.max(1);
        if percent >= told + 10 {
            told = percent;
            journal.note(format!(
                "replaying the log: {percent} % of {} records, now {}",
                progress.total_records, progress.volume
            ));
        }
    };
    let (log, replayed) = PoolLog::import(pool, regions, options.consent, Tuning::default(), &mut tell)?;
    if replayed.records + replayed.gaps > 0 {
        journal.note(format!(
            "{} logged writes of {} volumes were replayed; {} that nobody was told of, or that were given up, are not",
            replayed.records, replayed.volumes, replayed.gaps
        ));
    }
    if replayed.damaged > 0 {
        journal.note(format!("{} logs were damaged: what came after the damage is lost", replayed.damaged));
    }
    Ok(Some(log))
}

impl Node {
    /// The running log.
    fn running_log(&self) -> Result<&PoolLog, Failure> {
        let refuse = || Failure::refuse(ErrorKind::Invalid, format!("pool {} is read-only", self.name()));
        self.log().ok_or_else(refuse)
    }

    /// Makes persistent memory, or what stands in for it, the pool's log.
    ///
    /// # Errors
    /// Those of [`PoolLog::add_region`] and of opening the region.
    pub fn add_pm_log(&self, path: &Path, pm: PmUse) -> Result<(), Failure> {
        let absolute = std::path::absolute(path)
            .map_err(|source| StartError::System { what: "use the path", source })?;
        let region = match pm.create_bytes {
            Some(len_bytes) if !absolute.exists() => {
                PoolLog::create_region(&absolute, len_bytes, pm.emulates)
            }
            _ => PoolLog::open_region(&absolute, pm.emulates),
        };
        let log = self.running_log()?;
        log.add_region(region.map_err(StartError::from)?, absolute.clone(), pm.emulates)
            .map_err(StartError::from)?;
        self.journal.note(format!("the log is on {} now", absolute.display()));
        Ok(())
    }

    /// Removes a device of the log; the log goes on with the others, or on the pool's vdevs.
    pub(crate) fn remove_log_vdev(&self, vdev: u16) -> Result<(), Failure> {
        Ok(self.running_log()?.remove_vdev(vdev).map_err(StartError::from)?)
    }

    /// Takes the region out of use, if `device` is it; false if it is something else.
    pub(crate) fn remove_pm_log(&self, device: &str) -> Result<bool, Failure> {
        let config = PoolLog::config(&self.pool).map_err(StartError::from)?;
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let wanted = real(Path::new(device));
        let is_it = |region: &fastness_intent::RegionConfig| {
            real(&region.path) == wanted || region.id.to_string() == device
        };
        if !config.regions.iter().any(is_it) {
            return Ok(false);
        }
        self.running_log()?.remove_region().map_err(StartError::from)?;
        self.journal.note(format!("{device} is the log no more; it is on the pool's vdevs"));
        Ok(true)
    }

    /// Refuses vdevs that the kind of the log does not go with.
    pub(crate) fn check_log_vdevs(&self, vdevs: &[VdevRequest]) -> Result<(), Failure> {
        let is_pmem = self.log().is_some_and(|log| log.kind() == KindId::Pmem);
        if is_pmem && vdevs.iter().any(|vdev| vdev.is_log) {
            let text = "the pool's log is on persistent memory; remove that first: a log has one kind";
            return Err(Failure::refuse(ErrorKind::Invalid, text.to_owned()));
        }
        Ok(())
    }
}
