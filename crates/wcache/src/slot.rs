//! A state slot: what changes of a cache, besides its log.
//!
//! At rest, the two slots are the same. An update writes first one and then the other, with a fence after
//! each; the newest whole one wins. So a crash inside an update, or an unreadable line, costs one of them.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNWCST"
//!      8    2 version, 1
//!     10    2 length of the log's header in bytes
//!     12    4 commit slots of the last writer: as many entries can be missing after a crash
//!     16   16 id of the cache
//!     32    8 sequence number; the newest slot has the largest
//!     40    8 generations up to this one are on the origin
//!     48    8 the opening before, random
//!     56    8 the opening, random
//!     64    - the log's header (`HdlHeader`), then zeroes
//!   4092    4 CRC-32C of bytes 0 to 4091
//! ```

use fastness_prb::{HEADER_BYTES_MAX, HdlHeader};

use crate::error::Error;
use crate::frame::{FRAME_BYTES, Fields, Frame, check, seal};
use crate::id::CacheId;

/// Region offsets of the two slots.
pub(crate) const SLOT_OFFSETS: [usize; 2] = [FRAME_BYTES, 2 * FRAME_BYTES];
const MAGIC: [u8; 8] = *b"FSTNWCST";
const VERSION: u16 = 1;
const NAME: &str = "state slot";
const HEADER_OFFSET: usize = 64;
/// Leaves headroom for counting on.
const NUMBER_MAX: u64 = 1 << 55;

const _: () = assert!(HEADER_OFFSET + HEADER_BYTES_MAX <= FRAME_BYTES - 4);

/// The state of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) id: CacheId,
    /// Commit slots of the last writer.
    pub(crate) committers: u32,
    pub(crate) sequence: u64,
    /// Generations up to this one are on the origin.
    pub(crate) synced: u64,
    /// The opening before, and the last one. The origin's mark is one of them.
    pub(crate) openings: [u64; 2],
    /// The log's header.
    pub(crate) header: HdlHeader,
}

impl Slot {
    pub(crate) fn encode(&self) -> Frame {
        let mut frame = [0; FRAME_BYTES];
        let header = self.header.encode();
        frame[8..10].copy_from_slice(&VERSION.to_le_bytes());
        frame[10..12].copy_from_slice(&(header.len() as u16).to_le_bytes());
        frame[12..16].copy_from_slice(&self.committers.to_le_bytes());
        frame[16..32].copy_from_slice(&self.id.0);
        let words = [self.sequence, self.synced, self.openings[0], self.openings[1]];
        for (index, word) in words.iter().enumerate() {
            frame[32 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        frame[HEADER_OFFSET..HEADER_OFFSET + header.len()].copy_from_slice(&header);
        seal(&mut frame, &MAGIC);
        frame
    }

    /// Reads the slot found at `region_offset`; the bytes are not trusted.
    ///
    /// # Errors
    /// [`Error::Block`], [`Error::Version`].
    pub(crate) fn decode(frame: &Frame, region_offset: usize) -> Result<Slot, Error> {
        check(frame, &MAGIC, NAME, region_offset)?;
        let mut fields = Fields(&frame[8..]);
        let version = fields.u16();
        if version != VERSION {
            return Err(Error::Version { found: version, known: VERSION });
        }
        let wrong = |reason| Error::Block { block: NAME, region_offset: region_offset as u64, reason };
        let header_bytes = usize::from(fields.u16());
        let committers = fields.u32();
        let id = CacheId(fields.bytes());
        let (sequence, synced) = (fields.u64(), fields.u64());
        let openings = [fields.u64(), fields.u64()];
        let header = frame[HEADER_OFFSET..FRAME_BYTES - 4].get(..header_bytes);
        let header = header.and_then(|bytes| HdlHeader::decode(bytes).ok());
        let header = header.ok_or_else(|| wrong("the header of its log is damaged"))?;
        if sequence > NUMBER_MAX || synced > NUMBER_MAX {
            return Err(wrong("a number is too large"));
        }
        Ok(Slot { id, committers, sequence, synced, openings, header })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        let id = CacheId([9; 16]);
        Slot { id, committers: 4, sequence: 5, synced: 1000, openings: [3, 4], header: HdlHeader::NoZil }
    }

    #[test]
    fn golden_bytes() {
        let frame = slot().encode();
        let mut expected = b"FSTNWCST\x01\0\x0c\0\x04\0\0\0".to_vec();
        expected.extend([9; 16]);
        for word in [5, 1000, 3, 4_u64] {
            expected.extend(word.to_le_bytes());
        }
        expected.extend(HdlHeader::NoZil.encode());
        assert_eq!(frame[..76], expected);
        assert_eq!(Slot::decode(&frame, 4096).unwrap(), slot());
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let frame = slot().encode();
        for bit in 0..FRAME_BYTES * 8 {
            let mut flipped = frame;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Slot::decode(&flipped, 4096).is_err(), "bit {bit}");
        }
        let mut forged = frame;
        forged[11] = 0xff;
        seal(&mut forged, &MAGIC);
        assert!(Slot::decode(&forged, 4096).is_err(), "a header longer than the slot");
    }
}
