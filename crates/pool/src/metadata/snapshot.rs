//! The tables as of one txg, for reading.

use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase};

use crate::error::Result;
use crate::metadata::tables::{AUX, DOOMED, EXTENTS, ExtentKey, OBJECTS, PIECES, ROWS};
use crate::objects::cleared::Cleared;
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group, decode_group, decode_pieces};
use crate::rows::stored::Rows as StoredRows;

/// Tables as of one txg.
pub(crate) struct Snapshot {
    pub(crate) extents: ReadOnlyTable<ExtentKey, &'static [u8]>,
    pub(crate) objects: ReadOnlyTable<(u64, u64), (u64, u32)>,
    pub(crate) aux: ReadOnlyTable<(u64, &'static [u8]), &'static [u8]>,
    pub(crate) rows: StoredRows,
    pieces: ReadOnlyTable<u64, &'static [u8]>,
    /// Which of the extents are dead.
    pub(crate) cleared: Arc<Cleared>,
    /// Keeps the tables unchanged while they are being read.
    transaction: ReadTransaction,
}

impl Snapshot {
    pub(crate) fn take(database: &Database, cleared: Arc<Cleared>) -> Result<Snapshot> {
        let transaction = database.begin_read()?;
        Ok(Snapshot {
            extents: transaction.open_table(EXTENTS)?,
            objects: transaction.open_table(OBJECTS)?,
            aux: transaction.open_table(AUX)?,
            rows: transaction.open_table(ROWS)?,
            pieces: transaction.open_table(PIECES)?,
            cleared,
            transaction,
        })
    }

    /// Where a block is; `None` for a hole.
    pub(crate) fn extent(&self, (dataset, object, block): ExtentKey) -> Result<Option<Extent>> {
        let Some(row) = self.extents.get((dataset, object, block / GROUP_BLOCKS))? else { return Ok(None) };
        let extent = decode_group(row.value())?[(block % GROUP_BLOCKS) as usize];
        Ok(extent.filter(|extent| !self.cleared.hides((dataset, object, block), extent)))
    }

    /// Whether an object is listed to be freed: dataset, first and last number.
    pub(crate) fn is_doomed(&self, listed: (u64, u64, u64)) -> Result<bool> {
        Ok(self.transaction.open_table(DOOMED)?.get(listed)?.is_some())
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
