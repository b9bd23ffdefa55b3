//! Blocks of a layer that are in a log, and not in memory as well.
//!
//! Motivation: a synchronous write is durable in the log before it returns, checksummed, and stays there for
//! as long as it is dirty. A copy in memory would cost a third of the whole write, and its size.
//!
//! Design: the owner of the log writes the record first, within the transaction; the layer then gets the
//! record's place instead of the bytes. Whoever needs the bytes reads them there: readers, a write of a part
//! of the block (which takes them into memory), the sync. The log keeps the record at least until the hooks
//! of its txg have returned, which are called after the layers were dropped (`publish`); so no place outlives
//! its record. See `docs/adr/2026-11-28-one-copy.md`.
//!
//! A record that the log does not give back is an error with its place, never other bytes. The sync stores
//! such a block with a checksum that nothing has, and lists it as damaged.

use std::sync::Arc;

use fastness_base::{LogPlace, ReadLogged};

use crate::error::{LostBlock, PoolError, Result};
use crate::ids::{DatasetId, ObjectId};
use crate::objects::buffers::{Block, own};
use crate::objects::handle::Object;
use crate::objects::in_log::{InLog, LayerBlock};
use crate::objects::object::{Blocks, Layer, ObjectCore};
use crate::pool::{Pool, Tx};
use crate::space::room::{Claim, rows_of};
use crate::state::Shared;
use fastness_sync::order::write;

impl Pool {
    /// Makes a log known whose records may stand for blocks ([`Object::overwrite_logged`]); returns the
    /// number that places in it have.
    pub fn add_log(&self, log: Arc<dyn ReadLogged>) -> u32 {
        self.shared.blocks.logs.add(log)
    }

    /// Forgets a log in which no block is any more: every txg with a record in it has synced.
    pub fn forget_log(&self, number: u32) {
        self.shared.blocks.logs.forget(number);
    }
}

impl Shared {
    /// Fills `out` with bytes of a block that is in a log.
    pub(crate) fn read_in_log(
        &self,
        (dataset, object, block): (DatasetId, ObjectId, u64),
        in_log: &InLog,
        within: usize,
        out: &mut [u8],
    ) -> Result<()> {
        self.blocks.logs.read(in_log, within, out).map_err(|lost| {
            let offset = block * u64::from(in_log.len_bytes);
            PoolError::LostInLog(LostBlock { dataset, object, offset, lost })
        })
    }
}

impl Shared {
    /// The layer with all of its blocks in memory, but for those that a log has lost.
    pub(crate) fn in_memory(&self, core: &ObjectCore, layer: &Arc<Layer>) -> Arc<Layer> {
        if layer.blocks.values().all(|data| data.bytes().is_some()) {
            return layer.clone();
        }
        let mut blocks = Blocks::default();
        for (block, data) in &layer.blocks {
            let bytes = match data {
                LayerBlock::InMemory(bytes) => Ok(bytes.clone()),
                LayerBlock::InLog(in_log) => {
                    let mut bytes = Block::from(vec![0; data.len()]);
                    let key = (core.dataset, core.id, *block);
                    self.read_in_log(key, in_log, 0, own(&mut bytes)).map(|()| bytes)
                }
            };
            if let Ok(bytes) = bytes {
                blocks.insert(*block, LayerBlock::InMemory(bytes));
            }
        }
        Arc::new(layer.with_blocks(blocks))
    }
}

impl Object {
    /// As [`overwrite`](Self::overwrite), of whole blocks that a log may have. `log` is called once there is
    /// room for the write, before it is made, without a lock of the object: it logs the write, and returns
    /// what the caller gets, and the place of a record that has all of `data`, in one piece from byte
    /// `front_bytes` of its body on, in a log that the pool [knows](Pool::add_log). Without a place, or where
    /// a newer txg has changed the object already, the bytes are copied into memory.
    ///
    /// The caller keeps changes of overlapping ranges out.
    ///
    /// # Errors
    /// As [`overwrite`](Self::overwrite); the write may be in the log all the same, if another thread has
    /// changed the size of the object, or has made it a part of newer txgs, meanwhile.
    ///
    /// # Panics
    /// Caller bug only: the range is not of whole blocks, or is empty.
    pub fn overwrite_logged<T>(
        &self,
        tx: &Tx,
        offset: u64,
        data: &[u8],
        front_bytes: u32,
        log: impl FnOnce() -> (T, Option<LogPlace>),
    ) -> Result<T> {
        self.put_logged(tx, offset, data, false, front_bytes, log)
    }

    /// As [`write`](Self::write), otherwise as [`overwrite_logged`](Self::overwrite_logged): the object grows
    /// if needed. The caller keeps changes of its size out, too.
    ///
    /// # Errors
    /// As [`write`](Self::write); the write may be in the log all the same, if the object was destroyed
    /// meanwhile.
    ///
    /// # Panics
    /// As there.
    pub fn write_logged<T>(
        &self,
        tx: &Tx,
        offset: u64,
        data: &[u8],
        front_bytes: u32,
        log: impl FnOnce() -> (T, Option<LogPlace>),
    ) -> Result<T> {
        self.put_logged(tx, offset, data, true, front_bytes, log)
    }

    #[inline]
    fn put_logged<T>(
        &self,
        tx: &Tx,
        offset: u64,
        data: &[u8],
        may_grow: bool,
        front_bytes: u32,
        log: impl FnOnce() -> (T, Option<LogPlace>),
    ) -> Result<T> {
        assert!(self.is_whole_blocks(offset, data.len()), "whole blocks");
        self.check_writable(tx)?;
        let end = self.check_range(offset, data.len() as u64)?;
        let block_bytes = self.core.block_bytes;
        let blocks = offset / u64::from(block_bytes)..end / u64::from(block_bytes);
        let (first, last) = rows_of(&blocks);
        let shape = (blocks.end - blocks.start, last - first + 1);
        let held = {
            let contents = write(&self.core.contents);
            self.check_end(&contents, end, may_grow)?;
            let counts = self.rows_of_counts(tx, &contents, &blocks, &(0..0))
                + self.rows_of_past(tx, &contents, &blocks);
            self.hold_room(tx, &contents, Claim::Data, shape, &(0..0), counts)?
        };
        let (answer, place) = log();
        let mut contents = write(&self.core.contents);
        let held = held.counted_anew(&contents);
        if let Err(error) = self.check_end(&contents, end, may_grow) {
            self.settle(held, &contents);
            return Err(error);
        }
        let index = self.layer(&mut contents, tx);
        let is_newest = index + 1 == contents.layers.len();
        let done = match place.filter(|_| is_newest) {
            Some(place) => {
                let mut new_blocks = 0;
                for (number, block) in blocks.enumerate() {
                    let within = front_bytes + number as u32 * block_bytes;
                    let in_log = InLog { place, within, len_bytes: block_bytes };
                    let old = contents.replace(index, block, LayerBlock::InLog(in_log));
                    new_blocks += u64::from(old.is_none());
                    if let Some(buffer) = old.and_then(LayerBlock::into_buffer) {
                        self.shared.blocks.buffers.give_back(buffer);
                    }
                }
                self.shared.txgs.pipeline.add_dirty(new_blocks * u64::from(block_bytes));
                Ok(())
            }
            None => self.write_parts(&mut contents, index, offset, data),
        };
        if done.is_ok() {
            self.grow(&mut contents, index, end);
        }
        held.charge_counts(&mut contents, index);
        self.settle(held, &contents);
        done.map(|()| answer)
    }

    /// Whether a synchronous write is to be in the log alone: the pool's `logdata` says so, and the range is
    /// of whole blocks.
    #[inline]
    pub fn is_for_the_log_alone(&self, offset: u64, len_bytes: usize) -> bool {
        self.shared.blocks.logs.is_only_copy() && self.is_whole_blocks(offset, len_bytes)
    }

    /// Whether a range is of whole blocks, and not empty.
    fn is_whole_blocks(&self, offset: u64, len_bytes: usize) -> bool {
        let block_bytes = u64::from(self.core.block_bytes);
        len_bytes > 0 && offset.is_multiple_of(block_bytes) && (len_bytes as u64).is_multiple_of(block_bytes)
    }
}
