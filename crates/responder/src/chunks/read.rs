//! Reads, and what a truncation needs to know and to give up.

use crate::error::Error;
use crate::file::File;
use crate::group::which_holds;
use crate::medium::CacheMedium;
use crate::tag::Status;

use super::load::{ATTEMPTS, Seen, read_below, seen};
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
                self.read_chunks::<1, 1>(file, here, part, first, run)?;
            } else {
                self.read_chunks::<WRITE_CHUNKS_MAX, WRITE_GROUPS_MAX>(file, here, part, first, run)?;
            }
            done = (end - offset) as usize;
        }
        Ok(())
    }

    /// Reads chunks as they are at one moment.
    fn read_chunks<const N: usize, const G: usize>(
        &self,
        file: &File,
        offset: u64,
        buffer: &mut [u8],
        first: u64,
        run: Run,
    ) -> Result<(), Error> {
        // What the buffer has of the backing store, and what was noted when it was read.
        let mut below: [Option<Seen>; N] = [None; N];
        let mut attempt = 0;
        loop {
            let mut locked = Locked::<M, G>::new(self, run)?;
            let mut lacking = [false; N];
            let mut counts = (0, 0);
            for at in 0..run.chunks {
                let (start, range) = self.part_of(first + at as u64, offset, buffer.len());
                let (group, slot) = locked.at(self.slot(file.key, first + at as u64));
                let tags = group.tags(slot)?;
                match which_holds(&tags, file.key, first + at as u64) {
                    Some(which) => {
                        group.read_chunk(2 * slot + which, start, &mut buffer[range])?;
                        (below[at], counts.0) = (None, counts.0 + 1);
                    }
                    None => {
                        let now = Some(seen(&tags));
                        lacking[at] = below[at] != now;
                        (below[at], counts.1) = (now, counts.1 + 1);
                    }
                }
            }
            if !lacking.contains(&true) {
                let group = locked.at(run.slot).0;
                group.counts.read_hits += counts.0;
                group.counts.read_misses += counts.1;
                return Ok(());
            }
            let held = (attempt == ATTEMPTS).then_some(locked);
            attempt += 1;
            self.read_lacking(file, offset, buffer, first, &lacking[..run.chunks])?;
            if held.is_some() {
                return Ok(());
            }
        }
    }

    /// Reads from the backing store what is marked, chunks that follow each other at once.
    fn read_lacking(
        &self,
        file: &File,
        offset: u64,
        buffer: &mut [u8],
        first: u64,
        lacking: &[bool],
    ) -> Result<(), Error> {
        let mut at = 0;
        while at < lacking.len() {
            let count = lacking[at..].iter().take_while(|&&lacks| lacks).count();
            if count > 0 {
                let from = self.part_of(first + at as u64, offset, buffer.len()).1.start;
                let to = self.part_of(first + (at + count - 1) as u64, offset, buffer.len()).1.end;
                read_below(file, offset + from as u64, &mut buffer[from..to])?;
            }
            at += count.max(1);
        }
        Ok(())
    }

    /// Where a read begins in a chunk, and what of its buffer the chunk fills.
    fn part_of(&self, index: u64, offset: u64, len: usize) -> (usize, std::ops::Range<usize>) {
        let start = self.geometry.offset_of(index);
        let from = start.max(offset);
        let to = (start + self.geometry.chunk_bytes).min(offset + len as u64);
        ((from - start) as usize, (from - offset) as usize..(to - offset) as usize)
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
