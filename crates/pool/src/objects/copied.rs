//! Copies that share their blocks with what they were copied from.
//!
//! Motivation: a copied file takes no space of its own until one of the two changes, and its blocks are not
//! written again.
//!
//! Design: a copy is a write like any other: its bytes are in the layer, room is reserved for them, and the
//! log records them. In addition the layer notes the block that they came from, if that was as the last
//! synced txg has it. The sync of the layer's txg looks whether the tables still have that block, with the
//! same extent; then the new block names the same place, and one more block is counted there (`references`).
//! If not, the bytes are written. So nothing has to keep the source as it is, and neither replay nor what a
//! suspended pool carries over knows of sharing.
//!
//! What only shares is charged like what is written, and a row more for the count. Once a place may have
//! several blocks, a change that frees blocks is charged a row for each, as a count may change.
//!
//! Blocks in pieces are not shared; nor are those of a vdev with a side that is being brought up to date: the
//! walk over all blocks may have passed the copy, and not have come to the source, which then goes.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::namespace::settings::Feature;
use crate::objects::extent::Extent;
use crate::objects::handle::Object;
use crate::objects::object::{Contents, Found, is_freed_at_once};
use crate::objects::origin::{Copied, Origin, Source, whole_blocks};
use crate::pool::Tx;
use crate::state::Shared;
use crate::txg::dirty::Dirty;
use fastness_sync::order::read;

impl Object {
    /// As [`read`](Self::read); also returns where the whole blocks of the range are stored, if they were the
    /// same before and after.
    ///
    /// # Errors
    /// As there.
    pub fn read_to_copy(&self, offset: u64, buf: &mut [u8]) -> Result<(usize, Origin)> {
        let blocks = whole_blocks(offset, buf.len() as u64, self.core.block_bytes);
        let mut sources = self.sources(&blocks)?;
        let len = self.read(offset, buf)?;
        // What was written meanwhile has another extent now, or is in a layer.
        for (before, after) in sources.iter_mut().zip(self.sources(&blocks)?) {
            *before = before.filter(|before| after.is_some_and(|after| after.extent == before.extent));
        }
        Ok((len, Origin { offset, block_bytes: self.core.block_bytes, sources }))
    }

    /// Where blocks are stored that no layer has.
    fn sources(&self, blocks: &Range<u64>) -> Result<Vec<Option<Source>>> {
        let contents = read(&self.core.contents);
        let snapshot = self.shared.tables.current();
        let source = |block| {
            if !matches!(contents.find(block, contents.layers.len()), Found::Below) {
                return Ok(None);
            }
            let key = (self.core.dataset.0, self.core.id.0, block);
            let extent = self.shared.tables.explained(snapshot.extent(key))?;
            Ok(extent.filter(|extent| !extent.is_in_pieces()).map(|extent| Source { key, extent }))
        };
        blocks.clone().map(source).collect()
    }

    /// As [`write`](Self::write), for bytes that [`read_to_copy`](Self::read_to_copy) of any object of this
    /// pool has read: blocks that are the same in both share their space from the sync of the transaction's
    /// txg on, if the source is then still stored as it was. Only whole blocks do, of equal size in both
    /// objects, as long as the two ranges begin at the same place within a block.
    ///
    /// # Errors
    /// As there.
    pub fn write_copy(&self, tx: &Tx, offset: u64, data: &[u8], origin: &Origin) -> Result<()> {
        let copied = self.copied(offset, data.len() as u64, origin);
        if copied.is_empty() || !self.shared.begin_sharing(tx) {
            return self.write(tx, offset, data);
        }
        self.put(tx, offset, data, true, &copied)
    }

    fn copied(&self, offset: u64, len_bytes: u64, origin: &Origin) -> Copied {
        let block_bytes = u64::from(self.core.block_bytes);
        let is_aligned = offset % block_bytes == origin.offset % block_bytes;
        if origin.block_bytes != self.core.block_bytes || !is_aligned {
            return Vec::new();
        }
        let blocks = whole_blocks(offset, len_bytes, self.core.block_bytes);
        blocks.zip(&origin.sources).filter_map(|(block, source)| Some((block, (*source)?))).collect()
    }

    /// Whether a place of the pool may have several blocks.
    pub(crate) fn may_share(&self) -> bool {
        self.shared.space.has_shared.load(Ordering::SeqCst)
    }

    /// Rows of counts that a change may touch: one for each block that the transaction's layer newly writes
    /// or clears, once places may have several blocks.
    pub(crate) fn rows_of_counts(
        &self,
        tx: &Tx,
        contents: &Contents,
        written: &Range<u64>,
        cleared: &Range<u64>,
    ) -> u64 {
        if !self.may_share() {
            return 0;
        }
        let layer = contents.layers.iter().find(|layer| layer.txg == tx.txg());
        let is_new = |block: &u64| layer.is_none_or(|layer| !layer.blocks.contains_key(block));
        let is_cleared = cleared.is_empty() || layer.is_some_and(|layer| layer.cleared.covers(cleared));
        let at_once = !is_cleared && is_freed_at_once(cleared);
        written.clone().filter(is_new).count() as u64 + if at_once { cleared.end - cleared.start } else { 0 }
    }
}

impl Shared {
    /// Makes the pool one with shared blocks, in the transaction that is the first to have some. `false`: it
    /// cannot, so what is copied is to be written.
    fn begin_sharing(&self, tx: &Tx) -> bool {
        let can_share = self.activate(tx, Feature::SharedBlocks);
        if can_share {
            self.space.has_shared.store(true, Ordering::SeqCst);
        }
        can_share
    }

    /// Blocks of a layer that can share the place of their source: number, extent. To be called before
    /// anything of the txg is stored; the caller counts them.
    pub(crate) fn shareable(&self, Dirty { layer, .. }: &Dirty) -> Result<Vec<(u64, Extent)>> {
        if layer.copied.is_empty() || layer.is_destroyed {
            return Ok(Vec::new());
        }
        let snapshot = self.tables.current();
        let mut shareable = Vec::new();
        for (block, source) in &layer.copied {
            let is_there = || Ok::<_, PoolError>(snapshot.extent(source.key)? == Some(source.extent));
            let is_written = || {
                let vdev = self.devices.vdevs.at(source.extent.place, source.extent.units())?;
                Ok::<_, PoolError>(vdev.catches_up())
            };
            if layer.blocks.contains_key(block) && is_there()? && !is_written()? {
                shareable.push((*block, Extent { birth: layer.txg, ..source.extent }));
            }
        }
        Ok(shareable)
    }
}
