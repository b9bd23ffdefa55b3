//! What changes of a volume take for the rows that its snapshots keep (`metadata::past`).

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

    /// Rows that a write may keep a copy of: those of which the transaction's layer has no block yet.
    pub(super) fn rows_of_past(&self, tx: &Tx, contents: &Contents, written: &Range<u64>) -> u64 {
        if !self.has_snapshots() {
            return 0;
        }
        let (first, last) = rows_of(written);
        let Some(layer) = contents.layers.iter().find(|layer| layer.txg == tx.txg()) else {
            return last - first + 1;
        };
        let has_block = |row: u64| {
            (row * GROUP_BLOCKS..(row + 1) * GROUP_BLOCKS).any(|block| layer.blocks.contains_key(&block))
        };
        (first..=last).filter(|row| !has_block(*row)).count() as u64
    }

    /// The same for clearing: the rows at both ends, and those of so many parts of blocks. What is cleared
    /// in between is freed in steps, which have room of their own.
    pub(super) fn rows_of_past_cleared(&self, parts: u64) -> u64 {
        if self.has_snapshots() { 2 + parts } else { 0 }
    }
}
