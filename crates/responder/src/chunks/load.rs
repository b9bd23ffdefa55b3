//! Chunks that only the backing store has. It may answer late, or not for hours: nothing is locked meanwhile.
//!
//! Whoever needs such a chunk notes the timestamps of its slot, lets all groups go, asks the backing store,
//! takes the groups again, and looks at the timestamps. As long as they are the same, the backing store had
//! the chunk all the time, and nothing has written to it: each chunk that is put into a slot brings a
//! timestamp that no other has.

use crate::error::Error;
use crate::file::File;
use crate::medium::CacheMedium;
use crate::tag::Tag;

use super::ChunkStore;
use super::fr::{Plan, Write};
use super::locked::Locked;

/// After so many attempts the groups are held while the backing store is asked: others keep writing to the
/// slot.
pub(super) const ATTEMPTS: usize = 4;

/// What is kept without an allocator, which a signal handler may have interrupted.
const FEW_BYTES: usize = 4096;

/// The timestamps of a slot.
pub(super) type Seen = [u64; 2];

pub(super) fn seen(tags: &[Tag; 2]) -> Seen {
    [tags[0].timestamp, tags[1].timestamp]
}

/// Fills `buffer` with what the backing store has from `offset` on, and zeroes.
pub(super) fn read_below(file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
    let got = file.backing.read_at(offset, buffer).map_err(Error::backing("read a file"))?;
    buffer[got..].fill(0);
    Ok(())
}

/// A chunk as the backing store had it.
struct Load {
    at: usize,
    seen: Seen,
    few: [u8; FEW_BYTES],
    many: Vec<u8>,
}

impl Load {
    fn bytes(&mut self, chunk_bytes: usize) -> &mut [u8] {
        if chunk_bytes <= FEW_BYTES {
            return &mut self.few[..chunk_bytes];
        }
        self.many.resize(chunk_bytes, 0);
        &mut self.many
    }
}

/// The chunks that a write needs: of its first and its last one it may change a part only.
#[derive(Default)]
pub(super) struct Loads {
    loads: [Option<Load>; 2],
    attempts: usize,
}

impl Loads {
    /// The chunk that has been loaded for place `at` of the write.
    pub(super) fn of(&self, at: usize) -> Option<&[u8]> {
        let load = self.loads.iter().flatten().find(|load| load.at == at)?;
        Some(if load.many.is_empty() { &load.few } else { &load.many })
    }
}

impl Write<'_> {
    /// Whether the chunk at place `at` keeps bytes that only the backing store has.
    pub(super) fn needs(&self, at: usize, start: u64, chunk_bytes: u64, plan: &Plan) -> bool {
        let is_covered = self.offset <= start && self.end() >= (start + chunk_bytes).min(self.size);
        !plan.overwrites && !is_covered && start < self.size_before && (at == 0 || at + 1 == self.run.chunks)
    }
}

impl<M: CacheMedium> ChunkStore<M> {
    /// Looks for a chunk that the write needs and that is not loaded; what was loaded and has changed since
    /// is dropped. The place in the write, and what to note with it.
    pub(super) fn lacks<const G: usize>(
        &self,
        locked: &mut Locked<'_, M, G>,
        file: &File,
        write: &Write<'_>,
        plans: &[Plan],
        loads: &mut Loads,
    ) -> Result<Option<(usize, Seen)>, Error> {
        for at in [0, plans.len() - 1] {
            let index = write.first + at as u64;
            if !write.needs(at, self.geometry.offset_of(index), self.geometry.chunk_bytes, &plans[at]) {
                continue;
            }
            let (group, slot) = locked.at(self.slot(file.key, index));
            let now = seen(&group.tags(slot)?);
            let place = &mut loads.loads[usize::from(at > 0)];
            if place.as_ref().is_some_and(|load| load.at == at && load.seen == now) {
                continue;
            }
            *place = None;
            if loads.attempts < ATTEMPTS {
                return Ok(Some((at, now)));
            }
        }
        Ok(None)
    }

    /// Loads a chunk. The caller holds no group.
    pub(super) fn load(
        &self,
        file: &File,
        write: &Write<'_>,
        (at, seen): (usize, Seen),
        loads: &mut Loads,
    ) -> Result<(), Error> {
        let mut load = Load { at, seen, few: [0; FEW_BYTES], many: Vec::new() };
        let start = self.geometry.offset_of(write.first + at as u64);
        read_below(file, start, load.bytes(self.geometry.chunk_bytes as usize))?;
        loads.attempts += 1;
        loads.loads[usize::from(at > 0)] = Some(load);
        Ok(())
    }
}
