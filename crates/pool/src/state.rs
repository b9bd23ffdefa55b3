//! What all parts of an imported pool share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use redb::Database;

use crate::devices::config::PoolConfig;
use crate::devices::label::Uberblock;
use crate::devices::vdev::Vdevs;
use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ImportId, ObjectId, Txg};
use crate::log_space::blocks::LogBlocks;
use crate::metadata::file::MetaFile;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::{DatasetRow, ExtentKey};
use crate::namespace::props::{Property, Values};
use crate::namespace::settings::Settings;
use crate::objects::buffers::{Block, Buffers};
use crate::objects::object::ObjectCore;
use crate::order;
use crate::rows::layer::Rows;
use crate::space::elsewhere::SharedAllocator;
use crate::space::room::{Charge, Room};
use crate::txg::pipeline::{Pipeline, RING};
use crate::upkeep::damage::Damage;
use fastness_sync::MutexGuard;
use fastness_sync::order::{Guard, Mutex, RwLock, lock, read, write};

/// Settings of an import; none of them is stored.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// A txg with changes ends after this time.
    pub txg_timeout: std::time::Duration,
    /// Limit for unsynced data in memory. A txg ends early at a quarter of it; writers are slowed down from
    /// 30 % on, because what a txg has written stays in memory until it is durable.
    pub dirty_max_bytes: u64,
    /// Limit for the cache of blocks.
    pub cache_bytes: u64,
    /// Limit for the metadata engine's cache.
    pub meta_cache_bytes: usize,
    /// Whether a thread syncs txgs. Without one a txg syncs only in [`Pool::sync`](crate::Pool::sync): the
    /// order of all I/O is then that of the caller's calls.
    pub has_txg_thread: bool,
    /// Refuse changes and write nothing, not even labels.
    pub is_read_only: bool,
    /// Rows of extents, of 32 blocks each, that one txg frees of what was destroyed or cleared, at most. More
    /// takes several txgs, so that none takes long, or much memory.
    pub frees_per_txg: usize,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions {
            txg_timeout: std::time::Duration::from_secs(5),
            dirty_max_bytes: 512 << 20,
            cache_bytes: 256 << 20,
            meta_cache_bytes: 128 << 20,
            has_txg_thread: true,
            is_read_only: false,
            frees_per_txg: 4096,
        }
    }
}

/// The owner of something that must become durable in a certain txg: the intent log.
pub trait TxgHook: Send + Sync {
    /// The txg has quiesced and is about to commit: what is put into `changes` is durable with it.
    ///
    /// # Errors
    /// Any error suspends the pool.
    fn sync(&self, txg: Txg, changes: &mut HookChanges) -> Result<()>;

    /// The txg is durable; threads that wait for it have not been told yet.
    fn synced(&self, _txg: Txg) {}
}

/// What owners store: dataset and key → value, `None` for none. If a key is stored several times in one txg,
/// only the last value is kept.
pub(crate) type Aux = BTreeMap<(u64, Vec<u8>), Option<Vec<u8>>>;

/// What a hook stores.
#[derive(Debug, Default)]
pub struct HookChanges {
    pub(crate) aux: Aux,
    pub(crate) ends_next_soon: bool,
}

impl HookChanges {
    /// Makes the next txg, which is already open, end soon.
    pub fn end_next_soon(&mut self) {
        self.ends_next_soon = true;
    }

    /// Stores `value` with a dataset under `key`; `None` removes it.
    pub fn put(&mut self, dataset: DatasetId, key: &[u8], value: Option<&[u8]>) {
        self.aux.insert((dataset.0, key.to_vec()), value.map(<[u8]>::to_vec));
    }
}

/// A shard of a dataset that a txg has changed.
pub(crate) type ChangedShard = (Arc<DatasetCore>, usize);

/// Changes of one unsynced txg.
#[derive(Default)]
pub(crate) struct TxgChanges {
    pub(crate) objects: Vec<Arc<ObjectCore>>,
    pub(crate) rows: Vec<ChangedShard>,
    pub(crate) datasets: BTreeMap<u64, Option<Vec<u8>>>,
    pub(crate) aux: Aux,
    pub(crate) doomed: Vec<(u64, u64, u64)>,
    /// Whether the list of damaged blocks has changed.
    pub(crate) has_damage: bool,
    /// What these may take, on top of what layers were charged.
    pub(crate) charged: Charge,
}

impl TxgChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.rows.is_empty()
            && self.datasets.is_empty()
            && self.aux.is_empty()
            && self.doomed.is_empty()
            && !self.has_damage
    }
}

/// A dataset in memory.
pub(crate) struct DatasetCore {
    pub(crate) id: DatasetId,
    /// The txg that creates it; no older one may store anything for it.
    pub(crate) born: Txg,
    pub(crate) row: RwLock<DatasetRow, { order::ROW }>,
    /// Values, with inherited ones filled in.
    pub(crate) effective: RwLock<Values, { order::EFFECTIVE }>,
    pub(crate) next_object: AtomicU64,
    /// As the last txg has stored it.
    pub(crate) stored_next: AtomicU64,
    /// Bytes on the vdevs, of this dataset alone.
    pub(crate) used_bytes: AtomicU64,
    /// Bytes reserved for unsynced data: an upper bound of what it will use.
    pub(crate) dirty_bytes: AtomicI64,
    pub(crate) objects: Mutex<HashMap<ObjectId, Weak<ObjectCore>>, { order::OBJECTS }>,
    pub(crate) rows: Rows,
    pub(crate) is_destroyed: AtomicBool,
}

/// All datasets.
#[derive(Default)]
pub(crate) struct Namespace {
    pub(crate) by_id: BTreeMap<u64, Arc<DatasetCore>>,
    /// Parent and name → dataset.
    pub(crate) children: BTreeMap<(u64, String), u64>,
    pub(crate) next_id: u64,
    /// Newest txg with a change of a row. Changes are made in the order of txgs, so that what a txg stores is
    /// the namespace as it was at one moment: no name twice, no dataset without its parent.
    pub(crate) newest: Option<Txg>,
    /// Destroyed in a txg that has not synced yet: an older one still counts what they use.
    pub(crate) going: BTreeMap<u64, (Txg, Arc<DatasetCore>)>,
}

/// Key of a cached block.
pub(crate) type CacheKey = (u64, u64, u64);

#[derive(Debug, Clone)]
pub(crate) struct ByBytes;

impl quick_cache::Weighter<CacheKey, Block> for ByBytes {
    fn weight(&self, _: &CacheKey, block: &Block) -> u64 {
        block.len() as u64 + 64
    }
}

/// Collects what the cache evicts, so that its memory is reused.
#[derive(Debug, Clone)]
pub(crate) struct Evicted;

impl quick_cache::Lifecycle<CacheKey, Block> for Evicted {
    type RequestState = Vec<Block>;

    fn on_evict(&self, evicted: &mut Vec<Block>, _: CacheKey, block: Block) {
        evicted.push(block);
    }
}

pub(crate) type Cache =
    quick_cache::sync::Cache<CacheKey, Block, ByBytes, quick_cache::DefaultHashBuilder, Evicted>;

pub(crate) struct Shared {
    pub(crate) options: PoolOptions,
    pub(crate) config: Mutex<PoolConfig, { order::CONFIG }>,
    /// The last uberblock that is durable. Txg 0 if there is none yet.
    pub(crate) uberblock: Mutex<Uberblock, { order::UBERBLOCK }>,
    /// Of this import.
    pub(crate) import: ImportId,
    /// Whether it had been exported before.
    pub(crate) was_exported: bool,
    pub(crate) vdevs: Arc<Vdevs>,
    pub(crate) allocator: Arc<SharedAllocator>,
    pub(crate) meta: MetaFile,
    pub(crate) database: Database,
    pub(crate) snapshot: RwLock<Arc<Snapshot>, { order::SNAPSHOT }>,
    pub(crate) pipeline: Pipeline,
    pub(crate) changes: [Mutex<TxgChanges, { order::CHANGES }>; RING],
    pub(crate) namespace: RwLock<Namespace, { order::NAMESPACE }>,
    /// Settings of the pool, and the newest txg that changed them.
    pub(crate) settings: Mutex<(Txg, Settings), { order::SETTINGS }>,
    pub(crate) cache: Cache,
    pub(crate) buffers: Buffers,
    /// Threads that pack blocks in a sync.
    pub(crate) packers: usize,
    pub(crate) hooks: Mutex<Vec<Arc<dyn TxgHook>>, { order::HOOKS }>,
    /// Labels could not be written: devices may disagree. The next txg writes them again.
    pub(crate) has_unsure_labels: AtomicBool,
    /// Held while a txg syncs, and by any thread during whose work no txg may sync.
    pub(crate) syncing: Mutex<(), { order::SYNCING }>,
    /// Held while devices come and go, until the labels say so, and when labels are written without
    /// `syncing`. Its holder waits for no transaction, so a transaction may wait for it. Taken after
    /// `syncing`.
    pub(crate) naming: Mutex<(), { order::NAMING }>,
    /// Log blocks. Taken before the allocator's lock; like that, not held during I/O.
    pub(crate) log: Mutex<LogBlocks, { order::LOG }>,
    /// Held shared while blocks of a snapshot are read without an object's lock; exclusively while freed
    /// space is made available again.
    pub(crate) reuse: RwLock<(), { order::REUSE }>,
    pub(crate) is_closed: AtomicBool,
    /// What is free, and reserved.
    pub(crate) room: Room,
    /// Whether something destroyed has not been freed yet.
    pub(crate) has_doomed: AtomicBool,
    /// Whether something cleared has not been freed yet; and where freeing continues.
    pub(crate) has_cleared: AtomicBool,
    pub(crate) next_cleared: Mutex<ExtentKey, { order::NEXT_CLEARED }>,
    pub(crate) damage: Mutex<Damage, { order::DAMAGE }>,
    /// Datasets with a quota or a reservation.
    pub(crate) limits: AtomicU64,
    /// Whether the pool was closed or suspended: a transaction checks this before it takes a lock to find out
    /// more.
    pub(crate) must_check: AtomicBool,
}

impl Shared {
    /// Refuses work on a pool that is closed or suspended.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(PoolError::Closed);
        }
        match &lock(&self.pipeline.progress).failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Turns an error of the tables into its real cause, which the engine forgets; see [`MetaFile::explain`].
    pub(crate) fn explained<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.meta.explain(error))
    }

    pub(crate) fn changes(&self, txg: Txg) -> Guard<MutexGuard<'_, TxgChanges>> {
        lock(&self.changes[txg.0 as usize % RING])
    }

    pub(crate) fn current(&self) -> Arc<Snapshot> {
        read(&self.snapshot).clone()
    }

    /// The dataset as of `txg`: even one that only a newer txg destroys.
    pub(crate) fn dataset(&self, id: DatasetId, txg: Txg) -> Option<Arc<DatasetCore>> {
        let namespace = read(&self.namespace);
        let going = || namespace.going.get(&id.0).filter(|(at, _)| *at > txg).map(|(_, core)| core);
        namespace.by_id.get(&id.0).or_else(going).cloned()
    }

    /// Whether any quota or reservation exists; usually there is none, and then a write checks no further.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits.load(Ordering::Relaxed) > 0
    }
}

impl Namespace {
    /// Refuses a change in a txg older than that of the last change.
    pub(crate) fn check_order(&self, txg: Txg) -> Result<()> {
        match self.newest {
            Some(newest) if newest > txg => Err(PoolError::Overtaken { txg, newest }),
            _ => Ok(()),
        }
    }

    /// Number of the root dataset.
    pub(crate) fn root(&self) -> Option<u64> {
        self.children.range((0, String::new())..(1, String::new())).next().map(|(_, root)| *root)
    }

    /// The dataset and all below it.
    pub(crate) fn tree(&self, id: u64) -> Vec<u64> {
        let mut all = vec![id];
        let mut at = 0;
        while let Some(&parent) = all.get(at) {
            let below = self.children.range((parent, String::new())..(parent + 1, String::new()));
            all.extend(below.map(|(_, child)| *child));
            at += 1;
        }
        all
    }

    /// Bytes of a dataset and those below it.
    pub(crate) fn referenced(&self, id: u64, with_dirty: bool) -> u64 {
        let bytes = |id: &u64| {
            let core = &self.by_id[id];
            // In this order: unsynced data first becomes used, and only then stops being unsynced.
            let dirty = if with_dirty { core.dirty_bytes.load(Ordering::SeqCst).max(0) as u64 } else { 0 };
            core.used_bytes.load(Ordering::SeqCst) + dirty
        };
        self.tree(id).iter().map(bytes).sum()
    }

    /// Bytes that are kept free by reservations of datasets other than this one and those above it.
    pub(crate) fn reserved_by_others(&self, id: u64) -> u64 {
        let mut above = Vec::new();
        let mut next = id;
        while let Some(core) = self.by_id.get(&next) {
            above.push(next);
            next = read(&core.row).parent;
        }
        let others = self.by_id.values().filter(|core| !above.contains(&core.id.0));
        others
            .map(|core| {
                let reserved = read(&core.row).values.get(Property::Reservation).unwrap_or(0);
                if reserved == 0 { 0 } else { reserved.saturating_sub(self.referenced(core.id.0, true)) }
            })
            .sum()
    }

    pub(crate) fn count_limits(&self) -> u64 {
        self.by_id.values().filter(|core| read(&core.row).has_limit()).count() as u64
    }

    /// The full name.
    pub(crate) fn path(&self, id: u64) -> String {
        let mut parts = Vec::new();
        let mut next = id;
        while let Some(core) = self.by_id.get(&next) {
            let row = read(&core.row);
            parts.push(row.name.clone());
            next = row.parent;
        }
        parts.reverse();
        parts.join("/")
    }

    pub(crate) fn find(&self, path: &str) -> Option<Arc<DatasetCore>> {
        let mut id = 0;
        for part in path.split('/') {
            id = *self.children.get(&(id, part.to_owned()))?;
        }
        self.by_id.get(&id).cloned()
    }

    /// Recomputes inherited values, for a dataset and all below it. In a tree, parents come before their
    /// children.
    pub(crate) fn refresh(&self, id: u64) {
        for id in self.tree(id) {
            let core = &self.by_id[&id];
            let row = read(&core.row).clone();
            let parent = self.by_id.get(&row.parent).map(|parent| *read(&parent.effective));
            *write(&core.effective) = row.values.effective(parent.as_ref());
        }
    }
}
