//! A volume or file system becomes what its newest snapshot is.
//!
//! Design: in one txg, the rows that were kept for the snapshot take the place of the current ones
//! (`txg::rolling_back`). That costs as many rows as have changed since, and reads and writes no data. The
//! volume is not in use meanwhile; what is in memory of it is dropped when the txg is durable.
//!
//! Crash cases: it is one txg. What the log has of the volume is of that txg or older ones, and so is
//! obsolete once it is durable; a crash before leaves the volume as it was, and its log is replayed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::Txg;
use crate::metadata::branches::{Base, BranchChange};
use crate::namespace::file_snapshots::charge_of_files;
use crate::namespace::snapshots::{charge_of_gone, check_unneeded};
use crate::pool::Pool;
use crate::space::room::{Charge, Claim};
use crate::state::datasets::{DatasetCore, Namespace};
use fastness_sync::order::{lock, read, write};

/// A volume that is being rolled back or promoted: nothing opens it until this is dropped.
pub(super) struct Closed(Arc<DatasetCore>);

impl Closed {
    /// Refuses a volume that is in use.
    pub(super) fn close(namespace: &Namespace, volume: Arc<DatasetCore>) -> Result<Closed> {
        let name = namespace.path(volume.id.0);
        let objects = lock(&volume.objects);
        if let Some(why) = volume.user(&objects) {
            return Err(PoolError::Busy { name, why });
        }
        if volume.is_rolled_back.swap(true, Ordering::SeqCst) {
            return Err(PoolError::Busy { name, why: "it is being rolled back or promoted" });
        }
        drop(objects);
        Ok(Closed(volume))
    }

    pub(super) fn core(&self) -> &Arc<DatasetCore> {
        &self.0
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.is_rolled_back.store(false, Ordering::SeqCst);
    }
}

impl Pool {
    /// Makes a volume or file system what its newest snapshot is. With `newer_too`, destroys newer snapshots
    /// before, in the same txg. The caller holds no transaction.
    ///
    /// Persistence: durable on return. A crash during the call leaves the volume as it was, or as the
    /// snapshot is.
    ///
    /// # Errors
    /// [`PoolError::NotNewest`], [`PoolError::HasClones`] of a newer one, [`PoolError::Busy`] if the volume
    /// or a newer snapshot is in use; [`PoolError::NoSpace`]; those of a sync. Nothing was changed, unless
    /// the sync failed.
    pub fn rollback(&self, snapshot: &str, newer_too: bool) -> Result<Txg> {
        let closed = self.close(snapshot)?;
        // What is in the volume's layers goes first: the rows are changed in a txg that has nothing of it.
        self.sync()?;
        let ((), txg) = self.transact_begun(Pool::begin_after_synced, |tx| {
            let mut namespace = write(&self.shared.datasets.namespace);
            namespace.check_order(tx.txg())?;
            let (_, base) = self.durable(&namespace, snapshot)?;
            let newer = newer(&namespace, base);
            if !newer.is_empty() && !newer_too {
                let newer = newer.iter().map(|core| namespace.path(core.id.0)).collect();
                return Err(PoolError::NotNewest { name: snapshot.to_owned(), newer });
            }
            newer.iter().try_for_each(|core| check_unneeded(&namespace, core))?;
            let charge = self.charge_of_rollback(base)? + charge_of_gone() * newer.len() as u64;
            self.shared.reserve_rows(&mut self.shared.txgs.changes(tx.txg()), charge, Claim::Free)?;
            newer.iter().rev().for_each(|core| self.shared.remove_snapshot(&mut namespace, tx, core));
            let change = BranchChange::Rollback { id: closed.0.id.0, base };
            self.shared.txgs.changes(tx.txg()).branches.push(change);
            // Later changes of datasets come after it.
            namespace.newest = Some(tx.txg());
            Ok(())
        })?;
        self.wait_synced(txg)?;
        Ok(txg)
    }

    /// Keeps the volume of a snapshot from being opened.
    fn close(&self, snapshot: &str) -> Result<Closed> {
        let namespace = write(&self.shared.datasets.namespace);
        let (core, _) = self.durable(&namespace, snapshot)?;
        let parent = read(&core.row).parent;
        let volume = namespace.by_id.get(&parent).cloned();
        let volume = volume.ok_or_else(|| PoolError::NoDataset(snapshot.to_owned()))?;
        Closed::close(&namespace, volume)
    }

    /// What the rows take that change.
    fn charge_of_rollback(&self, base: Base) -> Result<Charge> {
        let tables = self.shared.tables.current();
        let rows = self.shared.tables.explained(tables.rows_of_going_back(base))?;
        let files = self.shared.tables.explained(charge_of_files(&tables, base))?;
        // Of the volume: its size, what it shows and uses, where pruning goes on.
        Ok(Charge::rows(4 + rows) + files)
    }
}

/// Snapshots of a branch that came after one of them.
pub(super) fn newer(namespace: &Namespace, base: Base) -> Vec<Arc<DatasetCore>> {
    let mut all = namespace.snapshots(base.branch);
    all.retain(|core| core.id.0 > base.snapshot);
    all
}
