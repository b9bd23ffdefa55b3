//! A group of slots: the bytes of PM that one lock guards.

use fastness_pmem::NoSum;

use crate::error::Error;
use crate::medium::CacheMedium;
use crate::stats::Counts;
use crate::tag::{LINE, Seed, Status, Tag};

/// Slots that follow each other, with their tags and chunks.
///
/// Shape: the chunks of slot `s` are `2 * s` and `2 * s + 1`, and so are their tags.
/// Persistence: nothing is durable before [`fence`](Self::fence); whoever releases the group has fenced what
/// it stored.
#[derive(Debug)]
pub(crate) struct Group<M> {
    tags: M,
    chunks: M,
    chunk_bytes: usize,
    seed: Seed,
    /// Chunks with dirty data.
    pub(crate) dirty: u64,
    pub(crate) counts: Counts,
}

impl<M: CacheMedium> Group<M> {
    pub(crate) fn new(tags: M, chunks: M, chunk_bytes: usize, seed: Seed) -> Group<M> {
        Group { tags, chunks, chunk_bytes, seed, dirty: 0, counts: Counts::default() }
    }

    /// How many chunks it has.
    pub(crate) fn len(&self) -> usize {
        self.tags.len_bytes() / LINE
    }

    pub(crate) fn tag(&self, chunk: usize) -> Result<Tag, Error> {
        let mut line = [0; LINE];
        self.tags.read(chunk * LINE, &mut line)?;
        Tag::decode(&line, self.seed).map_err(|_| self.damaged(chunk))
    }

    /// Both tags of a slot.
    pub(crate) fn tags(&self, slot: usize) -> Result<[Tag; 2], Error> {
        let mut lines = [[0; LINE]; 2];
        self.tags.read(2 * slot * LINE, lines.as_flattened_mut())?;
        let tag =
            |which: usize| Tag::decode(&lines[which], self.seed).map_err(|_| self.damaged(2 * slot + which));
        Ok([tag(0)?, tag(1)?])
    }

    /// The error of a tag that cannot be.
    pub(crate) fn damaged(&self, chunk: usize) -> Error {
        Error::Tag { region_offset: self.tags.region_offset() + (chunk * LINE) as u64 }
    }

    /// Stores a tag. If it differs from the one that is there in nothing but its status, that is one word,
    /// and a crash leaves either.
    pub(crate) fn set_tag(&mut self, chunk: usize, tag: &Tag) {
        self.tags.copy(chunk * LINE, &tag.encode(), LINE, &mut NoSum);
        let bit = 1 << chunk;
        self.dirty = if tag.is_dirty() { self.dirty | bit } else { self.dirty & !bit };
    }

    /// Empties the tag of a chunk, whatever is in it.
    pub(crate) fn invalidate(&mut self, chunk: usize) -> Result<(), Error> {
        let tag = self.tag(chunk)?;
        self.set_tag(chunk, &tag.with_status(Status::INVALID));
        Ok(())
    }

    /// The chunk of a slot that holds chunk `index` of a file, its newer copy if there are two.
    pub(crate) fn find(&self, slot: usize, key: u64, index: u64) -> Result<Option<(usize, Tag)>, Error> {
        let tags = self.tags(slot)?;
        Ok(which_holds(&tags, key, index).map(|which| (2 * slot + which, tags[which])))
    }

    pub(crate) fn read_chunk(&self, chunk: usize, at: usize, buffer: &mut [u8]) -> Result<(), Error> {
        Ok(self.chunks.read(chunk * self.chunk_bytes + at, buffer)?)
    }

    /// Copies whole lines into a chunk.
    pub(crate) fn copy_chunk(&mut self, chunk: usize, at: usize, data: &[u8]) {
        self.chunks.copy(chunk * self.chunk_bytes + at, data, data.len(), &mut NoSum);
    }

    /// Makes everything durable that was stored to the group.
    pub(crate) fn fence(&mut self) -> Result<(), Error> {
        // PERSIST: of tags and chunks alike; each caller says what it orders.
        self.tags.fence_both(&mut self.chunks).map_err(|failed| {
            let [first, second] = failed.0;
            Error::Persist(first.or(second).expect("one of them failed"))
        })
    }

    /// Starts to write back all tags, and the chunks that hold dirty data: a process that died may have left
    /// them in the CPU's caches.
    pub(crate) fn write_back(&mut self) -> Result<(), Error> {
        // PERSIST: the recovery fences before it acts on what it reads, so a power cut cannot take that away.
        self.tags.write_back(0, self.tags.len_bytes());
        for chunk in 0..self.len() {
            if self.tag(chunk)?.is_dirty() {
                self.chunks.write_back(chunk * self.chunk_bytes, self.chunk_bytes);
            }
        }
        Ok(())
    }
}

/// Which of a slot's two chunks holds chunk `index` of a file, the newer one if both do.
pub(crate) fn which_holds(tags: &[Tag; 2], key: u64, index: u64) -> Option<usize> {
    let copies = (0..2).filter(|&which: &usize| tags[which].holds(key, index));
    copies.max_by_key(|&which| tags[which].status.has(Status::NEW))
}
