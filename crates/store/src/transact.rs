//! Changes by owners that have locks of their own, and commits: the way of file systems.
//!
//! A change is made in a transaction, and its records are kept in memory, in the order of the changes. A
//! [commit](OpenDataset::commit) writes those that an object needs; most are never written, because their txg
//! syncs first. While `sync=disabled`, nothing is kept; a commit after that has been changed waits for the
//! txg of what was not kept, before it writes anything.

use fastness_pool::{ObjectId, SyncMode, Tx, Txg};
use fastness_zil::Itx;
use fastness_zil::record::Time;

use crate::dataset::{ChangeError, OpenDataset, Records};

impl Records<'_> {
    /// Keeps a record, after all that were kept for the objects that it touches.
    pub fn assign(&self, itx: Itx) {
        self.zil.assign(self.txg, itx);
    }

    /// Logs at once that `data` was written at `offset`, and when, if nothing else has to be written first;
    /// `None`: the record is to be [kept](Self::assign). `Some(true)`: a commit of the object has nothing
    /// left to do. `Some(false)`: the next commit waits for the txg.
    #[inline]
    pub fn write_at_once(&self, object: ObjectId, offset: u64, data: &[u8], time: Time) -> Option<bool> {
        self.zil.log_at_once(self.txg, object, offset, data, time)
    }

    /// The object's records that no commit has taken need not be written: it was removed with its last name.
    pub fn forget(&self, object: ObjectId) {
        self.zil.forget(object);
    }
}

impl OpenDataset {
    /// Bytes that changes of users may still take in the pool.
    pub fn free_bytes(&self) -> u64 {
        self.pool.usable_bytes()
    }

    /// The newest txg that is durable. Every import makes one durable before anything is opened: what was
    /// opened in an earlier import has seen older ones alone.
    pub fn synced_txg(&self) -> Txg {
        self.pool.synced_txg()
    }

    /// Makes a change, and keeps its records. The caller holds locks of its own, so that changes and records
    /// of what it touches have one order; it holds no transaction. If the pool is out of space, waits for
    /// what txgs free, as [`change`](Self::change) does. `change` may be called several times.
    ///
    /// `sync`: while it is `disabled`, no record is kept, and `record` is not called. With `always` nothing
    /// is durable on return either: the caller then commits after each change. The table is in the [crate's
    /// documentation](crate#how-durable-a-change-is).
    ///
    /// Persistence: none yet, see [`commit`](Self::commit).
    ///
    /// # Errors
    /// Those of `change`, of which it must then have done nothing.
    pub fn transact<T>(
        &self,
        mut change: impl FnMut(&Tx) -> fastness_pool::Result<T>,
        record: impl FnOnce(Records<'_>, &T),
    ) -> Result<T, ChangeError> {
        let keeps = self.dataset().sync_mode() != SyncMode::Disabled;
        if let Some(log) = self.log.as_ref().filter(|_| keeps) {
            log.admit();
        }
        let mut record = Some(record);
        self.until_room(|| {
            let tx = self.pool.begin_tx()?;
            let made = change(&tx)?;
            let txg = tx.txg();
            match (&self.log, record.take()) {
                (Some(log), Some(record)) if keeps => record(Records { zil: &log.zil, txg }, &made),
                (Some(log), _) => log.zil.note_unlogged(txg),
                (None, _) => {}
            }
            Ok(made)
        })
    }

    /// A file is about to be removed with its bytes, and the caller's locks keep everything else from it:
    /// what records of these say of the bytes is read now, and kept for a commit.
    pub fn keep_bytes(&self, object: ObjectId) {
        if let Some(log) = &self.log {
            log.zil.keep_bytes(object);
        }
    }

    /// Makes durable: all changes of names, and those of `object`, that had returned before the call; of all
    /// objects for `None`. Does nothing while `sync=disabled`; the first commit after that waits for what
    /// was not kept.
    ///
    /// Persistence: durable on return, in the log or through the txg. Concurrency: commits run in parallel.
    ///
    /// # Errors
    /// Those of the log and of the txg; nothing is then known to be durable.
    pub fn commit(&self, object: Option<ObjectId>) -> Result<(), ChangeError> {
        let Some(log) = &self.log else { return Ok(()) };
        if self.dataset().sync_mode() == SyncMode::Disabled {
            return Ok(());
        }
        let object = object.unwrap_or(ObjectId::NONE);
        Ok(log.zil.commit(object).map(drop)?)
    }
}
