//! Vdevs whose devices have no room: a sparse file on a full file system, a thin volume.
//!
//! Such a device takes what it has room for already, labels and uberblocks among it, and refuses new places
//! (ENOSPC). Nothing is given out there any more until the next import, and nothing there counts as free.
//! What a step of a sync had written when it found out is taken back as a whole, and the step is made again
//! elsewhere: nothing durable refers to it.

use crate::alloc::{Allocator, Taken};
use crate::ids::UNIT_BYTES;

impl Allocator {
    pub(crate) fn is_full(&self, id: u16) -> bool {
        self.spaces.get(&id).is_some_and(|space| space.is_full)
    }

    /// Space of the vdevs that have room.
    pub(super) fn usable_bytes(&self) -> u64 {
        let usable = self.spaces.values().filter(|space| !space.is_full);
        usable.map(|space| space.units).sum::<u64>() * UNIT_BYTES
    }

    /// What is in use, wherever it is.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.spaces.values().map(|space| space.units - space.free).sum::<u64>() * UNIT_BYTES
    }

    pub(super) fn note_place(&mut self, taken: Taken) {
        let space = self.spaces.get_mut(&taken.place.vdev).expect("allocated inside of the pool");
        space.taken += taken.units;
        if let Some(attempt) = &mut self.attempt {
            attempt.push(taken);
        }
    }

    /// A step of a sync begins: what it takes may be taken back.
    pub(crate) fn begin_attempt(&mut self) {
        self.attempt = Some(Vec::new());
    }

    /// It has what it took.
    pub(crate) fn keep_attempt(&mut self) {
        self.attempt = None;
    }

    /// Frees what it took, at once: nothing refers to it.
    pub(crate) fn take_back_attempt(&mut self) {
        for Taken { place, units, is_data } in self.attempt.take().unwrap_or_default() {
            let space = self.spaces.get_mut(&place.vdev).expect("allocated inside of the pool");
            space.free += units;
            space.taken -= units;
            let at = place.unit % super::REGION_UNITS;
            let region = space.region((place.unit / super::REGION_UNITS) as usize);
            region.free += units;
            region.busy.set(at, units, false);
            if is_data {
                region.data.set(at, units, false);
            }
        }
    }

    /// Gives nothing out on a vdev any more; `false` if there is no other, or it is so already.
    pub(crate) fn set_full(&mut self, id: u16) -> bool {
        let has_other = self.spaces.iter().any(|(other, space)| *other != id && !space.is_full);
        let Some(space) = self.spaces.get_mut(&id).filter(|space| has_other && !space.is_full) else {
            return false;
        };
        space.is_full = true;
        // What it had as of the last durable txg: what the syncing one has taken since is reserved.
        let free_bytes = (space.free + space.taken) * UNIT_BYTES;
        self.synced_free_bytes = self.synced_free_bytes.saturating_sub(free_bytes);
        true
    }
}
