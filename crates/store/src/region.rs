//! The region of a pool's log: two superblocks, marks (`marks`), then chunks.
//!
//! Shape: a superblock of 4096 bytes at 0 and a copy at 4096; marks from 8192 on; chunks of [`CHUNK_BYTES`]
//! from 16384 on, as many as fit. Superblocks are written once, when the region becomes a log; either copy
//! suffices.
//!
//! | offset | size | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FSTNINTL` |
//! | 8 | 4 | version, 3 |
//! | 12 | 4 | zero |
//! | 16 | 8 | the log's own number, random |
//! | 24 | 8 | GUID of the pool |
//! | 32 | 8 | length of the region; of a mirror, of its shorter side |
//! | 40 | 8 | length of a chunk |
//! | 48 | 4044 | zero |
//! | 4092 | 4 | CRC-32C of bytes 0 to 4091 |

use std::sync::Arc;

use fastness_pmem::{AnyRange, Medium, NoSum, PmRange, Region, RegionInfo, View};
use fastness_pool::Guid;

use crate::config::RegionId;
use crate::error::StoreError;

/// Length of a chunk; bounds a record.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Shortest region: superblocks, and enough chunks to write to some while others wait for their txgs.
pub const REGION_BYTES_MIN: u64 = FRONT_BYTES as u64 + 8 * CHUNK_BYTES;

/// Of the first chunk: up to here file systems have their superblocks.
const LOOKED_AT_BYTES: usize = 112 << 10;
const BLOCK_BYTES: usize = 4096;
const COPIES: [usize; 2] = [0, BLOCK_BYTES];
/// Length of what precedes the chunks: superblocks and marks.
pub const FRONT_BYTES: usize = 16384;
const MAGIC: [u8; 8] = *b"FSTNINTL";
const VERSION: u32 = 3;

/// The contents of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: RegionId,
    pub(crate) pool: u64,
    /// Length of what is in use; of a mirror, that of the shorter side.
    pub(crate) region_bytes: u64,
}

impl Superblock {
    pub(crate) fn new(id: RegionId, pool: u64, region_bytes: u64) -> Superblock {
        Superblock { id, pool, region_bytes }
    }

    fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        for (at, value) in [(16, self.id.0), (24, self.pool), (32, self.region_bytes), (40, CHUNK_BYTES)] {
            block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c::crc32c(&block[..BLOCK_BYTES - 4]);
        block[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    fn decode(block: &[u8; BLOCK_BYTES]) -> Result<Superblock, &'static str> {
        if block[..8] != MAGIC {
            return Err("it has no superblock");
        }
        let crc = crc32c::crc32c(&block[..BLOCK_BYTES - 4]);
        if block[BLOCK_BYTES - 4..] != crc.to_le_bytes() {
            return Err("its superblocks are damaged");
        }
        if block[8..12] != VERSION.to_le_bytes() {
            return Err("it is of another version");
        }
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
        let superblock = Superblock { id: RegionId(number(16)), pool: number(24), region_bytes: number(32) };
        // The rest of the block follows from these.
        if superblock.encode() == *block { Ok(superblock) } else { Err("its superblock has strange values") }
    }
}

/// Writes the superblocks.
///
/// Persistence: durable on return, as far as the region's stores are.
pub(crate) fn format(front: &mut impl Medium, superblock: &Superblock) -> Result<(), StoreError> {
    for at in COPIES {
        front.copy(at, &superblock.encode(), BLOCK_BYTES, &mut NoSum);
        // PERSIST: the second copy is written after the first is durable, so that a torn write leaves one of
        // them intact or, before the pool knows the log, none.
        front.fence()?;
    }
    Ok(())
}

/// Reads the superblocks; the first intact one counts.
pub(crate) fn read(front: &impl Medium, len_bytes: u64) -> Result<Superblock, StoreError> {
    let mut why = "it has no superblock";
    for at in COPIES {
        let mut block = [0; BLOCK_BYTES];
        if front.read(at, &mut block).is_err() {
            why = "its superblocks cannot be read";
            continue;
        }
        match Superblock::decode(&block) {
            Ok(superblock) if superblock.region_bytes > len_bytes => {
                let least_bytes = superblock.region_bytes;
                return Err(StoreError::TooSmall { found_bytes: len_bytes, least_bytes });
            }
            Ok(superblock) => return Ok(superblock),
            Err(error) => why = error,
        }
    }
    Err(StoreError::NoLog(why))
}

/// What the superblocks in these first bytes of a file say, if one is intact.
pub(crate) fn superblock_in(front: &[u8]) -> Option<Superblock> {
    COPIES.into_iter().find_map(|at| Superblock::decode(front.get(at..)?.first_chunk()?).ok())
}

/// A region as a log needs it: divided into parts, on any medium.
pub struct RegionParts {
    /// What it is made of.
    pub info: RegionInfo,
    /// The first [`FRONT_BYTES`].
    pub front: AnyRange,
    /// The rest, in equal chunks; the chunk length bounds a record.
    pub chunks: Vec<AnyRange>,
    /// All of it, to read what the chunks have while they are written to. Without one, what is logged is kept
    /// in memory as well.
    pub view: Option<Arc<dyn View>>,
}

impl std::fmt::Debug for RegionParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionParts").field("info", &self.info).finish_non_exhaustive()
    }
}

impl RegionParts {
    /// Divides a region.
    ///
    /// # Errors
    /// [`StoreError::TooSmall`].
    pub fn of(region: Region) -> Result<RegionParts, StoreError> {
        let info = region.info().clone();
        let range = region.into_range();
        let view: Arc<dyn View> = Arc::new(range.view());
        let (front, chunks) = divide(range)?;
        Ok(RegionParts { info, front, chunks, view: Some(view) })
    }
}

/// What a region holds before it becomes one of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionContents {
    /// Zeroes, as far as can be told from its beginning.
    Nothing,
    /// The log of this pool, or what is left of one.
    LogOf(Guid),
    /// Something else.
    Other,
}

impl RegionParts {
    /// What the region holds, by its beginning. What cannot be read is something else.
    pub fn contents(&self) -> RegionContents {
        let mut front = vec![0; FRONT_BYTES];
        let mut more = vec![0; LOOKED_AT_BYTES];
        let read = self.front.read(0, &mut front).is_ok()
            && self.chunks.first().is_none_or(|chunk| {
                more.truncate(chunk.len_bytes());
                chunk.read(0, &mut more).is_ok()
            });
        match superblock_in(&front) {
            Some(superblock) => RegionContents::LogOf(Guid(superblock.pool)),
            None if read && front.iter().chain(&more).all(|byte| *byte == 0) => RegionContents::Nothing,
            None => RegionContents::Other,
        }
    }

    /// Length of all parts together.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.chunks.iter().chain([&self.front]).map(|part| part.len_bytes() as u64).sum()
    }
}

/// Divides a region into the blocks at its front and the chunks.
fn divide(range: PmRange) -> Result<(AnyRange, Vec<AnyRange>), StoreError> {
    let found_bytes = range.len_bytes() as u64;
    if found_bytes < REGION_BYTES_MIN {
        return Err(StoreError::TooSmall { found_bytes, least_bytes: REGION_BYTES_MIN });
    }
    let split = |range: PmRange, at| range.split_at(at).expect("whole lines inside of the range");
    let (front, mut rest) = split(range, FRONT_BYTES);
    let mut chunks = Vec::new();
    while rest.len_bytes() as u64 >= CHUNK_BYTES {
        let (chunk, behind) = split(rest, CHUNK_BYTES as usize);
        chunks.push(chunk.into());
        rest = behind;
    }
    Ok((front.into(), chunks))
}

#[cfg(test)]
mod tests {
    use fastness_testkit::Heap;

    use super::*;

    #[test]
    fn a_region_says_what_it_holds() {
        let parts = |change: &dyn Fn(&mut PmRange)| {
            let mut range = Region::anonymous(REGION_BYTES_MIN).unwrap().into_range();
            change(&mut range);
            let info = Region::anonymous(4096).unwrap().info().clone();
            let (front, chunks) = divide(range).unwrap();
            RegionParts { info, front, chunks, view: None }.contents()
        };
        assert_eq!(parts(&|_| {}), RegionContents::Nothing);
        for at in [1080, FRONT_BYTES, 0x1_0040] {
            let put = |range: &mut PmRange| range.copy(at / 64 * 64, &[7; 64], 64, &mut NoSum);
            assert_eq!(parts(&put), RegionContents::Other, "{at}");
        }
        let superblock = Superblock::new(RegionId(7), 9, REGION_BYTES_MIN);
        let put =
            |range: &mut PmRange| range.copy(BLOCK_BYTES, &superblock.encode(), BLOCK_BYTES, &mut NoSum);
        assert_eq!(parts(&put), RegionContents::LogOf(Guid(9)));
    }

    #[test]
    fn a_region_that_cannot_be_read_counts_as_one_that_holds_data() {
        let len = FRONT_BYTES + CHUNK_BYTES as usize;
        for unreadable in [64, FRONT_BYTES] {
            let memory = Heap::new(vec![0; len]);
            let part = |range| AnyRange::stand_in(memory.range(range));
            let info = Region::anonymous(4096).unwrap().info().clone();
            let (front, chunks) = (part(0..FRONT_BYTES), vec![part(FRONT_BYTES..len)]);
            let region = RegionParts { info, front, chunks, view: None };
            assert_eq!(region.contents(), RegionContents::Nothing);
            memory.poison(unreadable..unreadable + 64);
            assert_eq!(region.contents(), RegionContents::Other, "{unreadable}");
        }
    }

    #[test]
    fn a_superblock_comes_back_and_no_flipped_bit_does() {
        let superblock = Superblock::new(RegionId(7), 9, 64 << 20);
        let block = superblock.encode();
        assert_eq!(Superblock::decode(&block), Ok(superblock));
        for bit in (0..BLOCK_BYTES * 8).step_by(37).chain(0..48 * 8) {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
