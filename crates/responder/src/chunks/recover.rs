//! What a recovery does with chunks.

use std::collections::BTreeMap;

use fastness_sync::atomic::Ordering;

use crate::backing::FileId;
use crate::error::Error;
use crate::group::Group;
use crate::medium::CacheMedium;
use crate::tag::{Status, Tag};

use super::{ChunkStore, WRITE_CHUNKS_MAX};

/// What the tags say of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) key: u64,
    pub(crate) dirty_chunks: u64,
    /// Where its last dirty chunk ends, in bytes.
    pub(crate) end: u64,
    /// The key of the next file is beyond this many chunks.
    pub(crate) chunks: u64,
    pub(crate) modified_ns: u64,
    /// Its length after the last write.
    pub(crate) size: u64,
    /// Its truncation is not completed: number of the intent, and to which length.
    pub(crate) truncation: Option<(usize, u64)>,
}

impl Found {
    /// Of a file of which nothing is known but its key.
    pub(crate) fn new(key: u64) -> Found {
        Found { key, dirty_chunks: 0, end: 0, chunks: 0, modified_ns: 0, size: 0, truncation: None }
    }
}

/// The files that have dirty chunks.
#[derive(Debug, Default)]
pub(crate) struct DirtyFiles {
    pub(crate) files: BTreeMap<FileId, Found>,
    /// Writes that were undone.
    pub(crate) undone: u64,
    /// Writes in place that were made again.
    pub(crate) redone: u64,
    /// With the protocol Log, after damage, with consent: records that are left out of each file, and others
    /// that are not readable or stand on such.
    pub(crate) left_out: BTreeMap<FileId, u64>,
    pub(crate) unreadable: u64,
    /// With other protocols, with consent: tags and operations that were given up.
    pub(crate) damaged: u64,
}

impl<M: CacheMedium> ChunkStore<M> {
    /// Undoes writes that are not complete, gives up what is clean, and says what there is.
    ///
    /// What is clean may have been changed in the backing store since: the region was not in use.
    ///
    /// With consent (`drops_damaged`), tags and operations that are damaged are given up first.
    ///
    /// Persistence: durable on return. A crash inside leaves a region that is recovered in the same way.
    pub(crate) fn recover(&self, drops_damaged: bool) -> Result<DirtyFiles, Error> {
        let damaged = if drops_damaged { self.drop_damaged()? } else { 0 };
        let redone = self.redo()?;
        let uncommitted = self.give_up_uncommitted()?;
        let mut incomplete = Vec::new();
        let mut last_timestamp = 0;
        self.for_each_group(|group| {
            // PERSIST: what a process that died left in the CPU's caches is durable before anything acts on
            // it. Excludes that a flushed chunk, a clean one then, is again what it was before.
            group.write_back()?;
            group.fence()?;
            for chunk in 0..group.len() {
                let tag = group.tag(chunk)?;
                if !tag.is_valid() {
                    continue;
                }
                if !self.is_possible(&tag) {
                    return Err(group.damaged(chunk));
                }
                last_timestamp = last_timestamp.max(tag.timestamp);
                if tag.status.has(Status::NOT_COMPLETE) {
                    incomplete.push(tag);
                }
            }
            Ok(())
        })?;
        self.last_timestamp().fetch_max(last_timestamp, Ordering::Relaxed);
        for first in &incomplete {
            self.undo(first)?;
        }
        let undone = incomplete.len() as u64 + uncommitted;
        let mut chunks = DirtyFiles { undone, redone, damaged, ..DirtyFiles::default() };
        self.for_each_group(|group| {
            group.dirty = 0;
            for chunk in 0..group.len() {
                let tag = group.tag(chunk)?;
                if tag.is_dirty() {
                    group.dirty |= 1 << chunk;
                    let other = group.tag(chunk ^ 1)?;
                    if !tag.is_superseded_by(&other) {
                        self.count(&mut chunks, &tag)?;
                    }
                } else if tag.is_valid() {
                    group.set_tag(chunk, &tag.with_status(Status::INVALID));
                }
            }
            // PERSIST: what this thread stored to the group is complete before another thread has it.
            group.fence()
        })?;
        let mut keys: Vec<u64> = chunks.files.values().map(|found| found.key).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(_) => Err(Error::Keys { inode: chunks.files.keys().next().map_or(0, |file| file.inode) }),
            None => Ok(chunks),
        }
    }

    /// Whether a valid tag may be that of a write.
    pub(super) fn is_possible(&self, tag: &Tag) -> bool {
        let index_end = i64::MAX as u64 / self.geometry.chunk_bytes;
        tag.index < index_end && tag.chunks as usize <= WRITE_CHUNKS_MAX
    }

    pub(super) fn for_each_group(
        &self,
        mut visit: impl FnMut(&mut Group<M>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for number in 0..self.groups.len() {
            let mut group = self.hold(number)?;
            visit(&mut group)?;
            if group.dirty != 0 {
                self.note_dirty(number);
            }
        }
        Ok(())
    }

    /// Undoes a write of several chunks, whose first has the mark: what it overwrote is still valid.
    fn undo(&self, first: &Tag) -> Result<(), Error> {
        for index in (first.index..first.index + u64::from(first.chunks)).rev() {
            let (group, slot) = self.place(first.key, index);
            let mut group = self.hold(group)?;
            Self::undo_chunk(&mut group, slot, index, first)?;
        }
        Ok(())
    }

    /// Undoes one chunk of it. The chunks after it were undone before.
    pub(super) fn undo_chunk(
        group: &mut Group<M>,
        slot: usize,
        index: u64,
        first: &Tag,
    ) -> Result<(), Error> {
        for chunk in [2 * slot, 2 * slot + 1] {
            let tag = group.tag(chunk)?;
            if tag.holds(first.key, index) && tag.timestamp == first.timestamp {
                group.set_tag(chunk, &tag.with_status(Status::INVALID));
            }
        }
        // PERSIST: the chunk is invalid before those in front of it are, and the first one, which has the
        // mark, comes last. Excludes a crash that leaves a part of the write, and no mark.
        group.fence()
    }

    fn count(&self, chunks: &mut DirtyFiles, tag: &Tag) -> Result<(), Error> {
        let start = self.geometry.offset_of(tag.index);
        let end = start + self.valid_bytes(tag.index, tag.size) as u64;
        let found = chunks.files.entry(tag.file).or_insert_with(|| Found::new(tag.key));
        if found.key != tag.key {
            return Err(Error::Keys { inode: tag.file.inode });
        }
        found.dirty_chunks += 1;
        found.end = found.end.max(end);
        found.chunks = found.chunks.max(tag.index + 1);
        if tag.timestamp > found.modified_ns {
            (found.modified_ns, found.size) = (tag.timestamp, tag.size);
        }
        Ok(())
    }

    /// Whether the file is not in the directory, as far as this process knows.
    pub(super) fn is_orphan(&self, key: u64) -> bool {
        self.files.as_ref().is_some_and(|files| files.by_key(key).is_none())
    }

    /// Dirty chunks of files that are not in the directory.
    pub(crate) fn orphaned_chunks(&self) -> Result<u64, Error> {
        let mut count = 0;
        self.for_each_group(|group| {
            for chunk in (0..group.len()).filter(|chunk| group.dirty >> chunk & 1 == 1) {
                count += u64::from(self.is_orphan(group.tag(chunk)?.key));
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Shows each dirty chunk of a file, in any order: where it begins, and its bytes.
    ///
    /// # Errors
    /// PM cannot be read; those of `see`.
    pub(crate) fn show_dirty(
        &self,
        key: u64,
        see: &mut impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for number in 0..self.groups.len() {
            let mut found = Vec::new();
            let group = self.hold(number)?;
            for chunk in (0..group.len()).filter(|chunk| group.dirty >> chunk & 1 == 1) {
                let tag = group.tag(chunk)?;
                if tag.key == key && !tag.is_superseded_by(&group.tag(chunk ^ 1)?) {
                    let mut bytes = vec![0; self.valid_bytes(tag.index, tag.size)];
                    group.read_chunk(chunk, 0, &mut bytes)?;
                    found.push((self.geometry.offset_of(tag.index), bytes));
                }
            }
            drop(group);
            found.iter().try_for_each(|(offset, bytes)| see(*offset, bytes))?;
        }
        Ok(())
    }

    /// Gives up all chunks of a file that has no name any more.
    ///
    /// Persistence: durable on return.
    pub(crate) fn give_up_all(&self, key: u64) -> Result<(), Error> {
        for group in 0..self.groups.len() {
            self.give_up(group, 0..2 * self.geometry.group_slots() as usize, key, 0)?;
        }
        Ok(())
    }
}
