//! Where copied bytes came from; see `copied`.

use std::ops::Range;

use crate::metadata::tables::ExtentKey;
use crate::objects::extent::Extent;

/// A stored block: which one, and where it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(super) key: ExtentKey,
    pub(super) extent: Extent,
}

/// Where bytes that were read are stored, for [`crate::Object::write_copy`].
#[derive(Debug, Clone)]
pub struct Origin {
    pub(super) offset: u64,
    pub(super) block_bytes: u32,
    /// Of each whole block, in order, from the first after `offset` on.
    pub(super) sources: Vec<Option<Source>>,
}

/// Blocks of an object that share their places with others: number, source.
pub(crate) type Copied = Vec<(u64, Source)>;

/// The whole blocks of a range.
pub(super) fn whole_blocks(offset: u64, len_bytes: u64, block_bytes: u32) -> Range<u64> {
    let block_bytes = u64::from(block_bytes);
    let (first, last) = (offset.div_ceil(block_bytes), offset.saturating_add(len_bytes) / block_bytes);
    first..last.max(first)
}
