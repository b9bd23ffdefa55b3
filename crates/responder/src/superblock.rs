//! The superblock: says that a region is a cache, how it is divided, and which directory it belongs to.
//!
//! Written when a cache is created, and wiped when it is detached. There are two copies; either suffices.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNRESP"
//!      8    2 version, 3
//!     10    1 protocol: 1 FR, 2 MeLo@V, 3 Log, 4 PMAL, 5 PMAL-O
//!     11    1 log2 of the bytes of a chunk: 6 to 20; with Log, 10 to 20
//!     12    4 blocks of 4096 bytes of the log of names
//!     16   16 id of the cache, random; the directory has it too
//!     32    8 length of the region in bytes when the cache was created
//!     40    8 number of slots; with Log, of chunks of the log
//!     48    8 device of the directory, for messages only: numbers of devices change
//!     56    8 inode of the directory
//!     64    8 generation of the directory
//!     72    2 length of the next field; 0 if the path is not known, or longer than that
//!     74 1022 path of the directory when the cache was created: a hint where to look for it
//!   1096 2996 zero
//!   4092    4 CRC-32C of bytes 0 to 4091
//! ```

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use fastness_pmem::Medium;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::backing::{CacheId, DirectoryId, FileId};
use crate::error::Error;
use crate::geometry::{Geometry, NAMES_BLOCK};
use crate::kind::{ProtocolKind, operation_logs};

pub(crate) const BLOCK_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"FSTNRESP";
const VERSION: u16 = 3;
const SUMMED_BYTES: usize = BLOCK_BYTES - 4;
const PATH_BYTES_MAX: usize = 1022;

/// The contents of a superblock; the layout is in the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) protocol: ProtocolKind,
    pub(crate) cache: CacheId,
    pub(crate) geometry: Geometry,
    pub(crate) directory: DirectoryId,
    /// Empty if it is not known.
    pub(crate) path: PathBuf,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U16,
    protocol: u8,
    chunk_log2: u8,
    names_blocks: U32,
    cache: [u8; 16],
    region_bytes: U64,
    slots: U64,
    device: U64,
    inode: U64,
    generation: U64,
    path_len: U16,
    path: [u8; PATH_BYTES_MAX],
    zero: [u8; 2996],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES);

impl Raw {
    fn is_whole(&self, bytes: &[u8; BLOCK_BYTES]) -> bool {
        crc32c::crc32c(&bytes[..SUMMED_BYTES]) == self.crc.get()
    }
}

impl Superblock {
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let (mut path, known) = ([0; PATH_BYTES_MAX], self.path.as_os_str().as_bytes());
        let known = if known.len() <= PATH_BYTES_MAX { known } else { &[] };
        path[..known.len()].copy_from_slice(known);
        let raw = Raw {
            magic: MAGIC,
            version: U16::new(VERSION),
            protocol: self.protocol as u8,
            chunk_log2: self.geometry.chunk_bytes.trailing_zeros() as u8,
            names_blocks: U32::new((self.geometry.names_bytes / NAMES_BLOCK) as u32),
            cache: self.cache.0,
            region_bytes: U64::new(self.geometry.region_bytes),
            slots: U64::new(self.geometry.slots),
            device: U64::new(self.directory.device),
            inode: U64::new(self.directory.id.inode),
            generation: U64::new(self.directory.id.generation),
            path_len: U16::new(known.len() as u16),
            path,
            zero: [0; 2996],
            crc: U32::new(0),
        };
        let mut bytes: [u8; BLOCK_BYTES] = zerocopy::transmute!(raw);
        let crc = crc32c::crc32c(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a superblock found at `region_offset`; the bytes are not trusted.
    pub(crate) fn decode(bytes: &[u8; BLOCK_BYTES], region_offset: u64) -> Result<Superblock, Error> {
        let bad = |problem| Error::Superblock { region_offset, problem };
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        if raw.magic != MAGIC {
            return Err(bad("no magic: the region holds no cache"));
        }
        if !raw.is_whole(bytes) {
            return Err(bad("a wrong checksum"));
        }
        if raw.version.get() != VERSION {
            return Err(Error::Version { found: raw.version.get() });
        }
        let protocol = ProtocolKind::of(raw.protocol).ok_or_else(|| bad("an unknown protocol"))?;
        if raw.zero.iter().any(|&byte| byte != 0) {
            return Err(bad("something in a reserved field"));
        }
        let chunk_bytes = 1_u64.checked_shl(u32::from(raw.chunk_log2)).unwrap_or(0);
        let operation_logs = operation_logs(protocol);
        let geometry = Geometry {
            operation_logs,
            region_bytes: raw.region_bytes.get(),
            chunk_bytes,
            slots: raw.slots.get(),
            names_bytes: u64::from(raw.names_blocks.get()) * NAMES_BLOCK,
        };
        geometry.check(protocol).map_err(|_| bad("an impossible geometry"))?;
        let (path, rest) = raw
            .path
            .split_at_checked(usize::from(raw.path_len.get()))
            .ok_or_else(|| bad("an impossible path"))?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(bad("something in a reserved field"));
        }
        let id = FileId { inode: raw.inode.get(), generation: raw.generation.get() };
        Ok(Superblock {
            protocol,
            cache: CacheId(raw.cache),
            geometry,
            directory: DirectoryId { device: raw.device.get(), id },
            path: OsStr::from_bytes(path).into(),
        })
    }

    /// Whether there is one of any version: what it is the superblock of must not be overwritten.
    pub(crate) fn is_there<M: Medium>(front: &M) -> Result<bool, Error> {
        let mut bytes = [[0; BLOCK_BYTES]; 2];
        front.read(0, bytes.as_flattened_mut())?;
        Ok(bytes.iter().any(|bytes| {
            let raw: &Raw = zerocopy::transmute_ref!(bytes);
            raw.magic == MAGIC && raw.is_whole(bytes)
        }))
    }

    /// The first whole copy in a range that starts at the region's first byte.
    pub(crate) fn read<M: Medium>(front: &M) -> Result<Superblock, Error> {
        let copy = |offset: usize| {
            let mut bytes = [0; BLOCK_BYTES];
            front.read(offset, &mut bytes)?;
            Superblock::decode(&bytes, offset as u64)
        };
        copy(0).or_else(|first| copy(BLOCK_BYTES).map_err(|_| first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Superblock {
        Superblock {
            protocol: ProtocolKind::Fr,
            cache: CacheId([7; 16]),
            geometry: Geometry {
                region_bytes: 1 << 20,
                chunk_bytes: 4096,
                slots: 96,
                operation_logs: 0,
                names_bytes: 8192,
            },
            directory: DirectoryId { device: 3, id: FileId { inode: 2, generation: 5 } },
            path: "/d".into(),
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = example().encode();
        let hex: String = bytes[..80].iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "4653544e52455350\
            0300010c02000000\
            07070707070707070707070707070707\
            0000100000000000\
            6000000000000000\
            0300000000000000\
            0200000000000000\
            0500000000000000\
            02002f6400000000";
        assert_eq!(hex, expected);
        assert_eq!(Superblock::decode(&bytes, 0).unwrap(), example());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = example().encode();
        for bit in 0..BLOCK_BYTES * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bytes, 0).is_err(), "bit {bit}");
        }
    }
}
