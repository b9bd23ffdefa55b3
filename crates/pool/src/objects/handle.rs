//! Open objects: writes by users.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ObjectId, Txg};
use crate::objects::buffers::{Block, own};
use crate::objects::in_log::LayerBlock;
use crate::objects::object::{Contents, ObjectCore};
use crate::objects::origin::Copied;
use crate::pool::Tx;
use crate::space::room::{Charge, Claim, rows_of};
use crate::state::Shared;
use crate::state::datasets::DatasetCore;
use fastness_sync::order::{read, write};

/// Room reserved for a change, and what the layers had been charged before it.
#[derive(Debug)]
#[must_use = "what is not settled stays reserved"]
pub(crate) struct Held {
    reserved: Charge,
    before: Charge,
    /// Rows of the table of references.
    counts: u64,
}

impl Held {
    /// Others may have changed the layers since it was reserved.
    pub(super) fn counted_anew(self, contents: &Contents) -> Held {
        Held { before: contents.charged(), ..self }
    }

    /// Charges the rows of references to the layer that was changed.
    pub(crate) fn charge_counts(&self, contents: &mut Contents, index: usize) {
        if self.counts > 0 {
            contents.layer_mut(index).charged += Charge::rows(self.counts);
        }
    }
}

/// Most whole blocks that a write copies before it takes the object's lock.
const READY_BLOCKS: usize = 16;

/// An open object: sparse bytes that change in transactions.
///
/// Persistence: a change is durable when its transaction's txg has synced, see
/// [`Pool::wait_synced`](crate::Pool::wait_synced). A crash leaves all changes of a txg or none of them.
/// Concurrency: any number of threads; reads see every change that has returned. A write that spans several
/// blocks is one step for readers of this object. Two overlapping writes take effect one after the other.
pub struct Object {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dataset: Arc<DatasetCore>,
    pub(crate) core: Arc<ObjectCore>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({} {})", self.core.dataset, self.core.id)
    }
}

impl Clone for Object {
    fn clone(&self) -> Object {
        self.core.handles.fetch_add(1, Ordering::SeqCst);
        Object { shared: self.shared.clone(), dataset: self.dataset.clone(), core: self.core.clone() }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.core.handles.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Object {
    pub(crate) fn new(shared: Arc<Shared>, dataset: Arc<DatasetCore>, core: Arc<ObjectCore>) -> Object {
        core.handles.fetch_add(1, Ordering::SeqCst);
        Object { shared, dataset, core }
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.core.id
    }

    /// Its dataset.
    pub fn dataset_id(&self) -> DatasetId {
        self.core.dataset
    }

    /// Unit of storage and of checksums; a write of whole blocks reads nothing.
    pub fn block_bytes(&self) -> u32 {
        self.core.block_bytes
    }

    /// Length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.core.size_bytes()
    }

    /// The newest txg with changes of this object that is not durable yet; `None` if all are. Changes that
    /// return while this is called may be missed.
    pub fn unsynced_txg(&self) -> Option<Txg> {
        read(&self.core.contents).layers.last().map(|layer| layer.txg)
    }

    /// Writes `data` at `offset`; the object grows if needed.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]: nothing was written; [`PoolError::ReadOnly`]; [`PoolError::Overtaken`] for a
    /// transaction that began before the object was created, in an older txg; and errors of reading a block
    /// that is only partly overwritten: the blocks before it are then written.
    pub fn write(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        self.put(tx, offset, data, true, &Copied::new())
    }

    /// Writes inside the object, which does not grow, even if another thread shrinks it meanwhile.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`PoolError::BeyondEnd`], and nothing was changed.
    pub fn overwrite(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        self.put(tx, offset, data, false, &Copied::new())
    }

    /// Writes; notes which of the blocks were `copied`.
    pub(super) fn put(
        &self,
        tx: &Tx,
        offset: u64,
        data: &[u8],
        may_grow: bool,
        copied: &Copied,
    ) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.check_writable(tx)?;
        let end = self.check_range(offset, data.len() as u64)?;
        let block_bytes = u64::from(self.core.block_bytes);
        let blocks = offset / block_bytes..(end - 1) / block_bytes + 1;
        let count = blocks.end - blocks.start;
        // A few whole blocks are copied before locking, so that writers of one object copy in parallel.
        let is_whole = offset.is_multiple_of(block_bytes) && end.is_multiple_of(block_bytes);
        let mut ready = [const { None }; READY_BLOCKS];
        let is_ready = is_whole && count <= READY_BLOCKS as u64;
        if is_ready {
            let copies =
                data.chunks(block_bytes as usize).map(|part| self.shared.blocks.buffers.copy_of(part));
            ready.iter_mut().zip(copies).for_each(|(slot, block)| *slot = Some(block));
        }
        let (first, last) = rows_of(&blocks);
        let mut contents = write(&self.core.contents);
        self.check_end(&contents, end, may_grow)?;
        let counts = self.rows_of_counts(tx, &contents, &blocks, &(0..0))
            + self.rows_of_past(tx, &contents, &blocks)
            + copied.len() as u64;
        let held = self.hold_room(tx, &contents, Claim::Data, (count, last - first + 1), &(0..0), counts)?;
        let index = self.layer(&mut contents, tx);
        if is_ready && index + 1 == contents.layers.len() {
            let mut replaced = 0;
            for (block, slot) in blocks.zip(&mut ready) {
                let bytes = LayerBlock::InMemory(slot.take().expect("copied above"));
                let old = contents.replace(index, block, bytes);
                replaced += u64::from(old.is_some());
                *slot = old.and_then(LayerBlock::into_buffer);
            }
            contents.note_copied(index, copied);
            self.grow(&mut contents, index, end);
            held.charge_counts(&mut contents, index);
            self.settle(held, &contents);
            drop(contents);
            ready.into_iter().flatten().for_each(|old| self.shared.blocks.buffers.give_back(old));
            self.shared.txgs.pipeline.add_dirty((count - replaced) * block_bytes);
            return Ok(());
        }
        let written = self.write_parts(&mut contents, index, offset, data);
        if written.is_ok() {
            contents.note_copied(index, copied);
            self.grow(&mut contents, index, end);
        }
        held.charge_counts(&mut contents, index);
        self.settle(held, &contents);
        written
    }

    /// Reserves room for a change in the transaction's layer and in newer ones: at most `blocks` blocks in
    /// `rows` rows are written, and `cleared` ones cleared; `counts` rows of the table of references change.
    /// The caller [settles](Self::settle) it once the change was made or has failed.
    pub(crate) fn hold_room(
        &self,
        tx: &Tx,
        contents: &Contents,
        claim: Claim,
        blocks_and_rows: (u64, u64),
        cleared: &Range<u64>,
        counts: u64,
    ) -> Result<Held> {
        let block_bytes = self.core.block_bytes as usize;
        let mut reserved = contents.charge_of(tx.txg(), block_bytes, blocks_and_rows, cleared);
        reserved += Charge::rows(counts);
        let claim = self.shared.claim_of(&self.dataset, &self.core, tx.claim(claim));
        self.shared.reserve(&self.dataset, reserved, claim)?;
        Ok(Held { reserved, before: contents.charged(), counts })
    }

    /// Releases what was reserved but not charged to any layer.
    pub(crate) fn settle(&self, held: Held, contents: &Contents) {
        self.shared.settle(&self.dataset, held.reserved, contents.charged() - held.before);
    }

    /// The end of the range, if the range is valid.
    pub(crate) fn check_range(&self, offset: u64, len_bytes: u64) -> Result<u64> {
        let end = offset.checked_add(len_bytes).filter(|end| *end <= 1 << 62);
        end.ok_or_else(|| PoolError::invalid("range", format!("{len_bytes} bytes at {offset}")))
    }

    /// Refuses a write to an object that is gone, or one that would make it longer, if it may not grow.
    pub(super) fn check_end(&self, contents: &Contents, end: u64, may_grow: bool) -> Result<()> {
        self.check_there()?;
        let size_bytes = contents.size_bytes();
        let is_inside = may_grow || end <= size_bytes;
        if is_inside { Ok(()) } else { Err(PoolError::BeyondEnd { end, size_bytes }) }
    }

    pub(crate) fn check_there(&self) -> Result<()> {
        if self.core.is_destroyed.load(Ordering::SeqCst) {
            return Err(PoolError::NoObject { dataset: self.core.dataset, object: self.core.id });
        }
        Ok(())
    }

    pub(crate) fn check_writable(&self, tx: &Tx) -> Result<()> {
        assert!(Arc::ptr_eq(&self.shared, &tx.home.shared), "a transaction of this pool");
        self.core.check_born(tx.txg())?;
        if !tx.is_replay() && self.dataset.effective.is_read_only() {
            return Err(PoolError::ReadOnly(read(&self.shared.datasets.namespace).path(self.core.dataset.0)));
        }
        Ok(())
    }

    /// The transaction's layer; a new one is added to its txg's list.
    pub(crate) fn layer(&self, contents: &mut Contents, tx: &Tx) -> usize {
        let (index, is_new) = contents.layer(tx.txg());
        if is_new {
            self.shared.txgs.changes(tx.txg()).objects.push(self.core.clone());
        }
        index
    }

    /// A write that makes nothing longer, as most do, changes nothing here.
    pub(super) fn grow(&self, contents: &mut Contents, index: usize, end: u64) {
        if end > contents.size_bytes() {
            contents.set_size_bytes(end);
        }
        for later in index..contents.layers.len() {
            if end > contents.layers[later].size_bytes {
                contents.layer_mut(later).size_bytes = end;
            }
        }
    }

    /// Writes block by block.
    pub(super) fn write_parts(
        &self,
        contents: &mut Contents,
        index: usize,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let block_bytes = u64::from(self.core.block_bytes);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (block, within) = (at / block_bytes, (at % block_bytes) as usize);
            let part = &data[done..data.len().min(done + block_bytes as usize - within)];
            self.write_block(contents, index, block, within, part)?;
            done += part.len();
        }
        Ok(())
    }

    pub(crate) fn write_block(
        &self,
        contents: &mut Contents,
        index: usize,
        block: u64,
        within: usize,
        part: &[u8],
    ) -> Result<()> {
        let block_bytes = self.core.block_bytes as usize;
        let needs_rest = part.len() < block_bytes && !contents.layers[index].blocks.contains_key(&block);
        let before = if needs_rest {
            let mut bytes = Block::from(vec![0; block_bytes]);
            self.read_block(contents, index + 1, block, 0, own(&mut bytes))?;
            Some(bytes)
        } else {
            None
        };
        if part.len() < block_bytes {
            self.take_into_memory(contents, index, block)?;
        }
        let new_bytes =
            contents.put(index, block, within, part, before, block_bytes, &self.shared.blocks.buffers);
        self.shared.txgs.pipeline.add_dirty(new_bytes);
        Ok(())
    }

    /// Reads a block into memory where layer `index` or a newer one has it in a log.
    fn take_into_memory(&self, contents: &mut Contents, index: usize, block: u64) -> Result<()> {
        for later in index..contents.layers.len() {
            let Some(LayerBlock::InLog(in_log)) = contents.layers[later].blocks.get(&block) else { continue };
            let mut bytes = Block::from(vec![0; self.core.block_bytes as usize]);
            self.shared.read_in_log((self.core.dataset, self.core.id, block), in_log, 0, own(&mut bytes))?;
            contents.layer_mut(later).blocks.insert(block, LayerBlock::InMemory(bytes));
        }
        Ok(())
    }
}
