//! Groups that a process held when it died: what it was changing is put in order, as a recovery would.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::medium::CacheMedium;
use crate::tag::{Status, Tag};

use super::ChunkStore;
use super::held::Held;

impl<M: CacheMedium> ChunkStore<M> {
    /// Undoes what was not complete in the groups, whose locks this process has inherited, and lets them go.
    ///
    /// Persistence: durable on return. After a crash inside, the recovery does the same.
    ///
    /// # Errors
    /// PM cannot be read or written; the groups are let go all the same.
    pub(crate) fn put_in_order(&self, groups: &[usize]) -> Result<(), Error> {
        let mut held: BTreeMap<usize, Held<'_, M>> =
            groups.iter().map(|&number| (number, self.take_over(number))).collect();
        let mut incomplete = Vec::new();
        for group in held.values_mut() {
            // Until it is known which are.
            group.dirty = u32::MAX.into();
            // PERSIST: what the process had stored and not fenced is durable before anything acts on it.
            // Excludes that a chunk that was flushed is again what it was before.
            group.write_back()?;
            group.fence()?;
            for chunk in 0..group.len() {
                let tag = group.tag(chunk)?;
                if tag.is_valid() && tag.status.has(Status::NOT_COMPLETE) {
                    incomplete.push(tag);
                }
            }
        }
        for first in &incomplete {
            for index in (first.index..first.index + u64::from(first.chunks)).rev() {
                let (number, slot) = self.place(first.key, index);
                // It held all groups of its write.
                let group = held.get_mut(&number).ok_or(Error::Keys { inode: first.file.inode })?;
                Self::undo_chunk(group, slot, index, first)?;
            }
        }
        for (&number, group) in &mut held {
            group.dirty = 0;
            for chunk in 0..group.len() {
                group.dirty |= u64::from(group.tag(chunk)?.is_dirty()) << chunk;
            }
            if group.dirty != 0 {
                self.note_dirty(number);
            }
        }
        Ok(())
    }

    /// Where the dirty chunks of a file end, in bytes, and the time of its last write among them.
    pub(crate) fn end_of_dirty(&self, key: u64) -> Result<(u64, u64), Error> {
        let (mut end, mut modified_ns) = (0, 0);
        for number in 0..self.groups.len() {
            let group = self.hold(number)?;
            for chunk in (0..group.len()).filter(|chunk| group.dirty >> chunk & 1 == 1) {
                let tag: Tag = group.tag(chunk)?;
                if tag.is_dirty() && tag.key == key {
                    let start = self.geometry.offset_of(tag.index);
                    end = end.max(start + self.valid_bytes(tag.index, tag.size) as u64);
                    modified_ns = modified_ns.max(tag.timestamp);
                }
            }
        }
        Ok((end, modified_ns))
    }
}
