//! The groups of slots that a read or a write needs, all locked.

use crate::group::Group;
use crate::medium::CacheMedium;

use super::held::Held;
use super::{ChunkStore, Run};

/// Up to `G` groups that follow each other, the first after the last.
///
/// Concurrency: they are locked in the order of their numbers, so no two threads wait for each other.
pub(super) struct Locked<'a, M, const G: usize> {
    guards: [Option<Held<'a, M>>; G],
    first: usize,
    groups: usize,
    group_slots: u64,
}

impl<'a, M: CacheMedium, const G: usize> Locked<'a, M, G> {
    /// # Errors
    /// [`Error::NotServed`](crate::Error::NotServed).
    pub(super) fn new(store: &'a ChunkStore<M>, run: Run) -> Result<Locked<'a, M, G>, crate::Error> {
        let (group_slots, groups) = (store.geometry.group_slots(), store.groups.len());
        let first = (run.slot / group_slots) as usize;
        let spanned = (run.slot % group_slots) as usize + run.chunks - 1;
        let count = (spanned / group_slots as usize + 1).min(groups);
        let wrapped = (first + count).saturating_sub(groups);
        let mut guards = [const { None }; G];
        for number in (0..wrapped).chain(first..groups.min(first + count)) {
            guards[(number + groups - first) % groups] = Some(store.hold(number)?);
        }
        Ok(Locked { guards, first, groups, group_slots })
    }

    /// The group of a slot, and the slot's place in it.
    pub(super) fn at(&mut self, slot: u64) -> (&mut Group<M>, usize) {
        let number = (slot / self.group_slots) as usize;
        let place = (number + self.groups - self.first) % self.groups;
        let group = self.guards[place].as_mut().expect("the run has the slot");
        (group, (slot % self.group_slots) as usize)
    }

    /// Makes durable what was stored to any of them.
    pub(super) fn fence(&mut self) -> Result<(), crate::Error> {
        // PERSIST: as each caller says.
        self.guards.iter_mut().flatten().try_for_each(|group| group.fence())
    }
}

impl<M, const G: usize> Locked<'_, M, G> {
    /// Tells the flusher which of them have dirty data.
    pub(super) fn report(&self, store: &ChunkStore<M>) {
        for (place, group) in self.guards.iter().enumerate() {
            if group.as_ref().is_some_and(|group| group.dirty != 0) {
                store.note_dirty((self.first + place) % self.groups);
            }
        }
    }
}
