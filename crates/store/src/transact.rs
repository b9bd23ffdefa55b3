//! Changes by owners that have locks of their own, and commits: the way of file systems.
//!
//! A change is made in a transaction, and its records are kept in memory, in the order of the changes. A
//! [commit](OpenDataset::commit) writes those that an object needs; most are never written, because their txg
//! syncs first. While `sync=disabled`, nothing is kept; a commit after that has been changed waits for the
//! txg of what was not kept, before it writes anything.

use fastness_pool::{Object, ObjectId, SyncMode, Tx, Txg};
use fastness_zil::Itx;
use fastness_zil::record::{Time, WRITE_HEAD_BYTES};

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
        self.zil.place_at_once(self.txg, object, offset, data, time).0
    }

    /// Writes `data` to the object of a file, in the transaction that these records are of, and logs that
    /// as [`write_at_once`](Self::write_at_once) does, whose answer it returns. Where the log alone [is to
    /// have](Object::is_for_the_log_alone) the bytes, it logs first; so it is to be the last step of the
    /// transaction that can fail. The caller holds the lock that orders changes of the file.
    ///
    /// # Errors
    /// Those of [`Object::write_logged`].
    #[inline]
    pub fn put_at_once(
        &self,
        tx: &Tx,
        object: &Object,
        offset: u64,
        data: &[u8],
        time: Time,
    ) -> fastness_pool::Result<Option<bool>> {
        if !object.is_for_the_log_alone(offset, data.len()) {
            object.write(tx, offset, data)?;
            return Ok(self.write_at_once(object.id(), offset, data, time));
        }
        let place = || self.zil.place_at_once(self.txg, object.id(), offset, data, time);
        let made = object.write_logged(tx, offset, data, WRITE_HEAD_BYTES as u32, place);
        if made.is_err() {
            // The log may have it: only its txg makes durable what there is.
            self.zil.note_unlogged(self.txg);
        }
        made
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
        let mut record = Some(record);
        self.transact_with(|tx, records| {
            let made = change(tx)?;
            if let (Some(records), Some(record)) = (records, record.take()) {
                record(records, &made);
            }
            Ok(made)
        })
    }

    /// As [`transact`](Self::transact), for a change that takes its records itself; `None`: none are kept.
    ///
    /// Persistence: as there.
    ///
    /// # Errors
    /// Those of `change`, of which it must then have done nothing, and kept no record.
    pub fn transact_with<T>(
        &self,
        mut change: impl FnMut(&Tx, Option<Records<'_>>) -> fastness_pool::Result<T>,
    ) -> Result<T, ChangeError> {
        let keeps = self.dataset().sync_mode() != SyncMode::Disabled;
        if let Some(log) = self.log.as_ref().filter(|_| keeps) {
            log.admit();
        }
        self.until_room(|| {
            let tx = self.pool.begin_tx()?;
            let txg = tx.txg();
            let records = self.log.as_ref().filter(|_| keeps).map(|log| Records { zil: &log.zil, txg });
            let made = change(&tx, records)?;
            if let Some(log) = self.log.as_ref().filter(|_| !keeps) {
                log.zil.note_unlogged(txg);
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
