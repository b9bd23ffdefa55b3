//! Reads: from the layers, the newest first, then from the cache or the medium.

use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ObjectId};
use crate::objects::extent::{Extent, unpack};
use crate::objects::handle::Object;
use crate::objects::object::{Contents, Found};
use crate::state::Shared;
use fastness_sync::order::read;

impl Object {
    /// Fills `buf` from `offset` on and returns how many bytes there were: fewer at the end of the object.
    /// Holes read as zeroes.
    ///
    /// # Errors
    /// [`PoolError::DamagedBlock`] or [`PoolError::LostInLog`] with the location if no copy has its checksum;
    /// `buf` is then unspecified.
    /// [`PoolError::Closed`], also for what is in memory.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.shared.check_alive_for_reads()?;
        let contents = read(&self.core.contents);
        self.check_there()?;
        let len = contents.size_bytes().saturating_sub(offset).min(buf.len() as u64) as usize;
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
            Found::InLog(in_log) => {
                self.shared.read_in_log((self.core.dataset, self.core.id, block), in_log, within, out)?;
            }
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
