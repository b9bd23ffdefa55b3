//! The devices of the log of a node's pool: added, replaced, removed.

use std::path::Path;
use std::sync::Arc;

use fastness_base::ErrorKind;
use fastness_pmem::{Region, RegionKind};
use fastness_store::{Guid, KindId, NewRegion, PoolLog, RegionConfig, RegionContents, RegionParts, real};

use crate::error::StartError;
use crate::node::Node;
use crate::paths::absolute;
use crate::protocol::{Failure, PmUse, VdevRequest};
use crate::report::JobReport;

/// Whether a path is persistent memory: a devdax device, or a file on a DAX file system.
pub fn is_persistent_memory(path: &Path) -> bool {
    let found = Region::open(path, &fastness_pmem::OpenOptions::new());
    found.is_ok_and(|region| matches!(region.info().kind, RegionKind::DevDax | RegionKind::FsDax))
}

/// Opens, or creates, a region for a log of a pool.
///
/// # Errors
/// [`StartError::InUse`] if it holds something that is not a log of this pool, unless `is_forced`; those of
/// opening it.
fn new_region(path: &Path, pm: PmUse, pool: Option<Guid>, is_forced: bool) -> Result<NewRegion, StartError> {
    let path = absolute(path)?;
    let region = match pm.create_bytes {
        Some(len_bytes) if !path.exists() => PoolLog::create_region(&path, len_bytes, pm.emulates),
        _ => PoolLog::open_region(&path, pm.emulates),
    };
    let parts = region.and_then(RegionParts::of)?;
    let what = match parts.contents() {
        _ if is_forced => None,
        RegionContents::Nothing => None,
        RegionContents::LogOf(guid) if pool == Some(guid) => None,
        RegionContents::LogOf(guid) => Some(format!("the log of pool {guid} on it")),
        RegionContents::Other => Some("data on it".to_owned()),
    };
    match what {
        Some(what) => Err(StartError::InUse { path: path.display().to_string(), what }),
        None => Ok(NewRegion { parts, path, emulates: pm.emulates }),
    }
}

/// Checks that regions can become the log of a new pool.
///
/// # Errors
/// [`StartError::InUse`] for one that holds something; those of opening it.
pub fn check_new_regions(paths: &[String], pm: PmUse) -> Result<(), StartError> {
    let mut there = paths.iter().map(Path::new).filter(|path| path.exists());
    there.try_for_each(|path| new_region(path, pm, None, false).map(drop))
}

impl Node {
    /// The running log.
    fn running_log(&self) -> Result<Arc<PoolLog>, Failure> {
        let refuse = || Failure::refuse(ErrorKind::Invalid, format!("pool {} is read-only", self.name()));
        self.log().ok_or_else(refuse)
    }

    /// Moves the pool's log to persistent memory, or to a stand-in for it: one region, or two as a mirror.
    ///
    /// # Errors
    /// Errors of [`PoolLog::add_regions`] and of opening the regions. [`StartError::InUse`] for one that
    /// holds something else than a log of this pool, unless `is_forced`.
    pub fn add_pm_log(&self, paths: &[impl AsRef<Path>], pm: PmUse, is_forced: bool) -> Result<(), Failure> {
        let pool = Some(self.pool().config().guid);
        let open = |path: &_| new_region(AsRef::as_ref(path), pm, pool, is_forced);
        let regions = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        self.running_log()?.add_regions(|| Ok(regions)).map_err(StartError::from)?;
        let paths: Vec<_> = paths.iter().map(|path| path.as_ref().display().to_string()).collect();
        self.journal.note(format!("the log is on {} now", paths.join(" and ")));
        Ok(())
    }

    /// The log's region with that path or number.
    pub(crate) fn find_region(&self, device: &str) -> Result<Option<RegionConfig>, Failure> {
        let config = PoolLog::config(&self.pool()).map_err(StartError::from)?;
        let wanted = real(Path::new(device));
        let is_it = |region: &RegionConfig| real(&region.path) == wanted || region.id.to_string() == device;
        Ok(config.regions.into_iter().find(is_it))
    }

    /// A region of the same kind as one of the log's: if that is a stand-in file for persistent memory, a
    /// missing file is created.
    fn region_like(&self, known: &RegionConfig, path: &str, is_forced: bool) -> Result<NewRegion, Failure> {
        let path = Path::new(path);
        if !known.emulates && !is_persistent_memory(path) {
            let text = format!("{} is no persistent memory, and {} is", path.display(), known.path.display());
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        let log = self.running_log()?;
        let len_bytes = log.regions().iter().map(|(_, info)| info.len_bytes).min();
        let pm = PmUse { emulates: known.emulates, create_bytes: len_bytes.filter(|_| known.emulates) };
        Ok(new_region(path, pm, Some(self.pool().config().guid), is_forced)?)
    }

    /// Turns the log's region and another one into a mirror.
    pub(crate) fn attach_pm_log(
        &self,
        to: &RegionConfig,
        path: &str,
        is_forced: bool,
    ) -> Result<JobReport, Failure> {
        let new = self.region_like(to, path, is_forced)?;
        self.running_log()?.attach_region(new).map_err(StartError::from)?;
        Ok(self.changed(format!("{path} is a side of the log now")))
    }

    /// Replaces one of the log's regions.
    pub(crate) fn replace_pm_log(
        &self,
        old: &RegionConfig,
        path: &str,
        is_forced: bool,
    ) -> Result<JobReport, Failure> {
        let new = self.region_like(old, path, is_forced)?;
        self.running_log()?.replace_region(old.id, new).map_err(StartError::from)?;
        Ok(self.changed(format!("{path} has replaced {} in the log", old.path.display())))
    }

    /// Detaches a side of the log's mirror.
    pub(crate) fn detach_pm_log(&self, region: &RegionConfig) -> Result<(), Failure> {
        self.running_log()?.detach_region(region.id).map_err(StartError::from)?;
        self.changed(format!("{} is no side of the log any more", region.path.display()));
        Ok(())
    }

    /// A new side starts out empty: no job has to run.
    fn changed(&self, what: String) -> JobReport {
        self.journal.note(what.clone());
        self.remember();
        JobReport {
            what,
            state: "done".to_owned(),
            done_bytes: 0,
            total_bytes: 0,
            wrong_copies: 0,
            lost: Vec::new(),
            elapsed_s: 0,
            error: None,
        }
    }

    /// Removes a device of the log; the log continues on the others, or on the pool's vdevs.
    pub(crate) fn remove_log_vdev(&self, vdev: u16) -> Result<(), Failure> {
        Ok(self.running_log()?.remove_vdev(vdev).map_err(StartError::from)?)
    }

    /// Moves the log off persistent memory, if `device` is a region of it; otherwise returns false.
    pub(crate) fn remove_pm_log(&self, device: &str) -> Result<bool, Failure> {
        if self.find_region(device)?.is_none() {
            return Ok(false);
        }
        self.running_log()?.remove_region().map_err(StartError::from)?;
        self.journal.note(format!("{device} is the log no more; it is on the pool's vdevs"));
        Ok(true)
    }

    /// Refuses vdevs that do not fit the kind of the log.
    pub(crate) fn check_log_vdevs(&self, vdevs: &[VdevRequest]) -> Result<(), Failure> {
        let is_pmem = self.log().is_some_and(|log| log.kind() == KindId::Pmem);
        if is_pmem && vdevs.iter().any(|vdev| vdev.is_log) {
            let text = "the pool's log is on persistent memory; remove that first: a log has one kind";
            return Err(Failure::refuse(ErrorKind::Invalid, text.to_owned()));
        }
        Ok(())
    }
}
