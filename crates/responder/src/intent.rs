//! Intents: what is being done to the backing store that has no place in a tag.
//!
//! A removal or a truncation changes the backing store and the chunks in PM. The intent is durable before
//! either changes, and is wiped durably after both have: a recovery that finds it completes what it names.
//!
//! Shape: 64 bytes, one cache line, little endian; zeroes if there is none:
//! ```text
//! offset size field
//!      0    8 what: 1 removal of the last name of a file, 2 truncation
//!      8    8 inode
//!     16    8 generation of the inode
//!     24    8 length in bytes after a truncation
//!     32   28 zero
//!     60    4 CRC-32C of the cache's id and bytes 0 to 59
//! ```
//! The line can tear: one with a wrong checksum was never acknowledged and counts as none.

use fastness_pmem::{Medium, NoSum};

use crate::backing::{CacheId, FileId};
use crate::error::Error;
use crate::geometry::INTENTS_OFFSET;
use crate::tag::LINE;

/// How many there can be at a time.
const COUNT: usize = 64;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The file loses its last name; its chunks go once no process has it open.
    Remove(FileId),
    /// The file gets this length.
    Truncate(FileId, u64),
}

/// An intent and its number, for [`Intents::end`].
pub(crate) type Numbered = (usize, Intent);

impl Intent {
    pub(crate) fn file(self) -> FileId {
        match self {
            Intent::Remove(file) | Intent::Truncate(file, _) => file,
        }
    }

    pub(crate) fn is_truncation(self) -> bool {
        matches!(self, Intent::Truncate(..))
    }

    fn encode(self, cache: CacheId) -> [u8; LINE] {
        let (what, file, size) = match self {
            Intent::Remove(file) => (1_u64, file, 0),
            Intent::Truncate(file, size) => (2, file, size),
        };
        let mut line = [0; LINE];
        for (at, word) in [what, file.inode, file.generation, size].into_iter().enumerate() {
            line[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = sum(&line, cache);
        line[60..].copy_from_slice(&sum.to_le_bytes());
        line
    }

    fn decode(line: &[u8; LINE], cache: CacheId) -> Option<Intent> {
        let word = |at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("eight bytes"));
        let file = FileId { inode: word(8), generation: word(16) };
        if line[60..] != sum(line, cache).to_le_bytes() || line[32..60] != [0; 28] {
            return None;
        }
        match word(0) {
            1 => Some(Intent::Remove(file)),
            2 => Some(Intent::Truncate(file, word(24))),
            _ => None,
        }
    }
}

fn sum(line: &[u8; LINE], cache: CacheId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&cache.0), &line[..60])
}

/// The intents of a region, in the range in front of its tags.
#[derive(Debug)]
pub(crate) struct Intents<M> {
    front: M,
    cache: CacheId,
    used: u64,
}

impl<M: Medium> Intents<M> {
    /// The intents of a region that has none yet, or whose are not known yet.
    pub(crate) fn new(front: M, cache: CacheId) -> Intents<M> {
        Intents { front, cache, used: 0 }
    }

    /// Takes over those that are on the medium.
    pub(crate) fn recover(&mut self) -> Result<Vec<Numbered>, Error> {
        // PERSIST: what a process that died left in the CPU's caches; the recovery acts on what it reads, so
        // a power cut must not take it away. Excludes a truncation that is half made, without its intent.
        self.front.write_back(INTENTS_OFFSET, COUNT * LINE);
        self.front.fence()?;
        let mut found = Vec::new();
        for at in 0..COUNT {
            let mut line = [0; LINE];
            self.front.read(INTENTS_OFFSET + at * LINE, &mut line)?;
            if let Some(intent) = Intent::decode(&line, self.cache) {
                self.used |= 1 << at;
                found.push((at, intent));
            }
        }
        Ok(found)
    }

    /// Notes one; its number is for [`end`](Self::end).
    ///
    /// Persistence: durable on return.
    pub(crate) fn begin(&mut self, intent: Intent) -> Result<usize, Error> {
        let at = self.used.trailing_ones() as usize;
        if at == COUNT {
            return Err(Error::IntentsFull);
        }
        self.front.copy(INTENTS_OFFSET + at * LINE, &intent.encode(self.cache), LINE, &mut NoSum);
        // PERSIST: the intent is durable before the backing store changes, and before the chunks do. Excludes
        // the crash that leaves one of them changed, and no word of it.
        self.front.fence()?;
        self.used |= 1 << at;
        Ok(at)
    }

    /// Wipes one.
    ///
    /// Persistence: durable on return.
    pub(crate) fn end(&mut self, at: usize) -> Result<(), Error> {
        self.front.copy(INTENTS_OFFSET + at * LINE, &[], LINE, &mut NoSum);
        // PERSIST: the wiped intent is durable before any later write to the file is acknowledged. Excludes
        // the crash after which a recovery truncates again what has grown since.
        self.front.fence()?;
        self.used &= !(1 << at);
        Ok(())
    }

    /// The range, to change the superblocks.
    pub(crate) fn front(&mut self) -> &mut M {
        &mut self.front
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: CacheId = CacheId([9; 16]);

    #[test]
    fn they_go_there_and_back_and_torn_ones_are_none() {
        let file = FileId { inode: 17, generation: 19 };
        for intent in [Intent::Remove(file), Intent::Truncate(file, 70)] {
            let line = intent.encode(CACHE);
            assert_eq!(Intent::decode(&line, CACHE), Some(intent));
            assert_eq!(Intent::decode(&line, CacheId([8; 16])), None, "of another cache");
            for bit in 0..LINE * 8 {
                let mut line = line;
                line[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Intent::decode(&line, CACHE), None, "bit {bit}");
            }
        }
        assert_eq!(Intent::decode(&[0; LINE], CACHE), None);
    }
}
