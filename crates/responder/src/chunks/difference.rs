//! In which lines the two chunks of a slot differ, so that a short write stores little.
//!
//! After a write over a chunk the other chunk of the slot, invalid now, has the bytes of before: the same but
//! for the lines of the write. The next write goes into that chunk, and stores these lines and its own.
//! Without that a write of 100 bytes would copy a whole chunk.
//!
//! A word for each slot, in DRAM, and changed under the lock of its group: 0, or the lines, and the low bits
//! of the timestamp of the chunk that counts. It is 0 for as long as a chunk of the slot is being written to,
//! so a process that dies leaves no word that is wrong; after a crash all are 0.

use std::ops::Range;
use std::sync::atomic::compiler_fence;

use fastness_sync::atomic::{AtomicU64, Ordering};

use crate::tag::{LINE, Tag};

use super::ChunkStore;

const LINES_BITS: u32 = 15;
const LINES_MASK: u64 = (1 << LINES_BITS) - 1;

/// The whole lines that hold these bytes of a chunk.
pub(super) fn lines(bytes: &Range<usize>) -> Range<usize> {
    bytes.start - bytes.start % LINE..bytes.end.next_multiple_of(LINE)
}

fn encode(timestamp: u64, bytes: &Range<usize>) -> u64 {
    let (first, end) = (bytes.start / LINE, bytes.end / LINE);
    timestamp << (2 * LINES_BITS) | (first as u64) << LINES_BITS | end as u64
}

impl<M> ChunkStore<M> {
    fn difference(&self, slot: u64) -> &AtomicU64 {
        match &self.board {
            Some(board) => board.slot_word(slot as usize),
            None => &self.differences[slot as usize],
        }
    }

    /// The lines in which the chunks of a slot differ, of which the one with this tag counts; `None`: any. A
    /// chunk of it is about to be written to.
    pub(super) fn take_difference(&self, slot: u64, counts: &Tag) -> Option<Range<usize>> {
        let word = self.difference(slot).load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        self.difference(slot).store(0, Ordering::Relaxed);
        // What follows changes the chunk, and the process may be killed in it.
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        let line = |shift: u32| (word >> shift & LINES_MASK) as usize;
        let bytes = line(LINES_BITS) * LINE..line(0) * LINE;
        (counts.is_valid() && word == encode(counts.timestamp, &bytes)).then_some(bytes)
    }

    /// A write has made the chunk count that has this timestamp, and changed these bytes of what the other
    /// one has.
    pub(super) fn note_difference(&self, slot: u64, timestamp: u64, bytes: &Range<usize>) {
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        self.difference(slot).store(encode(timestamp, &lines(bytes)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_longest_chunk_fit() {
        let whole = 0..1 << 20;
        assert_eq!(encode(1, &whole) & LINES_MASK, (1 << 20) / LINE as u64);
        assert_eq!(lines(&(63..65)), 0..128);
        assert_eq!(lines(&(64..128)), 64..128);
        assert_ne!(encode(1, &whole), encode(2, &whole));
    }
}
