//! Publishing a durable txg to readers.
//!
//! Order: first the new tables are shown, then the layers are dropped, object by object, each under its lock,
//! and then those of rows (`rows`). So a reader that holds an object finds the txg's changes in a layer or in
//! the tables, and a reader that began with the old tables has ended before the blocks that it may read are
//! reused. For the order of what is free and what is reserved: `room`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::ids::{DatasetId, Txg};
use crate::metadata::branches::Branches;
use crate::metadata::snapshot::Snapshot;
use crate::objects::cleared::Cleared;
use crate::objects::in_log::LayerBlock;
use crate::objects::object::{ObjectCore, RANGE_BYTES};
use crate::space::room::Charge;
use crate::space::thick::show_pinned;
use crate::state::Shared;
use crate::txg::dirty::Dirty;
use crate::txg::sync::Outcome;
use fastness_sync::order::{lock, write};

/// Longer blocks are not cached when they are written: they usually belong to streams, whose memory is better
/// reused at once.
const CACHED_BYTES_MAX: usize = 64 << 10;

impl Shared {
    /// The txg is durable: shows it to readers, drops its layers, and makes the space that it freed
    /// available.
    pub(crate) fn publish(&self, txg: Txg, outcome: Outcome) -> Result<()> {
        let Outcome { dirty, rows, cleared, branches, replaced, used, pinned, reserved } = outcome;
        write(&self.datasets.namespace).going.retain(|_, (destroyed, _)| *destroyed > txg);
        // What it has taken is used before it is not reserved any more: nobody may see neither.
        self.note_taken();
        show_pinned(txg, &pinned, || {
            used.iter().for_each(|(dataset, used)| dataset.used_bytes.store(*used, Ordering::SeqCst));
        });
        self.show(cleared, branches)?;
        replaced.iter().for_each(|id| self.forget_dataset(*id, txg));
        for Dirty { core, layer, bytes } in dirty {
            // Before the layer is dropped, and without the object's lock: while the layer exists, no reader
            // looks in the cache for what is in it.
            for cleared in layer.cleared.iter() {
                self.forget(&core, cleared);
            }
            let mut evicted = Vec::new();
            for (block, data) in &layer.blocks {
                let key = (core.dataset.0, core.id.0, *block);
                match data.buffer() {
                    Some(bytes) if !layer.is_destroyed && bytes.len() <= CACHED_BYTES_MAX => {
                        // A block just written may well be read; the cache still keeps what is read more
                        // often.
                        self.blocks.cache.insert_with_lifecycle(key, bytes.clone(), &mut evicted);
                    }
                    _ => drop(self.blocks.cache.remove(&key)),
                }
            }
            {
                let mut contents = write(&core.contents);
                contents.layers.retain(|layer| layer.txg != txg);
                contents.synced_size_bytes = layer.size_bytes;
            }
            let layer = Arc::into_inner(layer).expect("nobody else keeps a layer");
            self.release_charge(txg, core.dataset, layer.charged);
            // What is in the cache now has two owners, and is not taken.
            self.blocks.buffers.give(layer.blocks.into_values().filter_map(LayerBlock::into_buffer));
            self.blocks.buffers.give(evicted.into_iter());
            self.txgs.pipeline.dropped(bytes);
        }
        for dirty in rows {
            dirty.drop_layer();
            self.space.room.give(dirty.layer.charged.total());
            self.txgs.pipeline.dropped(dirty.layer.bytes);
        }
        self.space.room.give(reserved);
        self.free_held(txg);
        // A scrub may hold this up; until then what the txg freed counts as used.
        let _nobody_reads = write(&self.space.reuse);
        lock(&self.space.allocator).release();
        self.note_taken();
        Ok(())
    }

    /// Shows the new tables to readers.
    fn show(&self, cleared: Arc<Cleared>, branches: Arc<Branches>) -> Result<()> {
        let ranges = cleared.len() as i64 - self.tables.current().cleared.len() as i64;
        self.txgs.pipeline.change_dirty(ranges * RANGE_BYTES as i64);
        self.backlog.has_cleared.store(!cleared.is_empty(), Ordering::SeqCst);
        self.backlog.has_pruning.store(branches.has_pruning(), Ordering::SeqCst);
        self.tables.show(Snapshot::take(&self.tables.database, cleared, branches)?);
        Ok(())
    }

    /// What is in memory of a dataset's objects, none of which is open, is no longer so.
    fn forget_dataset(&self, id: DatasetId, txg: Txg) {
        self.blocks.cache.retain(|key, _| key.0 != id.0);
        if let Some(core) = self.datasets.get(id, txg) {
            lock(&core.objects).clear();
        }
    }

    /// Releases the room of a layer that is dropped.
    fn release_charge(&self, txg: Txg, dataset: DatasetId, charged: Charge) {
        if let Some(dataset) = self.datasets.get(dataset, txg) {
            dataset.dirty_bytes.fetch_sub(charged.data, Ordering::SeqCst);
        }
        self.space.room.give(charged.total());
    }

    /// Drops cached blocks of a cleared range.
    fn forget(&self, core: &ObjectCore, blocks: std::ops::Range<u64>) {
        if blocks.end - blocks.start < self.blocks.cache.len() as u64 {
            for block in blocks {
                self.blocks.cache.remove(&(core.dataset.0, core.id.0, block));
            }
        } else {
            let is_other = |key: &(u64, u64, u64)| {
                (key.0, key.1) != (core.dataset.0, core.id.0) || !blocks.contains(&key.2)
            };
            self.blocks.cache.retain(|key, _| is_other(key));
        }
    }
}
