//! Tokens and notes: whether a block still has the bytes that were stored.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use crate::ids::Txg;
use crate::objects::handle::Object;
use crate::objects::object::Contents;
use crate::objects::stored::{Part, StoreRequest};
use fastness_sync::order::{lock, read, write};

impl Contents {
    /// Blocks are changed in layer `index`, and so in the newer ones: what is stored of them, and what they
    /// were copied from, is no longer their contents.
    pub(crate) fn forget_stored(&mut self, index: usize, blocks: Range<u64>) {
        let storing = self.storing.get_mut().unwrap_or_else(PoisonError::into_inner);
        storing.forget(&blocks);
        for later in index..self.layers.len() {
            if !self.layers[later].stored.is_empty() {
                self.layer_mut(later).stored.retain(|block, _| !blocks.contains(block));
            }
            if !self.layers[later].copied.is_empty() {
                self.layer_mut(later).copied.retain(|block, _| !blocks.contains(block));
            }
        }
    }

    /// The bytes of a block, if the open txg was the last to change it, and they are not stored already.
    fn storable(&self, block: u64, open: Txg) -> Option<&[u8]> {
        let has_it = |layer: &&Arc<crate::objects::object::Layer>| {
            layer.blocks.contains_key(&block) || layer.cleared.contains(block)
        };
        // A block that is being written out, or will be next, is best left to that: its txg can no longer
        // adopt it.
        let layer = self.layers.iter().rev().find(has_it).filter(|layer| layer.txg == open)?;
        if layer.is_destroyed || layer.stored.contains_key(&block) {
            return None;
        }
        layer.blocks.get(&block)?.bytes()
    }
}

impl Object {
    /// Whole blocks of a range, within the object.
    pub(super) fn whole_blocks(&self, request: &StoreRequest<'_>) -> Range<u64> {
        let block_bytes = u64::from(self.core.block_bytes);
        let end = request.offset.saturating_add(request.len_bytes).min(self.size_bytes());
        let (first, last) = (request.offset.div_ceil(block_bytes), end / block_bytes);
        first..last.max(first)
    }

    /// Shows the bytes of the blocks that can be stored, with a token for each.
    pub(super) fn capture(&self, blocks: Range<u64>, open: Txg, show: &mut dyn FnMut(u64, u64, &[u8])) {
        let contents = read(&self.core.contents);
        let block_bytes = u64::from(self.core.block_bytes);
        for block in blocks {
            // The object may have been truncated since.
            if (block + 1) * block_bytes > contents.size_bytes() {
                return;
            }
            let Some(bytes) = contents.storable(block, open) else { continue };
            if let Some(token) = lock(&contents.storing).begin(block) {
                show(block, token, bytes);
            }
        }
    }

    /// Ends the storing of blocks, and notes those that `txg`, whose transaction the caller holds, can adopt.
    pub(super) fn end_storing<'p>(&self, parts: impl Iterator<Item = &'p Part>, txg: Option<Txg>) {
        let mut contents = write(&self.core.contents);
        let index = contents.layers.iter().position(|layer| Some(layer.txg) == txg);
        for part in parts {
            let storing = contents.storing.get_mut().unwrap_or_else(PoisonError::into_inner);
            let is_same = storing.end(part.block, part.token);
            let (Some(index), Some(extent), true) = (index, part.extent, is_same) else { continue };
            // Unchanged since an open txg that was no newer than this one: if this txg's layer has the block,
            // the two are the same txg.
            if contents.layers[index].blocks.contains_key(&part.block) {
                contents.layer_mut(index).stored.insert(part.block, extent);
            }
        }
    }
}
