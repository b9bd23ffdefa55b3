//! The log device of a pool.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fastness_pmem::{Medium, MsyncMode, OpenOptions, PmRange, Region, RegionInfo, RegionKind};
use fastness_pool::{Dataset, DatasetKind, Pool, PoolError, Tx, TxgHook};
use fastness_prb::Config;
use fastness_zil::{Choice, DatasetId, PmemLog, PmemLogs, StatsSnapshot, Txg};

use crate::error::IntentError;
use crate::region::{self, RegionId, Superblock};
use crate::replay::{ReplayReport, Volume};
use crate::side::{HEADER, PoolSide};
use crate::volume_log::VolumeLog;

/// Key beside the root dataset: number of the pool's log device.
const DEVICE: &[u8] = b"log device";

/// The intent log of one dataset.
pub type Zil = fastness_zil::Zil<PoolSide, PmemLog<PmRange>>;

/// What to do about logs that are not whole, or not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missing {
    /// Refuse the import.
    #[default]
    Refuse,
    /// Go on without what is missing: acknowledged writes are lost.
    Drop,
}

/// The log device of an imported pool: a region of persistent memory, or of what stands in for it.
pub struct PoolLog {
    side: Arc<PoolSide>,
    logs: Arc<PmemLogs<PmRange>>,
    /// Logs of volumes that are open, so that a volume has one.
    open: Mutex<Vec<(DatasetId, std::sync::Weak<VolumeLog>)>>,
    tuning: Tuning,
    info: RegionInfo,
    id: RegionId,
    /// Keeps the superblocks' lines.
    _front: PmRange,
}

impl std::fmt::Debug for PoolLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLog({})", self.id)
    }
}

/// Tells the logs that a txg is durable.
struct Collector(Arc<PmemLogs<PmRange>>);

impl TxgHook for Collector {
    fn sync(&self, _: fastness_pool::Txg, _: &mut fastness_pool::HookChanges) -> Result<(), PoolError> {
        Ok(())
    }

    fn synced(&self, txg: fastness_pool::Txg) {
        // The logs remember that their medium has failed: from then on everybody waits for txgs instead.
        let _ = self.0.txg_synced(Txg(txg.0));
    }
}

/// Choices about a log that depend on the machine and not on what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Threads that may write to the medium at one time, at most 32; `None`: as many as there are CPUs. On Optane two to
    /// four for each module. Each has a chunk open, so at most half of the chunks.
    pub ncommitters: Option<u32>,
    /// Writers are not slowed down while the log is short of room: one that finds none waits for a whole txg.
    pub lets_log_fill: bool,
}

impl Tuning {
    fn config(self, chunks: usize) -> Config {
        let cpus = || std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        let wanted = self.ncommitters.map_or_else(cpus, |count| count as usize);
        Config { ncommitters: wanted.clamp(1, (chunks / 2).clamp(1, 32)) as u32, ..Config::default() }
    }
}

/// Maps the pages of emulated PM, as a DAX file system has them mapped after the first touch of each 2 MiB.
fn populated(region: Region) -> Region {
    if region.info().kind == RegionKind::Tmpfs {
        // It saves page faults, nothing more.
        let _ = region.populate();
    }
    region
}

fn options(emulates: bool) -> OpenOptions {
    let options = OpenOptions::new();
    // Emulated: no msync at a fence; it survives the process, and says so itself.
    if emulates { options.msync(MsyncMode::Never) } else { options }
}

impl PoolLog {
    /// Number of the log device that a pool has; `None` if it has none.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn of_pool(pool: &Pool) -> Result<Option<RegionId>, IntentError> {
        let root = pool.dataset(&pool.name())?;
        let stored = root.synced_aux(DEVICE)?;
        Ok(stored.and_then(|bytes| Some(RegionId(u64::from_le_bytes(bytes.try_into().ok()?)))))
    }

    /// Makes `region` the log device of a pool that has none, and makes the logs of its volumes. What is in the region
    /// is lost.
    ///
    /// Persistence: on return the pool has the log device. A crash inside leaves the pool with it or without.
    ///
    /// # Errors
    /// [`IntentError::TooSmall`], those of the region and the pool.
    pub fn create(pool: &Arc<Pool>, region: Region) -> Result<Arc<PoolLog>, IntentError> {
        PoolLog::create_with(pool, region, Tuning::default())
    }

    /// As [`create`](Self::create), with choices.
    ///
    /// # Errors
    /// As there.
    pub fn create_with(
        pool: &Arc<Pool>,
        region: Region,
        tuning: Tuning,
    ) -> Result<Arc<PoolLog>, IntentError> {
        let info = region.info().clone();
        let range = region.into_range();
        let len_bytes = range.len_bytes() as u64;
        let (mut front, chunks) = region::divide(range)?;
        let logs = PmemLogs::format(tuning.config(chunks.len()), chunks)?;
        let id = RegionId(getrandom::u64().expect("the operating system gives random numbers"));
        region::format(&mut front, &Superblock::new(id, pool.config().guid.0, len_bytes))?;
        let log = PoolLog::new(pool, logs, info, id, front, tuning);
        let volumes = volumes(pool)?;
        let ((), txg) = pool.transact(|tx| {
            let root = pool.dataset(&pool.name())?;
            pool.put_aux(tx, root.id(), DEVICE, Some(&id.0.to_le_bytes()));
            Ok(())
        })?;
        for volume in volumes {
            let tx = pool.begin_tx()?;
            log.create_log(&tx, &volume)?;
        }
        pool.wait_synced(txg)?;
        pool.sync()?;
        Ok(log)
    }

    /// Takes a pool's log into use again after [`Pool::import_paused`]: claims all logs in the first txg, lets txgs run,
    /// and replays the volumes. `None` for a pool without a log device.
    ///
    /// Persistence: on return everything that was acknowledged is in the pool, and synced.
    ///
    /// # Errors
    /// [`IntentError::Missing`], [`IntentError::OtherLog`]; a log that is not whole: unless `missing` says otherwise.
    /// Nothing was changed then but what was replayed.
    pub fn import(
        pool: &Arc<Pool>,
        region: Option<Region>,
        missing: Missing,
    ) -> Result<(Option<Arc<PoolLog>>, ReplayReport), IntentError> {
        PoolLog::import_with(pool, region, missing, Tuning::default())
    }

    /// As [`import`](Self::import), with choices.
    ///
    /// # Errors
    /// As there.
    pub fn import_with(
        pool: &Arc<Pool>,
        region: Option<Region>,
        missing: Missing,
        tuning: Tuning,
    ) -> Result<(Option<Arc<PoolLog>>, ReplayReport), IntentError> {
        let Some(expected) = PoolLog::of_pool(pool)? else {
            pool.start_txgs()?;
            return Ok((None, ReplayReport::default()));
        };
        let Some(region) = region else {
            if missing == Missing::Refuse {
                return Err(IntentError::Missing { expected });
            }
            PoolLog::forget(pool)?;
            return Ok((None, ReplayReport::default()));
        };
        let info = region.info().clone();
        let mut range = region.into_range();
        let len_bytes = range.len_bytes() as u64;
        // What a dead process stored may still be in the CPU's caches only.
        range.write_back(0, 16384);
        // PERSIST: the superblocks are durable before anything is done because of them.
        range.fence()?;
        let (front, chunks) = region::divide(range)?;
        let superblock = region::read(&front, len_bytes)?;
        if superblock.id != expected {
            return Err(IntentError::OtherLog { found: superblock.id, expected });
        }
        let headers = volumes(pool)?
            .iter()
            .map(|volume| Ok((DatasetId(volume.id().0), volume.synced_aux(HEADER)?)))
            .collect::<Result<Vec<_>, PoolError>>()?;
        let first_txg = Txg(pool.synced_txg().next().0);
        let mut import = PmemLogs::import(tuning.config(chunks.len()), chunks, first_txg, headers)?;
        let problems: Vec<_> = import.problems().copied().collect();
        for problem in problems {
            if missing == Missing::Refuse {
                return Err(problem.into());
            }
            import.resolve(problem.dataset, Choice::DropTail)?;
        }
        let gaps = import.summaries().iter().map(|found| found.gaps + found.dropped as u64).sum();
        let mut report = ReplayReport { gaps, ..ReplayReport::default() };
        let side = PoolSide(pool.clone());
        let logs = {
            let tx = pool.begin_tx()?;
            import.finish(&side, &tx)?
        };
        let log = PoolLog::new(pool, logs, info, expected, front, tuning);
        pool.start_txgs()?;
        log.replay(missing, &mut report)?;
        pool.sync()?;
        Ok((Some(log), report))
    }

    fn new(
        pool: &Arc<Pool>,
        logs: PmemLogs<PmRange>,
        info: RegionInfo,
        id: RegionId,
        front: PmRange,
        tuning: Tuning,
    ) -> Arc<PoolLog> {
        let logs = Arc::new(logs);
        pool.add_hook(Arc::new(Collector(logs.clone())));
        let side = Arc::new(PoolSide(pool.clone()));
        Arc::new(PoolLog { side, logs, open: Mutex::default(), tuning, info, id, _front: front })
    }

    /// The pool goes on without a log device: its logs are forgotten.
    fn forget(pool: &Arc<Pool>) -> Result<(), IntentError> {
        let root = pool.dataset(&pool.name())?;
        {
            let tx = pool.begin_tx()?;
            pool.put_aux(&tx, root.id(), DEVICE, None);
            for volume in volumes(pool)? {
                pool.put_aux(&tx, volume.id(), HEADER, None);
            }
        }
        pool.start_txgs()?;
        pool.sync()?;
        Ok(())
    }

    fn replay(&self, missing: Missing, report: &mut ReplayReport) -> Result<(), IntentError> {
        for volume in volumes(self.side.pool())? {
            let Some(log) = self.logs.get(DatasetId(volume.id().0)) else { continue };
            report.volumes += u64::from(log.unreplayed_records() > 0);
            match log.replay(&*self.side, &mut Volume(volume)) {
                Ok(replayed) => report.records += replayed.records,
                Err(failure) if missing == Missing::Refuse => return Err(failure.into()),
                Err(_) => report.gaps += log.drop_tail(&*self.side)?,
            }
        }
        Ok(())
    }

    /// Makes the log of a new volume, in the transaction that makes the volume.
    ///
    /// # Errors
    /// [`IntentError::Log`]: it has one.
    pub fn create_log(&self, tx: &Tx, volume: &Dataset) -> Result<(), IntentError> {
        self.logs.create(&*self.side, tx, DatasetId(volume.id().0))?;
        Ok(())
    }

    /// Destroys the log of a volume, in the transaction that destroys the volume; nobody uses it.
    ///
    /// # Errors
    /// [`IntentError::Log`].
    pub fn destroy_log(&self, tx: &Tx, volume: fastness_pool::DatasetId) -> Result<(), IntentError> {
        Ok(self.logs.destroy(&*self.side, tx, DatasetId(volume.0))?)
    }

    /// The log of a volume; the same for all who have it open. `None` if it has none.
    pub fn volume(&self, volume: fastness_pool::DatasetId) -> Option<Arc<VolumeLog>> {
        let id = DatasetId(volume.0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, log)| log.strong_count() > 0);
        if let Some(log) = open.iter().find(|(of, _)| *of == id).and_then(|(_, log)| log.upgrade()) {
            return Some(log);
        }
        let zil = Zil::new(id, self.side.clone(), self.logs.get(id)?);
        let log = Arc::new(VolumeLog::new(zil, self.side.clone(), !self.tuning.lets_log_fill));
        open.push((id, Arc::downgrade(&log)));
        Some(log)
    }

    /// Counters of the logs of volumes that are open.
    pub fn stats(&self) -> Vec<StatsSnapshot> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(|(_, log)| Some(log.upgrade()?.zil.stats().snapshot())).collect()
    }

    /// What was written to the medium for all logs, and how long it took.
    pub fn medium_stats(&self) -> fastness_prb::Stats {
        self.logs.prb().stats()
    }

    /// Number of the log device.
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// What the region is made of, and what survives on it.
    pub fn region_info(&self) -> &RegionInfo {
        &self.info
    }

    /// Opens the region of a log. `emulates`: an ordinary file is used as if it were persistent memory; what is in it
    /// survives the process, and not the power.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_region(path: &Path, emulates: bool) -> Result<Region, IntentError> {
        Ok(populated(Region::open(path, &options(emulates))?))
    }

    /// Makes a file for a log, as [`open_region`](Self::open_region) opens it.
    ///
    /// # Errors
    /// Those of making it; no file is left.
    pub fn create_region(path: &Path, len_bytes: u64, emulates: bool) -> Result<Region, IntentError> {
        Ok(populated(Region::create_file(path, len_bytes, &options(emulates))?))
    }
}

fn volumes(pool: &Pool) -> Result<Vec<Dataset>, PoolError> {
    let volumes = pool.datasets().into_iter().filter(|info| info.kind == DatasetKind::Volume);
    volumes.map(|info| pool.dataset_by_id(info.id)).collect()
}
