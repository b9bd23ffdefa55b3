//! What changes of objects take for the rows that snapshots keep (`metadata::past`,
//! `metadata::past_objects`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::objects::extent::GROUP_BLOCKS;
use crate::objects::handle::Object;
use crate::objects::object::Contents;
use crate::pool::Tx;
use crate::space::room::rows_of;

impl Object {
    fn has_snapshots(&self) -> bool {
        self.dataset.has_snapshots.load(Ordering::SeqCst)
    }

    /// Rows that a write may keep a copy of: those of which the transaction's layer has no block yet, and the
    /// object's, if there is no layer.
    pub(super) fn rows_of_past(&self, tx: &Tx, contents: &Contents, written: &Range<u64>) -> u64 {
        if !self.has_snapshots() {
            return 0;
        }
        let (first, last) = rows_of(written);
        let Some(layer) = contents.layers.iter().find(|layer| layer.txg == tx.txg()) else {
            return last - first + 2;
        };
        let has_block = |row: u64| {
            (row * GROUP_BLOCKS..(row + 1) * GROUP_BLOCKS).any(|block| layer.blocks.contains_key(&block))
        };
        (first..=last).filter(|row| !has_block(*row)).count() as u64
    }

    /// The same for clearing: the rows at both ends, those of so many parts of blocks, and the object's. What
    /// is cleared in between is freed in steps, which have room of their own.
    pub(super) fn rows_of_past_cleared(&self, parts: u64) -> u64 {
        if self.has_snapshots() { 3 + parts } else { 0 }
    }

    /// The same for creating and destroying an object.
    pub(super) fn rows_of_past_object(&self) -> u64 {
        u64::from(self.has_snapshots())
    }
}
