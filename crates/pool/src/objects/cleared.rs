//! Ranges of blocks that were cleared, and whose extents are not freed yet.
//!
//! Motivation: a discard or a truncation may cover millions of blocks. A txg that freed all of them would
//! take long, and memory in proportion; so each txg frees a bounded number of rows (`freeing`), and notes the
//! rest here.
//!
//! Design: a range records the txg that cleared it. Extents in it that were born before that txg are dead:
//! they read as zeroes, and are freed eventually. What was written in that txg or later is live, so a write
//! into such a range changes nothing here. Where ranges overlap the newest txg counts, and they are split so
//! that none overlap.
//!
//! Crash cases: a range is in the table of the txg that cleared it, and what is freed of it leaves the table
//! in the txg that frees it; so a crash leaves dead extents with their range, or neither.
//!
//! Memory: about 100 bytes a range. Each counts as dirty, like a block, until it is freed: a caller that
//! clears faster than txgs free has to wait.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use redb::{ReadableTable, WriteTransaction};

use crate::error::{PoolError, Result};
use crate::ids::Txg;
use crate::metadata::tables::{CLEARED, ExtentKey};
use crate::objects::extent::Extent;

/// Ranges by dataset, object and first block: end, txg. None overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cleared(BTreeMap<ExtentKey, (u64, Txg)>);

impl Cleared {
    /// Loads a table.
    pub(crate) fn load(table: &impl ReadableTable<ExtentKey, (u64, u64)>) -> Result<Cleared> {
        let mut cleared = Cleared::default();
        for row in table.iter()? {
            let (key, value) = row?;
            let (key, (end, txg)) = (key.value(), value.value());
            let is_behind = cleared
                .0
                .last_key_value()
                .is_none_or(|(last, (last_end, _))| (last.0, last.1) != (key.0, key.1) || *last_end <= key.2);
            if end <= key.2 || !is_behind {
                return Err(PoolError::bad_value("cleared", format!("blocks {} to {end}", key.2)));
            }
            cleared.0.insert(key, (end, Txg(txg)));
        }
        Ok(cleared)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an extent is dead.
    pub(crate) fn hides(&self, (dataset, object, block): ExtentKey, extent: &Extent) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let from = (dataset, object, 0);
        let range = self.0.range(from..=(dataset, object, block)).next_back();
        range.is_some_and(|(_, (end, txg))| block < *end && extent.birth < *txg)
    }

    /// The ranges of a dataset.
    pub(crate) fn of(&self, dataset: u64) -> Vec<(ExtentKey, (u64, Txg))> {
        self.0
            .range((dataset, 0, 0)..=(dataset, u64::MAX, u64::MAX))
            .map(|(key, value)| (*key, *value))
            .collect()
    }

    /// Adds a range that overlaps no other.
    pub(crate) fn put(&mut self, key: ExtentKey, value: (u64, Txg)) {
        self.0.insert(key, value);
    }

    /// Removes the ranges of a dataset; returns their keys.
    pub(crate) fn drop_all(&mut self, dataset: u64) -> Vec<ExtentKey> {
        let keys: Vec<_> = self.of(dataset).into_iter().map(|(key, _)| key).collect();
        self.0.retain(|key, _| key.0 != dataset);
        keys
    }

    /// The first range at or after `from`.
    fn first_from(&self, from: ExtentKey) -> Option<(ExtentKey, u64, Txg)> {
        self.0.range(from..).next().map(|(key, (end, txg))| (*key, *end, *txg))
    }
}

/// Changes of the ranges in one txg.
pub(crate) struct Clearing {
    ranges: Arc<Cleared>,
    /// Keys whose rows may differ from the table's.
    changed: BTreeSet<ExtentKey>,
}

impl Clearing {
    pub(crate) fn new(ranges: Arc<Cleared>) -> Clearing {
        Clearing { ranges, changed: BTreeSet::new() }
    }

    fn set(&mut self, key: ExtentKey, value: Option<(u64, Txg)>) {
        self.changed.insert(key);
        let ranges = &mut Arc::make_mut(&mut self.ranges).0;
        match value {
            Some(value) => drop(ranges.insert(key, value)),
            None => drop(ranges.remove(&key)),
        }
    }

    /// Blocks were cleared in `txg`, which is no older than any before.
    pub(crate) fn insert(&mut self, (dataset, object): (u64, u64), blocks: &Range<u64>, txg: Txg) {
        let key = |block| (dataset, object, block);
        let reaching = self.ranges.0.range(key(0)..key(blocks.end)).rev();
        let reaching = reaching.take_while(|(_, (end, _))| *end > blocks.start);
        let old: Vec<_> = reaching.map(|(key, value)| (*key, *value)).collect();
        for (first, (end, older)) in old {
            let is_before = first.2 < blocks.start;
            self.set(first, is_before.then_some((blocks.start, older)));
            if end > blocks.end {
                self.set(key(blocks.end), Some((end, older)));
            }
        }
        self.set(key(blocks.start), Some((blocks.end, txg)));
    }

    /// The ranges of a dataset.
    pub(crate) fn of(&self, dataset: u64) -> Vec<(ExtentKey, (u64, Txg))> {
        self.ranges.of(dataset)
    }

    /// Gives a dataset these ranges in place of its own.
    pub(crate) fn replace(&mut self, dataset: u64, ranges: &[(ExtentKey, (u64, Txg))]) {
        for (key, _) in self.of(dataset) {
            self.set(key, None);
        }
        for ((_, object, first), value) in ranges {
            self.set((dataset, *object, *first), Some(*value));
        }
    }

    /// The next range, wrapping around.
    pub(crate) fn next(&self, from: ExtentKey) -> Option<(ExtentKey, u64, Txg)> {
        self.ranges.first_from(from).or_else(|| self.ranges.first_from((0, 0, 0)))
    }

    /// Of the range that begins at `key`, everything before `block` has been freed.
    pub(crate) fn advance(&mut self, key: ExtentKey, block: u64) {
        let Some((end, txg)) = self.ranges.0.get(&key).copied() else { return };
        if block > key.2 {
            self.set(key, None);
        }
        if block < end {
            self.set((key.0, key.1, block), Some((end, txg)));
        }
    }

    /// Stores what has changed.
    pub(crate) fn store(self, transaction: &WriteTransaction) -> Result<Arc<Cleared>> {
        if !self.changed.is_empty() {
            let mut table = transaction.open_table(CLEARED)?;
            for key in &self.changed {
                match self.ranges.0.get(key) {
                    Some((end, txg)) => drop(table.insert(key, (*end, txg.0))?),
                    None => drop(table.remove(key)?),
                }
            }
        }
        Ok(self.ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OBJECT: (u64, u64) = (1, 2);

    fn extent(birth: u64) -> Extent {
        let place = crate::ids::Place { vdev: 0, unit: 0 };
        Extent { place, sum: 0, birth: Txg(birth), stored_bytes: 1, logical_bytes: 1, codec: 0 }
    }

    proptest! {
        /// Against a list: for each block the newest txg that cleared it counts.
        #[test]
        fn the_newest_range_counts(ops in proptest::collection::vec((0..60u64, 1..20u64, 0..3u8), 1..30)) {
            let mut clearing = Clearing::new(Arc::default());
            let mut model = vec![0; 80];
            for (txg, (start, len, kind)) in (1..).zip(ops) {
                if kind == 0 {
                    if let Some((key, end, _)) = clearing.next((OBJECT.0, OBJECT.1, start)) {
                        let to = (key.2 + len).min(end);
                        clearing.advance(key, to);
                        model[key.2 as usize..to as usize].fill(0);
                    }
                } else {
                    clearing.insert(OBJECT, &(start..start + len), Txg(txg));
                    model[start as usize..(start + len) as usize].fill(txg);
                }
                for (block, newest) in model.iter().enumerate() {
                    let hides = |birth| clearing.ranges.hides((1, 2, block as u64), &extent(birth));
                    prop_assert_eq!(*newest > 0, hides(newest.saturating_sub(1)) && !hides(*newest));
                    prop_assert!(!clearing.ranges.hides((1, 3, block as u64), &extent(0)));
                }
                let ranges: Vec<_> = clearing.ranges.0.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1.0 <= pair[1].0.2));
            }
        }
    }
}
