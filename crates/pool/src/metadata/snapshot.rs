//! The tables as of one txg, for reading.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableError};

use crate::error::Result;
use crate::ids::Txg;
use crate::metadata::branches::Branches;
use crate::metadata::groups::decode_row;
use crate::metadata::life::{Life, Shape};
use crate::metadata::past;
use crate::metadata::past_objects::{self, PastObjects};
use crate::metadata::past_rows::{self, PastRows, RowsAt};
use crate::metadata::references;
use crate::metadata::tables::{AUX, DOOMED, EXTENTS, ExtentKey, OBJECTS, PIECES, PastKey, ROWS, SHOWN};
use crate::objects::cleared::Cleared;
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group, decode_group, decode_pieces};
use crate::rows::stored::Rows as StoredRows;

/// The key of a row, and extents, each with a dataset, object and block that has it.
pub(crate) type OfRow = (ExtentKey, Vec<(ExtentKey, Extent)>);

/// Tables as of one txg.
pub(crate) struct Snapshot {
    pub(crate) extents: ReadOnlyTable<ExtentKey, &'static [u8]>,
    pub(crate) objects: ReadOnlyTable<(u64, u64), (u64, u32)>,
    pub(crate) aux: ReadOnlyTable<(u64, &'static [u8]), &'static [u8]>,
    pub(crate) rows: StoredRows,
    pieces: ReadOnlyTable<u64, &'static [u8]>,
    /// Rows as they were; `None` before there was a snapshot of a volume.
    pub(crate) past: Option<ReadOnlyTable<PastKey, &'static [u8]>>,
    /// Objects as they were; `None` before there was a snapshot of a file system, as for the next.
    pub(crate) past_objects: Option<PastObjects>,
    /// Rows of tables as they were.
    pub(crate) past_rows: Option<PastRows>,
    /// Which of the extents are dead.
    pub(crate) cleared: Arc<Cleared>,
    /// Snapshots and clones of volumes.
    pub(crate) branches: Arc<Branches>,
    /// Keeps the tables unchanged while they are being read.
    transaction: ReadTransaction,
}

impl Snapshot {
    pub(crate) fn take(
        database: &Database,
        cleared: Arc<Cleared>,
        branches: Arc<Branches>,
    ) -> Result<Snapshot> {
        let transaction = database.begin_read()?;
        Ok(Snapshot {
            extents: transaction.open_table(EXTENTS)?,
            objects: transaction.open_table(OBJECTS)?,
            aux: transaction.open_table(AUX)?,
            rows: transaction.open_table(ROWS)?,
            pieces: transaction.open_table(PIECES)?,
            past: past::table(&transaction)?,
            past_objects: past_objects::table(&transaction)?,
            past_rows: past_rows::table(&transaction)?,
            cleared,
            branches,
            transaction,
        })
    }

    /// Where a block is; `None` for a hole.
    pub(crate) fn extent(&self, (dataset, object, block): ExtentKey) -> Result<Option<Extent>> {
        let Some(group) = self.row((dataset, object, block / GROUP_BLOCKS))? else { return Ok(None) };
        let extent = group[(block % GROUP_BLOCKS) as usize];
        Ok(extent.filter(|extent| !self.cleared.hides((dataset, object, block), extent)))
    }

    /// A row as a dataset has it, which may be a snapshot or a clone.
    fn row(&self, key: ExtentKey) -> Result<Option<Group>> {
        if self.branches.is_empty() {
            return self.extents.get(key)?.map(|row| decode_group(row.value())).transpose();
        }
        past::resolve(&self.extents, self.past.as_ref(), &self.branches, key)
    }

    /// Rows of an object as its dataset has them, for groups of a range: in order, the first `count`.
    pub(crate) fn rows_of(
        &self,
        (dataset, object): (u64, u64),
        groups: Range<u64>,
        count: usize,
    ) -> Result<Vec<(ExtentKey, Group)>> {
        let key = |group| (dataset, object, group);
        if self.branches.base(dataset).is_none() {
            let rows = self.extents.range(key(groups.start)..key(groups.end))?.take(count);
            return rows.map(decode_row).collect();
        }
        let (past, branches) = (self.past.as_ref(), &self.branches);
        let found = past::groups(&self.extents, past, branches, (dataset, object), &groups, count)?;
        let row = |group| Ok((key(group), self.row(key(group))?.unwrap_or(past::EMPTY)));
        found.into_iter().map(row).collect()
    }

    /// The blocks of a row that are live, or that snapshots still show: number, extent.
    pub(crate) fn in_use(&self, key: ExtentKey, group: &Group) -> impl Iterator<Item = (u64, Extent)> {
        let blocks = (key.2 * GROUP_BLOCKS..).zip(group).filter_map(|(block, slot)| Some((block, (*slot)?)));
        blocks.filter(move |(block, extent)| {
            let at = (key.0, key.1, *block);
            !self.cleared.hides(at, extent) || self.branches.is_needed(at, extent, Life::WHOLE)
        })
    }

    /// An object as a dataset has it, which may be a snapshot: size and block bytes.
    pub(crate) fn object(&self, key: (u64, u64)) -> Result<Option<Shape>> {
        past_objects::resolve(&self.objects, self.past_objects.as_ref(), &self.branches, key)
    }

    /// Numbers of the objects of a dataset, which may be a snapshot; in order.
    pub(crate) fn objects_of(&self, dataset: u64) -> Result<Vec<u64>> {
        let of = |id: u64| {
            let rows = self.objects.range((id, 0)..=(id, u64::MAX))?;
            rows.map(|row| Ok(row?.0.value().1)).collect::<Result<BTreeSet<u64>>>()
        };
        let mut all = of(dataset)?;
        let base = self.branches.base(dataset).filter(|base| self.branches.files.has(base.branch));
        if let (Some(base), Some(past)) = (base, &self.past_objects) {
            all.append(&mut of(base.branch)?);
            for row in past.range((base.branch, 0, 0)..=(base.branch, u64::MAX, u64::MAX))? {
                all.insert(row?.0.value().1);
            }
            let mut has = Vec::with_capacity(all.len());
            for object in all {
                has.extend(self.object((dataset, object))?.map(|_| object));
            }
            return Ok(has);
        }
        Ok(all.into_iter().collect())
    }

    /// The rows of tables as a snapshot has them; `None` for a dataset that has its own.
    pub(crate) fn rows_at(&self, dataset: u64) -> Option<RowsAt<'_>> {
        let base = self.branches.base(dataset).filter(|base| base.snapshot == dataset)?;
        let (current, past) = (&self.rows, self.past_rows.as_ref());
        Some(RowsAt { current, past, branch: base.branch, txg: base.txg })
    }

    /// Which snapshots have an object.
    pub(crate) fn life(&self, key: (u64, u64)) -> Result<Life> {
        match &self.past_objects {
            Some(past) if self.branches.files.has(key.0) => {
                let is_alive = self.objects.get(key)?.is_some();
                Ok(Life::of(&past_objects::versions(past, key, 0)?, is_alive))
            }
            _ => Ok(Life::WHOLE),
        }
    }

    /// What only snapshots of a branch show, from a row on: for about `count` versions of rows, the key of
    /// each row, and its extents with a snapshot, object and block that has each.
    pub(crate) fn only_past(&self, from: ExtentKey, count: usize) -> Result<Vec<OfRow>> {
        let Some(past) = &self.past else { return Ok(Vec::new()) };
        let base = self.branches.base(from.0).map_or(Txg(0), |base| base.txg);
        let (mut rows, mut seen, mut next) = (Vec::new(), 0, (from.0, from.1, from.2, 0));
        while seen < count {
            let row = past.range(next..(from.0 + 1, 0, 0, 0))?.next().transpose()?;
            let Some((branch, object, group, _)) = row.map(|(key, _)| key.value()) else { break };
            let key = (branch, object, group);
            let versions = past::versions(past, key, 0)?;
            (next, seen) = ((branch, object, group + 1, 0), seen + versions.len());
            let now = self.extents.get(key)?.map(|row| decode_group(row.value())).transpose()?;
            let mut found: Vec<(ExtentKey, Extent)> = Vec::new();
            for (slot, block) in (0..GROUP_BLOCKS as usize).zip(group * GROUP_BLOCKS..) {
                let is_now = |extent: &Extent| now.is_some_and(|now| now[slot] == Some(*extent));
                let mut extents: Vec<_> = versions.iter().filter_map(|(_, group)| group[slot]).collect();
                extents.sort_by_key(|extent| (extent.birth, extent.place));
                extents.dedup();
                for extent in extents.into_iter().filter(|extent| extent.birth > base && !is_now(extent)) {
                    let has = versions.iter().filter(|(_, group)| group[slot] == Some(extent));
                    let last = has.map(|(txg, _)| Txg(*txg)).max().unwrap_or_default();
                    let of = self.branches.snapshots(branch).rev().find(|(txg, _)| *txg <= last);
                    found.push(((of.map_or(branch, |(_, id)| id), object, block), extent));
                }
            }
            rows.push((key, found));
        }
        Ok(rows)
    }

    /// The versions of a row that are kept for snapshots.
    pub(crate) fn versions(&self, key: ExtentKey) -> Result<Vec<(u64, Group)>> {
        match &self.past {
            Some(past) if self.branches.has_past(key.0) => past::versions(past, key, 0),
            _ => Ok(Vec::new()),
        }
    }

    /// Bytes that a dataset shows; `None` for one that has never had to do with snapshots.
    pub(crate) fn shown_bytes(&self, dataset: u64) -> Result<Option<u64>> {
        match self.transaction.open_table(SHOWN) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => Ok(table?.get(dataset)?.map(|bytes| bytes.value())),
        }
    }

    /// Whether an object is listed to be freed: dataset, first and last number.
    pub(crate) fn is_doomed(&self, listed: (u64, u64, u64)) -> Result<bool> {
        Ok(self.transaction.open_table(DOOMED)?.get(listed)?.is_some())
    }

    /// How many blocks name each place that several do; `None` before there was one.
    pub(crate) fn counts(&self) -> Result<Option<ReadOnlyTable<u64, u64>>> {
        references::table(&self.transaction)
    }

    /// The live blocks of a row: number, extent.
    pub(crate) fn alive(&self, key: ExtentKey, group: &Group) -> impl Iterator<Item = (u64, Extent)> {
        let blocks = (key.2 * GROUP_BLOCKS..).zip(group).filter_map(|(block, slot)| Some((block, (*slot)?)));
        blocks.filter(move |(block, extent)| !self.cleared.hides((key.0, key.1, *block), extent))
    }

    /// Where a block is: usually one place.
    pub(crate) fn pieces(&self, extent: &Extent) -> Result<Vec<Extent>> {
        if !extent.is_in_pieces() {
            return Ok(vec![*extent]);
        }
        let row = self.pieces.get(extent.place.pack())?;
        decode_pieces(extent, row.as_ref().map(|row| row.value()))
    }
}
