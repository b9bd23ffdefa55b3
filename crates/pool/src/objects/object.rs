//! Objects: sparse bytes, the newest of which are in DRAM until their txg has synced.
//!
//! Design: an object has a *layer* for each unsynced txg that changed it: whole blocks that were written,
//! ranges that were cleared, the size. A read searches from the newest layer down, then the last synced
//! state. Only transactions of the same txg change a layer, so once the txg has quiesced, the txg thread can
//! write out its layer without a lock. If a transaction of an older txg makes a change after one of a newer
//! txg (both were open), the change is applied to the newer layers as well: readers see whatever came last.
//!
//! Concurrency: the object's lock is held shared during reads (device reads included: the txg thread takes it
//! exclusively before blocks of an old state may be reused) and exclusively during changes.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use fastness_base::NumberHasher;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ObjectId, Txg};
use crate::objects::buffers::{Block, Buffers, own};
use crate::objects::extent::{Extent, GROUP_BLOCKS};
use crate::objects::in_log::{InLog, LayerBlock};
use crate::objects::origin::{Copied, Source};
use crate::objects::ranges::Ranges;
use crate::objects::storing::Storing;
use crate::objects::taken::Taken;
use crate::space::room::{Charge, rows_of};

/// Memory that a cleared range counts for: as much as a block. So when memory ends a txg, it has about as
/// many table changes, whether it holds writes or discards.
pub(crate) const RANGE_BYTES: u64 = 4096;

pub(crate) type Blocks = HashMap<u64, LayerBlock, BuildHasherDefault<NumberHasher>>;

/// Changes of one txg.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) txg: Txg,
    /// Whole blocks; they win over `cleared`.
    pub(crate) blocks: Blocks,
    /// The blocks whose bytes are already durable in their final places (`stored`).
    pub(crate) stored: BTreeMap<u64, Extent>,
    /// The blocks that were copied from others (`copied`).
    pub(crate) copied: BTreeMap<u64, Source>,
    /// Blocks that read as zeroes unless in `blocks`.
    pub(crate) cleared: Ranges,
    /// Size when the txg ends.
    pub(crate) size_bytes: u64,
    pub(crate) is_destroyed: bool,
    /// What is reserved for the layer, see `room`.
    pub(crate) charged: Charge,
    /// The row of extents that was charged last.
    last_row: Option<u64>,
}

impl Layer {
    fn new(txg: Txg, size_bytes: u64) -> Layer {
        Layer {
            txg,
            blocks: Blocks::default(),
            stored: BTreeMap::new(),
            copied: BTreeMap::new(),
            cleared: Ranges::default(),
            size_bytes,
            is_destroyed: false,
            charged: Charge::object(),
            last_row: None,
        }
    }

    /// Bytes of memory that the layer counts for: its blocks, and its cleared ranges.
    pub(crate) fn bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.values().map(|block| block.len() as u64).sum();
        blocks + self.cleared.len() as u64 * RANGE_BYTES
    }

    /// The same changes, with these blocks.
    pub(crate) fn with_blocks(&self, blocks: Blocks) -> Layer {
        Layer {
            blocks,
            stored: self.stored.clone(),
            copied: self.copied.clone(),
            cleared: self.cleared.clone(),
            ..*self
        }
    }

    fn charge_row(&mut self, row: u64) {
        if self.last_row != Some(row) {
            self.last_row = Some(row);
            self.charged += Charge::rows(1);
        }
    }

    /// Puts a whole block; returns the previous one.
    fn insert(&mut self, block: u64, bytes: LayerBlock) -> Option<LayerBlock> {
        let block_bytes = bytes.len();
        let before = self.blocks.insert(block, bytes);
        if before.is_none() {
            self.charge_row(block / GROUP_BLOCKS);
            self.charged += Charge::block(block_bytes);
        }
        before
    }

    fn note_copied(&mut self, copied: &Copied) {
        for (block, source) in copied {
            if self.blocks.contains_key(block) {
                self.copied.insert(*block, *source);
            }
        }
    }

    /// Clears whole blocks. Returns the change of [`bytes`](Self::bytes).
    fn clear(&mut self, blocks: &Range<u64>, block_bytes: usize) -> i64 {
        let (held, ranges) = (self.blocks.len(), self.cleared.len());
        self.blocks.retain(|block, _| !blocks.contains(block));
        let gone = held - self.blocks.len();
        self.charged -= Charge::block(block_bytes) * gone as u64;
        if !self.cleared.covers(blocks) {
            self.cleared.insert(blocks.clone());
            let (first, last) = rows_of(blocks);
            self.charge_row(first);
            self.charge_row(last);
            self.charged += charge_of_clearing(blocks, block_bytes);
        }
        (self.cleared.len() as i64 - ranges as i64) * RANGE_BYTES as i64 - (gone * block_bytes) as i64
    }
}

/// What clearing whole blocks takes besides the rows at both ends: rows of pieces, or the row that says that
/// freeing continues.
fn charge_of_clearing(blocks: &Range<u64>, block_bytes: usize) -> Charge {
    if is_freed_at_once(blocks) {
        Charge::freed(block_bytes) * (blocks.end - blocks.start)
    } else {
        Charge::rows(1)
    }
}

/// Whether a txg frees a cleared range whatever else it frees: the range is within two rows.
pub(crate) fn is_freed_at_once(blocks: &Range<u64>) -> bool {
    let (first, last) = rows_of(blocks);
    last - first <= 1
}

/// What the layers know about a block.
pub(crate) enum Found<'a> {
    Bytes(&'a [u8]),
    InLog(&'a InLog),
    Zeroes,
    /// Look at the synced state.
    Below,
}

#[derive(Debug)]
pub(crate) struct Contents {
    /// [`ObjectCore::size_bytes`].
    size_bytes: Arc<AtomicU64>,
    /// Size below all layers: a layer that is created after a newer one starts with it.
    pub(crate) synced_size_bytes: u64,
    /// Oldest first.
    pub(crate) layers: Vec<Arc<Layer>>,
    /// Blocks that are being stored ahead of their txg.
    pub(crate) storing: Mutex<Storing>,
}

/// An object that is open or has unsynced changes. In its own cache lines: threads that work on objects
/// adjacent in memory do not share any.
#[repr(align(128))]
pub(crate) struct ObjectCore {
    pub(crate) dataset: DatasetId,
    pub(crate) id: ObjectId,
    pub(crate) block_bytes: u32,
    /// The txg that creates it; no older one may change it.
    pub(crate) born: Txg,
    /// Its length. Changed with `contents` locked alone, and read without a lock.
    size_bytes: Arc<AtomicU64>,
    pub(crate) contents: RwLock<Contents>,
    pub(crate) is_destroyed: AtomicBool,
    /// Handles held by users.
    pub(crate) handles: AtomicUsize,
    pub(crate) taken: Taken,
}

impl ObjectCore {
    pub(crate) fn new(
        dataset: DatasetId,
        id: ObjectId,
        born: Txg,
        block_bytes: u32,
        size_bytes: u64,
    ) -> ObjectCore {
        let size = Arc::new(AtomicU64::new(size_bytes));
        ObjectCore {
            dataset,
            id,
            block_bytes,
            born,
            size_bytes: Arc::clone(&size),
            contents: RwLock::new(Contents {
                size_bytes: size,
                synced_size_bytes: size_bytes,
                layers: Vec::new(),
                storing: Mutex::default(),
            }),
            is_destroyed: AtomicBool::new(false),
            handles: AtomicUsize::new(0),
            taken: Taken::new(born > Txg(0)),
        }
    }
}

impl ObjectCore {
    /// Length in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Refuses a change in a txg that does not have the object yet: a crash between the two would leave half
    /// of the change.
    pub(crate) fn check_born(&self, txg: Txg) -> Result<()> {
        if txg < self.born { Err(PoolError::Overtaken { txg, newest: self.born }) } else { Ok(()) }
    }
}

impl Contents {
    /// What the layers older than `below` (an index) know about a block.
    pub(crate) fn find(&self, block: u64, below: usize) -> Found<'_> {
        for layer in self.layers[..below].iter().rev() {
            match layer.blocks.get(&block) {
                Some(LayerBlock::InMemory(bytes)) => return Found::Bytes(bytes),
                Some(LayerBlock::InLog(in_log)) => return Found::InLog(in_log),
                None => {}
            }
            if layer.cleared.contains(block) {
                return Found::Zeroes;
            }
        }
        Found::Below
    }

    /// Length of the object in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_size_bytes(&mut self, size_bytes: u64) {
        self.size_bytes.store(size_bytes, Ordering::Release);
    }

    /// Index of the txg's layer, and whether it is new.
    pub(crate) fn layer(&mut self, txg: Txg) -> (usize, bool) {
        let at = self.layers.partition_point(|layer| layer.txg < txg);
        let is_new = self.layers.get(at).is_none_or(|layer| layer.txg != txg);
        if is_new {
            let size_bytes = match at.checked_sub(1) {
                Some(before) => self.layers[before].size_bytes,
                None => self.synced_size_bytes,
            };
            self.layers.insert(at, Arc::new(Layer::new(txg, size_bytes)));
        }
        (at, is_new)
    }

    /// The object's dataset is destroyed in `txg`: that txg and newer ones store nothing of the object.
    pub(crate) fn destroy_from(&mut self, txg: Txg) {
        for index in self.layers.partition_point(|layer| layer.txg < txg)..self.layers.len() {
            self.layer_mut(index).is_destroyed = true;
        }
    }

    /// Largest size in the layer of `txg`, which may not exist yet, and in the newer ones: from there on all
    /// of them read as zeroes.
    pub(crate) fn size_max(&self, txg: Txg) -> u64 {
        let at = self.layers.partition_point(|layer| layer.txg < txg);
        let before = at.checked_sub(1).map_or(self.synced_size_bytes, |at| self.layers[at].size_bytes);
        let is_new = self.layers.get(at).is_none_or(|layer| layer.txg != txg);
        let own = if is_new { before } else { 0 };
        self.layers[at..].iter().map(|layer| layer.size_bytes).fold(self.size_bytes().max(own), u64::max)
    }

    /// Notes where blocks came from that were just written to a layer.
    pub(crate) fn note_copied(&mut self, index: usize, copied: &Copied) {
        if !copied.is_empty() {
            self.layer_mut(index).note_copied(copied);
        }
    }

    /// The layer, for changing it.
    pub(crate) fn layer_mut(&mut self, index: usize) -> &mut Layer {
        Arc::get_mut(&mut self.layers[index])
            .expect("the txg thread shares a layer after its txg has quiesced only")
    }

    /// What all layers were charged.
    pub(crate) fn charged(&self) -> Charge {
        self.layers.iter().fold(Charge::default(), |sum, layer| sum + layer.charged)
    }

    /// The most that a change in a transaction of `txg` may be charged: for each layer that it may change,
    /// `blocks` whole blocks in `rows` rows, and `cleared` blocks.
    pub(crate) fn charge_of(
        &self,
        txg: Txg,
        block_bytes: usize,
        (blocks, rows): (u64, u64),
        cleared: &Range<u64>,
    ) -> Charge {
        let newer = self.layers.iter().filter(|layer| layer.txg >= txg).count() as u64;
        let is_new = self.layers.iter().all(|layer| layer.txg != txg);
        let mut charge = Charge::block(block_bytes) * blocks + Charge::rows(rows);
        if !cleared.is_empty() {
            charge += Charge::rows(2) + charge_of_clearing(cleared, block_bytes);
        }
        let own = if is_new { Charge::object() } else { Charge::default() };
        charge * (newer + u64::from(is_new)) + own
    }

    /// Puts `data` into one block of layer `index` and of the newer ones. `before` is the block's previous
    /// contents, if `data` covers only part of it and the layer does not have it; no layer has it in a log
    /// then. Returns how many bytes of buffers were created.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn put(
        &mut self,
        index: usize,
        block: u64,
        within: usize,
        data: &[u8],
        before: Option<Block>,
        block_bytes: usize,
        buffers: &Buffers,
    ) -> u64 {
        let mut before = before;
        let mut new_bytes = 0;
        self.forget_stored(index, block..block + 1);
        for later in index..self.layers.len() {
            let layer = self.layer_mut(later);
            let bytes = if let Some(found) = layer.blocks.get_mut(&block) {
                match found {
                    LayerBlock::InMemory(bytes) => {
                        own(bytes)[within..within + data.len()].copy_from_slice(data);
                    }
                    LayerBlock::InLog(_) => {
                        debug_assert_eq!(data.len(), block_bytes, "what stays was taken into memory");
                        *found = LayerBlock::InMemory(buffers.copy_of(data));
                    }
                }
                continue;
            } else if later == index {
                match before.take() {
                    None => buffers.copy_of(data),
                    Some(mut bytes) => {
                        own(&mut bytes)[within..within + data.len()].copy_from_slice(data);
                        bytes
                    }
                }
            } else if layer.cleared.contains(block) {
                let mut bytes = Block::from(vec![0; block_bytes]);
                own(&mut bytes)[within..within + data.len()].copy_from_slice(data);
                bytes
            } else {
                continue;
            };
            debug_assert_eq!(bytes.len(), block_bytes, "a layer holds whole blocks");
            new_bytes += bytes.len() as u64;
            layer.insert(block, LayerBlock::InMemory(bytes));
        }
        new_bytes
    }

    /// Puts a whole block into layer `index`, the newest. Returns the previous one.
    pub(crate) fn replace(&mut self, index: usize, block: u64, bytes: LayerBlock) -> Option<LayerBlock> {
        self.forget_stored(index, block..block + 1);
        self.layer_mut(index).insert(block, bytes)
    }

    /// Clears whole blocks in layer `index` and the newer ones. Returns the change of bytes in memory.
    pub(crate) fn clear(&mut self, index: usize, blocks: Range<u64>, block_bytes: usize) -> i64 {
        if blocks.is_empty() {
            return 0;
        }
        self.forget_stored(index, blocks.clone());
        (index..self.layers.len()).map(|later| self.layer_mut(later).clear(&blocks, block_bytes)).sum()
    }
}
