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

/// The blocks in front of the chunks of one region.
#[derive(Debug)]
pub(crate) struct FrontSide<M> {
    range: M,
    /// Index of the slot in force.
    trusted: usize,
    /// It takes no more part.
    is_lost: bool,
}

impl<M: Medium> FrontSide<M> {
    /// Takes over the blocks of a region, with the state that it has.
    pub(crate) fn open(mut range: M, superblock: &Superblock) -> Result<(FrontSide<M>, Slot), Error> {
        range.write_back(0, range.len_bytes());
        // PERSIST: orders what a process that died has stored here, which is acted upon below, before
        // everything that is done because of it. Excludes that a power cut brings back an earlier slot, whose
        // entries are overwritten by then.
        range.fence()?;
        let (trusted, slot) = newest(&range, superblock)?;
        Ok((FrontSide { range, trusted, is_lost: false }, slot))
    }

    fn put(&mut self, offset: usize, frame: &[u8]) {
        self.range.copy(offset, frame, FRAME_BYTES, &mut NoSum);
    }

    fn has(&self, offset: usize, wanted: &Frame) -> bool {
        frame(&self.range, offset).is_ok_and(|found| found == *wanted)
    }
}

/// The owner of the blocks in front of the chunks, of each side, with the state in force.
#[derive(Debug)]
pub(crate) struct Front<M> {
    sides: Vec<FrontSide<M>>,
    slot: Slot,
}

impl<M: Medium> Front<M> {
    /// Makes regions hold no cache, and their blocks ready for `slot`, which is not written yet.
    pub(crate) fn wipe(ranges: Vec<M>, slot: Slot) -> Result<Front<M>, PersistError> {
        let side = |range| FrontSide { range, trusted: 1, is_lost: false };
        let mut front = Front { sides: ranges.into_iter().map(side).collect(), slot };
        front.wipe_superblocks();
        // PERSIST: orders the wiped superblocks before everything else of a creation. Excludes the superblock
        // of the cache that was here, with chunks or slots of neither.
        front.fence()?;
        Ok(front)
    }

    /// Takes over blocks whose state in force is known.
    pub(crate) fn new(sides: Vec<FrontSide<M>>, slot: Slot) -> Front<M> {
        Front { sides, slot }
    }

    /// The state in force.
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// How many sides there are, lost or not.
    pub(crate) fn sides(&self) -> usize {
        self.sides.len()
    }

    /// A side whose fence has failed.
    pub(crate) fn lost(&self) -> Option<usize> {
        self.sides.iter().position(|side| side.is_lost)
    }

    /// Writes to a side no more, unless it is the only one.
    pub(crate) fn lose(&mut self, side: usize) {
        let is_last = self.live().count() < 2;
        self.sides[side].is_lost |= !is_last;
    }

    fn live(&mut self) -> impl Iterator<Item = &mut FrontSide<M>> {
        self.sides.iter_mut().filter(|side| !side.is_lost)
    }

    fn wipe_superblocks(&mut self) {
        for side in self.live() {
            SUPERBLOCK_OFFSETS.into_iter().for_each(|offset| side.put(offset, &[]));
        }
    }

    /// Makes what was stored on all sides durable. One that fails is lost, as long as there is another.
    fn fence(&mut self) -> Result<(), PersistError> {
        let mut failed = Vec::new();
        for (index, side) in self.sides.iter_mut().enumerate().filter(|(_, side)| !side.is_lost) {
            // PERSIST: of each region its own stores, for what the caller says.
            if let Err(error) = side.range.fence() {
                failed.push((index, error));
            }
        }
        if failed.len() == self.live().count() {
            return failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error));
        }
        failed.into_iter().for_each(|(index, _)| self.sides[index].is_lost = true);
        Ok(())
    }

    /// Puts another state in force; the sequence number is filled in.
    ///
    /// Persistence: durable on return on all sides but those that are lost; after a crash inside, either the
    /// old or the new one is in force on each.
    pub(crate) fn update(&mut self, slot: Slot) -> Result<(), PersistError> {
        let slot = Slot { sequence: self.slot.sequence + 1, ..slot };
        let bytes = slot.encode();
        self.live().for_each(|side| side.put(SLOT_OFFSETS[1 - side.trusted], &bytes));
        // PERSIST: orders the new slot before the old one is overwritten, and before chunks are emptied or
        // entries written because of it. Excludes two torn slots.
        self.fence()?;
        self.live().for_each(|side| side.put(SLOT_OFFSETS[side.trusted], &bytes));
        // PERSIST: orders the second copy before the next update overwrites the first. Excludes that a crash
        // in the next update finds both torn.
        self.fence()?;
        self.slot = slot;
        Ok(())
    }

    /// Writes both superblocks of each side; a cache exists once one of them is whole. Where they are already
    /// what they should be, nothing is written.
    pub(crate) fn write_superblocks(&mut self, of_sides: &[Superblock]) -> Result<(), PersistError> {
        let of_sides: Vec<_> = of_sides.iter().map(Superblock::encode).collect();
        for offset in SUPERBLOCK_OFFSETS {
            let all = self.sides.iter_mut().zip(&of_sides).filter(|(side, _)| !side.is_lost);
            let wrong: Vec<_> = all.filter(|(side, wanted)| !side.has(offset, wanted)).collect();
            if wrong.is_empty() {
                continue;
            }
            wrong.into_iter().for_each(|(side, bytes)| side.put(offset, bytes));
            // PERSIST: orders the first copy before the second, and both before the first acknowledgement.
            // Excludes two torn copies, and acknowledged writes in a region that holds no cache.
            self.fence()?;
        }
        Ok(())
    }

    /// One side becomes a cache of its own, with this superblock; the others hold none any more.
    pub(crate) fn leave_mirror(&mut self, stays: usize, alone: &Superblock) -> Result<(), PersistError> {
        for offset in SUPERBLOCK_OFFSETS {
            self.sides[stays].put(offset, &alone.encode());
            // PERSIST: orders the first copy before the second, and both before the others are wiped.
            // Excludes two torn copies, and a side that is alone and does not know it.
            self.sides[stays].range.fence()?;
        }
        self.sides[stays].is_lost = true;
        let ended = self.end();
        self.sides[stays].is_lost = false;
        // What is left there is refused, or empty.
        drop(ended);
        Ok(())
    }

    /// Wipes the superblocks: the regions hold no cache.
    pub(crate) fn end(&mut self) -> Result<(), PersistError> {
        self.wipe_superblocks();
        // PERSIST: orders the end of the cache before the caller is told. Excludes that a cache which was
        // detached comes back and overwrites what was written to its origin since.
        self.fence()
    }
}
