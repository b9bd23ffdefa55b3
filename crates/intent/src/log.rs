//! The log of a pool.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use fastness_pmem::{MsyncMode, OpenOptions, Region, RegionInfo, RegionKind};
use fastness_pool::{Dataset, DatasetKind, HookChanges, Pool, PoolError, Tx, TxgHook};
use fastness_prb::Config;
use fastness_zil::{DatasetId, KindId, StatsSnapshot, Txg};

use crate::config::LogConfig;
use crate::error::IntentError;
use crate::logs::{AnyLog, Logs};
use crate::region::RegionId;
use crate::side::{HEADER, PoolSide};
use crate::volume_log::VolumeLog;

/// Key beside the root dataset: the pool's [`LogConfig`].
pub(crate) const DEVICE: &[u8] = b"log device";

/// The intent log of one dataset.
pub type Zil = fastness_zil::Zil<PoolSide, AnyLog>;

/// Choices about a log that depend on the machine and not on what is in it; none of them is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Kind pmem: threads that may write to the medium at one time, at most 32; `None`: as many as there are CPUs. On
    /// Optane two to four for each module. Each has a chunk open, so at most half of the chunks.
    pub ncommitters: Option<u32>,
    /// Writers are not slowed down while the log is short of room: one that finds none waits for a whole txg.
    pub lets_log_fill: bool,
}

impl Tuning {
    pub(crate) fn config(self, chunks: usize) -> Config {
        let cpus = || std::thread::available_parallelism().map_or(4, std::num::NonZero::get);
        let wanted = self.ncommitters.map_or_else(cpus, |count| count as usize);
        Config { ncommitters: wanted.clamp(1, (chunks / 2).clamp(1, 32)) as u32, ..Config::default() }
    }
}

/// The log of an imported pool.
///
/// Concurrency: any number of threads. Lock order: members, open, logs.
pub struct PoolLog {
    pub(crate) side: Arc<PoolSide>,
    pub(crate) tuning: Tuning,
    /// Of the kind that the pool has now.
    pub(crate) logs: RwLock<Arc<Logs>>,
    /// Logs of volumes that are open, so that a volume has one.
    pub(crate) open: Mutex<Vec<(DatasetId, Weak<VolumeLog>)>>,
    /// Shared by who makes or destroys a volume, so that a change of the kind sees all of them.
    pub(crate) members: RwLock<()>,
    /// Held over a change of the log's devices.
    pub(crate) changing: Mutex<()>,
}

/// While it lives, the kind of the log is not changed; see [`PoolLog::members`].
#[derive(Debug)]
pub struct Members<'a>(#[expect(dead_code, reason = "a guard")] RwLockReadGuard<'a, ()>);

impl std::fmt::Debug for PoolLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLog({:?})", self.kind())
    }
}

/// Stores headers with each txg, and tells the logs that it is durable.
struct Collector(Weak<PoolLog>);

impl TxgHook for Collector {
    fn sync(&self, txg: fastness_pool::Txg, changes: &mut HookChanges) -> Result<(), PoolError> {
        if let Some(log) = self.0.upgrade() {
            let mut put = |dataset: DatasetId, header: Option<&[u8]>| {
                changes.put(fastness_pool::DatasetId(dataset.0), HEADER, header);
            };
            log.logs().sync(Txg(txg.0), &mut put);
        }
        Ok(())
    }

    fn synced(&self, txg: fastness_pool::Txg) {
        if let Some(log) = self.0.upgrade() {
            log.logs().txg_synced(Txg(txg.0));
            for (_, volume) in log.open_volumes() {
                volume.zil.txg_synced(Txg(txg.0));
            }
        }
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
    /// What the last synced txg says about the log of a pool.
    ///
    /// # Errors
    /// Those of reading the tables; [`IntentError::Config`] if it is damaged.
    pub fn config(pool: &Pool) -> Result<LogConfig, IntentError> {
        let root = pool.dataset(&pool.name())?;
        match root.synced_aux(DEVICE)? {
            Some(stored) => Ok(LogConfig::decode(&stored)?),
            None => Ok(LogConfig::default()),
        }
    }

    pub(crate) fn new(pool: &Arc<Pool>, logs: Logs, tuning: Tuning) -> Arc<PoolLog> {
        let log = Arc::new(PoolLog {
            side: Arc::new(PoolSide(pool.clone())),
            tuning,
            logs: RwLock::new(Arc::new(logs)),
            open: Mutex::default(),
            members: RwLock::default(),
            changing: Mutex::default(),
        });
        pool.add_hook(Arc::new(Collector(Arc::downgrade(&log))));
        log
    }

    pub(crate) fn logs(&self) -> Arc<Logs> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Taken before the transaction that makes or destroys a volume begins, and held until it has ended.
    pub fn members(&self) -> Members<'_> {
        Members(self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the log of a new volume, in the transaction that makes the volume.
    ///
    /// # Errors
    /// [`IntentError::Log`]: it has one.
    pub fn create_log(&self, tx: &Tx, volume: &Dataset, _members: &Members<'_>) -> Result<(), IntentError> {
        Ok(self.logs().create(&self.side, tx, DatasetId(volume.id().0))?)
    }

    /// Destroys the log of a volume, in the transaction that destroys the volume; nobody uses it.
    ///
    /// # Errors
    /// [`IntentError::Log`].
    pub fn destroy_log(
        &self,
        tx: &Tx,
        volume: fastness_pool::DatasetId,
        _members: &Members<'_>,
    ) -> Result<(), IntentError> {
        Ok(self.logs().destroy(&self.side, tx, DatasetId(volume.0))?)
    }

    /// The log of a volume; the same for all who have it open. `None` if it has none.
    pub fn volume(&self, volume: fastness_pool::DatasetId) -> Option<Arc<VolumeLog>> {
        let id = DatasetId(volume.0);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, log)| log.strong_count() > 0);
        if let Some(log) = open.iter().find(|(of, _)| *of == id).and_then(|(_, log)| log.upgrade()) {
            return Some(log);
        }
        let zil = Zil::new(id, self.side.clone(), Arc::new(self.logs().get(id)?));
        let log = Arc::new(VolumeLog::new(zil, self.side.clone(), !self.tuning.lets_log_fill));
        open.push((id, Arc::downgrade(&log)));
        Some(log)
    }

    pub(crate) fn open_volumes(&self) -> Vec<(DatasetId, Arc<VolumeLog>)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(|(id, log)| Some((*id, log.upgrade()?))).collect()
    }

    /// Counters of the logs of volumes that are open.
    pub fn stats(&self) -> Vec<(DatasetId, StatsSnapshot)> {
        self.open_volumes().iter().map(|(id, log)| (*id, log.zil.stats().snapshot())).collect()
    }

    /// Kind pmem: counters of the region.
    pub fn medium_stats(&self) -> Option<fastness_prb::Stats> {
        self.logs().medium_stats()
    }

    /// The kind of all logs now.
    pub fn kind(&self) -> KindId {
        self.logs().kind()
    }

    /// Kind pmem: number of the region, what it is made of, and what survives on it.
    pub fn region(&self) -> Option<(RegionId, RegionInfo)> {
        self.logs().region().map(|region| (region.id, region.info.clone()))
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

pub(crate) fn volumes(pool: &Pool) -> Result<Vec<Dataset>, PoolError> {
    let volumes = pool.datasets().into_iter().filter(|info| info.kind == DatasetKind::Volume);
    volumes.map(|info| pool.dataset_by_id(info.id)).collect()
}
