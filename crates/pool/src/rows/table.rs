//! Tables in use: changes and lookups.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::TableId;
use crate::namespace::dataset::Dataset;
use crate::pool::Tx;
use crate::rows::layer::{Row, charge_of, past_charge};
use crate::rows::limits::{ROW_KEY_BYTES_MAX, ROW_VALUE_BYTES_MAX, short_value_bytes_max};
use crate::rows::stored;
use crate::space::room::{Charge, Claim};
use crate::state::Shared;
use crate::state::datasets::DatasetCore;
use fastness_sync::order::read;

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

/// A change of one row.
#[derive(Debug, Clone, Copy)]
pub struct RowChange<'a> {
    /// In which table.
    pub table: TableId,
    /// Its key.
    pub key: &'a [u8],
    /// Its new value; `None`: it is removed.
    pub value: Option<&'a [u8]>,
}

impl Dataset {
    /// Changes several rows: all of them, or none. `frees`: the change leads to space being freed, and may
    /// use room that is kept from others.
    ///
    /// # Errors
    /// As [`Table::put`]; nothing was changed.
    pub fn change_rows(&self, tx: &Tx, changes: &[RowChange<'_>], frees: bool) -> Result<()> {
        self.change_rows_after(tx, changes, frees, || Ok(()))
    }

    /// The same after `first`, another change in the transaction, which is made once there is room for the
    /// rows: so that there are both, or neither. Returns what `first` has returned.
    ///
    /// # Errors
    /// As [`change_rows`](Self::change_rows), and those of `first`.
    pub fn change_rows_after<T>(
        &self,
        tx: &Tx,
        changes: &[RowChange<'_>],
        frees: bool,
        first: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        change_rows(&self.shared, &self.core, tx, changes, frees, first)
    }
}

fn change_rows<T>(
    shared: &Arc<Shared>,
    core: &Arc<DatasetCore>,
    tx: &Tx,
    changes: &[RowChange<'_>],
    frees: bool,
    first: impl FnOnce() -> Result<T>,
) -> Result<T> {
    assert!(Arc::ptr_eq(shared, &tx.home.shared), "a transaction of this pool");
    let (mut reserved, mut pasts) = (Charge::default(), Vec::new());
    for RowChange { table, key, value } in changes {
        check_key(key)?;
        let max = if table.is_long() { ROW_VALUE_BYTES_MAX } else { short_value_bytes_max(key.len()) };
        let len = value.map_or(0, <[u8]>::len);
        if len > max {
            return Err(PoolError::invalid("length of a row's value", len));
        }
        // For the layer of the transaction's txg, and for that of the next one.
        reserved += charge_of(*table, key.len(), len) * 2;
        if core.has_snapshots.load(Ordering::SeqCst) {
            let past = charge_of_past(shared, core, *table, key)?;
            reserved += past;
            pasts.push(past);
        }
    }
    if tx.txg() < core.born {
        return Err(PoolError::Overtaken { txg: tx.txg(), newest: core.born });
    }
    if !tx.is_replay() && core.effective.is_read_only() {
        return Err(PoolError::ReadOnly(read(&shared.datasets.namespace).path(core.id.0)));
    }
    let claim = if frees { Claim::Free } else { Claim::Data };
    // Before locking: quotas read the namespace, and a thread that holds that may want the lock.
    shared.reserve(core, reserved, tx.claim(claim))?;
    let made = first().inspect_err(|_| shared.settle(core, reserved, Charge::default()))?;
    let (mut charged, mut bytes, mut is_gone) = (Charge::default(), 0, false);
    for (at, RowChange { table, key, value }) in changes.iter().enumerate() {
        let past = pasts.get(at).copied().unwrap_or_default();
        let row = Row::new(key, *value);
        let changed = core.rows.put(tx.txg(), *table, row, past, &core.is_destroyed, |shard| {
            shared.txgs.changes(tx.txg()).rows.push((core.clone(), shard));
        });
        match changed {
            Some(change) => {
                charged += change.charged;
                bytes += change.bytes;
            }
            None => is_gone = true,
        }
    }
    shared.settle(core, reserved, charged);
    shared.txgs.pipeline.change_dirty(bytes);
    if is_gone { Err(PoolError::NoDataset(core.id.to_string())) } else { Ok(made) }
}

/// What keeping a row for snapshots takes, before it changes.
fn charge_of_past(shared: &Shared, core: &DatasetCore, table: TableId, key: &[u8]) -> Result<Charge> {
    if !table.is_long() {
        return Ok(past_charge(key.len(), 0));
    }
    // In this order, as lookups: see `rows`.
    let unsynced = core.rows.longest(table, key);
    let mut value = Vec::new();
    let snapshot = shared.tables.current();
    shared.tables.explained(stored::get(&snapshot.rows, core.id.0, table, key, &mut value))?;
    Ok(past_charge(key.len(), unsynced.max(value.len())))
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
    /// destroyed; [`PoolError::Closed`]; those of reading the tables: `value` is then unspecified.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        check_key(key)?;
        self.check_there()?;
        self.shared.check_alive_for_reads()?;
        value.clear();
        let take = |row: &Row| row.value().map(|found| value.extend_from_slice(found)).is_some();
        if let Some(is_there) = self.core.rows.find(self.id, key, take) {
            return Ok(is_there);
        }
        // Only now: see `rows`.
        let snapshot = self.shared.tables.current();
        let read = match snapshot.rows_at(self.core.id.0) {
            None => stored::get(&snapshot.rows, self.core.id.0, self.id, key, value),
            Some(rows) => rows.get(self.id, key, value),
        };
        self.shared.tables.explained(read)
    }

    /// Stores `value` under `key`, in the place of what is there.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a key or value of another length; [`PoolError::ReadOnly`];
    /// [`PoolError::NoSpace`]; [`PoolError::NoDataset`] if the dataset was destroyed;
    /// [`PoolError::Overtaken`] if a newer txg creates the dataset. Nothing was changed.
    pub fn put(&self, tx: &Tx, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        let max = if self.id.is_long() { ROW_VALUE_BYTES_MAX } else { short_value_bytes_max(key.len()) };
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
        let change = RowChange { table: self.id, key, value };
        change_rows(&self.shared, &self.core, tx, &[change], value.is_none(), || Ok(()))
    }

    fn gone(&self) -> PoolError {
        PoolError::NoDataset(self.core.id.to_string())
    }

    pub(super) fn check_there(&self) -> Result<()> {
        if self.core.is_destroyed.load(Ordering::SeqCst) { Err(self.gone()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
