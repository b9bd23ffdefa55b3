//! Parts of objects that become zero: cleared ranges, and truncated tails.
//!
//! Whole blocks are cleared: the layer says so, and the txg frees them, or notes that they are to be freed
//! (`freeing`). Parts of blocks are written, like any other data: that takes room, even where little data is
//! left in the end.

use std::ops::Range;

use crate::error::Result;
use crate::objects::handle::Object;
use crate::objects::object::Contents;
use crate::pool::Tx;
use crate::space::room::Claim;
use fastness_sync::order::write;

/// A range that becomes zero.
#[derive(Debug)]
struct Zeroed {
    /// Its whole blocks.
    whole: Range<u64>,
    /// The parts of blocks at its ends, as bytes; may be empty.
    parts: [Range<u64>; 2],
}

impl Zeroed {
    fn new(start: u64, end: u64, block_bytes: u64) -> Zeroed {
        let (first, last) = (start.div_ceil(block_bytes), end / block_bytes);
        let whole = first..last.max(first);
        let middle = (first * block_bytes).min(end);
        Zeroed { parts: [start..middle, middle.max(whole.end * block_bytes)..end], whole }
    }
}

impl Object {
    /// Sets the size; what is truncated reads as zeroes if the object grows again.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`PoolError::NoSpace`](crate::PoolError::NoSpace) only if part of a block
    /// must be written, or while a great deal is being cleared: [`reclaim`](crate::Pool::reclaim) helps.
    pub fn truncate(&self, tx: &Tx, size_bytes: u64) -> Result<()> {
        self.check_writable(tx)?;
        self.check_range(size_bytes, 0)?;
        self.zero(tx, size_bytes, u64::MAX, |contents, index| {
            contents.set_size_bytes(size_bytes);
            for later in index..contents.layers.len() {
                contents.layer_mut(later).size_bytes = size_bytes;
            }
        })
    }

    /// Makes a range read as zeroes and frees its whole blocks, in this txg and, if they are many, in the
    /// next ones. The size stays.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate).
    pub fn punch(&self, tx: &Tx, offset: u64, len_bytes: u64) -> Result<()> {
        self.check_writable(tx)?;
        let end = self.check_range(offset, len_bytes)?;
        self.zero(tx, offset, end, |_, _| ())
    }

    /// Zeroes a range, skipping what is zero already; then calls `then`.
    fn zero(&self, tx: &Tx, start: u64, end: u64, then: impl FnOnce(&mut Contents, usize)) -> Result<()> {
        let block_bytes = u64::from(self.core.block_bytes);
        let mut contents = write(&self.core.contents);
        self.check_there()?;
        let size_max = contents.size_max(tx.txg());
        // Everything after the size is zero already, so the last block may be cleared whole.
        let end = if end >= size_max { size_max.next_multiple_of(block_bytes) } else { end };
        let mut zeroed = Zeroed::new(start, end.max(start), block_bytes);
        for part in &mut zeroed.parts {
            if !part.is_empty() && self.reads_as_zeroes(&contents, tx, part)? {
                *part = 0..0;
            }
        }
        let parts = zeroed.parts.iter().filter(|part| !part.is_empty()).count() as u64;
        let claim = if parts > 0 { Claim::Part } else { Claim::Free };
        let counts =
            self.rows_of_counts(tx, &contents, &(0..0), &zeroed.whole) + parts * u64::from(self.may_share());
        let counts = counts + self.rows_of_past_cleared(parts);
        let held = self.hold_room(tx, &contents, claim, (parts, parts), &zeroed.whole, counts)?;
        let index = self.layer(&mut contents, tx);
        let done = self.zero_parts(&mut contents, index, &zeroed);
        if done.is_ok() {
            let change = contents.clear(index, zeroed.whole, block_bytes as usize);
            self.shared.txgs.pipeline.change_dirty(change);
            then(&mut contents, index);
        }
        held.charge_counts(&mut contents, index);
        self.settle(held, &contents);
        done
    }

    /// Whether a part of a block is already zero for all readers: then there is nothing to write, and no room
    /// is needed.
    fn reads_as_zeroes(&self, contents: &Contents, tx: &Tx, part: &Range<u64>) -> Result<bool> {
        if contents.layers.last().is_some_and(|newest| newest.txg > tx.txg()) {
            // A newer txg has a layer: its bytes may be zero where those that this txg sees are not.
            return Ok(false);
        }
        let block_bytes = u64::from(self.core.block_bytes);
        let mut bytes = vec![0xff; (part.end - part.start) as usize];
        let within = (part.start % block_bytes) as usize;
        self.read_block(contents, contents.layers.len(), part.start / block_bytes, within, &mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    fn zero_parts(&self, contents: &mut Contents, index: usize, zeroed: &Zeroed) -> Result<()> {
        let block_bytes = u64::from(self.core.block_bytes);
        let zeroes = vec![0; block_bytes as usize];
        for part in zeroed.parts.iter().filter(|part| !part.is_empty()) {
            let within = (part.start % block_bytes) as usize;
            let data = &zeroes[..(part.end - part.start) as usize];
            self.write_block(contents, index, part.start / block_bytes, within, data)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_whole_blocks_and_two_parts() {
        let new = |start, end| {
            let Zeroed { whole, parts } = Zeroed::new(start, end, 10);
            (whole, parts.map(|part| if part.is_empty() { 0..0 } else { part }))
        };
        assert_eq!(new(10, 30), (1..3, [0..0, 0..0]));
        assert_eq!(new(7, 33), (1..3, [7..10, 30..33]));
        assert_eq!(new(7, 13), (1..1, [7..10, 10..13]));
        assert_eq!(new(3, 7), (1..1, [3..7, 0..0]));
        assert_eq!(new(3, 10), (1..1, [3..10, 0..0]));
        assert_eq!(new(20, 27), (2..2, [0..0, 20..27]));
        assert_eq!(new(5, 5), (1..1, [0..0, 0..0]));
    }
}
