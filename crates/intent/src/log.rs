//! The log of a pool.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};

use fastness_pmem::{Medium, MsyncMode, OpenOptions, PersistError, PmRange, Region, RegionInfo, RegionKind};
use fastness_pool::{Dataset, DatasetKind, HookChanges, Pool, PoolError, Tx, TxgHook};
use fastness_prb::{Config, Stats as RegionStats};
use fastness_zil::{DatasetId, KindId, StatsSnapshot, Txg};

use crate::config::LogConfig;
use crate::error::IntentError;
use crate::logs::{AnyLog, Logs};
use crate::region::RegionId;
use crate::side::{HEADER, PoolSide};
use crate::side_loss::LossRecord;
use crate::sides::OpenRegion;
use crate::volume_log::VolumeLog;

/// Key beside the root dataset: the pool's [`LogConfig`].
pub(crate) const DEVICE: &[u8] = b"log device";

/// Of [`Tuning::indirect_bytes_min`]: below it two flushes in a row cost more than the data twice, at least with several
/// threads.
const INDIRECT_BYTES_MIN: u64 = 1 << 20;

/// The intent log of one dataset.
pub type Zil<M = PmRange> = fastness_zil::Zil<PoolSide, AnyLog<M>>;

/// Choices about a log that depend on the machine and not on what is in it; none of them is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Kind pmem: threads that may write to the medium at one time, at most 32; `None`: as many as there are CPUs. On
    /// Optane two to four for each module. Each has a chunk open, so at most half of the chunks.
    pub ncommitters: Option<u32>,
    /// Writers are not slowed down while the log is short of room: one that finds none waits for a whole txg.
    pub lets_log_fill: bool,
    /// How many logs are suspended at a time when their devices change, by a thread each; by default 64. With 1 the
    /// order of all I/O is that of the caller's calls.
    pub suspended_at_once: Option<usize>,
    /// Kind lwb on a pool without vdevs for logs: a commit that has at least so much to read back, in whole blocks, writes
    /// that to its final place at once, and only its address into the log. `None`: none does.
    pub indirect_bytes_min: Option<u64>,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            ncommitters: None,
            lets_log_fill: false,
            suspended_at_once: None,
            indirect_bytes_min: Some(INDIRECT_BYTES_MIN),
        }
    }
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
pub struct PoolLog<M: Medium + Sync = PmRange> {
    pub(crate) side: Arc<PoolSide>,
    pub(crate) tuning: Tuning,
    /// Of the kind that the pool has now.
    pub(crate) logs: Arc<RwLock<Arc<Logs<M>>>>,
    /// Logs of volumes that are open, so that a volume has one.
    pub(crate) open: OpenLogs<M>,
    /// What the pool's hook tells of txgs; empty when this is dropped.
    told: Arc<Mutex<Option<Told<M>>>>,
    /// Shared by who makes or destroys a volume, so that a change of the kind sees all of them.
    pub(crate) members: RwLock<()>,
    /// Held over a change of the log's devices.
    pub(crate) changing: Mutex<()>,
    /// What becomes of a side of the log that is lost.
    pub(crate) losses: Arc<LossRecord>,
}

/// While it lives, the kind of the log is not changed; see [`PoolLog::members`].
#[derive(Debug)]
pub struct Members<'a>(#[expect(dead_code, reason = "a guard")] RwLockReadGuard<'a, ()>);

impl<M: Medium + Sync> std::fmt::Debug for PoolLog<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLog({:?})", self.logs().kind())
    }
}

type OpenLogs<M> = Arc<Mutex<Vec<(DatasetId, Weak<VolumeLog<M>>)>>>;

fn open_volumes<M: Medium + Sync>(open: &OpenLogs<M>) -> Vec<(DatasetId, Arc<VolumeLog<M>>)> {
    let open = open.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter().filter_map(|(id, log)| Some((*id, log.upgrade()?))).collect()
}

/// What needs to know of txgs.
struct Told<M: Medium + Sync> {
    logs: Arc<RwLock<Arc<Logs<M>>>>,
    open: OpenLogs<M>,
    losses: Arc<LossRecord>,
}

/// Stores headers with each txg, and tells the logs that it is durable.
///
/// It is called by the thread that ends txgs, which must not be the last to let go of the pool: it would wait for its own
/// end. So it has nothing that has the pool, but logs of open volumes for as long as it holds the lock, and
/// [`PoolLog`], which has the pool, lives as long: its drop takes the lock.
struct Collector<M: Medium + Sync>(Arc<Mutex<Option<Told<M>>>>);

impl<M: Medium + Sync> Drop for PoolLog<M> {
    fn drop(&mut self) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<M: Medium + Sync + 'static> TxgHook for Collector<M> {
    fn sync(&self, txg: fastness_pool::Txg, changes: &mut HookChanges) -> Result<(), PoolError> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = &*told {
            let mut put = |dataset: DatasetId, header: Option<&[u8]>| {
                changes.put(fastness_pool::DatasetId(dataset.0), HEADER, header);
            };
            let logs = current(&told.logs);
            logs.sync(Txg(txg.0), &mut put);
            told.losses.sync(txg, &logs, changes);
        }
        Ok(())
    }

    fn synced(&self, txg: fastness_pool::Txg) {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = &*told {
            let logs = current(&told.logs);
            told.losses.synced(txg, &logs);
            logs.txg_synced(Txg(txg.0));
            for (_, volume) in open_volumes(&told.open) {
                volume.zil.txg_synced(Txg(txg.0));
            }
        }
    }
}

fn current<M: Medium + Sync>(logs: &RwLock<Arc<Logs<M>>>) -> Arc<Logs<M>> {
    logs.read().unwrap_or_else(PoisonError::into_inner).clone()
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

impl<M: Medium + Sync> PoolLog<M> {
    pub(crate) fn logs(&self) -> Arc<Logs<M>> {
        current(&self.logs)
    }
}

impl<M: Medium + Sync + 'static> PoolLog<M> {
    /// `losses` has what the pool says of `logs`.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        logs: Logs<M>,
        tuning: Tuning,
        losses: LossRecord,
    ) -> Arc<PoolLog<M>> {
        let (logs, open) = (Arc::new(RwLock::new(Arc::new(logs))), OpenLogs::default());
        let losses = Arc::new(losses);
        let told = Told { logs: logs.clone(), open: open.clone(), losses: losses.clone() };
        let told = Arc::new(Mutex::new(Some(told)));
        pool.add_hook(Arc::new(Collector(told.clone())));
        Arc::new(PoolLog {
            side: Arc::new(PoolSide::new(pool, tuning.indirect_bytes_min)),
            tuning,
            logs,
            open,
            told,
            members: RwLock::default(),
            changing: Mutex::default(),
            losses,
        })
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
    pub fn volume(&self, volume: fastness_pool::DatasetId) -> Option<Arc<VolumeLog<M>>> {
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

    /// Counters of the logs of volumes that are open.
    pub fn stats(&self) -> Vec<(DatasetId, StatsSnapshot)> {
        open_volumes(&self.open).iter().map(|(id, log)| (*id, log.zil.stats().snapshot())).collect()
    }

    /// Kind pmem: counters of the region.
    pub fn medium_stats(&self) -> Option<RegionStats> {
        self.logs().medium_stats()
    }

    /// The kind of all logs now.
    pub fn kind(&self) -> KindId {
        self.logs().kind()
    }

    /// Kind pmem: what is wrong with each region that cannot be written any more. Of a mirror, the log goes on with the
    /// other side; otherwise synchronous writes wait for txgs until the region is replaced or removed.
    pub fn lost_regions(&self) -> Vec<(RegionId, PersistError)> {
        let logs = self.logs();
        let lost = |region: &OpenRegion<M>| Some((region.id, region.front.check().err()?));
        logs.regions().iter().filter_map(lost).collect()
    }

    /// Kind pmem: of each region in use its number, what it is made of, and what survives on it.
    pub fn regions(&self) -> Vec<(RegionId, RegionInfo)> {
        self.logs().regions().iter().map(|region| (region.id, region.info.clone())).collect()
    }
}

pub(crate) fn volumes(pool: &Pool) -> Result<Vec<Dataset>, PoolError> {
    let volumes = pool.datasets().into_iter().filter(|info| info.kind == DatasetKind::Volume);
    volumes.map(|info| pool.dataset_by_id(info.id)).collect()
}
