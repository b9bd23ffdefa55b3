//! After a txg has become durable: readers see it.
//!
//! Order: the new tables first, then the layers go, object by object under its lock. So a reader that holds an
//! object finds the txg's changes in a layer or in the tables, and one that began with the old tables has ended
//! before the blocks that it may look at are given out again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::ids::Txg;
use crate::object::ObjectCore;
use crate::state::Shared;
use crate::sync::Dirty;
use crate::sync_util::{lock, write};
use crate::tables;

/// Longer blocks do not go into the cache when they are written: who writes them writes streams, whose memory is better
/// used again at once.
const CACHED_BYTES_MAX: usize = 64 << 10;

impl Shared {
    /// The txg is durable: shows it to readers, drops its layers, gives its free space out.
    pub(crate) fn publish(&self, txg: Txg, dirty: Vec<Dirty>) -> Result<()> {
        write(&self.namespace).going.retain(|_, (destroyed, _)| *destroyed > txg);
        *write(&self.snapshot) = Arc::new(tables::Snapshot::take(&self.database)?);
        for Dirty { core, layer, bytes } in dirty {
            // Before the layer goes and without the object's lock: as long as the layer is there, nobody looks into the
            // cache for what is in it.
            for cleared in layer.cleared.iter() {
                self.forget(&core, cleared);
            }
            let mut evicted = Vec::new();
            for (block, bytes) in &layer.blocks {
                let key = (core.dataset.0, core.id.0, *block);
                if layer.is_destroyed || bytes.len() > CACHED_BYTES_MAX {
                    self.cache.remove(&key);
                } else {
                    // Who wrote it may well read it; the cache keeps what is read more often all the same.
                    self.cache.insert_with_lifecycle(key, bytes.clone(), &mut evicted);
                }
            }
            {
                let mut contents = write(&core.contents);
                contents.layers.retain(|layer| layer.txg != txg);
                contents.synced_size_bytes = layer.size_bytes;
            }
            let layer = Arc::into_inner(layer).expect("nobody else keeps a layer");
            // What is in the cache now has two owners, and stays there.
            self.buffers.give(layer.blocks.into_values());
            self.buffers.give(evicted.into_iter());
            self.pipeline.dropped(bytes);
        }
        self.free_held(txg);
        let _nobody_reads = write(&self.reuse);
        let mut allocator = lock(&self.allocator);
        allocator.release();
        allocator.note_synced();
        self.free_bytes.store(allocator.usable_bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Drops cached blocks of a cleared range.
    fn forget(&self, core: &ObjectCore, blocks: std::ops::Range<u64>) {
        if blocks.end - blocks.start < self.cache.len() as u64 {
            for block in blocks {
                self.cache.remove(&(core.dataset.0, core.id.0, block));
            }
        } else {
            let is_other = |key: &(u64, u64, u64)| {
                (key.0, key.1) != (core.dataset.0, core.id.0) || !blocks.contains(&key.2)
            };
            self.cache.retain(|key, _| is_other(key));
        }
    }
}
