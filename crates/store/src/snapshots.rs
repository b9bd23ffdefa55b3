//! Snapshots of volumes, with the log: made, cloned, gone back to, promoted.
//!
//! What a snapshot has does not depend on the log: an import has replayed all of it before there is a store,
//! and every change since is in a txg that is no newer than that of a snapshot that is asked for after it.

use fastness_pool::{Dataset, Property};
use fastness_sync::read;

use crate::error::StoreError;
use crate::imported::Imported;
use crate::side::HEADER;
use crate::store::Store;

impl Store {
    /// Makes a snapshot, `volume@name`: it has every change that had returned before the call.
    ///
    /// Persistence: durable on return. A crash during the call leaves the whole snapshot or none.
    ///
    /// # Errors
    /// Those of [`snapshot`](fastness_pool::Pool::snapshot) and of a txg.
    pub fn snapshot(&self, name: &str) -> Result<(), StoreError> {
        let _clearing = read(&self.clearing);
        let pool = self.pool();
        let (_, txg) = pool.transact(|tx| pool.snapshot(tx, name))?;
        Ok(pool.wait_synced(txg)?)
    }

    /// Makes a volume, with its log, that begins as a snapshot is.
    ///
    /// Persistence: durable on return. A crash during the call leaves the whole volume or none.
    ///
    /// # Errors
    /// Those of [`clone_snapshot`](fastness_pool::Pool::clone_snapshot), of the log, and of a txg.
    pub fn clone_snapshot(
        &self,
        snapshot: &str,
        name: &str,
        properties: &[(Property, u64)],
    ) -> Result<(), StoreError> {
        let _clearing = read(&self.clearing);
        let Imported { pool, log } = self.imported();
        let members = log.as_ref().map(|log| (log, log.members()));
        let (made, txg) = pool.transact(|tx| {
            let dataset: Dataset = pool.clone_snapshot(tx, snapshot, name, properties)?;
            let logged = match &members {
                Some((log, guard)) => log.create_log(tx, &dataset, guard),
                None => Ok(()),
            };
            if logged.is_err() {
                pool.destroy_dataset(tx, name)?;
            }
            Ok(logged)
        })?;
        drop(members);
        made?;
        Ok(pool.wait_synced(txg)?)
    }

    /// Makes a volume what one of its snapshots is, the newest unless newer ones are to be destroyed. Nothing
    /// has the volume open.
    ///
    /// Persistence: durable on return. A crash during the call leaves the volume as it was, or as the
    /// snapshot is.
    ///
    /// # Errors
    /// Those of [`rollback`](fastness_pool::Pool::rollback).
    pub fn rollback(&self, snapshot: &str, newer_too: bool) -> Result<(), StoreError> {
        let _clearing = read(&self.clearing);
        Ok(self.pool().rollback(snapshot, newer_too).map(drop)?)
    }

    /// Makes a clone and the volume that it began in change places, as
    /// [`promote`](fastness_pool::Pool::promote) says. Nothing has either of them open; each number keeps
    /// its log, which has nothing that a crash needs.
    ///
    /// Persistence: durable on return. A crash during the call leaves both as they were, or as they will be.
    ///
    /// # Errors
    /// Those of [`promote`](fastness_pool::Pool::promote).
    pub fn promote(&self, clone: &str) -> Result<(), StoreError> {
        let _clearing = read(&self.clearing);
        Ok(self.pool().promote(clone, |key| key == HEADER).map(drop)?)
    }
}
