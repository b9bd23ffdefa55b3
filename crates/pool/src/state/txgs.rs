//! Transaction groups: what the unsynced ones have changed, and who has a word in each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastness_sync::MutexGuard;
use fastness_sync::order::{Guard, Mutex, lock};

use crate::error::Result;
use crate::ids::{DatasetId, Txg};
use crate::metadata::branches::BranchChange;
use crate::objects::object::ObjectCore;
use crate::order;
use crate::space::room::Charge;
use crate::state::datasets::DatasetCore;
use crate::txg::pipeline::{Pipeline, RING};

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
    /// Snapshots and clones, in order.
    pub(crate) branches: Vec<BranchChange>,
    /// Volumes all of whose space counts as that of snapshots (`thick`).
    pub(crate) pinning: BTreeSet<u64>,
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
            && self.branches.is_empty()
            && !self.has_damage
    }
}

/// The pipeline of txgs, and the changes of each.
pub(crate) struct Txgs {
    pub(crate) pipeline: Pipeline,
    changes: [Mutex<TxgChanges, { order::CHANGES }>; RING],
    hooks: Mutex<Vec<Arc<dyn TxgHook>>, { order::HOOKS }>,
    /// Held while a txg syncs, and by any thread during whose work no txg may sync.
    pub(crate) syncing: Mutex<(), { order::SYNCING }>,
    /// Threads that pack blocks in a sync.
    pub(crate) packers: usize,
}

impl Txgs {
    pub(crate) fn new(pipeline: Pipeline, packers: usize) -> Txgs {
        let (changes, hooks, syncing) = (Default::default(), Mutex::default(), Mutex::new(()));
        Txgs { pipeline, changes, hooks, syncing, packers }
    }

    /// What an unsynced txg has changed.
    pub(crate) fn changes(&self, txg: Txg) -> Guard<MutexGuard<'_, TxgChanges>> {
        lock(&self.changes[txg.0 as usize % RING])
    }

    /// Whether any unsynced txg has changes.
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.iter().any(|changes| !lock(changes).is_empty())
    }

    /// Whether an unsynced txg lists this to be freed.
    pub(crate) fn is_doomed(&self, listed: (u64, u64, u64)) -> bool {
        self.changes.iter().any(|changes| lock(changes).doomed.contains(&listed))
    }

    /// Takes the changes of all txgs, oldest place of the ring first.
    pub(crate) fn take_changes(&self) -> impl Iterator<Item = TxgChanges> + '_ {
        self.changes.iter().map(|changes| std::mem::take(&mut *lock(changes)))
    }

    /// Asks `hook` with each txg, after those that are asked already.
    pub(crate) fn add_hook(&self, hook: Arc<dyn TxgHook>) {
        lock(&self.hooks).push(hook);
    }

    /// Those to be asked, without a lock held.
    pub(crate) fn hooks(&self) -> Vec<Arc<dyn TxgHook>> {
        lock(&self.hooks).clone()
    }

    pub(crate) fn forget_hooks(&self) {
        lock(&self.hooks).clear();
    }
}
