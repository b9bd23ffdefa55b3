//! The superblock: says that a region is a cache, of which origin, and how it is divided.
//!
//! Written when a cache is made, or a side of a mirror comes or goes or has moved; wiped when it is detached.
//! There are two copies; either suffices. A cache in one region has version 1, a side of a mirror version 2.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNWCHE"
//!      8    2 version, 1 or 2
//!     10    2 length of the origin's path in bytes, at most 3968
//!     12    4 the origin's block in bytes
//!     16   16 id of the cache, random
//!     32    8 length of the region in bytes
//!     40    8 length of a chunk in bytes
//!     48    8 number of chunks
//!     56    8 length of the origin in bytes
//!     64    8 the origin's device number, or its file system's
//!     72    8 the origin's inode; 0: it is a device
//!     80    - version 1: the origin's path when the cache was made, then zeroes
//!     80    8 version 2: number of the mirror, random
//!     88    2 this side, 0 or 1
//!     90    2 length of the other side's path in bytes
//!     92    4 zero
//!     96    - the origin's path when the cache was made, the other side's path, then zeroes
//!   4092    4 CRC-32C of bytes 0 to 4091
//! ```

use crate::error::Error;
use crate::frame::{FRAME_BYTES, Fields, Frame, check, seal};
use crate::geometry::Geometry;
use crate::id::CacheId;
use crate::origin::Identity;

/// Region offsets of the two copies.
pub(crate) const SUPERBLOCK_OFFSETS: [usize; 2] = [0, 3 * FRAME_BYTES];
const MAGIC: [u8; 8] = *b"FSTNWCHE";
const VERSION: u16 = 1;
const VERSION_MIRRORED: u16 = 2;
const PATH_OFFSET: usize = 80;
const MIRRORED_PATH_OFFSET: usize = 96;
/// Longest name of an origin.
pub(crate) const PATH_BYTES_MAX: usize = 3968;
/// Longest names of an origin and of a side together.
pub(crate) const PATHS_BYTES_MAX: usize = FRAME_BYTES - 4 - MIRRORED_PATH_OFFSET;

/// What a region that is a side of a mirror says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSide {
    /// Number of the mirror: another one with each region that joins.
    pub mirror: u64,
    /// Which side this is: 0 or 1.
    pub side: usize,
    /// Where the other side was last; bytes of a path.
    pub other_path: Vec<u8>,
}

/// What a region says of the cache in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The cache.
    pub id: CacheId,
    /// How the region is divided.
    pub geometry: Geometry,
    /// What the cache is in front of.
    pub origin: Identity,
    /// Where that was when the cache was made; bytes of a path, or another address.
    pub origin_path: Vec<u8>,
    /// The mirror that the region is a side of; `None`: the cache has one region.
    pub side: Option<MirrorSide>,
}

impl Superblock {
    /// As stored on the medium.
    pub(crate) fn encode(&self) -> Frame {
        let mut frame = [0; FRAME_BYTES];
        let path = &self.origin_path[..self.origin_path.len().min(PATH_BYTES_MAX)];
        let version = if self.side.is_some() { VERSION_MIRRORED } else { VERSION };
        frame[8..10].copy_from_slice(&version.to_le_bytes());
        frame[10..12].copy_from_slice(&(path.len() as u16).to_le_bytes());
        frame[12..16].copy_from_slice(&self.origin.block_bytes.to_le_bytes());
        frame[16..32].copy_from_slice(&self.id.0);
        let Geometry { region_bytes, chunk_bytes, chunks } = self.geometry;
        let Identity { len_bytes, device, inode, .. } = self.origin;
        for (index, word) in [region_bytes, chunk_bytes, chunks, len_bytes, device, inode].iter().enumerate()
        {
            frame[32 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let mut at = PATH_OFFSET;
        if let Some(MirrorSide { mirror, side, other_path }) = &self.side {
            let other = &other_path[..other_path.len().min(PATHS_BYTES_MAX - path.len())];
            frame[80..88].copy_from_slice(&mirror.to_le_bytes());
            frame[88..90].copy_from_slice(&(*side as u16).to_le_bytes());
            frame[90..92].copy_from_slice(&(other.len() as u16).to_le_bytes());
            at = MIRRORED_PATH_OFFSET;
            frame[at + path.len()..][..other.len()].copy_from_slice(other);
        }
        frame[at..at + path.len()].copy_from_slice(path);
        seal(&mut frame, &MAGIC);
        frame
    }

    /// Reads the copy found at `region_offset`; the bytes are not trusted.
    ///
    /// # Errors
    /// [`Error::Block`], [`Error::Version`], [`Error::Geometry`].
    pub(crate) fn decode(frame: &Frame, region_offset: usize) -> Result<Superblock, Error> {
        check(frame, &MAGIC, "superblock", region_offset)?;
        let mut fields = Fields(&frame[8..]);
        let version = fields.u16();
        if !(VERSION..=VERSION_MIRRORED).contains(&version) {
            return Err(Error::Version { found: version, known: VERSION_MIRRORED });
        }
        let (path_bytes, block_bytes) = (usize::from(fields.u16()), fields.u32());
        let id = CacheId(fields.bytes());
        let geometry =
            Geometry { region_bytes: fields.u64(), chunk_bytes: fields.u64(), chunks: fields.u64() };
        let origin =
            Identity { block_bytes, len_bytes: fields.u64(), device: fields.u64(), inode: fields.u64() };
        let wrong = || {
            let (block, reason) = ("superblock", "a field is impossible");
            Error::Block { block, region_offset: region_offset as u64, reason }
        };
        let (at, side) = match version {
            VERSION => (PATH_OFFSET, None),
            _ => {
                let (mirror, side, other_bytes) = (fields.u64(), usize::from(fields.u16()), fields.u16());
                let at = MIRRORED_PATH_OFFSET + path_bytes;
                let other = frame[..FRAME_BYTES - 4].get(at..at + usize::from(other_bytes));
                let other_path = other.filter(|_| side <= 1).ok_or_else(wrong)?.to_vec();
                (MIRRORED_PATH_OFFSET, Some(MirrorSide { mirror, side, other_path }))
            }
        };
        let path = frame.get(at..at + path_bytes).filter(|_| path_bytes <= PATH_BYTES_MAX);
        let path = path.filter(|_| origin.is_possible()).ok_or_else(wrong)?;
        Ok(Superblock { id, geometry: geometry.checked()?, origin, origin_path: path.to_vec(), side })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn superblock() -> Superblock {
        Superblock {
            id: CacheId(std::array::from_fn(|index| index as u8)),
            geometry: Geometry { region_bytes: 1 << 20, chunk_bytes: 8192, chunks: 100 },
            origin: Identity { len_bytes: 1 << 30, block_bytes: 512, device: 0xfd00, inode: 77 },
            origin_path: b"/srv/disk.img".to_vec(),
            side: None,
        }
    }

    fn mirrored() -> Superblock {
        let side = MirrorSide { mirror: 0x0102_0304_0506_0708, side: 1, other_path: b"/dev/dax0.0".to_vec() };
        Superblock { side: Some(side), ..superblock() }
    }

    #[test]
    fn golden_bytes() {
        let frame = superblock().encode();
        let mut expected = b"FSTNWCHE\x01\0\x0d\0\0\x02\0\0".to_vec();
        expected.extend(0..16);
        for word in [1 << 20, 8192, 100, 1 << 30, 0xfd00_u64, 77] {
            expected.extend(word.to_le_bytes());
        }
        expected.extend(b"/srv/disk.img");
        assert_eq!(frame[..93], expected);
        assert!(frame[93..4092].iter().all(|byte| *byte == 0));
        assert_eq!(Superblock::decode(&frame, 0).unwrap(), superblock());
    }

    #[test]
    fn golden_bytes_of_a_side() {
        let frame = mirrored().encode();
        let mut expected = superblock().encode()[..80].to_vec();
        expected[8] = 2;
        expected.extend([8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 11, 0, 0, 0, 0, 0]);
        expected.extend(b"/srv/disk.img/dev/dax0.0");
        assert_eq!(frame[..120], expected);
        assert!(frame[120..4092].iter().all(|byte| *byte == 0));
        assert_eq!(Superblock::decode(&frame, 0).unwrap(), mirrored());
        for (at, byte) in [(8, 3), (88, 2), (91, 0xff), (11, 0xff)] {
            let mut forged = frame;
            forged[at] = byte;
            seal(&mut forged, &MAGIC);
            assert!(Superblock::decode(&forged, 0).is_err(), "byte {at}");
        }
        let longest = MirrorSide { other_path: vec![b'x'; PATHS_BYTES_MAX - 13], ..mirrored().side.unwrap() };
        let longest = Superblock { side: Some(longest), ..superblock() };
        assert_eq!(Superblock::decode(&longest.encode(), 0).unwrap(), longest);
    }

    #[test]
    fn every_flipped_bit_and_impossible_fields_are_found() {
        let frame = superblock().encode();
        for bit in 0..FRAME_BYTES * 8 {
            let mut flipped = frame;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped, 0).is_err(), "bit {bit}");
        }
        for (at, byte) in [(8, 3), (11, 0xff), (12, 3), (33, 1), (42, 0xff), (48, 0), (60, 0xff)] {
            let mut forged = frame;
            forged[at] = byte;
            seal(&mut forged, &MAGIC);
            let found = Superblock::decode(&forged, 0);
            assert!(found.is_err() || found.is_ok_and(|found| found != superblock()), "byte {at}");
        }
    }
}
