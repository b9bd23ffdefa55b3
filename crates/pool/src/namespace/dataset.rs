//! Datasets: a tree of names with properties, each with its objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Txg};
use crate::metadata::tables::{DatasetKind, DatasetRow};
use crate::namespace::add::New;
use crate::namespace::effective::Effective;
use crate::namespace::names::split;
use crate::namespace::props::{Compression, LogBias, Property, SyncMode};
use crate::namespace::settings::Feature;
use crate::pool::{Pool, Tx};
use crate::rows::layer::Rows;
use crate::space::room::{Charge, Claim};
use crate::space::thick::check_kind;
use crate::state::Shared;
use crate::state::datasets::{DatasetCore, Namespace};
use crate::txg::freeing::WHOLE_DATASET;
use fastness_sync::order::{Mutex, RwLock, lock, read, write};

/// A dataset of an imported pool.
#[derive(Clone)]
pub struct Dataset {
    pub(crate) shared: Arc<Shared>,
    pub(crate) core: Arc<DatasetCore>,
}

/// A dataset as shown in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// Number.
    pub id: DatasetId,
    /// What it is used for.
    pub kind: DatasetKind,
    /// Bytes on the vdevs, with those of the datasets below.
    pub used_bytes: u64,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dataset({})", self.core.id)
    }
}

impl DatasetCore {
    pub(crate) fn new(id: u64, born: Txg, row: DatasetRow, next_object: u64, used_bytes: u64) -> DatasetCore {
        DatasetCore {
            id: DatasetId(id),
            born,
            row: RwLock::new(row),
            effective: Effective::default(),
            next_object: AtomicU64::new(next_object),
            stored_next: AtomicU64::new(next_object),
            used_bytes: AtomicU64::new(used_bytes),
            dirty_bytes: AtomicI64::new(0),
            objects: Mutex::default(),
            rows: Rows::default(),
            holds: AtomicUsize::new(0),
            is_destroyed: AtomicBool::new(false),
            base: Mutex::default(),
            has_snapshots: AtomicBool::new(false),
            pinned_bytes: AtomicU64::new(used_bytes),
            pinned_txg: AtomicU64::new(0),
            is_rolled_back: AtomicBool::new(false),
        }
    }
}

impl Pool {
    /// The dataset with this full name; the pool's own name is the root.
    ///
    /// # Errors
    /// [`PoolError::NoDataset`].
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let core = read(&self.shared.datasets.namespace).find(name);
        let core = core.ok_or_else(|| PoolError::NoDataset(name.to_owned()))?;
        Ok(Dataset { shared: self.shared.clone(), core })
    }

    /// The dataset with this number.
    ///
    /// # Errors
    /// [`PoolError::NoDataset`].
    pub fn dataset_by_id(&self, id: DatasetId) -> Result<Dataset> {
        let core = read(&self.shared.datasets.namespace).by_id.get(&id.0).cloned();
        let core = core.ok_or_else(|| PoolError::NoDataset(id.to_string()))?;
        Ok(Dataset { shared: self.shared.clone(), core })
    }

    /// Stores `value` with a dataset under `key`, in the transaction's txg; `None` removes it. If it is
    /// stored several times in one txg, the last one counts.
    pub fn put_aux(&self, tx: &Tx, dataset: DatasetId, key: &[u8], value: Option<&[u8]>) {
        let born = self.shared.datasets.get(dataset, tx.txg()).map_or(tx.txg(), |core| core.born);
        // Never before the dataset exists: the txg that creates it cannot end while this transaction holds an
        // older one.
        let mut changes = self.shared.txgs.changes(tx.txg().max(born));
        changes.aux.insert((dataset.0, key.to_vec()), value.map(<[u8]>::to_vec));
    }

    /// All datasets but snapshots, parents before children, by name.
    pub fn datasets(&self) -> Vec<DatasetInfo> {
        let namespace = read(&self.shared.datasets.namespace);
        let info = |id: &u64| namespace.info(*id);
        let mut all: Vec<_> = namespace.by_id.keys().map(info).collect();
        all.retain(|info| info.kind != DatasetKind::Snapshot);
        all.sort_by(|a, b| a.name.split('/').cmp(b.name.split('/')));
        all
    }

    /// Creates a dataset below one that exists, with values of its own for some properties.
    ///
    /// # Errors
    /// [`PoolError::Exists`], [`PoolError::NoDataset`] for the parent, [`PoolError::Invalid`], also for a
    /// [`DatasetKind::Other`] with the number of a known kind; [`PoolError::NoSpace`];
    /// [`PoolError::Overtaken`], as for all changes of datasets: try again in another transaction.
    pub fn create_dataset(
        &self,
        tx: &Tx,
        name: &str,
        kind: DatasetKind,
        properties: &[(Property, u64)],
    ) -> Result<Dataset> {
        kind.check()?;
        if kind == DatasetKind::Snapshot {
            return Err(PoolError::invalid("kind of a new dataset", kind));
        }
        if properties.iter().any(|(property, _)| *property == Property::RefReservation) {
            check_kind(kind, name)?;
            self.shared.need(tx, Feature::ThickVolumes)?;
        }
        let mut namespace = write(&self.shared.datasets.namespace);
        let (charge, claim) = (Charge::dataset(), Claim::Data);
        let new = New { kind, is_copy: false, properties, next_object: 1, charge, claim, base: |_| None };
        let core = self.shared.add_dataset(&mut namespace, tx, name, new)?;
        Ok(Dataset { shared: self.shared.clone(), core })
    }

    /// Destroys a dataset with its objects and tables, or a snapshot; the space is freed in the following
    /// txgs, in bounded steps.
    ///
    /// # Errors
    /// [`PoolError::Busy`] if it has datasets below it, or snapshots, is [held](Dataset::hold) or has open
    /// objects, or is the root; [`PoolError::HasClones`]; [`PoolError::Overtaken`]; [`PoolError::NoSpace`]
    /// while a great deal is being destroyed: [`reclaim`](Self::reclaim) helps.
    pub fn destroy_dataset(&self, tx: &Tx, name: &str) -> Result<()> {
        if name.contains('@') {
            return self.destroy_snapshot(tx, name);
        }
        let mut namespace = write(&self.shared.datasets.namespace);
        namespace.check_order(tx.txg())?;
        let core = namespace.find(name).ok_or_else(|| PoolError::NoDataset(name.to_owned()))?;
        let busy = |why| Err(PoolError::Busy { name: name.to_owned(), why });
        let (parent, last) = match split(name) {
            Ok((_, last)) => (read(&core.row).parent, last),
            Err(_) => return busy("it is the root of the pool"),
        };
        if !namespace.snapshots(core.id.0).is_empty() {
            return busy("it has snapshots");
        }
        if namespace.tree(core.id.0).len() > 1 {
            return busy("it has datasets below it");
        }
        let objects = lock(&core.objects);
        if let Some(why) = core.user(&objects) {
            return busy(why);
        }
        let alive: Vec<_> = objects.values().filter_map(std::sync::Weak::upgrade).collect();
        let charge = Charge::dataset();
        self.shared.reserve_rows(&mut self.shared.txgs.changes(tx.txg()), charge, tx.claim(Claim::Free))?;
        for object in &alive {
            // This txg and newer ones must store nothing for an object that is gone.
            write(&object.contents).destroy_from(tx.txg());
        }
        self.shared.remove_dataset(&mut namespace, tx, &core, &(parent, last.to_owned()));
        Ok(())
    }

    /// Renames a dataset; the parent in the new name must exist.
    ///
    /// # Errors
    /// [`PoolError::Exists`], [`PoolError::NoDataset`], [`PoolError::Invalid`] for a place below itself,
    /// [`PoolError::Overtaken`].
    pub fn rename_dataset(&self, tx: &Tx, from: &str, to: &str) -> Result<()> {
        let mut namespace = write(&self.shared.datasets.namespace);
        namespace.check_order(tx.txg())?;
        let core = namespace.find(from).ok_or_else(|| PoolError::NoDataset(from.to_owned()))?;
        let (_, old) = split(from)?;
        let (parent, new) = split(to)?;
        if [new, old].iter().any(|name| name.starts_with(['@', '%'])) {
            return Err(PoolError::invalid("name of a dataset to rename", from));
        }
        let parent = namespace.find(parent).ok_or_else(|| PoolError::NoDataset(parent.to_owned()))?;
        if namespace.tree(core.id.0).contains(&parent.id.0) {
            return Err(PoolError::invalid("new name of a dataset", to));
        }
        let key = (parent.id.0, new.to_owned());
        if namespace.children.contains_key(&key) {
            return Err(PoolError::Exists(to.to_owned()));
        }
        let old_parent = {
            let mut row = write(&core.row);
            new.clone_into(&mut row.name);
            let old_parent = std::mem::replace(&mut row.parent, parent.id.0);
            self.shared.note_dataset(&mut namespace, tx, core.id.0, Some(&row));
            old_parent
        };
        namespace.children.remove(&(old_parent, old.to_owned()));
        namespace.children.insert(key, core.id.0);
        namespace.refresh(core.id.0);
        Ok(())
    }
}

impl Shared {
    /// A dataset of which nothing is open is gone with the transaction, and will be freed. The caller has
    /// reserved room for that, and holds the namespace exclusively.
    pub(super) fn remove_dataset(
        &self,
        namespace: &mut Namespace,
        tx: &Tx,
        core: &Arc<DatasetCore>,
        key: &(u64, String),
    ) {
        core.is_destroyed.store(true, Ordering::SeqCst);
        core.rows.destroy_from(tx.txg());
        self.note_dataset(namespace, tx, core.id.0, None);
        namespace.going.insert(core.id.0, (tx.txg(), core.clone()));
        self.txgs.changes(tx.txg()).doomed.push((core.id.0, WHOLE_DATASET.0, WHOLE_DATASET.1));
        namespace.by_id.remove(&core.id.0);
        namespace.children.remove(key);
        self.space.room.set_datasets(namespace.by_id.len());
        if read(&core.row).has_limit() {
            self.datasets.note_limit_gone();
        }
    }
}

impl Namespace {
    fn info(&self, id: u64) -> DatasetInfo {
        let kind = read(&self.by_id[&id].row).kind;
        DatasetInfo { name: self.path(id), id: DatasetId(id), kind, used_bytes: self.referenced(id, false) }
    }
}

impl Dataset {
    /// Number; unchanged by renames.
    pub fn id(&self) -> DatasetId {
        self.core.id
    }

    /// Full name, now.
    pub fn name(&self) -> String {
        read(&self.shared.datasets.namespace).path(self.core.id.0)
    }

    /// What it is used for.
    pub fn kind(&self) -> DatasetKind {
        read(&self.core.row).kind
    }

    /// The effective value, and whether it is set on this dataset itself.
    pub fn get(&self, property: Property) -> (u64, bool) {
        let value = self.core.effective.get(property);
        (value, read(&self.core.row).values.get(property).is_some())
    }

    /// When synchronous writes are acknowledged.
    pub fn sync_mode(&self) -> SyncMode {
        self.core.effective.sync()
    }

    /// What its log is optimised for.
    pub fn log_bias(&self) -> LogBias {
        self.core.effective.log_bias()
    }

    /// Compression of new blocks.
    pub fn compression(&self) -> Compression {
        self.core.effective.compression()
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.core.effective.is_read_only()
    }

    /// Bytes on the vdevs, without the datasets below.
    pub fn used_bytes(&self) -> u64 {
        self.core.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it takes on the vdevs, or will when what is in memory has synced, without the datasets
    /// below.
    pub fn referenced_bytes(&self) -> u64 {
        // In this order: unsynced data first becomes used, and only then stops being unsynced.
        let dirty_bytes = self.core.dirty_bytes.load(Ordering::SeqCst).max(0) as u64;
        self.core.used_bytes.load(Ordering::SeqCst) + dirty_bytes
    }

    /// Bytes that its users could still store now, and whether a quota of it, or of a dataset above it, is
    /// what limits that. Replacing and removing data gives more room when its txg has synced.
    pub fn available_bytes(&self) -> (u64, bool) {
        self.shared.available(&self.core)
    }

    /// Stores `value` with the dataset under `key`, in the transaction's txg; `None` removes it. Has no
    /// effect if the dataset does not exist in that txg.
    pub fn put_aux(&self, tx: &Tx, key: &[u8], value: Option<&[u8]>) {
        // Never before the dataset exists: the txg that creates it cannot end while this transaction holds an
        // older one.
        let mut changes = self.shared.txgs.changes(tx.txg().max(self.core.born));
        changes.aux.insert((self.core.id.0, key.to_vec()), value.map(<[u8]>::to_vec));
    }

    /// What is stored under `key` as of the last synced txg.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn synced_aux(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let row = self.shared.tables.current().aux.get((self.core.id.0, key)).map_err(PoolError::from);
        Ok(self.shared.tables.explained(row)?.map(|row| row.value().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastness_blkdev::MemDevice;

    use crate::{Device, Pool, PoolOptions, VdevSpec};

    /// Replay stores a header with each record; a txg may have millions.
    #[test]
    fn of_many_headers_a_txg_keeps_the_last() {
        let device = Device::new("a", Arc::new(MemDevice::new("a", 16 << 20)));
        let options = PoolOptions { has_txg_thread: false, ..PoolOptions::default() };
        let pool = Pool::create("tank", &[VdevSpec::single(device)], options).unwrap();
        let root = pool.dataset("tank").unwrap();
        let tx = pool.begin_tx().unwrap();
        for number in 0..1000_u64 {
            pool.put_aux(&tx, root.id(), b"log", Some(&number.to_le_bytes()));
            root.put_aux(&tx, b"other", Some(&number.to_le_bytes()));
        }
        assert_eq!(pool.shared.txgs.changes(tx.txg()).aux.len(), 2);
        drop(tx);
        pool.sync().unwrap();
        for key in [&b"log"[..], b"other"] {
            assert_eq!(root.synced_aux(key).unwrap().unwrap(), 999_u64.to_le_bytes());
        }
    }
}
