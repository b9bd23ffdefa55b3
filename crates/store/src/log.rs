//! The log of a pool.

use std::path::Path;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use fastness_sync::{lock, read};

use fastness_pmem::{MsyncMode, OpenOptions, PersistError, Region, RegionInfo, RegionKind};
use fastness_pool::{Dataset, DatasetKind, HookChanges, ImportId, Mark, Pool, PoolError, Tx, TxgHook};
use fastness_prb::Stats as RegionStats;
use fastness_zil::{DatasetId, KindId, StatsSnapshot, Txg};

use crate::config::{DEVICE, LogConfig, RegionId};
use crate::dataset_log::DatasetLog;
use crate::error::StoreError;
use crate::logs::{AllLogs, Zil};
use crate::marks::Phase;
use crate::side::{HEADER, PoolSide};
use crate::side_loss::LossRecord;
use crate::sides::OpenRegion;
use crate::tuning::Tuning;

/// The log of an imported pool.
///
/// Concurrency: any number of threads. Lock order: members, open, logs.
pub struct PoolLog {
    pub(crate) side: Arc<PoolSide>,
    pub(crate) tuning: Tuning,
    /// The logs, of the kind that the pool has now.
    pub(crate) logs: Arc<RwLock<Arc<AllLogs>>>,
    /// Logs of datasets that are open, or have changes that are neither logged nor synced: a dataset has one
    /// at a time, and a flush must know what was written before the dataset was closed and opened again.
    pub(crate) open: OpenLogs,
    /// What the pool's hook informs about txgs; empty once this is dropped.
    told: Arc<Mutex<Option<Told>>>,
    pub(crate) marked: Marked,
    /// Held shared while a dataset is created or destroyed, so that a change of the kind sees all of them.
    pub(crate) members: RwLock<()>,
    /// Held during a change of the log's devices.
    pub(crate) changing: Mutex<()>,
    /// Tracks sides of the log that are lost.
    pub(crate) losses: Arc<LossRecord>,
}

/// While it lives, the kind of the log is not changed; see [`PoolLog::members`].
#[derive(Debug)]
pub(crate) struct Members<'a>(#[expect(dead_code, reason = "a guard")] RwLockReadGuard<'a, ()>);

impl std::fmt::Debug for PoolLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLog({:?})", self.logs().kind())
    }
}

type OpenLogs = Arc<Mutex<Vec<(DatasetId, Arc<DatasetLog>)>>>;

/// Releases the logs of closed datasets, once nothing is left that a flush would have to wait for.
fn drop_idle(open: &mut Vec<(DatasetId, Arc<DatasetLog>)>, synced: Txg) {
    open.retain(|(_, log)| Arc::strong_count(log) > 1 || log.zil.has_unsynced(synced));
}

/// What must be informed about txgs.
struct Told {
    logs: Arc<RwLock<Arc<AllLogs>>>,
    open: OpenLogs,
}

/// Logs whose regions an import may read: those in use, and the previous ones until the change is durable.
/// Only of kind pmem: nothing in these refers to the pool.
pub(crate) type Marked = Arc<Mutex<Vec<Arc<AllLogs>>>>;

pub(crate) fn marked(logs: &[&Arc<AllLogs>]) -> Vec<Arc<AllLogs>> {
    logs.iter().filter(|logs| logs.kind() == KindId::Pmem).map(|logs| Arc::clone(logs)).collect()
}

/// Stores headers with each txg, and tells the logs when it is durable.
///
/// It is called by the thread that ends txgs, which must not drop the last reference to the pool: it would
/// wait for its own end. So this hook holds nothing that refers to the pool, except logs of volumes while it
/// holds the lock; and [`PoolLog`], which refers to the pool, lives at least as long: its drop takes the
/// lock.
///
/// It keeps the regions for as long as the pool syncs, with a [`PoolLog`] or without: a txg that they do not
/// know of makes them older than the pool.
struct Collector {
    told: Arc<Mutex<Option<Told>>>,
    marked: Marked,
    losses: Arc<LossRecord>,
    import: ImportId,
}

impl Collector {
    /// Notes in the regions how far a txg has come.
    fn mark(&self, phase: Phase, txg: Txg) {
        let marked = lock(&self.marked);
        marked.iter().for_each(|logs| logs.mark(phase, Mark { txg, import: self.import }));
    }

    /// The logs in use, or those in use when the [`PoolLog`] was dropped, unless nothing in them can be lost.
    fn logs(&self, told: Option<&Told>) -> Option<Arc<AllLogs>> {
        let last = || lock(&self.marked).first().cloned();
        told.map(|told| current(&told.logs)).or_else(last)
    }
}

impl Drop for PoolLog {
    fn drop(&mut self) {
        *lock(&self.told) = None;
    }
}

impl TxgHook for Collector {
    fn sync(&self, txg: Txg, changes: &mut HookChanges) -> Result<(), PoolError> {
        self.mark(Phase::Begun, txg);
        let told = lock(&self.told);
        if let Some(told) = &*told {
            let mut put = |dataset: DatasetId, header: Option<&[u8]>| {
                changes.put(dataset, HEADER, header);
            };
            current(&told.logs).sync(txg, &mut put);
        }
        if let Some(logs) = self.logs(told.as_ref()) {
            self.losses.sync(txg, &logs, changes);
        }
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        // Before anything in the regions is emptied because of it.
        self.mark(Phase::Synced, txg);
        let told = lock(&self.told);
        if let Some(logs) = self.logs(told.as_ref()) {
            // Before writers are told of the txg: from here on the remaining side suffices.
            self.losses.synced(txg, &logs);
        }
        if let Some(told) = &*told {
            current(&told.logs).txg_synced(txg);
            let mut open = lock(&told.open);
            for (_, volume) in &*open {
                volume.zil.txg_synced(txg);
            }
            drop_idle(&mut open, txg);
        }
    }
}

fn current(logs: &RwLock<Arc<AllLogs>>) -> Arc<AllLogs> {
    read(logs).clone()
}

/// Maps the pages of emulated PM up front, as a DAX file system maps each 2 MiB on first touch.
fn populated(region: Region) -> Region {
    if region.info().kind == RegionKind::Tmpfs {
        // This only saves page faults.
        let _ = region.populate();
    }
    region
}

fn options(emulates: bool) -> OpenOptions {
    let options = OpenOptions::new();
    // Emulated: no msync at a fence; the contents survive the process, and the region reports so itself.
    if emulates { options.msync(MsyncMode::Never) } else { options }
}

impl PoolLog {
    /// What the last synced txg says about a pool's log.
    ///
    /// # Errors
    /// Those of reading the tables; [`StoreError::Config`] if it is damaged.
    pub fn config(pool: &Pool) -> Result<LogConfig, StoreError> {
        let root = pool.dataset(&pool.name())?;
        match root.synced_aux(DEVICE)? {
            Some(stored) => Ok(LogConfig::decode(&stored)?),
            None => Ok(LogConfig::default()),
        }
    }

    /// Opens the region of a log. With `emulates`, an ordinary file is used as if it were persistent memory;
    /// its contents survive the process, but not a power cut.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_region(path: &Path, emulates: bool) -> Result<Region, StoreError> {
        Ok(populated(Region::open(path, &options(emulates))?))
    }

    /// Creates a file for a log, and opens it as [`open_region`](Self::open_region) does.
    ///
    /// # Errors
    /// Those of creating it; no file is left.
    pub fn create_region(path: &Path, len_bytes: u64, emulates: bool) -> Result<Region, StoreError> {
        Ok(populated(Region::create_file(path, len_bytes, &options(emulates))?))
    }

    pub(crate) fn logs(&self) -> Arc<AllLogs> {
        current(&self.logs)
    }

    /// `losses` has what the pool says of `logs`.
    pub(crate) fn new(pool: &Arc<Pool>, logs: AllLogs, tuning: Tuning, losses: LossRecord) -> Arc<PoolLog> {
        logs.add_to(pool);
        logs.watch_idle(pool);
        let (logs, losses) = (Arc::new(logs), Arc::new(losses));
        let marked: Marked = Arc::new(Mutex::new(marked(&[&logs])));
        let (logs, open) = (Arc::new(RwLock::new(logs)), OpenLogs::default());
        let told = Arc::new(Mutex::new(Some(Told { logs: logs.clone(), open: open.clone() })));
        pool.add_hook(Arc::new(Collector {
            told: told.clone(),
            marked: marked.clone(),
            losses: losses.clone(),
            import: pool.import_id(),
        }));
        Arc::new(PoolLog {
            side: Arc::new(PoolSide::new(pool, tuning.indirect_bytes_min)),
            tuning,
            logs,
            open,
            told,
            marked,
            members: RwLock::default(),
            changing: Mutex::default(),
            losses,
        })
    }

    /// Taken before the transaction that creates or destroys a dataset begins, and held until it has ended.
    pub(crate) fn members(&self) -> Members<'_> {
        Members(read(&self.members))
    }

    /// Creates the log of a new dataset, in the transaction that creates the dataset.
    ///
    /// # Errors
    /// [`StoreError::Log`]: the dataset already has one.
    pub(crate) fn create_log(
        &self,
        tx: &Tx,
        dataset: &Dataset,
        _members: &Members<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.logs().create(&self.side, tx, dataset.id())?)
    }

    /// Destroys the log of a dataset, in the transaction that destroys the dataset; the log must not be in
    /// use.
    ///
    /// # Errors
    /// [`StoreError::Log`].
    pub(crate) fn destroy_log(
        &self,
        tx: &Tx,
        dataset: DatasetId,
        _members: &Members<'_>,
    ) -> Result<(), StoreError> {
        Ok(self.logs().destroy(&self.side, tx, dataset)?)
    }

    /// The log of a dataset; the same one for all handles of the dataset. `None` if it has none.
    pub(crate) fn dataset_log(&self, dataset: DatasetId) -> Option<Arc<DatasetLog>> {
        let mut open = lock(&self.open);
        drop_idle(&mut open, self.side.pool().synced_txg());
        if let Some((_, log)) = open.iter().find(|(of, _)| *of == dataset) {
            return Some(log.clone());
        }
        let zil = Zil::new(dataset, self.side.clone(), Arc::new(self.logs().get(dataset)?));
        let log = Arc::new(DatasetLog::new(zil, self.side.clone(), !self.tuning.lets_log_fill));
        open.push((dataset, log.clone()));
        Some(log)
    }

    /// Counters of the logs of open datasets.
    pub fn stats(&self) -> Vec<(DatasetId, StatsSnapshot)> {
        let open = lock(&self.open);
        let in_use = open.iter().filter(|(_, log)| Arc::strong_count(log) > 1);
        in_use.map(|(id, log)| (*id, log.zil.stats().snapshot())).collect()
    }

    /// Lets the logs of all datasets record on their media what was acknowledged last, so that an import
    /// misses it if the medium loses it. A pool with threads has one that does so whenever a log is idle.
    /// Whether everything that has not synced is recorded now.
    ///
    /// Persistence: of kind lwb, what is recorded survives a power cut after the next flush.
    pub fn witness(&self) -> bool {
        self.all().iter().filter(|log| !log.witness()).count() == 0
    }

    /// Kind pmem: whether records of open datasets go directly to the log, as they do initially, or over the
    /// commit list, as with kind lwb; for comparison. Can be changed at any time.
    pub fn set_bypass(&self, is_on: bool) {
        let open = lock(&self.open);
        open.iter().for_each(|(_, log)| log.zil.set_bypass(is_on));
    }

    /// Kind pmem: counters of the region.
    pub fn medium_stats(&self) -> Option<RegionStats> {
        self.logs().medium_stats()
    }

    /// The current kind of all logs.
    pub fn kind(&self) -> KindId {
        self.logs().kind()
    }

    /// Kind pmem: what is wrong with each region that can no longer be written. If it is a side of a mirror,
    /// the log continues on the other side; otherwise synchronous writes wait for txgs until the region is
    /// replaced or removed.
    pub fn lost_regions(&self) -> Vec<(RegionId, PersistError)> {
        let logs = self.logs();
        let lost = |region: &OpenRegion| Some((region.id, region.check().err()?));
        logs.regions().iter().filter_map(lost).collect()
    }

    /// Kind pmem: for each region in use, its number, what it is made of, and which failures it survives.
    pub fn regions(&self) -> Vec<(RegionId, RegionInfo)> {
        self.logs().regions().iter().map(|region| (region.id, region.info.clone())).collect()
    }
}

/// A dataset that has a log, with the stored header.
type Logged = (Dataset, Option<Vec<u8>>);

/// The datasets that have logs, with the stored headers: those of known kinds, and those with a header.
pub(crate) fn logged(pool: &Pool, knows: impl Fn(DatasetKind) -> bool) -> Result<Vec<Logged>, PoolError> {
    let mut logged = Vec::new();
    for info in pool.datasets() {
        let dataset = pool.dataset_by_id(info.id)?;
        let header = dataset.synced_aux(HEADER)?;
        if header.is_some() || knows(info.kind) {
            logged.push((dataset, header));
        }
    }
    Ok(logged)
}

#[cfg(test)]
mod tests;
