//! Open objects: reads and writes by users.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ObjectId, Txg};
use crate::objects::buffers::{Block, own};
use crate::objects::extent::{Extent, unpack};
use crate::objects::object::{Contents, Found, Layer, ObjectCore};
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
    /// Charges the rows of references to the layer that was changed.
    pub(crate) fn charge_counts(&self, layer: &mut Layer) {
        layer.charged += Charge::rows(self.counts);
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
        read(&self.core.contents).size_bytes
    }

    /// The newest txg with changes of this object that is not durable yet; `None` if all are. Changes that
    /// return while this is called may be missed.
    pub fn unsynced_txg(&self) -> Option<Txg> {
        read(&self.core.contents).layers.last().map(|layer| layer.txg)
    }

    /// Fills `buf` from `offset` on and returns how many bytes there were: fewer at the end of the object.
    /// Holes read as zeroes.
    ///
    /// # Errors
    /// [`PoolError::DamagedBlock`] with the location if no copy has its checksum; `buf` is then unspecified.
    /// [`PoolError::Closed`], also for what is in memory.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.shared.check_alive_for_reads()?;
        let contents = read(&self.core.contents);
        self.check_there()?;
        let len = contents.size_bytes.saturating_sub(offset).min(buf.len() as u64) as usize;
        let block_bytes = u64::from(self.core.block_bytes);
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (block, within) = (at / block_bytes, (at % block_bytes) as usize);
            let part_len = (block_bytes as usize - within).min(len - done);
            self.read_block(
                &contents,
                contents.layers.len(),
                block,
                within,
                &mut buf[done..done + part_len],
            )?;
            done += part_len;
        }
        Ok(len)
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
        self.check_there()?;
        if !may_grow && end > contents.size_bytes {
            return Err(PoolError::BeyondEnd { end, size_bytes: contents.size_bytes });
        }
        let counts = self.rows_of_counts(tx, &contents, &blocks, &(0..0))
            + self.rows_of_past(tx, &contents, &blocks)
            + copied.len() as u64;
        let held = self.hold_room(tx, &contents, Claim::Data, (count, last - first + 1), &(0..0), counts)?;
        let index = self.layer(&mut contents, tx);
        if is_ready && index + 1 == contents.layers.len() {
            for (block, slot) in blocks.zip(&mut ready) {
                let bytes = slot.take().expect("copied above");
                *slot = contents.replace(index, block, bytes);
            }
            contents.layer_mut(index).note_copied(copied);
            self.grow(&mut contents, index, end);
            held.charge_counts(contents.layer_mut(index));
            self.settle(held, &contents);
            drop(contents);
            let replaced =
                ready.into_iter().flatten().map(|old| self.shared.blocks.buffers.give_back(old)).count();
            self.shared.txgs.pipeline.add_dirty((count - replaced as u64) * block_bytes);
            return Ok(());
        }
        let written = self.write_parts(&mut contents, index, offset, data);
        if written.is_ok() {
            contents.layer_mut(index).note_copied(copied);
            self.grow(&mut contents, index, end);
        }
        held.charge_counts(contents.layer_mut(index));
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
        self.shared.reserve(&self.dataset, reserved, tx.claim(claim))?;
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

    pub(crate) fn check_there(&self) -> Result<()> {
        if self.core.is_destroyed.load(Ordering::SeqCst) {
            return Err(PoolError::NoObject { dataset: self.core.dataset, object: self.core.id });
        }
        Ok(())
    }

    pub(crate) fn check_writable(&self, tx: &Tx) -> Result<()> {
        assert!(Arc::ptr_eq(&self.shared, &tx.home.shared), "a transaction of this pool");
        self.core.check_born(tx.txg())?;
        if !tx.is_replay() && read(&self.dataset.effective).is_read_only() {
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

    fn grow(&self, contents: &mut Contents, index: usize, end: u64) {
        contents.size_bytes = contents.size_bytes.max(end);
        for later in index..contents.layers.len() {
            let layer = contents.layer_mut(later);
            layer.size_bytes = layer.size_bytes.max(end);
        }
    }

    /// Writes block by block.
    fn write_parts(&self, contents: &mut Contents, index: usize, offset: u64, data: &[u8]) -> Result<()> {
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
        let new_bytes =
            contents.put(index, block, within, part, before, block_bytes, &self.shared.blocks.buffers);
        self.shared.txgs.pipeline.add_dirty(new_bytes);
        Ok(())
    }

    /// Part of a block, as seen through the layers older than `below`.
    pub(crate) fn read_block(
        &self,
        contents: &Contents,
        below: usize,
        block: u64,
        within: usize,
        out: &mut [u8],
    ) -> Result<()> {
        match contents.find(block, below) {
            Found::Bytes(bytes) => out.copy_from_slice(&bytes[within..within + out.len()]),
            Found::Zeroes => out.fill(0),
            Found::Below => {
                let key = (self.core.dataset.0, self.core.id.0, block);
                if let Some(bytes) = self.shared.blocks.cache.get(&key) {
                    out.copy_from_slice(&bytes[within..within + out.len()]);
                    return Ok(());
                }
                match self.shared.tables.explained(self.shared.read_synced(key, self.core.block_bytes))? {
                    Some(bytes) => {
                        out.copy_from_slice(&bytes[within..within + out.len()]);
                        self.shared.blocks.cache.insert(key, bytes.into());
                    }
                    None => out.fill(0),
                }
            }
        }
        Ok(())
    }
}

impl Shared {
    /// A block of the last synced txg; `None` for a hole. The caller holds the object's lock.
    fn read_synced(&self, key: (u64, u64, u64), block_bytes: u32) -> Result<Option<Vec<u8>>> {
        self.check_alive_for_reads()?;
        let (dataset, object, block) = key;
        let snapshot = self.tables.current();
        let Some(extent) = snapshot.extent(key)? else { return Ok(None) };
        let damaged = |place| PoolError::DamagedBlock {
            dataset: DatasetId(dataset),
            object: ObjectId(object),
            offset: block * u64::from(block_bytes),
            place,
        };
        let read = |piece: &Extent| {
            let len = piece.stored_bytes as usize;
            match self.devices.vdevs.read_verified(piece.place, len, piece.sum, "data") {
                Err(PoolError::Damaged { place, .. }) => Err(damaged(place)),
                other => other.map(|(stored, _)| stored),
            }
        };
        let mut bytes = vec![0; block_bytes as usize];
        let is_whole = if extent.is_in_pieces() {
            let mut joined = Vec::with_capacity(extent.stored_bytes as usize);
            for piece in snapshot.pieces(&extent)? {
                joined.extend_from_slice(&read(&piece)?[..piece.stored_bytes as usize]);
            }
            unpack(&joined, &extent, &mut bytes)
        } else {
            unpack(&read(&extent)?[..extent.stored_bytes as usize], &extent, &mut bytes)
        };
        is_whole.ok_or_else(|| damaged(extent.place))?;
        Ok(Some(bytes))
    }

    /// Refuses reads of a pool that is closed; what is in memory of a suspended one can be read.
    #[inline]
    pub(crate) fn check_alive_for_reads(&self) -> Result<()> {
        if self.is_closed.load(Ordering::SeqCst) { Err(PoolError::Closed) } else { Ok(()) }
    }
}
