//! The tag of a chunk: whose data it holds, and whether they count.
//!
//! The first word holds the file's key and the status; it is stored whole or not at all, so each change of
//! state is atomic. All other words are written while the tag is not valid, are durable before it becomes
//! valid, and do not change until it has been invalid again. So a crash never leaves a valid tag with words
//! of two writes.
//!
//! Shape: 64 bytes, one cache line, little endian:
//! ```text
//! offset size field
//!      0    1 status: flags in the low half (1 valid, 2 new, 4 dirty, 8 not complete), their complement in
//!             the high half; 0 if the tag was never used
//!      1    7 key of the file
//!      8    8 index of the chunk in the file
//!     16    8 inode
//!     24    8 generation of the inode: when it was born, in ns since 1970
//!     32    8 length of the file after the write, in bytes
//!     40    8 timestamp of the write: ns since 1970, and later than any other in the region
//!     48    4 chunks of the write, in its first chunk; 0 in others
//!     52    8 zero
//!     60    4 CRC-32C of the cache's id, the key, and bytes 8 to 59
//! ```

use crate::backing::FileId;

/// Bytes of a tag, and of an intent: a cache line.
pub(crate) const LINE: usize = 64;
/// Keys have 56 bits.
pub(crate) const KEY_MAX: u64 = (1 << 56) - 1;

/// The state of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Status(u8);

impl Status {
    /// It holds nothing that counts.
    pub(crate) const INVALID: Status = Status(0);
    pub(crate) const VALID: Status = Status(1);
    /// The newer one of its slot.
    pub(crate) const NEW: Status = Status(2);
    /// The backing store does not have it.
    pub(crate) const DIRTY: Status = Status(4);
    /// The first chunk of a write that has not been made completely.
    pub(crate) const NOT_COMPLETE: Status = Status(8);

    pub(crate) const fn with(self, other: Status) -> Status {
        Status(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Status) -> Status {
        Status(self.0 & !other.0)
    }

    pub(crate) const fn has(self, other: Status) -> bool {
        self.0 & other.0 == other.0
    }

    fn byte(self) -> u8 {
        self.0 | (!self.0 << 4)
    }

    fn from_byte(byte: u8) -> Option<Status> {
        let status = Status(byte & 15);
        match byte {
            0 => Some(Status::INVALID),
            byte if status.byte() == byte => Some(status),
            _ => None,
        }
    }
}

/// A tag; the layout is in the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tag {
    pub(crate) status: Status,
    pub(crate) key: u64,
    pub(crate) index: u64,
    pub(crate) file: FileId,
    pub(crate) size: u64,
    pub(crate) timestamp: u64,
    pub(crate) chunks: u32,
    /// The checksum, which does not cover the status: see [`sealed`](Self::sealed).
    pub(crate) sum: u32,
}

/// What the checksums of a cache begin with, so that tags of another one are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(cache: crate::backing::CacheId) -> Seed {
        Seed(crc32c::crc32c(&cache.0))
    }

    pub(crate) fn sum(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.0, bytes)
    }
}

/// A tag that contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

impl Tag {
    pub(crate) fn is_valid(&self) -> bool {
        self.status.has(Status::VALID)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.status.has(Status::VALID.with(Status::DIRTY))
    }

    /// Whether it holds chunk `index` of the file with `key`.
    pub(crate) fn holds(&self, key: u64, index: u64) -> bool {
        self.is_valid() && self.key == key && self.index == index
    }

    /// An older copy of what `other`, in the same slot, holds: what a crash between the steps that make a
    /// chunk valid and its predecessor invalid leaves.
    pub(crate) fn is_superseded_by(&self, other: &Tag) -> bool {
        other.holds(self.key, self.index) && other.status.has(Status::NEW)
    }

    #[must_use]
    pub(crate) fn with_status(self, status: Status) -> Tag {
        Tag { status, ..self }
    }

    /// The same with its checksum.
    #[must_use]
    pub(crate) fn sealed(self, seed: Seed) -> Tag {
        Tag { sum: sum(&self.encode(), seed), ..self }
    }

    pub(crate) fn encode(&self) -> [u8; LINE] {
        let mut line = [0; LINE];
        let word = self.key << 8 | u64::from(self.status.byte());
        let words = [word, self.index, self.file.inode, self.file.generation, self.size, self.timestamp];
        for (at, word) in words.into_iter().enumerate() {
            line[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        line[48..52].copy_from_slice(&self.chunks.to_le_bytes());
        line[60..].copy_from_slice(&self.sum.to_le_bytes());
        line
    }

    /// Reads a tag; the bytes are not trusted. Of one that is not valid only the status is looked at: a crash
    /// may have torn the rest.
    pub(crate) fn decode(line: &[u8; LINE], seed: Seed) -> Result<Tag, Damaged> {
        let status = Status::from_byte(line[0]).ok_or(Damaged)?;
        let word = |at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(line[at..at + 4].try_into().expect("four bytes"));
        if status.has(Status::VALID) && (half(60) != sum(line, seed) || word(52) != 0) {
            return Err(Damaged);
        }
        let file = FileId { inode: word(16), generation: word(24) };
        let (key, index, size, timestamp) = (word(0) >> 8, word(8), word(32), word(40));
        Ok(Tag { status, key, index, file, size, timestamp, chunks: half(48), sum: half(60) })
    }
}

/// Of all but the status, which changes alone.
fn sum(line: &[u8; LINE], seed: Seed) -> u32 {
    seed.sum(&line[1..60])
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::backing::CacheId;

    fn seed() -> Seed {
        Seed::new(CacheId([9; 16]))
    }

    fn example() -> Tag {
        Tag {
            status: Status::VALID.with(Status::NEW).with(Status::DIRTY),
            key: 0x0012_3456_789a_bcde,
            index: 3,
            file: FileId { inode: 17, generation: 19 },
            size: 16000,
            timestamp: 23,
            chunks: 2,
            sum: 0,
        }
        .sealed(seed())
    }

    #[test]
    fn golden_bytes() {
        let line = example().encode();
        let hex: String = line[..60].iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "87debc9a78563412\
            0300000000000000\
            1100000000000000\
            1300000000000000\
            803e000000000000\
            1700000000000000\
            0200000000000000\
            00000000";
        assert_eq!(hex, expected);
        assert_eq!(Tag::decode(&line, seed()), Ok(example()));
        assert_eq!(Tag::decode(&line, Seed::new(CacheId([8; 16]))), Err(Damaged), "of another cache");
        assert_eq!(Tag::decode(&[0; LINE], seed()), Ok(Tag::default()));
    }

    #[test]
    fn a_change_of_the_status_changes_one_word() {
        let (line, other) = (example().encode(), example().with_status(Status::INVALID).encode());
        assert_eq!(line[8..], other[8..]);
        assert_ne!(line[..8], other[..8]);
    }

    #[test]
    fn every_flipped_bit_of_a_valid_tag_is_noticed() {
        let line = example().encode();
        for bit in 0..LINE * 8 {
            let mut line = line;
            line[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tag::decode(&line, seed()), Err(Damaged), "bit {bit}");
        }
    }
}
