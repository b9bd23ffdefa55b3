//! Reads, and what a truncation needs to know and to give up.

use crate::error::Error;
use crate::file::File;
use crate::medium::CacheMedium;
use crate::tag::Status;

use super::locked::Locked;
use super::{ChunkStore, Run, WRITE_CHUNKS_MAX, WRITE_GROUPS_MAX};

impl<M: CacheMedium> ChunkStore<M> {
    /// Reads chunks from PM, and others from the backing store: its page cache keeps them at the speed of
    /// DRAM, so nothing is placed in PM for a reader.
    pub(super) fn read_file(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        while done < buffer.len() {
            let here = offset + done as u64;
            let first = self.geometry.index_of(here);
            let last = self.geometry.index_of(offset + buffer.len() as u64 - 1);
            let chunks = (last - first + 1).min(WRITE_CHUNKS_MAX as u64).min(self.geometry.slots) as usize;
            let end = self.geometry.offset_of(first + chunks as u64).min(offset + buffer.len() as u64);
            let run = Run { slot: self.slot(file.key, first), chunks };
            let part = &mut buffer[done..(end - offset) as usize];
            if chunks == 1 {
                self.read_chunks::<1>(file, here, part, first, run)?;
            } else {
                self.read_chunks::<WRITE_GROUPS_MAX>(file, here, part, first, run)?;
            }
            done = (end - offset) as usize;
        }
        Ok(())
    }

    fn read_chunks<const G: usize>(
        &self,
        file: &File,
        offset: u64,
        buffer: &mut [u8],
        first: u64,
        run: Run,
    ) -> Result<(), Error> {
        let mut locked = Locked::<M, G>::new(self, run)?;
        let mut rest = buffer;
        let mut here = offset;
        for index in first..first + run.chunks as u64 {
            let start = self.geometry.offset_of(index);
            let len = rest.len().min((start + self.geometry.chunk_bytes - here) as usize);
            let part;
            (part, rest) = rest.split_at_mut(len);
            let (group, slot) = locked.at(self.slot(file.key, index));
            if let Some((chunk, _)) = group.find(slot, file.key, index)? {
                group.read_chunk(chunk, (here - start) as usize, part)?;
                group.counts.read_hits += 1;
            } else {
                let got = file.backing.read_at(here, part).map_err(Error::backing("read a file"))?;
                part[got..].fill(0);
                group.counts.read_misses += 1;
            }
            here += len as u64;
        }
        Ok(())
    }

    pub(super) fn dirty_bytes_before(&self, file: &File, size: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let index = self.geometry.index_of(size);
        let start = self.geometry.offset_of(index);
        let (group, slot) = self.place(file.key, index);
        let group = self.hold(group)?;
        let Some((chunk, _)) = group.find(slot, file.key, index)?.filter(|(_, tag)| tag.is_dirty()) else {
            return Ok(None);
        };
        let mut bytes = vec![0; (size - start) as usize];
        group.read_chunk(chunk, 0, &mut bytes)?;
        Ok(Some((start, bytes)).filter(|(_, bytes)| !bytes.is_empty()))
    }

    pub(super) fn cut_file(&self, file: &File, size: u64, before: u64) -> Result<(), Error> {
        let first = self.geometry.index_of(size);
        let end = before.div_ceil(self.geometry.chunk_bytes);
        if end.saturating_sub(first) < self.geometry.slots {
            for index in first..end {
                let (group, slot) = self.place(file.key, index);
                self.give_up(group, 2 * slot..2 * slot + 2, file.key, first)?;
            }
        } else {
            for group in 0..self.groups.len() {
                self.give_up(group, 0..2 * self.geometry.group_slots() as usize, file.key, first)?;
            }
        }
        Ok(())
    }

    /// Invalidates chunks of the file with `key` from index `first` on.
    pub(super) fn give_up(
        &self,
        group: usize,
        chunks: std::ops::Range<usize>,
        key: u64,
        first: u64,
    ) -> Result<(), Error> {
        let mut group = self.hold(group)?;
        let mut changed = false;
        for chunk in chunks {
            let tag = group.tag(chunk)?;
            if tag.is_valid() && tag.key == key && tag.index >= first {
                group.set_tag(chunk, &tag.with_status(Status::INVALID));
                changed = true;
            }
        }
        if changed {
            // PERSIST: the chunks are invalid before the intent of the truncation, or removal, is wiped.
            // Excludes that they come back in a file that has grown again, or in another one.
            group.fence()?;
        }
        Ok(())
    }
}
