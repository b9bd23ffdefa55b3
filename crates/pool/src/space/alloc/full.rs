//! Vdevs whose devices are out of space: a sparse file on a full file system, a thin volume.
//!
//! Such a device still accepts writes to places that it already backs, labels and uberblocks among them, and
//! refuses new places (ENOSPC). Nothing more is allocated there until the next import, and nothing there
//! counts as free. The sync step that ran into this undoes all of its allocations and runs again elsewhere:
//! nothing durable refers to what it had written.

use crate::ids::UNIT_BYTES;
use crate::space::alloc::{Allocator, Span};

impl Allocator {
    pub(crate) fn is_full(&self, id: u16) -> bool {
        self.spaces.get(&id).is_some_and(|space| space.is_full)
    }

    /// Space of the vdevs that are not out of space.
    pub(super) fn usable_bytes(&self) -> u64 {
        let usable = self.spaces.values().filter(|space| !space.is_full);
        usable.map(|space| space.units).sum::<u64>() * UNIT_BYTES
    }

    /// What is in use, wherever it is.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.spaces.values().map(|space| space.units - space.free).sum::<u64>() * UNIT_BYTES
    }

    pub(super) fn note_place(&mut self, taken: Span) {
        let space = self.spaces.get_mut(&taken.place.vdev).expect("allocated inside of the pool");
        space.taken += taken.units;
        if let Some(attempt) = &mut self.attempt {
            attempt.push(taken);
        }
    }

    /// Begins a step of a sync whose allocations may be undone.
    pub(crate) fn begin_attempt(&mut self) {
        self.attempt = Some(Vec::new());
    }

    /// Keeps what the step took.
    pub(crate) fn keep_attempt(&mut self) {
        self.attempt = None;
    }

    /// Frees what the step took, at once: nothing refers to it.
    pub(crate) fn take_back_attempt(&mut self) {
        for Span { place, units } in self.attempt.take().unwrap_or_default() {
            let space = self.spaces.get_mut(&place.vdev).expect("allocated inside of the pool");
            space.taken -= units;
            space.unmark(place.unit, units);
        }
    }

    /// Stops allocating on a vdev; `false` if it is the only one left, or was stopped already.
    pub(crate) fn set_full(&mut self, id: u16) -> bool {
        let has_other = self.spaces.iter().any(|(other, space)| *other != id && !space.is_full);
        let Some(space) = self.spaces.get_mut(&id).filter(|space| has_other && !space.is_full) else {
            return false;
        };
        space.is_full = true;
        // Its free space as of the last durable txg: what the syncing txg has taken since is reserved.
        let free_bytes = (space.free + space.taken + space.held) * UNIT_BYTES;
        self.synced_free_bytes = self.synced_free_bytes.saturating_sub(free_bytes);
        true
    }
}
