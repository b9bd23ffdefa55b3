//! The tree of datasets in memory, and the settings of the pool as a whole.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use fastness_base::Roomy;
use fastness_sync::order::{Mutex, RwLock, lock, read, write};

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ObjectId, Txg};
use crate::metadata::branches::Base;
use crate::metadata::tables::{DatasetKind, DatasetRow};
use crate::namespace::effective::Effective;
use crate::namespace::props::Property;
use crate::namespace::settings::Settings;
use crate::objects::object::ObjectCore;
use crate::order;
use crate::rows::layer::Rows;

/// A dataset in memory.
pub(crate) struct DatasetCore {
    pub(crate) id: DatasetId,
    /// The txg that creates it; no older one may store anything for it.
    pub(crate) born: Txg,
    pub(crate) row: RwLock<DatasetRow, { order::ROW }>,
    /// Values, with inherited ones filled in.
    pub(crate) effective: Effective,
    pub(crate) next_object: AtomicU64,
    /// As the last txg has stored it.
    pub(crate) stored_next: AtomicU64,
    /// Bytes on the vdevs, of this dataset alone.
    pub(crate) used_bytes: AtomicU64,
    /// Bytes reserved for unsynced data: an upper bound of what it will use.
    pub(crate) dirty_bytes: AtomicI64,
    pub(crate) objects: Mutex<Roomy<ObjectId, Weak<ObjectCore>>, { order::OBJECTS }>,
    pub(crate) rows: Rows,
    /// Number of holds (`namespace::hold`); changed with the namespace locked, at least shared, or taken
    /// away.
    pub(crate) holds: AtomicUsize,
    pub(crate) is_destroyed: AtomicBool,
    /// Of a snapshot or a clone. Only its branch ever changes: when a clone is promoted.
    pub(crate) base: Mutex<Option<Base>, { order::BASE }>,
    /// Whether it may have snapshots: a row that changes may have to be kept for them.
    pub(crate) has_snapshots: AtomicBool,
    /// Bytes that snapshots have of what it owns, at least (`thick`); known of a thick volume only.
    pub(crate) pinned_bytes: AtomicU64,
    /// The newest txg that was asked to pin all that it owns.
    pub(crate) pinned_txg: AtomicU64,
    /// Whether it is being rolled back or promoted: nothing may open it.
    pub(crate) is_rolled_back: AtomicBool,
}

impl DatasetCore {
    /// Where it begins, if it is a snapshot or a clone.
    pub(crate) fn base(&self) -> Option<Base> {
        *lock(&self.base)
    }
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

/// What a pool has by name.
pub(crate) struct Datasets {
    pub(crate) namespace: RwLock<Namespace, { order::NAMESPACE }>,
    /// Settings of the pool, and the newest txg that changed them.
    pub(crate) settings: Mutex<(Txg, Settings), { order::SETTINGS }>,
    /// Datasets with a quota or a reservation.
    limits: AtomicU64,
}

impl Datasets {
    pub(crate) fn new(namespace: Namespace, synced: Txg, settings: Settings) -> Datasets {
        let limits = AtomicU64::new(namespace.count_limits());
        Datasets { namespace: RwLock::new(namespace), settings: Mutex::new((synced, settings)), limits }
    }

    /// The dataset as of `txg`: even one that only a newer txg destroys.
    pub(crate) fn get(&self, id: DatasetId, txg: Txg) -> Option<Arc<DatasetCore>> {
        let namespace = read(&self.namespace);
        let going = || namespace.going.get(&id.0).filter(|(at, _)| *at > txg).map(|(_, core)| core);
        namespace.by_id.get(&id.0).or_else(going).cloned()
    }

    /// Whether any quota or reservation exists; usually there is none, and then a write checks no further.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits.load(Ordering::Relaxed) > 0
    }

    /// A dataset with a limit is new; the caller holds the namespace's lock, as for all of these.
    pub(crate) fn note_limit(&self) {
        self.limits.fetch_add(1, Ordering::Relaxed);
    }

    /// One with a limit is gone.
    pub(crate) fn note_limit_gone(&self) {
        self.limits.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts the limits of `namespace` again.
    pub(crate) fn count_limits(&self, namespace: &Namespace) {
        self.limits.store(namespace.count_limits(), Ordering::Relaxed);
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

    /// Gives the root the name of the pool, as the labels have it: an import may have changed that. Its row
    /// may say otherwise, until it is stored for another reason.
    pub(crate) fn name_root(&mut self, name: &str) {
        let Some(root) = self.root() else { return };
        let before = std::mem::replace(&mut write(&self.by_id[&root].row).name, name.to_owned());
        self.children.remove(&(0, before));
        self.children.insert((0, name.to_owned()), root);
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
        let reserved = others.map(|core| {
            let reserved = read(&core.row).values.get(Property::Reservation).unwrap_or(0);
            if reserved == 0 {
                return 0;
            }
            let thick = self.tree(core.id.0).into_iter().map(|id| self.thick_kept(&self.by_id[&id]));
            reserved.saturating_sub(self.referenced(core.id.0, true)).saturating_sub(thick.sum())
        });
        reserved.fold(self.thick_kept_for_others(id), u64::saturating_add)
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
            // The name of a snapshot begins with the sign that divides it from its volume's.
            if row.parent != 0 && row.kind != DatasetKind::Snapshot {
                parts.push("/".to_owned());
            }
            next = row.parent;
        }
        parts.reverse();
        parts.concat()
    }

    pub(crate) fn find(&self, path: &str) -> Option<Arc<DatasetCore>> {
        if let Some((volume, snapshot)) = path.rsplit_once('@') {
            let volume = self.find(volume)?.id.0;
            return self.by_id.get(self.children.get(&(volume, format!("@{snapshot}")))?).cloned();
        }
        let mut id = 0;
        for part in path.split('/') {
            id = *self.children.get(&(id, part.to_owned()))?;
        }
        self.by_id.get(&id).cloned()
    }

    /// Its snapshots, oldest first.
    pub(crate) fn snapshots(&self, id: u64) -> Vec<Arc<DatasetCore>> {
        let below = self.children.range((id, "@".to_owned())..(id, "A".to_owned()));
        let mut all: Vec<_> = below.filter_map(|(_, child)| self.by_id.get(child)).cloned().collect();
        all.sort_by_key(|core| core.id);
        all
    }

    /// Names of the clones of a snapshot.
    pub(crate) fn clones(&self, snapshot: u64) -> Vec<String> {
        let is_clone = |core: &&Arc<DatasetCore>| {
            core.id.0 != snapshot && core.base().is_some_and(|base| base.snapshot == snapshot)
        };
        self.by_id.values().filter(is_clone).map(|core| self.path(core.id.0)).collect()
    }

    /// Recomputes inherited values, for a dataset and all below it. In a tree, parents come before their
    /// children.
    pub(crate) fn refresh(&self, id: u64) {
        for id in self.tree(id) {
            let core = &self.by_id[&id];
            let row = read(&core.row).clone();
            let parent = self.by_id.get(&row.parent).map(|parent| parent.effective.values());
            core.effective.set(&row.values.effective(parent.as_ref()));
        }
    }
}
