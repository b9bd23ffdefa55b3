//! A state slot: what changes of a cache, besides its log.
//!
//! At rest, the two slots are the same. An update writes first one and then the other, with a fence after
//! each; the newest whole one wins. So a crash inside an update, or an unreadable line, costs one of them.
//! The sides of a mirror are updated together, and have the same slots at rest.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNWCST"
//!      8    2 version: 1, or 2 of a side of a mirror
//!     10    2 length of the log's header in bytes
//!     12    4 commit slots of the last writer: as many entries can be missing after a crash
//!     16   16 id of the cache
//!     32    8 sequence number; the newest slot has the largest
//!     40    8 generations up to this one are on the origin
//!     48    8 the opening before, random
//!     56    8 the opening, random
//!     64    - version 1: the log's header (`HdlHeader`), then zeroes
//!     64    8 version 2: number of the mirror
//!     72    1 the side that is out, plus 1; 0: none is
//!     73    7 zero
//!     80    - the log's header, then zeroes
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
const VERSION_MIRRORED: u16 = 2;
const NAME: &str = "state slot";
const HEADER_OFFSET: usize = 64;
const MIRRORED_HEADER_OFFSET: usize = 80;
/// Leaves headroom for counting on.
const NUMBER_MAX: u64 = 1 << 55;

const _: () = assert!(MIRRORED_HEADER_OFFSET + HEADER_BYTES_MAX <= FRAME_BYTES - 4);

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
    /// Of a side of a mirror.
    pub(crate) mirror: Option<MirrorState>,
}

/// What a slot says of the mirror that its region is a side of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MirrorState {
    /// Number of the mirror: what a slot says of another one counts no more.
    pub(crate) mirror: u64,
    /// The side that is never to be read again.
    pub(crate) out: Option<usize>,
}

impl Slot {
    /// The side of this mirror that is out.
    pub(crate) fn out(&self, mirror: u64) -> Option<usize> {
        self.mirror.filter(|state| state.mirror == mirror)?.out
    }

    /// Whether two sides say the same of the cache.
    pub(crate) fn is_same_state(&self, other: &Slot) -> bool {
        Slot { mirror: None, ..self.clone() } == Slot { mirror: None, ..other.clone() }
    }

    pub(crate) fn encode(&self) -> Frame {
        let mut frame = [0; FRAME_BYTES];
        let header = self.header.encode();
        let version = if self.mirror.is_some() { VERSION_MIRRORED } else { VERSION };
        frame[8..10].copy_from_slice(&version.to_le_bytes());
        frame[10..12].copy_from_slice(&(header.len() as u16).to_le_bytes());
        frame[12..16].copy_from_slice(&self.committers.to_le_bytes());
        frame[16..32].copy_from_slice(&self.id.0);
        let words = [self.sequence, self.synced, self.openings[0], self.openings[1]];
        for (index, word) in words.iter().enumerate() {
            frame[32 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let mut at = HEADER_OFFSET;
        if let Some(MirrorState { mirror, out }) = self.mirror {
            frame[64..72].copy_from_slice(&mirror.to_le_bytes());
            frame[72] = out.map_or(0, |side| side as u8 + 1);
            at = MIRRORED_HEADER_OFFSET;
        }
        frame[at..at + header.len()].copy_from_slice(&header);
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
        if !(VERSION..=VERSION_MIRRORED).contains(&version) {
            return Err(Error::Version { found: version, known: VERSION_MIRRORED });
        }
        let wrong = |reason| Error::Block { block: NAME, region_offset: region_offset as u64, reason };
        let header_bytes = usize::from(fields.u16());
        let committers = fields.u32();
        let id = CacheId(fields.bytes());
        let (sequence, synced) = (fields.u64(), fields.u64());
        let openings = [fields.u64(), fields.u64()];
        let (at, mirror) = match version {
            VERSION => (HEADER_OFFSET, None),
            _ => {
                let (mirror, [out]) = (fields.u64(), fields.bytes());
                let out = match out {
                    0 => None,
                    1 | 2 => Some(usize::from(out) - 1),
                    _ => return Err(wrong("no mirror has such a side")),
                };
                (MIRRORED_HEADER_OFFSET, Some(MirrorState { mirror, out }))
            }
        };
        let header = frame[at..FRAME_BYTES - 4].get(..header_bytes);
        let header = header.and_then(|bytes| HdlHeader::decode(bytes).ok());
        let header = header.ok_or_else(|| wrong("the header of its log is damaged"))?;
        if sequence > NUMBER_MAX || synced > NUMBER_MAX {
            return Err(wrong("a number is too large"));
        }
        Ok(Slot { id, committers, sequence, synced, openings, header, mirror })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        let id = CacheId([9; 16]);
        let header = HdlHeader::NoZil;
        Slot { id, committers: 4, sequence: 5, synced: 1000, openings: [3, 4], header, mirror: None }
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
    fn golden_bytes_of_a_side() {
        for out in [None, Some(0), Some(1)] {
            let mirrored =
                Slot { mirror: Some(MirrorState { mirror: 0x0807_0605_0403_0201, out }), ..slot() };
            let frame = mirrored.encode();
            let mut expected = slot().encode()[..64].to_vec();
            expected[8] = 2;
            expected.extend([
                1,
                2,
                3,
                4,
                5,
                6,
                7,
                8,
                out.map_or(0, |side| side as u8 + 1),
                0,
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
            expected.extend(HdlHeader::NoZil.encode());
            assert_eq!(frame[..92], expected);
            assert_eq!(Slot::decode(&frame, 4096).unwrap(), mirrored);
            assert_eq!((mirrored.out(0x0807_0605_0403_0201), mirrored.out(7)), (out, None));
            let mut forged = frame;
            forged[72] = 3;
            seal(&mut forged, &MAGIC);
            assert!(Slot::decode(&forged, 4096).is_err(), "a third side");
        }
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
