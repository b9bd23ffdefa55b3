//! Marks in a region of kind pmem: which txgs of the pool the region has seen, so that an older copy of the
//! region, put back, can be told from the region itself, and an older copy of the pool from the pool.
//!
//! Shape: a slot is a line of 64 bytes; there are four in each of two copies (at 8192 and 12288):
//!
//! | offset in the copy | what |
//! |---:|---|
//! | 0, 64 | the txg began to sync: slot = txg mod 2 |
//! | 128, 192 | it has synced: slot = txg mod 2 |
//!
//! | offset in the slot | size | field |
//! |---:|---:|---|
//! | 0 | 8 | number of the region |
//! | 8 | 8 | txg |
//! | 16 | 8 | number of the import that wrote it |
//! | 24 | 36 | zero |
//! | 60 | 4 | CRC-32C of bytes 0 to 59 |
//!
//! When an import finds the pool at txg T, the region has the mark that T began, from the import that synced
//! it: this mark is durable before T's uberblock is written, and is overwritten by that of T + 2, which
//! begins after T + 1 has synced. And it has no mark of a later txg that has synced. Whatever a crash tears
//! belongs to T + 1, in another slot.

use fastness_pmem::{Medium, NoSum, PersistError};
use fastness_pool::{Mark, Txg};

use crate::config::RegionId;

const SLOT_BYTES: usize = 64;
const COPIES: [usize; 2] = [8192, 12288];

/// What a mark says about its txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It began to sync: nothing of it may be durable yet, and nothing of the previous one is needed any
    /// more.
    Begun,
    /// It is durable.
    Synced,
}

impl Phase {
    fn offset(self, txg: u64) -> usize {
        let first = match self {
            Phase::Begun => 0,
            Phase::Synced => 2,
        };
        (first + (txg % 2) as usize) * SLOT_BYTES
    }
}

fn encode(region: RegionId, mark: Mark) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    for (at, value) in [(0, region.0), (8, mark.txg.0), (16, mark.import.0)] {
        slot[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    let crc = crc32c::crc32c(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// The mark in a slot, if it holds an intact one of this region.
fn decode(region: RegionId, slot: &[u8; SLOT_BYTES]) -> Option<Mark> {
    let number = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("8 bytes"));
    let mark = Mark { txg: Txg(number(8)), import: fastness_pool::ImportId(number(16)) };
    (encode(region, mark) == *slot).then_some(mark)
}

/// Writes a mark into both copies.
///
/// Persistence: durable on return, as far as the region's stores are; a crash during the call may tear either
/// copy.
pub(crate) fn write<M: Medium>(
    front: &mut M,
    region: RegionId,
    phase: Phase,
    mark: Mark,
) -> Result<(), PersistError> {
    for copy in COPIES {
        let slot = encode(region, mark);
        front.copy(copy + phase.offset(mark.txg.0), &slot, SLOT_BYTES, &mut NoSum);
    }
    // PERSIST: the mark that a txg began is durable before its uberblock is written, or an import would take
    // the region for an older copy; the mark that it has synced, before a chunk is emptied because of it, or
    // an import with an older copy of the pool would not miss what was there.
    front.fence()
}

/// The newest txg that a region has seen become durable, read from the bytes before its chunks.
pub(crate) fn newest_synced(front: &[u8], region: RegionId) -> Option<Mark> {
    let places = COPIES.into_iter().flat_map(|copy| [0, 1].map(|txg| copy + Phase::Synced.offset(txg)));
    let slots = places.filter_map(|at| front.get(at..)?.first_chunk());
    slots.filter_map(|slot| decode(region, slot)).max_by_key(|mark| mark.txg)
}

/// Why a region does not match the pool as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// It has not seen the pool's last txg; the newest that it has seen, if any.
    Older(Option<Mark>),
    /// It has seen a later txg sync than the pool has: the pool is the copy.
    Newer(Mark),
}

/// Compares a region with its pool, whose last synced txg is `synced`.
pub(crate) fn check<M: Medium>(front: &M, region: RegionId, synced: Mark) -> Result<(), Mismatch> {
    let read = |at: usize| {
        let mut slot = [0; SLOT_BYTES];
        front.read(at, &mut slot).ok().and_then(|()| decode(region, &slot))
    };
    let of = |phase: Phase| {
        let places = COPIES.into_iter().flat_map(move |copy| [0, 1].map(|txg| copy + phase.offset(txg)));
        places.filter_map(read)
    };
    if let Some(newer) = of(Phase::Synced).filter(|mark| mark.txg > synced.txg).max_by_key(|mark| mark.txg) {
        return Err(Mismatch::Newer(newer));
    }
    if of(Phase::Begun).any(|mark| mark == synced) {
        return Ok(());
    }
    Err(Mismatch::Older(of(Phase::Begun).max_by_key(|mark| mark.txg)))
}
