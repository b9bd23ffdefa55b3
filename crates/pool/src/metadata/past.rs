//! Rows of extents as they were: what snapshots see.
//!
//! Motivation: a snapshot must cost nothing when it is made, and a volume without snapshots must not pay for
//! them.
//!
//! Design: the table of extents has what a volume is now. Before a txg changes a row for the first time since
//! the newest snapshot of its branch, it puts a copy of the row into the table `past`, under the txg of that
//! snapshot. So a snapshot finds the row that was valid at its txg: the first one of the past from its txg
//! on, or else the current one. One copy serves all snapshots between two changes of a row.
//!
//! An extent belongs to the branch that it was born in. A clone has rows for what it changed: they begin as
//! copies of those of its base, whose extents are from before the base's txg and are not the clone's own. A
//! row of a clone is stored even if it has no extents, because without one the base's counts.
//!
//! Freeing: an extent is freed when no row of its branch, now or of the past, has it in this place, whatever
//! the reason for which it is leaving one (`txg::keeping`). Rows of the past that no snapshot needs are
//! removed in bounded steps (`txg::pruning`).
//!
//! Crash cases: a copy is made in the transaction of the txg that changes the row, and a snapshot is a row in
//! that of its txg.
//!
//! Layout: table `past`: branch, object, group, txg → extents, as in the table of extents, or none.

use std::collections::BTreeSet;
use std::ops::Range;

use redb::{ReadTransaction, ReadableTable, TableError};

use crate::error::Result;
use crate::metadata::branches::Branches;
use crate::metadata::tables::{ExtentKey, PAST, PastKey};
use crate::objects::extent::{GROUP_BLOCKS, Group, decode_group};

/// No extents.
pub(crate) const EMPTY: Group = [None; GROUP_BLOCKS as usize];

/// The table as of a synced txg; `None` before there was a snapshot.
pub(crate) fn table(
    transaction: &ReadTransaction,
) -> Result<Option<redb::ReadOnlyTable<PastKey, &'static [u8]>>> {
    match transaction.open_table(PAST) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// Keys of a row of the past, from a txg on.
fn from_txg(key: ExtentKey, txg: u64) -> std::ops::RangeInclusive<PastKey> {
    (key.0, key.1, key.2, txg)..=(key.0, key.1, key.2, u64::MAX)
}

/// All versions of a row of the past, oldest first, from a txg on.
pub(crate) fn versions(
    past: &impl ReadableTable<PastKey, &'static [u8]>,
    key: ExtentKey,
    txg: u64,
) -> Result<Vec<(u64, Group)>> {
    let rows = past.range(from_txg(key, txg))?.map(|row| {
        let (key, row) = row?;
        Ok((key.value().3, decode_group(row.value())?))
    });
    rows.collect()
}

/// Whether a row was changed since a txg.
pub(crate) fn has_since(
    past: &impl ReadableTable<PastKey, &'static [u8]>,
    key: ExtentKey,
    txg: u64,
) -> Result<bool> {
    Ok(past.range(from_txg(key, txg))?.next().is_some())
}

/// A row as a dataset has it, which may be a snapshot or a clone: its own or that of its base, less the holes
/// of the snapshots on the way. `None`: there is none, and no extents.
pub(crate) fn resolve(
    extents: &impl ReadableTable<ExtentKey, &'static [u8]>,
    past: Option<&impl ReadableTable<PastKey, &'static [u8]>>,
    branches: &Branches,
    key: ExtentKey,
) -> Result<Option<Group>> {
    if let Some(row) = extents.get(key)? {
        return decode_group(row.value()).map(Some);
    }
    let (mut at, mut passed) = (key, Vec::new());
    // Each base is older than what begins there.
    while let Some(base) = branches.shown_base(at.0) {
        at.0 = base.branch;
        passed.push(base.snapshot);
        let old = match past {
            Some(past) => past.range(from_txg(at, base.txg.0))?.next().transpose()?,
            None => None,
        };
        let found = match old {
            Some((_, row)) => Some(decode_group(row.value())?),
            None => extents.get(at)?.map(|row| decode_group(row.value())).transpose()?,
        };
        if let Some(mut group) = found {
            for (block, slot) in (key.2 * GROUP_BLOCKS..).zip(&mut group) {
                let is_hole = |extent: &_| passed.iter().any(|id| branches.hides(*id, key.1, block, extent));
                *slot = slot.filter(|extent| !is_hole(extent));
            }
            return Ok(Some(group));
        }
    }
    Ok(None)
}

/// Groups for which a dataset may have a row, its own or one of its base; in order, at most `count`.
pub(crate) fn groups(
    extents: &impl ReadableTable<ExtentKey, &'static [u8]>,
    past: Option<&impl ReadableTable<PastKey, &'static [u8]>>,
    branches: &Branches,
    (dataset, object): (u64, u64),
    groups: &Range<u64>,
    count: usize,
) -> Result<Vec<u64>> {
    let mut found = BTreeSet::new();
    let mut next = Some(dataset);
    while let Some(at) = next {
        let rows = extents.range((at, object, groups.start)..(at, object, groups.end))?;
        for row in rows.take(count) {
            found.insert(row?.0.value().2);
        }
        if at != dataset
            && let Some(past) = past
        {
            let (mut from, mut seen) = (groups.start, 0);
            while seen < count && from < groups.end {
                let row = past.range((at, object, from, 0)..(at, object, groups.end, 0))?.next();
                let Some(row) = row.transpose()? else { break };
                let group = row.0.value().2;
                found.insert(group);
                (from, seen) = (group + 1, seen + 1);
            }
        }
        next = branches.shown_base(at).map(|base| base.branch);
    }
    Ok(found.into_iter().take(count).collect())
}
