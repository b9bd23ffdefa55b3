//! Where two images differ.

use std::ops::Range;

use super::node::{Node, PAGE_BYTES, WIDTH};
use super::pages_below;

/// Differences found so far, in order.
pub(super) struct Differences {
    unit_bytes: usize,
    pub(super) ranges: Vec<Range<u64>>,
}

impl Differences {
    pub(super) fn new(unit_bytes: usize) -> Differences {
        Differences { unit_bytes, ranges: Vec::new() }
    }

    /// Compares two nodes of a height, whose first page is number `first`; `None` is zeroes.
    pub(super) fn compare(&mut self, one: Option<&Node>, two: Option<&Node>, height: u32, first: u64) {
        match (one, two) {
            (None, None) => return,
            (Some(one), Some(two)) if one.is_same(two) => return,
            _ => {}
        }
        if height == 0 {
            let zeroes = &[0; PAGE_BYTES];
            self.compare_pages(one.map_or(zeroes, Node::bytes), two.map_or(zeroes, Node::bytes), first);
            return;
        }
        for index in 0..WIDTH {
            let child = |node: Option<&'_ Node>| node.and_then(|node| node.inner().children[index].clone());
            let (one, two) = (child(one), child(two));
            self.compare(
                one.as_ref(),
                two.as_ref(),
                height - 1,
                first + index as u64 * pages_below(height - 1),
            );
        }
    }

    fn compare_pages(&mut self, one: &[u8; PAGE_BYTES], two: &[u8; PAGE_BYTES], page: u64) {
        let units = one.chunks(self.unit_bytes).zip(two.chunks(self.unit_bytes));
        for (unit, (one, two)) in units.enumerate() {
            if one == two {
                continue;
            }
            let start = page * PAGE_BYTES as u64 + (unit * self.unit_bytes) as u64;
            let end = start + self.unit_bytes as u64;
            match self.ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => self.ranges.push(start..end),
            }
        }
    }
}
