//! Tables in use: changes and lookups.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::ids::TableId;
use crate::pool::Tx;
use crate::room::{Charge, Claim};
use crate::rows::{ROW_KEY_BYTES_MAX, ROW_VALUE_BYTES_MAX, Row, stored};
use crate::state::{DatasetCore, Shared};
use crate::sync_util::read;

/// An ordered table of a dataset: rows of a key and a value, ordered by the bytes of their keys.
///
/// Every dataset has 256 tables, which are empty until rows are put into them. A key has 1 to
/// [`ROW_KEY_BYTES_MAX`] bytes. In tables below [`TableId::FIRST_LONG`] a value has at most
/// [`ROW_SHORT_VALUE_BYTES_MAX`](crate::ROW_SHORT_VALUE_BYTES_MAX) bytes, fewer with keys of more than 256
/// bytes; in the others [`ROW_VALUE_BYTES_MAX`]. Many long values are better kept in objects.
///
/// Persistence: a change is durable when its transaction's txg has synced, see
/// [`Pool::wait_synced`](crate::Pool::wait_synced). A crash leaves all changes of a txg, of rows and of
/// objects, or none of them. Concurrency: any number of threads; lookups and scans see every change that has
/// returned. A change of one row is one step. A caller that reads a row and changes it accordingly needs a
/// lock of its own around both.
#[derive(Clone)]
pub struct Table {
    pub(super) shared: Arc<Shared>,
    pub(super) core: Arc<DatasetCore>,
    pub(super) id: TableId,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} {})", self.core.id, self.id.0)
    }
}

impl Dataset {
    /// One of its tables.
    pub fn table(&self, id: TableId) -> Table {
        Table { shared: self.shared.clone(), core: self.core.clone(), id }
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    let is_valid = (1..=ROW_KEY_BYTES_MAX).contains(&key.len());
    if is_valid { Ok(()) } else { Err(PoolError::invalid("length of a row's key", key.len())) }
}

impl Table {
    /// Its number.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Puts the value stored under `key` into `value`, in the place of what is there; `false`: there is none,
    /// and `value` is empty.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a key of another length; [`PoolError::NoDataset`] if the dataset was
    /// destroyed; those of reading the tables: `value` is then unspecified.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        check_key(key)?;
        self.check_there()?;
        value.clear();
        let take = |row: &Row| row.value().map(|found| value.extend_from_slice(found)).is_some();
        if let Some(is_there) = self.core.rows.find(self.id, key, take) {
            return Ok(is_there);
        }
        self.shared.check_alive_for_reads()?;
        // Only now: see `rows`.
        let snapshot = self.shared.current();
        self.shared.explained(stored::get(&snapshot.rows, self.core.id.0, self.id, key, value))
    }

    /// Stores `value` under `key`, in the place of what is there.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a key or value of another length; [`PoolError::ReadOnly`];
    /// [`PoolError::NoSpace`]; [`PoolError::NoDataset`] if the dataset was destroyed;
    /// [`PoolError::Overtaken`] if a newer txg creates the dataset. Nothing was changed.
    pub fn put(&self, tx: &Tx, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        let max =
            if self.id.is_long() { ROW_VALUE_BYTES_MAX } else { stored::short_value_bytes_max(key.len()) };
        if value.len() > max {
            return Err(PoolError::invalid("length of a row's value", value.len()));
        }
        self.change(tx, key, Some(value))
    }

    /// Removes the row stored under `key`, if there is one.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`PoolError::NoSpace`] only while a great deal is being removed and destroyed:
    /// [`Pool::reclaim`](crate::Pool::reclaim) helps.
    pub fn remove(&self, tx: &Tx, key: &[u8]) -> Result<()> {
        self.change(tx, key, None)
    }

    /// Makes the change that a layer holds.
    pub(crate) fn put_row(&self, tx: &Tx, row: &Row) -> Result<()> {
        self.change(tx, row.key(), row.value())
    }

    fn change(&self, tx: &Tx, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        assert!(Arc::ptr_eq(&self.shared, &tx.home.shared), "a transaction of this pool");
        check_key(key)?;
        if tx.txg() < self.core.born {
            return Err(PoolError::Overtaken { txg: tx.txg(), newest: self.core.born });
        }
        if read(&self.core.effective).is_read_only() {
            return Err(PoolError::ReadOnly(read(&self.shared.namespace).path(self.core.id.0)));
        }
        let row = Row::new(key, value);
        // For the layer of the transaction's txg, and for that of the next one.
        let reserved = row.charge(self.id) * 2;
        let claim = if value.is_some() { Claim::Data } else { Claim::Free };
        // Before locking: quotas read the namespace, and a thread that holds that may want the lock.
        self.shared.reserve(&self.core, reserved, tx.claim(claim))?;
        let changed = self.core.rows.put(tx.txg(), self.id, row, &self.core.is_destroyed, |shard| {
            self.shared.changes(tx.txg()).rows.push((self.core.clone(), shard));
        });
        let charged = changed.as_ref().map_or(Charge::default(), |change| change.charged);
        self.shared.settle(&self.core, reserved, charged);
        let Some(change) = changed else { return Err(self.gone()) };
        self.shared.pipeline.change_dirty(change.bytes);
        Ok(())
    }

    fn gone(&self) -> PoolError {
        PoolError::NoDataset(self.core.id.to_string())
    }

    pub(super) fn check_there(&self) -> Result<()> {
        if self.core.is_destroyed.load(Ordering::SeqCst) { Err(self.gone()) } else { Ok(()) }
    }
}
