//! Objects of file systems as they were: which ones a snapshot has, and how long they were.
//!
//! Motivation: a volume has one object, which is as old as the volume. Files come and go.
//!
//! Design: before a txg creates an object, changes its row or removes it, for the first time since the newest
//! snapshot of its branch, it puts a copy of the row, or that there was none, into the table `past objects`
//! under the txg of that snapshot. A snapshot reads the first one from its txg on, or else the current row.
//!
//! A number is given once. So the snapshots that have an object are those of one span of txgs, its *life*,
//! and rows of its extents are kept for these alone (`txg::keeping`): none for what was created after the
//! newest snapshot, and those of a destroyed object, which are freed in later txgs, for the newest one that
//! has it.
//!
//! Crash cases: as for rows of extents (`past`).
//!
//! Layout: table `past objects`: branch, object, txg → size and block bytes, or none.

use redb::{ReadTransaction, ReadableTable, TableError};

use crate::error::Result;
use crate::metadata::branches::Branches;
use crate::metadata::life::Shape;
use crate::metadata::tables::{PAST_OBJECTS, PastObjectKey};

/// Dataset and object.
pub(crate) type ObjectKey = (u64, u64);

/// The table as of a synced txg.
pub(crate) type PastObjects = redb::ReadOnlyTable<PastObjectKey, Option<Shape>>;

/// The table; `None` before there was a snapshot of a file system.
pub(crate) fn table(transaction: &ReadTransaction) -> Result<Option<PastObjects>> {
    match transaction.open_table(PAST_OBJECTS) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// All versions of an object, oldest first, from a txg on.
pub(crate) fn versions(
    past: &impl ReadableTable<PastObjectKey, Option<Shape>>,
    (branch, object): ObjectKey,
    from: u64,
) -> Result<Vec<(u64, Option<Shape>)>> {
    let rows = past.range((branch, object, from)..=(branch, object, u64::MAX))?.map(|row| {
        let (key, shape) = row?;
        Ok((key.value().2, shape.value()))
    });
    rows.collect()
}

/// An object as a dataset has it, which may be a snapshot; `None`: it has none with this number.
pub(crate) fn resolve(
    objects: &impl ReadableTable<ObjectKey, Shape>,
    past: Option<&impl ReadableTable<PastObjectKey, Option<Shape>>>,
    branches: &Branches,
    (dataset, object): ObjectKey,
) -> Result<Option<Shape>> {
    if let Some(row) = objects.get((dataset, object))? {
        return Ok(Some(row.value()));
    }
    let Some(base) = branches.shown_base(dataset) else { return Ok(None) };
    if let Some(past) = past {
        let from = (base.branch, object, base.txg.0);
        if let Some(row) = past.range(from..=(base.branch, object, u64::MAX))?.next().transpose()? {
            return Ok(row.1.value());
        }
    }
    Ok(objects.get((base.branch, object))?.map(|row| row.value()))
}
