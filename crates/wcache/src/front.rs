//! The blocks in front of the chunks: reads superblocks and slots, and updates the latter.

use fastness_pmem::{Medium, NoSum, PersistError};

use crate::error::Error;
use crate::frame::{FRAME_BYTES, Frame};
use crate::slot::{SLOT_OFFSETS, Slot};
use crate::superblock::{SUPERBLOCK_OFFSETS, Superblock};

fn frame<M: Medium>(range: &M, offset: usize) -> Result<Frame, Error> {
    let mut bytes = [0; FRAME_BYTES];
    range.read(offset, &mut bytes)?;
    Ok(bytes)
}

/// Whether neither place of a superblock has a magic: the region holds no cache.
fn is_other<M: Medium>(range: &M) -> bool {
    let has_none = |offset| match frame(range, offset).and_then(|frame| Superblock::decode(&frame, offset)) {
        Err(Error::Block { reason, .. }) => reason != "its checksum does not match",
        _ => false,
    };
    SUPERBLOCK_OFFSETS.into_iter().all(has_none)
}

/// Whether a cache can be made here without a loss: both places of a superblock are zeroes, as in a file that
/// was made just now, and after a detachment.
///
/// # Errors
/// [`Error::Exists`], [`Error::Occupied`]; those of reading.
pub(crate) fn check_free<M: Medium>(range: &M) -> Result<(), Error> {
    for offset in SUPERBLOCK_OFFSETS {
        if frame(range, offset)?.iter().any(|byte| *byte != 0) {
            return Err(if is_other(range) { Error::Occupied } else { Error::Exists });
        }
    }
    Ok(())
}

/// Reads the superblock of a range that starts with the region: the first copy that is whole.
///
/// # Errors
/// That of the first copy.
pub(crate) fn superblock<M: Medium>(range: &M) -> Result<Superblock, Error> {
    if range.len_bytes() < crate::geometry::DATA_OFFSET {
        return Err(Error::NoCache);
    }
    let read = |offset| frame(range, offset).and_then(|frame| Superblock::decode(&frame, offset));
    let [first, second] = SUPERBLOCK_OFFSETS.map(read);
    match (first, second) {
        (Ok(found), _) | (_, Ok(found)) => Ok(found),
        (Err(_), Err(_)) if is_other(range) => Err(Error::NoCache),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Chooses the slot to use: the newest whole one of this cache, and its index.
fn newest<M: Medium>(range: &M, superblock: &Superblock) -> Result<(usize, Slot), Error> {
    let read = |offset| {
        let slot = frame(range, offset).and_then(|frame| Slot::decode(&frame, offset))?;
        let reason = "it belongs to another cache";
        match slot.id == superblock.id {
            true => Ok(slot),
            false => Err(Error::Block { block: "state slot", region_offset: offset as u64, reason }),
        }
    };
    match SLOT_OFFSETS.map(read) {
        [Ok(first), Ok(second)] if second.sequence > first.sequence => Ok((1, second)),
        [Ok(first), _] => Ok((0, first)),
        [Err(_), Ok(second)] => Ok((1, second)),
        [Err(first), Err(_)] => Err(first),
    }
}

/// The owner of the blocks in front of the chunks, with the state in force.
#[derive(Debug)]
pub(crate) struct Front<M> {
    range: M,
    /// Index of the slot in force.
    trusted: usize,
    slot: Slot,
}

impl<M: Medium> Front<M> {
    /// Makes a region hold no cache, and the blocks ready for `slot`, which is not written yet.
    pub(crate) fn wipe(mut range: M, slot: Slot) -> Result<Front<M>, PersistError> {
        for offset in SUPERBLOCK_OFFSETS {
            range.copy(offset, &[], FRAME_BYTES, &mut NoSum);
        }
        // PERSIST: orders the wiped superblocks before everything else of a creation. Excludes the superblock
        // of the cache that was here, with chunks or slots of neither.
        range.fence()?;
        Ok(Front { range, trusted: 1, slot })
    }

    /// Takes over the blocks of a cache.
    pub(crate) fn open(mut range: M, superblock: &Superblock) -> Result<Front<M>, Error> {
        range.write_back(0, range.len_bytes());
        // PERSIST: orders what a process that died has stored here, which is acted upon below, before
        // everything that is done because of it. Excludes that a power cut brings back an earlier slot, whose
        // entries are overwritten by then.
        range.fence()?;
        let (trusted, slot) = newest(&range, superblock)?;
        Ok(Front { range, trusted, slot })
    }

    /// The state in force.
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Puts another state in force; the sequence number is filled in.
    ///
    /// Persistence: durable on return; after a crash inside, either the old or the new one is in force.
    pub(crate) fn update(&mut self, slot: Slot) -> Result<(), PersistError> {
        let slot = Slot { sequence: self.slot.sequence + 1, ..slot };
        let bytes = slot.encode();
        self.range.copy(SLOT_OFFSETS[1 - self.trusted], &bytes, FRAME_BYTES, &mut NoSum);
        // PERSIST: orders the new slot before the old one is overwritten, and before chunks are emptied or
        // entries written because of it. Excludes two torn slots.
        self.range.fence()?;
        self.range.copy(SLOT_OFFSETS[self.trusted], &bytes, FRAME_BYTES, &mut NoSum);
        // PERSIST: orders the second copy before the next update overwrites the first. Excludes that a crash
        // in the next update finds both torn.
        self.range.fence()?;
        self.slot = slot;
        Ok(())
    }

    /// Writes both superblocks; the cache exists once one of them is whole.
    pub(crate) fn write_superblocks(&mut self, superblock: &Superblock) -> Result<(), PersistError> {
        let bytes = superblock.encode();
        for offset in SUPERBLOCK_OFFSETS {
            self.range.copy(offset, &bytes, FRAME_BYTES, &mut NoSum);
        }
        // PERSIST: orders the superblocks before the first acknowledgement. Excludes acknowledged writes in a
        // region that holds no cache.
        self.range.fence()
    }

    /// Wipes the superblocks: the region holds no cache.
    pub(crate) fn end(&mut self) -> Result<(), PersistError> {
        for offset in SUPERBLOCK_OFFSETS {
            self.range.copy(offset, &[], FRAME_BYTES, &mut NoSum);
        }
        // PERSIST: orders the end of the cache before the caller is told. Excludes that a cache which was
        // detached comes back and overwrites what was written to its origin since.
        self.range.fence()
    }
}
