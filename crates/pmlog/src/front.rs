//! The blocks in front of the chunks: reads superblocks and header slots, and updates the latter.

use fastness_pmem::{Medium, NoSum, PersistError, ReadError};

use crate::error::{FormatError, OpenError};
use crate::geometry::{DATA_OFFSET, Geometry};
use crate::medium::LogMedium;
use crate::slot::{HeaderSlot, SLOT_OFFSETS};
use crate::superblock::{BLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, Uuid};

fn read_block<M: Medium>(range: &M, offset: usize) -> Result<[u8; BLOCK_BYTES], ReadError> {
    let mut bytes = [0; BLOCK_BYTES];
    range.read(offset, &mut bytes)?;
    Ok(bytes)
}

/// Reads the superblock at `offset` of a range that starts at the region's first byte.
fn read_superblock<M: Medium>(range: &M, offset: usize) -> Result<Superblock, FormatError> {
    let bytes =
        read_block(range, offset).map_err(|source| FormatError::Read { block: "superblock", source })?;
    Superblock::decode(&bytes, offset as u64)
}

/// Reads the header slot at `offset` of a range that starts at the region's first byte.
fn read_slot<M: Medium>(range: &M, offset: usize) -> Result<HeaderSlot, FormatError> {
    let bytes =
        read_block(range, offset).map_err(|source| FormatError::Read { block: "header slot", source })?;
    HeaderSlot::decode(&bytes, offset as u64)
}

pub(crate) fn read_superblocks<M: Medium>(range: &M) -> [Result<Superblock, FormatError>; 2] {
    SUPERBLOCK_OFFSETS.map(|offset| read_superblock(range, offset))
}

pub(crate) fn read_slots<M: Medium>(range: &M, uuid: Option<Uuid>) -> [Result<HeaderSlot, FormatError>; 2] {
    SLOT_OFFSETS.map(|offset| match read_slot(range, offset) {
        Ok(slot) if uuid.is_some_and(|uuid| uuid != slot.uuid) => {
            Err(FormatError::Foreign { region_offset: offset as u64 })
        }
        other => other,
    })
}

/// Chooses the superblock to use: the first copy if it is whole.
pub(crate) fn choose_superblock(
    copies: [Result<Superblock, FormatError>; 2],
) -> Result<(Superblock, Option<FormatError>), OpenError> {
    match copies {
        [Ok(superblock), second] => Ok((superblock, second.err())),
        [Err(damage), Ok(superblock)] => Ok((superblock, Some(damage))),
        [Err(first), Err(second)] if first.is_absent() && second.is_absent() => Err(OpenError::NotALog),
        [Err(first), Err(second)] => {
            Err(OpenError::Superblock(if first.is_absent() { second } else { first }))
        }
    }
}

/// Chooses the slot to use: the newest whole one.
pub(crate) fn choose_slot(
    slots: [Result<HeaderSlot, FormatError>; 2],
) -> Result<(usize, HeaderSlot, Option<FormatError>), OpenError> {
    match slots {
        [Ok(first), Ok(second)] if second.sequence > first.sequence => Ok((1, second, None)),
        [Ok(first), second] => Ok((0, first, second.err())),
        [Err(damage), Ok(second)] => Ok((1, second, Some(damage))),
        [Err(first), Err(second)] => Err(OpenError::Headers { first, second }),
    }
}

/// The owner of the blocks in front of the chunks, with the header in force.
#[derive(Debug)]
pub(crate) struct Front<R> {
    range: R,
    /// Index of the slot in force.
    trusted: usize,
    slot: HeaderSlot,
}

impl<R: LogMedium> Front<R> {
    /// Takes over the blocks of an existing log.
    pub(crate) fn new(range: R, trusted: usize, slot: HeaderSlot) -> Self {
        Self { range, trusted, slot }
    }

    /// Wipes the superblocks, so that the region holds no log.
    pub(crate) fn wipe(range: &mut R) -> Result<(), PersistError> {
        for offset in SUPERBLOCK_OFFSETS {
            range.copy(offset, &[], BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: orders the wiped superblocks before everything else of a creation. Without it a crash
        // could leave the superblock of the log that was here, with chunks or headers of neither.
        range.fence()
    }

    /// Writes both superblocks; the log exists once one of them is whole.
    pub(crate) fn write_superblocks(&mut self, superblock: &Superblock) -> Result<(), PersistError> {
        let bytes = superblock.encode();
        for offset in SUPERBLOCK_OFFSETS {
            self.range.copy(offset, &bytes, BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: orders the superblocks before the acknowledgement of the creation, and before the first
        // record.
        self.range.fence()
    }

    /// The slot in force.
    pub(crate) fn slot(&self) -> &HeaderSlot {
        &self.slot
    }

    /// The range, for information on its region.
    pub(crate) fn range(&self) -> &R {
        &self.range
    }

    /// Puts `slot` in force; its sequence number is filled in.
    ///
    /// Persistence: durable on return; after a crash inside, either the old or the new slot is in force.
    pub(crate) fn update(&mut self, slot: HeaderSlot) -> Result<(), PersistError> {
        let slot = HeaderSlot { sequence: self.slot.sequence + 1, ..slot };
        let bytes = slot.encode();
        let other = 1 - self.trusted;
        self.range.copy(SLOT_OFFSETS[other], &bytes, BLOCK_BYTES, &mut NoSum);
        // PERSIST: orders the new slot before the old one is overwritten (below), and before anything that
        // relies on the header: records of a new log, emptied chunks. Without it a crash could tear both
        // slots.
        self.range.fence()?;
        self.range.copy(SLOT_OFFSETS[self.trusted], &bytes, BLOCK_BYTES, &mut NoSum);
        // PERSIST: orders the second copy before the next update overwrites the first one. Without it a crash
        // in the next update could find both torn.
        self.range.fence()?;
        self.slot = slot;
        Ok(())
    }
}

/// Divides a range into the front blocks and the chunks.
pub(crate) fn divide<R: LogMedium>(range: R, geometry: &Geometry) -> (R, Vec<R>) {
    let (front, mut rest) = range.split(DATA_OFFSET as usize);
    let mut chunks = Vec::with_capacity(geometry.chunks as usize);
    for _ in 0..geometry.chunks {
        let (chunk, behind) = rest.split(geometry.chunk_bytes as usize);
        chunks.push(chunk);
        rest = behind;
    }
    (front, chunks)
}
