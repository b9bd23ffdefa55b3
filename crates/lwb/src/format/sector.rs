//! Sectors: the unit that the medium writes atomically.
//!
//! Each sector of a block ends in a trailer: a *tag*, which no sector of another block or place in the block
//! has, and a sum. A crash leaves a sector old or new. So a sector with only one half of its trailer right
//! was written and has changed since: it is damaged. One with neither half right was never written, as far as
//! can be told.

use std::ops::Range;

use twox_hash::XxHash3_64;

use crate::format::{get_u64, put};
use crate::ids::{BlockSeq, LogGuid};
use crate::space::UNIT_BYTES;

/// Bytes that the medium writes atomically.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Bytes of a sector that hold contents of the block.
const CONTENTS_BYTES: usize = SECTOR_BYTES - 16;
const TAG_AT: usize = CONTENTS_BYTES;
const SUM_AT: usize = TAG_AT + 8;

/// Bytes of contents that fit into a block of `len_bytes`.
pub(crate) fn capacity(len_bytes: u32) -> usize {
    len_bytes as usize / SECTOR_BYTES * CONTENTS_BYTES
}

/// Bytes on the medium of a block with `contents` bytes of contents: whole units.
pub(crate) fn stored_bytes(contents: usize) -> usize {
    (contents.div_ceil(CONTENTS_BYTES) * SECTOR_BYTES).next_multiple_of(UNIT_BYTES as usize)
}

/// What a sector is to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sector {
    /// A whole sector of this block.
    Whole,
    /// A sector of this block that has changed.
    Damaged,
    /// Something else.
    Other,
}

/// The tags of one block's sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tags(u64);

impl Tags {
    pub(crate) fn of(guid: LogGuid, seq: BlockSeq) -> Tags {
        let mut name = [0; 24];
        put(&mut name, 0, guid.to_bytes());
        put(&mut name, 16, seq.0.to_le_bytes());
        Tags(XxHash3_64::oneshot(&name))
    }

    fn of_sector(self, index: usize) -> u64 {
        self.0.wrapping_add(index as u64)
    }

    /// Examines sector `index` of a place that may hold the block.
    pub(crate) fn look(self, index: usize, sector: &[u8]) -> Sector {
        let tag = self.of_sector(index);
        let has_tag = get_u64(sector, TAG_AT) == tag;
        let has_sum = get_u64(sector, SUM_AT) == sum(&sector[..CONTENTS_BYTES], tag);
        match (has_tag, has_sum) {
            (true, true) => Sector::Whole,
            (false, false) => Sector::Other,
            _ => Sector::Damaged,
        }
    }

    /// Writes the trailers of all sectors of a block.
    pub(crate) fn put_trailers(self, block: &mut [u8]) {
        for (index, sector) in block.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            let tag = self.of_sector(index);
            let sum = sum(&sector[..CONTENTS_BYTES], tag);
            put(sector, TAG_AT, tag.to_le_bytes());
            put(sector, SUM_AT, sum.to_le_bytes());
        }
    }
}

/// The sum includes the tag, so it alone identifies the sector as well.
fn sum(contents: &[u8], tag: u64) -> u64 {
    XxHash3_64::oneshot(contents) ^ tag
}

/// Where a range of the contents is in a block: consecutive parts.
fn parts(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let (sector, offset) = (at / CONTENTS_BYTES, at % CONTENTS_BYTES);
        let len = (CONTENTS_BYTES - offset).min(range.end.checked_sub(at).filter(|rest| *rest > 0)?);
        at += len;
        let start = sector * SECTOR_BYTES + offset;
        Some(start..start + len)
    })
}

/// Builds the contents of a block, front to back.
pub(crate) struct Contents<'a> {
    block: &'a mut [u8],
    len: usize,
}

impl<'a> Contents<'a> {
    /// Starts a block, every byte of which will be overwritten.
    pub(crate) fn new(block: &'a mut [u8]) -> Contents<'a> {
        Contents { block, len: 0 }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let mut from = bytes;
        for part in parts(self.len..self.len + bytes.len()) {
            let (now, rest) = from.split_at(part.len());
            self.block[part].copy_from_slice(now);
            from = rest;
        }
        self.len += bytes.len();
    }

    /// Zeroes the rest after the contents, and writes the trailers.
    pub(crate) fn finish(self, tags: Tags) {
        let end = capacity(self.block.len() as u32);
        parts(self.len..end).for_each(|part| self.block[part].fill(0));
        tags.put_trailers(self.block);
    }
}

/// Extracts the contents from the sectors.
pub(crate) fn contents_of(block: &[u8], contents: &mut Vec<u8>) {
    contents.clear();
    block.chunks_exact(SECTOR_BYTES).for_each(|sector| contents.extend_from_slice(&sector[..CONTENTS_BYTES]));
}
