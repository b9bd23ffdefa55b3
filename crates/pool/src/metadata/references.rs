//! How many blocks name one place.
//!
//! A block that was copied may share its place with the block that it was copied from (`objects::copied`).
//! The table has a row for each place that two blocks or more name; a place without a row has one block. So
//! what was never copied costs a lookup in an empty table, and only once something was shared.
//!
//! Crash cases: rows change in the transaction of the txg that stores or frees the blocks.

use std::collections::BTreeMap;

use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, TableError, WriteTransaction,
};

use crate::error::{PoolError, Result};
use crate::ids::Place;
use crate::metadata::tables::REFERENCES;

/// The table; `None` before anything was shared.
pub(super) fn table(transaction: &ReadTransaction) -> Result<Option<ReadOnlyTable<u64, u64>>> {
    match transaction.open_table(REFERENCES) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// Whether any place has several blocks.
pub(crate) fn has_any(transaction: &ReadTransaction) -> Result<bool> {
    table(transaction)?.map_or(Ok(false), |table| Ok(!table.is_empty()?))
}

/// All rows: packed place, number of blocks.
pub(crate) fn all(transaction: &ReadTransaction) -> Result<BTreeMap<u64, u64>> {
    let Some(table) = table(transaction)? else { return Ok(BTreeMap::new()) };
    let rows = table.iter()?.map(|row| {
        let (place, count) = row?;
        Ok((place.value(), count.value()))
    });
    rows.collect()
}

/// One more block names each of these places.
pub(crate) fn raise(transaction: &WriteTransaction, places: &[Place]) -> Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(REFERENCES)?;
    for place in places {
        let count = table.get(place.pack())?.map_or(1, |count| count.value());
        table.insert(place.pack(), count.saturating_add(1))?;
    }
    Ok(())
}

/// One block less names a place. Returns whether others still do.
pub(crate) fn lower(transaction: &WriteTransaction, place: Place) -> Result<bool> {
    let mut table = transaction.open_table(REFERENCES)?;
    let count = table.get(place.pack())?.map(|count| count.value());
    match count {
        None => Ok(false),
        Some(0 | 1) => Err(PoolError::bad_value("references", format!("fewer than two blocks at {place}"))),
        Some(2) => table.remove(place.pack()).map(|_| true).map_err(Into::into),
        Some(count) => table.insert(place.pack(), count - 1).map(|_| true).map_err(Into::into),
    }
}
