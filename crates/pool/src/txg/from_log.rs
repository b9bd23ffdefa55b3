//! The bytes of blocks that a sync writes, also of those that only a log has.

use std::collections::BTreeSet;

use crate::codec::sum_of_lost;
use crate::ids::Txg;
use crate::objects::extent::Extent;
use crate::objects::in_log::LayerBlock;
use crate::objects::object::ObjectCore;
use crate::state::Shared;
use crate::upkeep::damage::Found;

/// Stands for the bytes of a block that the log has lost: not zeroes, which would be a hole.
const LOST: u8 = 0xee;

/// Blocks of an object that are being written; one buffer for all that are read from a log.
#[derive(Default)]
pub(super) struct Loaded {
    read: Vec<u8>,
    /// The blocks that the log did not give back.
    lost: BTreeSet<u64>,
}

impl Loaded {
    /// Reads what a log has of these blocks, each once.
    pub(super) fn load(&mut self, shared: &Shared, core: &ObjectCore, part: &[(u64, &LayerBlock)]) {
        let block_bytes = core.block_bytes as usize;
        let in_log = |(block, data): &(u64, &LayerBlock)| match data {
            LayerBlock::InLog(in_log) => Some((*block, *in_log)),
            LayerBlock::InMemory(_) => None,
        };
        let count = part.iter().filter_map(in_log).count();
        if self.read.len() < count * block_bytes {
            self.read.resize(count * block_bytes, 0);
        }
        for ((block, in_log), out) in part.iter().filter_map(in_log).zip(self.read.chunks_mut(block_bytes)) {
            if shared.read_in_log((core.dataset, core.id, block), &in_log, 0, out).is_err() {
                out.fill(LOST);
                self.lost.insert(block);
            }
        }
    }

    /// The bytes of the blocks that were loaded last.
    pub(super) fn bytes<'b>(
        &'b self,
        core: &ObjectCore,
        part: &[(u64, &'b LayerBlock)],
    ) -> Vec<(u64, &'b [u8])> {
        let mut read = self.read.chunks(core.block_bytes as usize);
        let mut bytes = |data: &'b LayerBlock| data.bytes().or_else(|| read.next()).expect("each was loaded");
        part.iter().map(|(block, data)| (*block, bytes(data))).collect()
    }

    /// A lost block has a checksum that nothing has: whoever reads it gets an error. It is listed as damaged.
    pub(super) fn seal(&self, shared: &Shared, core: &ObjectCore, block: u64, txg: Txg, extent: &mut Extent) {
        if !self.lost.contains(&block) {
            return;
        }
        extent.sum = sum_of_lost(extent.sum);
        let mut found = Found::default();
        found.block((core.dataset.0, core.id.0, block), extent.place, txg.0);
        shared.note_damage(found, false);
    }
}
