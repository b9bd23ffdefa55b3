//! Which parts of an object are stored, so that a copy can skip the rest.

use std::ops::Range;

use crate::error::Result;
use crate::objects::extent::GROUP_BLOCKS;
use crate::objects::handle::Object;
use crate::objects::object::{Contents, Found};
use fastness_sync::order::read;

/// Most rows that one call reads, so that a call for a huge range ends soon.
const ROWS_MAX: usize = 8192;
/// Rows held in memory at one time.
const STEP_ROWS: usize = 256;

/// A run of bytes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Length in bytes; not 0.
    pub len_bytes: u64,
    /// Not stored; reads as zeroes. Other bytes may be zeroes too.
    pub is_hole: bool,
}

impl Object {
    /// Appends the segments from `offset` on, in order and without gaps, at most `segments_max` of them and
    /// none past the end of the object or of the range. May stop early, but not before the first.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn segments(
        &self,
        offset: u64,
        len_bytes: u64,
        segments_max: usize,
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        self.shared.check_alive_for_reads()?;
        let contents = read(&self.core.contents);
        let end = offset.saturating_add(len_bytes).min(contents.size_bytes());
        if offset >= end {
            return Ok(());
        }
        let block_bytes = u64::from(self.core.block_bytes);
        let blocks = offset / block_bytes..end.div_ceil(block_bytes);
        let (stored, known_to) = self.stored_blocks(&contents, blocks)?;
        let end = end.min(known_to.saturating_mul(block_bytes));
        let mut at = offset;
        let first = segments.len();
        let mut push = |until: u64, is_hole: bool| {
            if until <= at {
                return;
            }
            let len_bytes = until - at;
            at = until;
            match segments[first..].last_mut() {
                Some(last) if last.is_hole == is_hole => last.len_bytes += len_bytes,
                _ => segments.push(Segment { len_bytes, is_hole }),
            }
        };
        for block in stored {
            push((block * block_bytes).min(end), true);
            push(((block + 1) * block_bytes).min(end), false);
        }
        push(end, true);
        segments.truncate(first + segments_max.max(1));
        Ok(())
    }

    /// The stored blocks of the range, in order, and the block up to which the result is complete.
    fn stored_blocks(&self, contents: &Contents, blocks: Range<u64>) -> Result<(Vec<u64>, u64)> {
        let layers = contents.layers.len();
        let mut stored = Vec::new();
        let object = (self.core.dataset.0, self.core.id.0);
        let groups = blocks.start / GROUP_BLOCKS..(blocks.end - 1) / GROUP_BLOCKS + 1;
        let snapshot = self.shared.tables.current();
        let (mut known_to, mut from, mut rows) = (blocks.end, groups.start, 0);
        while from < groups.end {
            if rows >= ROWS_MAX {
                known_to = known_to.min(from * GROUP_BLOCKS);
                break;
            }
            let found = snapshot.rows_of(object, from..groups.end, STEP_ROWS)?;
            rows += found.len();
            from = found.last().map_or(groups.end, |(key, _)| key.2 + 1);
            for (key, extents) in found {
                stored.extend(snapshot.alive(key, &extents).map(|(block, _)| block));
            }
        }
        stored.retain(|block| matches!(contents.find(*block, layers), Found::Below));
        for layer in &contents.layers {
            let dirty = layer.blocks.keys().copied();
            stored.extend(
                dirty.filter(|block| {
                    matches!(contents.find(*block, layers), Found::Bytes(_) | Found::InLog(_))
                }),
            );
        }
        stored.retain(|block| (blocks.start..known_to).contains(block));
        stored.sort_unstable();
        stored.dedup();
        Ok((stored, known_to))
    }
}
