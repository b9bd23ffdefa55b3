//! Long ranges of zeroes: a discard of a whole device is one entry of the log, and no index of its blocks.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::block::Order;

/// A range that is zeroes unless something newer is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ZeroRange {
    /// The block after the last.
    pub(crate) end: u64,
    pub(crate) order: Order,
    /// It need not be stored.
    pub(crate) is_discard: bool,
}

/// Ranges of blocks that do not overlap, by first block; of each block the newest range counts.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, ZeroRange>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the range around a block was logged.
    pub(crate) fn order_of(&self, block: u64) -> Option<Order> {
        let (_, range) = self.0.range(..=block).next_back()?;
        (block < range.end).then_some(range.order)
    }

    /// Ends a range at `block`, and begins another one there.
    fn split_at(&mut self, block: u64) {
        let Some((&start, &range)) = self.0.range(..block).next_back() else { return };
        if block < range.end {
            self.0.insert(start, ZeroRange { end: block, ..range });
            self.0.insert(block, range);
        }
    }

    /// Takes in a range; older and newer ones may be there.
    pub(crate) fn put(&mut self, blocks: Range<u64>, order: Order, is_discard: bool) {
        self.split_at(blocks.start);
        self.split_at(blocks.end);
        let inside: Vec<_> = self.0.range(blocks.clone()).map(|(start, range)| (*start, *range)).collect();
        let mut free = blocks.start;
        for (start, range) in inside {
            if range.order < order {
                self.0.remove(&start);
                continue;
            }
            self.fill(free..start, order, is_discard);
            free = range.end;
        }
        self.fill(free..blocks.end, order, is_discard);
    }

    fn fill(&mut self, blocks: Range<u64>, order: Order, is_discard: bool) {
        if !blocks.is_empty() {
            self.0.insert(blocks.start, ZeroRange { end: blocks.end, order, is_discard });
        }
    }

    /// The ranges of generations up to `until`.
    pub(crate) fn due(&self, until: u64) -> Vec<(u64, ZeroRange)> {
        let due = self.0.iter().filter(|(_, range)| range.order.txg <= until);
        due.map(|(start, range)| (*start, *range)).collect()
    }

    /// Lets go of ranges that the origin has.
    pub(crate) fn retire(&mut self, until: u64) {
        self.0.retain(|_, range| range.order.txg > until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random ranges in random order, against an array.
    #[test]
    fn of_each_block_the_newest_range_counts() {
        let mut rng = fastness_testkit::Rng(7);
        for _ in 0..300 {
            let (mut ranges, mut model) = (Ranges::default(), [None; 24]);
            for _ in 0..1 + rng.index(12) {
                let (start, order) = (rng.index(20), Order { txg: 1 + rng.below(3), gsid: rng.next() });
                let end = (start + 1 + rng.index(8)).min(24);
                ranges.put(start as u64..end as u64, order, false);
                for block in &mut model[start..end] {
                    *block = (*block).max(Some(order));
                }
            }
            let found = |ranges: &Ranges| std::array::from_fn(|block| ranges.order_of(block as u64));
            assert_eq!(found(&ranges), model);
            let due: u64 = ranges.due(1).iter().map(|(start, range)| range.end - start).sum();
            let of_first = |order: &&Option<Order>| order.is_some_and(|order| order.txg <= 1);
            assert_eq!(due as usize, model.iter().filter(of_first).count());
            ranges.retire(1);
            for block in model.iter_mut().filter(|order| of_first(&&**order)) {
                *block = None;
            }
            assert_eq!(found(&ranges), model);
        }
    }
}
