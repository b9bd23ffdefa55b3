//! A clone and the volume that it began in change places.
//!
//! Motivation: a volume that a clone has replaced can only be destroyed when the snapshot between them is no
//! longer its own.
//!
//! Design: the rows of the volume, which are nearly all, stay under their number, and that number becomes
//! the clone's, with the snapshots up to the one that it began as. The clone's number becomes the volume's,
//! which is a clone from then on. What belongs to a name goes with the name: its place in the tree, its
//! properties, what owners store with it. So numbers of datasets change; neither of the two is in use
//! meanwhile. In one txg, as many rows are moved as have changed in either since that snapshot
//! (`txg::promoting`), and no data.
//!
//! Crash cases: it is one txg. What the log has of either is of older txgs, and so is obsolete once it is
//! durable; a crash before leaves both as they were.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Txg};
use crate::metadata::branches::{Base, BranchChange};
use crate::metadata::tables::{DatasetKind, PastKey};
use crate::namespace::rollback::Closed;
use crate::namespace::snapshots::DATA;
use crate::pool::{Pool, Tx};
use crate::space::room::{Charge, Claim};
use crate::state::Shared;
use crate::state::datasets::{DatasetCore, Namespace};
use fastness_sync::order::{lock, read, write};

/// Rows that one row of either takes: now, then, and what moves.
const ROWS_OF_ROW: u64 = 6;

/// Dataset, key and value.
type Aux = (u64, Vec<u8>, Vec<u8>);

impl Pool {
    /// Makes a clone the owner of the snapshots up to the one that it began as, and the volume that these
    /// belonged to a clone of the last of them. Values stored with the two datasets go with their names, but
    /// for keys that `stays` names: those stay with their number. The caller holds no transaction.
    ///
    /// Persistence: durable on return. A crash during the call leaves both as they were, or as they will be.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for what is no clone, [`PoolError::Busy`] if either is in use,
    /// [`PoolError::Exists`] if both have a snapshot of one name; [`PoolError::NoSpace`]; those of a sync.
    /// Nothing was changed, unless the sync failed.
    pub fn promote(&self, clone: &str, stays: impl Fn(&[u8]) -> bool) -> Result<Txg> {
        let (of_clone, of_volume) = self.close_both(clone)?;
        let ids = [of_clone.core().id.0, of_volume.core().id.0];
        self.sync_until_rows(ids)?;
        let (base, txg) = self.transact(|tx| {
            let mut namespace = write(&self.shared.datasets.namespace);
            namespace.check_order(tx.txg())?;
            let base = origin(of_clone.core(), clone)?;
            let charge = self.charge_of_promotion(ids[0], base, &namespace)?;
            check_names(&namespace, ids[0], base)?;
            for core in [of_clone.core(), of_volume.core()] {
                self.shared.check_thick_snapshot(&namespace, core)?;
            }
            let aux = self.shared.tables.explained(self.aux_of(ids))?;
            self.shared.reserve_rows(
                &mut self.shared.txgs.changes(tx.txg()),
                charge,
                tx.claim(Claim::Free),
            )?;
            self.shared.change_places(&mut namespace, tx, ids[0], base);
            for (id, key, value) in aux.iter().filter(|(_, key, _)| !stays(key)) {
                let other = if *id == ids[0] { ids[1] } else { ids[0] };
                self.put_aux_of(tx, other, key, Some(value));
                if !aux.iter().any(|(at, same, _)| at == &other && same == key) {
                    self.put_aux_of(tx, *id, key, None);
                }
            }
            [of_clone.core(), of_volume.core()].iter().for_each(|core| core.pin_all(tx.txg()));
            let change = BranchChange::Promote { clone: ids[0], base };
            self.shared.txgs.changes(tx.txg()).branches.push(change);
            Ok(base)
        })?;
        self.wait_synced(txg)?;
        self.shared.promote_damage(ids[0], base);
        Ok(txg)
    }

    /// Syncs what is in layers, and frees ranges that were cleared, of closed datasets: only rows are moved.
    pub(super) fn sync_until_rows(&self, ids: [u64; 2]) -> Result<()> {
        self.sync()?;
        while ids.iter().any(|id| !self.shared.tables.current().cleared.of(*id).is_empty()) {
            self.sync()?;
        }
        Ok(())
    }

    /// Keeps a clone, and the volume that it began in, from being opened.
    fn close_both(&self, clone: &str) -> Result<(Closed, Closed)> {
        let namespace = write(&self.shared.datasets.namespace);
        let core = namespace.find(clone).ok_or_else(|| PoolError::NoDataset(clone.to_owned()))?;
        let base = origin(&core, clone)?;
        if core.born > self.synced_txg() {
            return Err(PoolError::Busy { name: clone.to_owned(), why: "it is being made" });
        }
        let volume = namespace.by_id.get(&base.branch).cloned();
        let volume = volume.ok_or_else(|| PoolError::NoDataset(DatasetId(base.branch).to_string()))?;
        Ok((Closed::close(&namespace, core)?, Closed::close(&namespace, volume)?))
    }

    fn put_aux_of(&self, tx: &Tx, dataset: u64, key: &[u8], value: Option<&[u8]>) {
        let mut changes = self.shared.txgs.changes(tx.txg());
        changes.aux.insert((dataset, key.to_vec()), value.map(<[u8]>::to_vec));
    }

    /// What owners have stored with two datasets.
    fn aux_of(&self, ids: [u64; 2]) -> Result<Vec<Aux>> {
        let tables = self.shared.tables.current();
        let mut all = Vec::new();
        for id in ids {
            let from: (u64, &[u8]) = (id, &[]);
            for row in tables.aux.range(from..(id + 1, &[]))? {
                let (key, value) = row?;
                all.push((id, key.value().1.to_vec(), value.value().to_vec()));
            }
        }
        Ok(all)
    }

    pub(super) fn charge_of_promotion(
        &self,
        clone: u64,
        base: Base,
        namespace: &Namespace,
    ) -> Result<Charge> {
        let tables = self.shared.tables.current();
        let counted = || -> Result<u64> {
            let mut rows = 0;
            for row in tables.extents.range((clone, DATA.0, 0)..(clone, DATA.0 + 1, 0))? {
                row?;
                rows += 1;
            }
            let Some(past) = &tables.past else { return Ok(rows) };
            for (branch, txg) in [(clone, 0), (base.branch, base.txg.0)] {
                let all: std::ops::Range<PastKey> = (branch, DATA.0, 0, 0)..(branch, DATA.0 + 1, 0, 0);
                for row in past.range(all)? {
                    rows += u64::from(row?.0.value().3 >= txg);
                }
            }
            Ok(rows)
        };
        let rows = self.shared.tables.explained(counted())?;
        // Each dataset whose parent, base or name changes, and what is stored with the two.
        let names = namespace.by_id.len() as u64;
        Ok(Charge::rows(16 + rows * ROWS_OF_ROW + 2 * names) + Charge::dataset() * 2)
    }
}

/// Where a clone begins.
fn origin(core: &DatasetCore, name: &str) -> Result<Base> {
    let is_volume = read(&core.row).kind == DatasetKind::Volume;
    let base = core.base().filter(|_| is_volume);
    base.ok_or_else(|| PoolError::invalid("clone to promote", name))
}

/// Refuses a clone with a snapshot that is named as one that it will have.
fn check_names(namespace: &Namespace, clone: u64, base: Base) -> Result<()> {
    let name = |core: &Arc<DatasetCore>| read(&core.row).name.clone();
    let own: BTreeSet<String> = namespace.snapshots(clone).iter().map(name).collect();
    for core in namespace.snapshots(base.branch) {
        let goes = core.base().is_some_and(|of| of.txg <= base.txg);
        if goes && own.contains(&name(&core)) {
            return Err(PoolError::Exists(format!("{}{}", namespace.path(clone), name(&core))));
        }
    }
    Ok(())
}

impl Shared {
    /// In the tree: both names, and all that is below them, have the other's number. Snapshots up to the base
    /// stay where they are.
    fn change_places(&self, namespace: &mut Namespace, tx: &Tx, clone: u64, base: Base) {
        let (Some(one), Some(other)) =
            (namespace.by_id.get(&clone).cloned(), namespace.by_id.get(&base.branch).cloned())
        else {
            return;
        };
        let stays = |core: &DatasetCore, parent: u64| {
            let is_older = core.base().is_some_and(|of| of.txg <= base.txg);
            parent == base.branch && is_older && read(&core.row).kind == DatasetKind::Snapshot
        };
        let parent_of = |core: &DatasetCore, parent: u64| match parent {
            parent if stays(core, parent) => parent,
            parent if parent == clone => base.branch,
            parent if parent == base.branch => clone,
            parent => parent,
        };
        let row_of_clone = read(&one.row).clone();
        let row_of_volume = read(&other.row).clone();
        let mut changed: BTreeSet<u64> = [clone, base.branch].into();
        let all: Vec<_> = namespace.by_id.values().cloned().collect();
        for core in &all {
            let mut row = match core.id.0 {
                id if id == clone => row_of_volume.clone(),
                id if id == base.branch => row_of_clone.clone(),
                _ => read(&core.row).clone(),
            };
            let parent = parent_of(core, row.parent);
            if std::mem::replace(&mut row.parent, parent) != parent {
                changed.insert(core.id.0);
            }
            if changed.contains(&core.id.0) {
                *write(&core.row) = row;
            }
        }
        for core in all.iter().filter(|core| changed.contains(&core.id.0)) {
            let row = read(&core.row).clone();
            self.note_dataset(namespace, tx, core.id.0, Some(&row));
        }
        namespace.children = all
            .iter()
            .map(|core| {
                let row = read(&core.row);
                ((row.parent, row.name.clone()), core.id.0)
            })
            .collect();
        for core in &all {
            let mut of = lock(&core.base);
            *of = of.map(|of| of.promoted(clone, base));
        }
        [&one, &other].iter().for_each(|core| core.has_snapshots.store(true, Ordering::SeqCst));
        if let Some(root) = namespace.root() {
            namespace.refresh(root);
        }
    }
}
