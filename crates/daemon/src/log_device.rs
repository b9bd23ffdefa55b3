//! The log of a node's pool: opened at import, its devices added and removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_error::{ErrorKind, chain};
use fastness_pmem::{Region, RegionKind};
use fastness_pool::Pool;
use fastness_store::{LogConfig, NewRegion, PoolLog, RegionConfig, RegionParts, Tuning, Txgs};
use fastness_zil::KindId;
use serde::{Deserialize, Serialize};

use crate::durability::GivenUp;
use crate::error::StartError;
use crate::importing::ImportStep;
use crate::journal::Journal;
use crate::node::{Node, NodeOptions};
use crate::paths::absolute;
use crate::protocol::{Failure, VdevRequest};
use crate::report::JobReport;
use crate::witnesses::is_earlier_copy;

/// How a device for logs is to be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmUse {
    /// An ordinary file, or one in memory, is used as if it were persistent memory: fast, but lost in a power
    /// cut.
    pub emulates: bool,
    /// Create a file of this length if there is none.
    pub create_bytes: Option<u64>,
}

/// Whether a path is persistent memory: a devdax device, or a file on a DAX file system.
pub fn is_persistent_memory(path: &Path) -> bool {
    let found = Region::open(path, &fastness_pmem::OpenOptions::new());
    found.is_ok_and(|region| matches!(region.info().kind, RegionKind::DevDax | RegionKind::FsDax))
}

/// Opens the pool's log. `None` for a read-only pool: nothing is replayed there. Also returns what was given
/// up.
pub(crate) fn import_log(
    pool: &Arc<Pool>,
    options: &NodeOptions,
    journal: &Journal,
    txgs: Txgs,
) -> Result<(Option<Arc<PoolLog>>, GivenUp), StartError> {
    let config = PoolLog::config(pool);
    if options.pool.is_read_only {
        // A log on vdevs was not read either.
        journal.note("the log is not replayed into a read-only pool: synchronous writes of the last seconds may be missing");
        return Ok((None, GivenUp::Nothing));
    }
    let known = config.unwrap_or_default();
    options.watch.begin(ImportStep::Log);
    // A resumed pool is the one this process had.
    let is_earlier = txgs == Txgs::Run && is_earlier_copy(pool, &known, options, journal)?;
    let regions = open_regions(&known, options, journal)?;
    let mut tell = options.watch.of_log(journal);
    let (log, replayed) = PoolLog::import(
        pool,
        RegionParts::all(regions),
        txgs,
        options.consent,
        Tuning::default(),
        &mut tell,
    )?;
    if replayed.records > 0 {
        let (records, volumes) = (replayed.records, replayed.volumes);
        journal.note(format!("{records} logged writes to {volumes} volumes were replayed"));
    }
    if replayed.dropped > 0 {
        journal.note(format!("{} logged writes were given up", replayed.dropped));
    }
    for (side, entries) in replayed.sides.entries.iter().enumerate().filter(|(_, entries)| **entries > 0) {
        journal.note(format!(
            "{entries} log entries were missing on side {side} of the log's mirror, {} of them by damage; they are there again",
            replayed.sides.damaged[side]
        ));
    }
    let now = PoolLog::config(pool).unwrap_or_default();
    for region in now.regions.iter().filter(|region| region.is_out && !is_out(&known, region)) {
        journal.note(format!("nothing is lost, but the log goes on without {}", region.path.display()));
    }
    if known.in_use().next().is_none() {
        for region in &known.regions {
            journal.note(format!(
                "the log's region {} was lost in use, and nothing that only it had is missing: the log is on the pool's vdevs now",
                region.path.display()
            ));
        }
    }
    if replayed.damaged > 0 {
        journal.note(format!("{} logs were damaged: what came after the damage is lost", replayed.damaged));
    }
    let given_up = match (replayed.is_forgotten, replayed.damaged) {
        _ if is_earlier => GivenUp::Later,
        (true, _) => GivenUp::Log,
        (false, 1..) => GivenUp::Tail,
        (false, 0) => GivenUp::Nothing,
    };
    Ok((Some(log), given_up))
}

fn is_out(config: &LogConfig, region: &RegionConfig) -> bool {
    config.regions.iter().any(|known| known.id == region.id && known.is_out)
}

/// Opens the log's regions that can be found, at their last known paths and at the given ones. Their headers
/// tell which is which.
fn open_regions(
    config: &LogConfig,
    options: &NodeOptions,
    journal: &Journal,
) -> Result<Vec<Region>, StartError> {
    let emulates = config.in_use().any(|region| region.emulates);
    let mut places: Vec<(&Path, bool)> = match config.in_use().next() {
        Some(_) => options.log_paths.iter().map(|path| (path.as_path(), emulates)).collect(),
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
            journal.note(format!("the log's region {} is not here", path.display()));
            continue;
        }
        match PoolLog::open_region(path, emulates) {
            Ok(region) => regions.push(region),
            Err(error) => {
                journal.note(format!("{} is left out: {}", path.display(), chain(&error)));
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        // One side of a mirror suffices; the log itself checks whether it has one.
        Some(error) if regions.is_empty() && !options.consent.missing => Err(error.into()),
        _ => Ok(regions),
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Opens, or creates, a region for a log.
fn new_region(path: &Path, pm: PmUse) -> Result<NewRegion, Failure> {
    let path = absolute(path)?;
    let region = match pm.create_bytes {
        Some(len_bytes) if !path.exists() => PoolLog::create_region(&path, len_bytes, pm.emulates),
        _ => PoolLog::open_region(&path, pm.emulates),
    };
    let parts = region.and_then(RegionParts::of).map_err(StartError::from)?;
    Ok(NewRegion { parts, path, emulates: pm.emulates })
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
    /// Errors of [`PoolLog::add_regions`] and of opening the regions.
    pub fn add_pm_log(&self, paths: &[impl AsRef<Path>], pm: PmUse) -> Result<(), Failure> {
        let regions =
            paths.iter().map(|path| new_region(path.as_ref(), pm)).collect::<Result<Vec<_>, _>>()?;
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
    fn region_like(&self, known: &RegionConfig, path: &str) -> Result<NewRegion, Failure> {
        let path = Path::new(path);
        if !known.emulates && !is_persistent_memory(path) {
            let text = format!("{} is no persistent memory, and {} is", path.display(), known.path.display());
            return Err(Failure::refuse(ErrorKind::Invalid, text));
        }
        let log = self.running_log()?;
        let len_bytes = log.regions().iter().map(|(_, info)| info.len_bytes).min();
        new_region(
            path,
            PmUse { emulates: known.emulates, create_bytes: len_bytes.filter(|_| known.emulates) },
        )
    }

    /// Turns the log's region and another one into a mirror.
    pub(crate) fn attach_pm_log(&self, to: &RegionConfig, path: &str) -> Result<JobReport, Failure> {
        let new = self.region_like(to, path)?;
        self.running_log()?.attach_region(new).map_err(StartError::from)?;
        Ok(self.changed(format!("{path} is a side of the log now")))
    }

    /// Replaces one of the log's regions.
    pub(crate) fn replace_pm_log(&self, old: &RegionConfig, path: &str) -> Result<JobReport, Failure> {
        let new = self.region_like(old, path)?;
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
