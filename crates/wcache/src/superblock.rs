//! The superblock: says that a region is a cache, of which origin, and how it is divided.
//!
//! Written when a cache is made, and wiped when it is detached. There are two copies; either suffices.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNWCHE"
//!      8    2 version, 1
//!     10    2 length of the origin's path in bytes, at most 3968
//!     12    4 the origin's block in bytes
//!     16   16 id of the cache, random
//!     32    8 length of the region in bytes
//!     40    8 length of a chunk in bytes
//!     48    8 number of chunks
//!     56    8 length of the origin in bytes
//!     64    8 the origin's device number, or its file system's
//!     72    8 the origin's inode; 0: it is a device
//!     80    - the origin's path when the cache was made, then zeroes
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
const PATH_OFFSET: usize = 80;
/// Longest name of an origin.
pub(crate) const PATH_BYTES_MAX: usize = 3968;

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
}

impl Superblock {
    /// As stored on the medium.
    pub(crate) fn encode(&self) -> Frame {
        let mut frame = [0; FRAME_BYTES];
        let path = &self.origin_path[..self.origin_path.len().min(PATH_BYTES_MAX)];
        frame[8..10].copy_from_slice(&VERSION.to_le_bytes());
        frame[10..12].copy_from_slice(&(path.len() as u16).to_le_bytes());
        frame[12..16].copy_from_slice(&self.origin.block_bytes.to_le_bytes());
        frame[16..32].copy_from_slice(&self.id.0);
        let Geometry { region_bytes, chunk_bytes, chunks } = self.geometry;
        let Identity { len_bytes, device, inode, .. } = self.origin;
        for (index, word) in [region_bytes, chunk_bytes, chunks, len_bytes, device, inode].iter().enumerate()
        {
            frame[32 + index * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        frame[PATH_OFFSET..PATH_OFFSET + path.len()].copy_from_slice(path);
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
        if version != VERSION {
            return Err(Error::Version { found: version, known: VERSION });
        }
        let (path_bytes, block_bytes) = (usize::from(fields.u16()), fields.u32());
        let id = CacheId(fields.bytes());
        let geometry =
            Geometry { region_bytes: fields.u64(), chunk_bytes: fields.u64(), chunks: fields.u64() };
        let origin =
            Identity { block_bytes, len_bytes: fields.u64(), device: fields.u64(), inode: fields.u64() };
        let path = frame.get(PATH_OFFSET..PATH_OFFSET + path_bytes).filter(|_| path_bytes <= PATH_BYTES_MAX);
        let (Some(path), true) = (path, origin.is_possible()) else {
            let (block, reason) = ("superblock", "a field is impossible");
            return Err(Error::Block { block, region_offset: region_offset as u64, reason });
        };
        Ok(Superblock { id, geometry: geometry.checked()?, origin, origin_path: path.to_vec() })
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
        }
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
    fn every_flipped_bit_and_impossible_fields_are_found() {
        let frame = superblock().encode();
        for bit in 0..FRAME_BYTES * 8 {
            let mut flipped = frame;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped, 0).is_err(), "bit {bit}");
        }
        for (at, byte) in [(8, 2), (11, 0xff), (12, 3), (33, 1), (42, 0xff), (48, 0), (60, 0xff)] {
            let mut forged = frame;
            forged[at] = byte;
            seal(&mut forged, &MAGIC);
            let found = Superblock::decode(&forged, 0);
            assert!(found.is_err() || found.is_ok_and(|found| found != superblock()), "byte {at}");
        }
    }
}
