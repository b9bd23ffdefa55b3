//! Openings: each draws an id that region and directory both have, so that an older copy of either is
//! refused.
//!
//! A region that is put back from a backup would undo what was flushed since; a directory that is put back
//! lacks what was flushed since, and is clean in the region. Both have the id of the cache. Only the id of
//! the last opening tells them apart.
//!
//! The region names one opening, or two while one is begun; the directory names one, which must be among
//! them. An opening
//! 1. notes itself in the line that the directory does not name, and fences: the region has two;
//! 2. has the directory name it, durably;
//! 3. wipes the other line.
//!
//! Crash cases:
//! 1. Before the fence of step 1: the line is there, or not, or torn and none; the directory names the other.
//! 2. In step 2: the directory names either, and the region has both.
//! 3. In step 3: the wiped line is there, or not, or torn and none; the directory names the one that stays.
//!    It needs no fence: with both lines the region is opened all the same.
//!
//! A directory that is full or read-only cannot name another opening. Then both lines stay, and a copy from
//! before that opening is taken for the region itself; data have to be got at all the same. Nor is a copy
//! refused that was made since the last opening began: region and directory would have to change together
//! with each write for that.
//!
//! Shape: two lines of 64 bytes from region offset 12288 on, little endian; zeroes if there is none:
//! ```text
//! offset size field
//!      0    8 number of the opening, from 1 on
//!      8   16 its id, random
//!     24   36 zero
//!     60    4 CRC-32C of the cache's id and bytes 0 to 59
//! ```

use fastness_pmem::{Medium, NoSum};

use crate::backing::{CacheId, Mark, Opening};
use crate::copied::Copied;
use crate::error::Error;
use crate::geometry::OPENINGS_OFFSET;
use crate::tag::LINE;

/// Bytes that nobody has drawn before.
pub(crate) fn drawn() -> Result<[u8; 16], Error> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)
        .map_err(|error| Error::backing("give random numbers")(std::io::Error::other(error)))?;
    Ok(id)
}

impl Opening {
    /// The first one of a cache.
    pub(crate) fn first() -> Result<Opening, Error> {
        Ok(Opening { number: 1, id: drawn()? })
    }

    fn encode(self, cache: CacheId) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[..8].copy_from_slice(&self.number.to_le_bytes());
        line[8..24].copy_from_slice(&self.id);
        let sum = sum(&line, cache);
        line[60..].copy_from_slice(&sum.to_le_bytes());
        line
    }

    fn decode(line: &[u8; LINE], cache: CacheId) -> Option<Opening> {
        if line[60..] != sum(line, cache).to_le_bytes() || line[24..60] != [0; 36] {
            return None;
        }
        let number = u64::from_le_bytes(line[..8].try_into().expect("eight bytes"));
        Some(Opening { number, id: line[8..24].try_into().expect("sixteen bytes") })
    }
}

fn sum(line: &[u8; LINE], cache: CacheId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cache.0), &line[..60])
}

/// What a region names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Openings {
    lines: [Option<Opening>; 2],
}

impl Openings {
    /// Those of a range that starts at the region's first byte. A line that cannot be read is none.
    pub(crate) fn read<M: Medium>(front: &M, cache: CacheId) -> Openings {
        let line = |at: usize| {
            let mut line = [0; LINE];
            front.read(OPENINGS_OFFSET + at * LINE, &mut line).ok()?;
            Opening::decode(&line, cache)
        };
        Openings { lines: [line(0), line(1)] }
    }

    /// Whether the directory names one of them.
    pub(crate) fn check(&self, has: Opening) -> Result<(), Copied> {
        if self.place_of(has).is_some() {
            return Ok(());
        }
        let last = self.lines.iter().flatten().map(|opening| opening.number).max();
        Err(match last.map(|last| last.cmp(&has.number)) {
            None => Copied::Unknown,
            Some(std::cmp::Ordering::Less) => Copied::Region,
            Some(std::cmp::Ordering::Greater) => Copied::Directory,
            Some(std::cmp::Ordering::Equal) => Copied::Both,
        })
    }

    fn place_of(&self, opening: Opening) -> Option<usize> {
        self.lines.iter().position(|&line| line == Some(opening))
    }

    /// The one that comes after all these, and what the directory names.
    fn next(&self, has: Option<Opening>) -> Result<Opening, Error> {
        let last = self.lines.iter().chain([&has]).flatten().map(|opening| opening.number).max();
        Ok(Opening { number: last.unwrap_or(0).saturating_add(1), id: drawn()? })
    }

    /// Begins an opening where the directory has the mark `has`; `set_mark` gives it another one, durably, or
    /// says that it has no room for that.
    ///
    /// Persistence: when it returns, the region names the opening, and the directory does, unless it had no
    /// room.
    pub(crate) fn begin<M: Medium>(
        &self,
        front: &mut M,
        (cache, has): (CacheId, Option<Opening>),
        set_mark: impl FnOnce(Mark) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let opening = self.next(has)?;
        let kept = has.and_then(|has| self.place_of(has)).unwrap_or(1);
        let line = |at: usize| OPENINGS_OFFSET + at * LINE;
        front.copy(line(kept ^ 1), &opening.encode(cache), LINE, &mut NoSum);
        // PERSIST: the region names the opening before the directory does. Excludes a directory that names
        // one of which the region does not know, so that neither can be opened any more.
        front.fence()?;
        if set_mark(Mark { cache, opening })? {
            front.copy(line(kept), &[], LINE, &mut NoSum);
        }
        Ok(())
    }

    /// Notes the first opening of a cache that is being made; the caller fences.
    pub(crate) fn format<M: Medium>(front: &mut M, cache: CacheId, first: Opening) {
        front.copy(OPENINGS_OFFSET, &first.encode(cache), LINE, &mut NoSum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: CacheId = CacheId([9; 16]);

    fn opening(number: u64, id: u8) -> Opening {
        Opening { number, id: [id; 16] }
    }

    #[test]
    fn golden_bytes_and_torn_ones_are_none() {
        let line = opening(3, 7).encode(CACHE);
        let hex: String = line[..24].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "030000000000000007070707070707070707070707070707");
        assert_eq!(Opening::decode(&line, CACHE), Some(opening(3, 7)));
        assert_eq!(Opening::decode(&line, CacheId([8; 16])), None, "of another cache");
        for bit in 0..LINE * 8 {
            let mut line = line;
            line[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Opening::decode(&line, CACHE), None, "bit {bit}");
        }
        assert_eq!(Opening::decode(&[0; LINE], CACHE), None);
    }

    #[test]
    fn a_directory_names_one_of_the_region_s_or_one_is_older() {
        let of = |lines| Openings { lines };
        let (first, second) = (opening(4, 1), opening(5, 2));
        for lines in [[Some(first), Some(second)], [None, Some(second)], [Some(second), None]] {
            assert_eq!(of(lines).check(second), Ok(()));
            assert_eq!(of(lines).check(opening(6, 3)), Err(Copied::Region));
            assert_eq!(of(lines).check(opening(3, 3)), Err(Copied::Directory));
            assert_eq!(of(lines).check(opening(5, 3)), Err(Copied::Both));
        }
        assert_eq!(of([Some(first), Some(second)]).check(first), Ok(()));
        assert_eq!(of([None, Some(second)]).check(first), Err(Copied::Directory));
        assert_eq!(of([None, None]).check(first), Err(Copied::Unknown));
        assert_eq!(of([None, Some(second)]).next(Some(opening(9, 9))).unwrap().number, 10);
        assert_eq!(of([None, None]).next(Some(opening(u64::MAX, 9))).unwrap().number, u64::MAX);
    }
}
