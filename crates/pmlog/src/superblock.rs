//! The superblock: says that a region is a log, and how it is divided.
//!
//! Written when a log is created and never again. There are two copies, at [`SUPERBLOCK_OFFSETS`]; either
//! suffices, so that an unreadable line does not cost the log.
//!
//! Shape: 4096 bytes, little endian:
//! ```text
//! offset size field
//!      0    8 magic "FSTNPLOG"
//!      8    2 version, 2
//!     10    1 checksum kind of records: 1 fletcher4, 2 crc32c, 4 xxh3-128
//!     11    1 alignment of records, log2 of bytes: 6 or 8
//!     12    4 zero
//!     16   16 UUID of the log, random
//!     32    8 length of the region in bytes
//!     40    8 length of a chunk in bytes
//!     48    8 number of chunks
//!     56    8 region offset of the first chunk, 16384
//!     64 4028 zero
//!   4092    4 CRC-32C of bytes 0 to 4091
//! ```

use std::fmt;

use fastness_prb::{Alignment, ChecksumKind};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::FormatError;
use crate::geometry::{DATA_OFFSET, Geometry, GeometryError};

/// Bytes of a superblock and of a header slot.
pub const BLOCK_BYTES: usize = 4096;
/// Region offsets of the two copies of the superblock.
pub const SUPERBLOCK_OFFSETS: [usize; 2] = [0, 3 * BLOCK_BYTES];
/// Every block ends in a checksum of everything before it.
pub(crate) const SUMMED_BYTES: usize = BLOCK_BYTES - 4;

const MAGIC: [u8; 8] = *b"FSTNPLOG";
const VERSION: u16 = 2;
const NAME: &str = "superblock";

/// Identifies a log: 16 random bytes, new for each creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// The contents of a superblock; the layout is in the module documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// The log.
    pub uuid: Uuid,
    /// How the region is divided.
    pub geometry: Geometry,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U16,
    checksum_kind: u8,
    alignment_log2: u8,
    reserved: U32,
    uuid: [u8; 16],
    region_bytes: U64,
    chunk_bytes: U64,
    chunks: U64,
    data_offset: U64,
    zero: [u8; 4028],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == BLOCK_BYTES);

/// The alignment for a number on the medium.
fn alignment_from_log2(log2: u8) -> Option<Alignment> {
    [Alignment::Line, Alignment::Optane].into_iter().find(|&alignment| alignment as u8 == log2)
}

/// Checks the beginning and the end that all blocks share.
pub(crate) fn check_frame(
    block: &'static str,
    bytes: &[u8; BLOCK_BYTES],
    region_offset: u64,
    magic: &[u8; 8],
    version: u16,
) -> Result<(), FormatError> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Err(FormatError::Empty { block, region_offset });
    }
    if &bytes[..8] != magic {
        return Err(FormatError::Magic { block, region_offset });
    }
    if crc32c::crc32c(&bytes[..SUMMED_BYTES]).to_le_bytes() != bytes[SUMMED_BYTES..] {
        return Err(FormatError::Checksum { block, region_offset });
    }
    let found = u16::from_le_bytes([bytes[8], bytes[9]]);
    if found != version {
        return Err(FormatError::Version { block, region_offset, found, known: version });
    }
    Ok(())
}

/// Puts the checksum at the end of a block.
pub(crate) fn seal_frame(bytes: &mut [u8; BLOCK_BYTES]) {
    let crc = crc32c::crc32c(&bytes[..SUMMED_BYTES]);
    bytes[SUMMED_BYTES..].copy_from_slice(&crc.to_le_bytes());
}

impl Superblock {
    /// The superblock as stored on the medium.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let Geometry { region_bytes, chunk_bytes, chunks, alignment, checksum } = self.geometry;
        let raw = Raw {
            magic: MAGIC,
            version: U16::new(VERSION),
            checksum_kind: checksum as u8,
            alignment_log2: alignment as u8,
            reserved: U32::new(0),
            uuid: self.uuid.0,
            region_bytes: U64::new(region_bytes),
            chunk_bytes: U64::new(chunk_bytes),
            chunks: U64::new(chunks),
            data_offset: U64::new(DATA_OFFSET),
            zero: [0; 4028],
            crc: U32::new(0),
        };
        let mut bytes: [u8; BLOCK_BYTES] = zerocopy::transmute!(raw);
        seal_frame(&mut bytes);
        bytes
    }

    /// Reads a superblock found at `region_offset`; the bytes are not trusted.
    ///
    /// # Errors
    /// [`FormatError`] with the region offset of the error.
    pub fn decode(bytes: &[u8; BLOCK_BYTES], region_offset: u64) -> Result<Self, FormatError> {
        check_frame(NAME, bytes, region_offset, &MAGIC, VERSION)?;
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        let bad = |field, offset: u64, found: u64| FormatError::Field {
            block: NAME,
            field,
            region_offset: region_offset + offset,
            found,
        };
        let checksum = ChecksumKind::from_byte(raw.checksum_kind)
            .ok_or_else(|| bad("checksum kind", 10, u64::from(raw.checksum_kind)))?;
        let alignment = alignment_from_log2(raw.alignment_log2)
            .ok_or_else(|| bad("alignment", 11, u64::from(raw.alignment_log2)))?;
        if raw.reserved.get() != 0 {
            return Err(bad("reserved field", 12, u64::from(raw.reserved.get())));
        }
        if raw.data_offset.get() != DATA_OFFSET {
            return Err(bad("offset of the first chunk", 56, raw.data_offset.get()));
        }
        if let Some(index) = raw.zero.iter().position(|&byte| byte != 0) {
            return Err(bad("reserved field", 64 + index as u64, u64::from(raw.zero[index])));
        }
        let geometry = Geometry {
            region_bytes: raw.region_bytes.get(),
            chunk_bytes: raw.chunk_bytes.get(),
            chunks: raw.chunks.get(),
            alignment,
            checksum,
        };
        geometry.check().map_err(|error| match error {
            GeometryError::ChunkBytes { chunk_bytes } => bad("length of a chunk", 40, chunk_bytes),
            GeometryError::TooSmall { chunks, .. } | GeometryError::TooMany { chunks } => {
                bad("number of chunks", 48, chunks)
            }
        })?;
        Ok(Self { uuid: Uuid(raw.uuid), geometry })
    }
}
