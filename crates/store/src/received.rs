//! Volumes that are being received, with the log: they get one when they are whole.

use fastness_pool::{Dataset, Guid, Pool, PoolError, Tx};
use fastness_sync::read;

use crate::error::StoreError;
use crate::imported::Imported;
use crate::store::Store;

impl Store {
    /// Runs `change`, which makes or changes what is not open as a front end: durable on return.
    ///
    /// # Errors
    /// Those of `change` and of a txg.
    pub fn change_unopened<T>(
        &self,
        mut change: impl FnMut(&Pool, &Tx) -> Result<T, PoolError>,
    ) -> Result<T, StoreError> {
        let _clearing = read(&self.clearing);
        let pool = self.pool();
        let (made, txg) = pool.transact(|tx| change(&pool, tx))?;
        pool.wait_synced(txg)?;
        Ok(made)
    }

    /// What was received as a new volume becomes one, with its log and its snapshot, `volume@name`; `keys`
    /// are removed from what is stored with it.
    ///
    /// Persistence: durable on return. A crash during the call leaves what was received as it was, or the
    /// whole volume with its snapshot.
    ///
    /// # Errors
    /// Those of [`complete`](fastness_pool::Pool::complete), of the log, and of a txg.
    pub fn complete(&self, snapshot: &str, guid: Guid, keys: &[&[u8]]) -> Result<(), StoreError> {
        let _clearing = read(&self.clearing);
        let Imported { pool, log } = self.imported();
        let members = log.as_ref().map(|log| (log, log.members()));
        let dataset: Dataset = pool.dataset(snapshot.split('@').next().unwrap_or_default())?;
        let (made, txg) = pool.transact(|tx| {
            if let Some((log, guard)) = &members
                && let Err(error) = log.create_log(tx, &dataset, guard)
            {
                return Ok(Err(error));
            }
            let completed = pool.complete(tx, snapshot, guid, keys);
            if completed.is_err()
                && let Some((log, guard)) = &members
                && let Err(error) = log.destroy_log(tx, dataset.id(), guard)
            {
                return Ok(Err(error));
            }
            completed.map(Ok)
        })?;
        drop(members);
        made?;
        Ok(pool.wait_synced(txg)?)
    }

    /// A volume becomes what was received for it, with its snapshot. Nothing has the volume open.
    ///
    /// Persistence: durable on return. A crash during the call leaves the volume as it was, or as it will be.
    ///
    /// # Errors
    /// Those of [`absorb`](fastness_pool::Pool::absorb).
    pub fn absorb(&self, snapshot: &str, guid: Guid, is_forced: bool) -> Result<(), StoreError> {
        let _clearing = read(&self.clearing);
        Ok(self.pool().absorb(snapshot, guid, is_forced).map(drop)?)
    }
}
