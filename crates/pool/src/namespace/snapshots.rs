//! Snapshots of volumes and file systems, and clones of volumes.
//!
//! Motivation: a state of a volume that can be gone back to, or be served beside it, and that costs nothing
//! until the volume changes.
//!
//! Design: a snapshot is a dataset below its volume, named `volume@name`, that shows the volume as of the end
//! of the txg that makes it (`branches`, `past`). Making it stores a few rows, however large the volume is.
//! So a snapshot has every change whose transaction had ended before, and whole txgs only: of two changes one
//! after the other, it never has just the later one. What the intent log has of these changes is obsolete
//! once the snapshot exists. A clone is a volume that begins as a snapshot.
//!
//! Crash cases: rows of one txg, as for all datasets. The caller waits for it; a crash before leaves no
//! snapshot, or the whole one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{Guid, ObjectId, Txg};
use crate::metadata::branches::{Base, BranchChange};
use crate::metadata::tables::DatasetKind;
use crate::namespace::add::New;
use crate::namespace::dataset::Dataset;
use crate::namespace::names::split;
use crate::namespace::props::Property;
use crate::namespace::settings::Feature;
use crate::objects::extent::GROUP_BLOCKS;
use crate::pool::{Pool, Tx};
use crate::space::room::{Charge, Claim};
use crate::state::Shared;
use crate::state::datasets::{DatasetCore, Namespace};
use fastness_sync::order::{lock, read, write};

/// A volume's data.
pub(crate) const DATA: ObjectId = ObjectId(1);
/// Key under which a snapshot has its identity (`received`).
pub(super) const GUID: &[u8] = b"guid";
/// What making a snapshot takes, without holes.
pub(super) fn charge_of_new() -> Charge {
    Charge::dataset() + Charge::rows(5)
}

/// What destroying a snapshot takes.
pub(super) fn charge_of_gone() -> Charge {
    Charge::dataset() + Charge::rows(6)
}

/// Refuses a snapshot of a file system, for what only volumes have so far.
pub(super) fn check_of_volume(namespace: &Namespace, core: &DatasetCore, what: &'static str) -> Result<()> {
    let parent = namespace.by_id.get(&read(&core.row).parent);
    match parent.is_some_and(|parent| read(&parent.row).kind == DatasetKind::Filesystem) {
        true => Err(PoolError::invalid(what, namespace.path(core.id.0))),
        false => Ok(()),
    }
}

/// Refuses a snapshot that has clones or is in use.
pub(super) fn check_unneeded(namespace: &Namespace, core: &DatasetCore) -> Result<()> {
    let (name, clones) = (namespace.path(core.id.0), namespace.clones(core.id.0));
    if !clones.is_empty() {
        return Err(PoolError::HasClones { name, clones });
    }
    match core.user(&lock(&core.objects)) {
        Some(why) => Err(PoolError::Busy { name, why }),
        None => Ok(()),
    }
}

impl Shared {
    /// A snapshot that nothing needs is gone with the transaction; the caller has reserved room for that,
    /// and holds the namespace exclusively.
    pub(super) fn remove_snapshot(&self, namespace: &mut Namespace, tx: &Tx, core: &DatasetCore) {
        core.is_destroyed.store(true, Ordering::SeqCst);
        self.note_dataset(namespace, tx, core.id.0, None);
        self.txgs.changes(tx.txg()).branches.push(BranchChange::Gone { id: core.id.0 });
        let key = {
            let row = read(&core.row);
            (row.parent, row.name.clone())
        };
        namespace.by_id.remove(&core.id.0);
        namespace.children.remove(&key);
        self.space.room.set_datasets(namespace.by_id.len());
    }
}

/// Holes of a snapshot that certainly fit into a page of their table, which may be half empty.
const HOLES_OF_PAGE: u64 = 32;

impl Pool {
    /// Makes a snapshot, `volume@name`, of a volume or a file system: as it is at the end of the
    /// transaction's txg.
    ///
    /// # Errors
    /// [`PoolError::NoDataset`], [`PoolError::Exists`]; [`PoolError::Invalid`] for a name, and for what is
    /// neither; [`PoolError::NoSpace`], [`PoolError::Overtaken`].
    pub fn snapshot(&self, tx: &Tx, name: &str) -> Result<Dataset> {
        let shared = &self.shared;
        // Before the namespace is locked, which this reads.
        let kind = self.dataset(split(name)?.0)?.kind();
        shared.need(tx, Feature::Snapshots)?;
        let of_files = kind == DatasetKind::Filesystem;
        if of_files {
            shared.need(tx, Feature::FileSystemSnapshots)?;
        }
        let (volume, core) = {
            let mut namespace = write(&shared.datasets.namespace);
            if let Some(found) = namespace.find(split(name)?.0) {
                shared.check_thick_snapshot(&namespace, &found)?;
            }
            self.add_snapshot(&mut namespace, tx, (name, kind), Guid::random(), Claim::Data)?
        };
        match of_files {
            true => shared.begin_keeping_files(tx.txg(), &volume),
            false => self.begin_keeping(tx.txg(), &volume),
        }
        Ok(Dataset { shared: shared.clone(), core })
    }

    /// Adds a snapshot of a dataset of this kind to the tree and to the txg; returns both. The caller holds
    /// the namespace exclusively. If it fails, nothing was changed.
    pub(super) fn add_snapshot(
        &self,
        namespace: &mut Namespace,
        tx: &Tx,
        (name, kind): (&str, DatasetKind),
        guid: Guid,
        claim: Claim,
    ) -> Result<(Arc<DatasetCore>, Arc<DatasetCore>)> {
        let shared = &self.shared;
        let (volume, last) = split(name)?;
        let found = namespace.find(volume).ok_or_else(|| PoolError::NoDataset(volume.to_owned()))?;
        let of_files = kind == DatasetKind::Filesystem;
        let is_known = of_files || kind == DatasetKind::Volume;
        if !last.starts_with('@') || !is_known || read(&found.row).kind != kind {
            return Err(PoolError::invalid("snapshot (DATASET@NAME)", name));
        }
        let branch = found.id.0;
        let block_bytes = read(&found.row).values.get(Property::VolBlockSize);
        let mut properties = vec![(Property::ReadOnly, 1)];
        properties.extend(block_bytes.map(|bytes| (Property::VolBlockSize, bytes)));
        let holes = shared.tables.current().cleared.of(branch).len() as u64;
        let charge = charge_of_new() + Charge::rows(holes / HOLES_OF_PAGE);
        let base = |id| Some(Base { branch, txg: tx.txg(), snapshot: id });
        let new = New {
            kind: DatasetKind::Snapshot,
            is_copy: false,
            properties: &properties,
            next_object: DATA.0 + 1,
            charge,
            claim,
            base,
        };
        let core = shared.add_dataset(namespace, tx, name, new)?;
        let mut changes = shared.txgs.changes(tx.txg());
        changes.branches.push(BranchChange::Snapshot { id: core.id.0, branch, of_files });
        changes.aux.insert((core.id.0, GUID.to_vec()), Some(guid.0.to_le_bytes().to_vec()));
        drop(changes);
        found.pin_all(tx.txg());
        Ok((found, core))
    }

    /// From here on changes of the volume are charged for the rows that are kept for its snapshots. Newer
    /// txgs may have changes already.
    pub(super) fn begin_keeping(&self, snapshot: Txg, volume: &DatasetCore) {
        let data = lock(&volume.objects).get(&DATA).and_then(std::sync::Weak::upgrade);
        let Some(data) = data else { return volume.has_snapshots.store(true, Ordering::SeqCst) };
        // Not under the namespace's lock: a change that holds this one may read the namespace.
        let mut contents = write(&data.contents);
        volume.has_snapshots.store(true, Ordering::SeqCst);
        for index in 0..contents.layers.len() {
            if contents.layers[index].txg > snapshot {
                let layer = contents.layer_mut(index);
                let rows: BTreeSet<_> = layer.blocks.keys().map(|block| block / GROUP_BLOCKS).collect();
                let charge = Charge::rows(rows.len() as u64 + 2 * layer.cleared.len() as u64);
                layer.charged += charge;
                // These changes are accepted: there is nothing to refuse, and few can be between two txgs.
                let _ = self.shared.space.room.take(charge.total(), Claim::Replay, 0);
            }
        }
    }

    /// Makes a volume that begins as a snapshot is, with values of its own for some properties; its block
    /// size is that of the snapshot. It can be opened once the transaction's txg is durable.
    ///
    /// # Errors
    /// As [`create_dataset`](Self::create_dataset); [`PoolError::Busy`] if the snapshot is not durable yet.
    pub fn clone_snapshot(
        &self,
        tx: &Tx,
        snapshot: &str,
        name: &str,
        properties: &[(Property, u64)],
    ) -> Result<Dataset> {
        self.add_clone(tx, snapshot, name, properties, DatasetKind::Volume)
    }

    pub(super) fn add_clone(
        &self,
        tx: &Tx,
        snapshot: &str,
        name: &str,
        properties: &[(Property, u64)],
        kind: DatasetKind,
    ) -> Result<Dataset> {
        let shared = &self.shared;
        shared.need(tx, Feature::Clones)?;
        if properties.iter().any(|(property, _)| *property == Property::RefReservation) {
            shared.need(tx, Feature::ThickVolumes)?;
        }
        let mut namespace = write(&shared.datasets.namespace);
        let (from, base) = self.durable(&namespace, snapshot)?;
        check_of_volume(&namespace, &from, "snapshot to clone (of a volume; file systems have no clones)")?;
        let is_own = |(property, _): &&(Property, u64)| *property != Property::VolBlockSize;
        let mut all: Vec<_> = properties.iter().filter(is_own).copied().collect();
        let block_bytes = read(&from.row).values.get(Property::VolBlockSize);
        all.extend(block_bytes.map(|bytes| (Property::VolBlockSize, bytes)));
        let new = New {
            kind,
            is_copy: kind == DatasetKind::Receiving,
            properties: &all,
            next_object: DATA.0 + 1,
            charge: Charge::dataset() + Charge::rows(3),
            claim: Claim::Data,
            base: |_| Some(base),
        };
        let core = shared.add_dataset(&mut namespace, tx, name, new)?;
        let change = BranchChange::Clone { id: core.id.0, base };
        shared.txgs.changes(tx.txg()).branches.push(change);
        Ok(Dataset { shared: shared.clone(), core })
    }

    /// Destroys a snapshot. What nothing else needs is freed in the following txgs, in bounded steps.
    pub(super) fn destroy_snapshot(&self, tx: &Tx, name: &str) -> Result<()> {
        let shared = &self.shared;
        let mut namespace = write(&shared.datasets.namespace);
        namespace.check_order(tx.txg())?;
        let core = namespace.find(name).ok_or_else(|| PoolError::NoDataset(name.to_owned()))?;
        check_unneeded(&namespace, &core)?;
        let mut changes = shared.txgs.changes(tx.txg());
        shared.reserve_rows(&mut changes, charge_of_gone(), tx.claim(Claim::Free))?;
        drop(changes);
        shared.remove_snapshot(&mut namespace, tx, &core);
        Ok(())
    }

    /// A snapshot that is durable, and where it begins.
    pub(super) fn durable(&self, namespace: &Namespace, name: &str) -> Result<(Arc<DatasetCore>, Base)> {
        let core = namespace.find(name).ok_or_else(|| PoolError::NoDataset(name.to_owned()))?;
        let is_snapshot = read(&core.row).kind == DatasetKind::Snapshot;
        let Some(base) = core.base().filter(|_| is_snapshot) else {
            return Err(PoolError::invalid("snapshot (VOLUME@NAME)", name));
        };
        if base.txg > self.synced_txg() {
            return Err(PoolError::Busy { name: name.to_owned(), why: "it is being made" });
        }
        Ok((core, base))
    }
}
