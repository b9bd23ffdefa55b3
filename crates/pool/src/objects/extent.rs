//! Where a block is stored: entries, groups of entries, and how bytes are transformed on their way to the
//! vdevs.
//!
//! Shape: the table of extents has one row for 32 blocks of an object, so that a sequential write changes
//! few rows, and a random one no more pages than single rows would. A row is a list of: index in the group (1
//! byte), packed place (8), checksum of the stored bytes (8), birth txg (8), stored bytes (4), compression
//! (and a flag for pieces) in the upper 8 bits and logical bytes in the lower 24 (4). A block that is not
//! listed is a hole. Logical bytes end at the block's last non-zero byte, rounded up to 512; what follows
//! reads as zeroes.

use crate::codec::{Reader, Writer};
use crate::error::{PoolError, Result};
use crate::ids::{Place, Txg, UNIT_BYTES};
use crate::namespace::props::Compression;

/// Blocks in a row.
pub(crate) const GROUP_BLOCKS: u64 = 32;
/// Largest block of an object.
pub const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Smallest block of an object.
pub const BLOCK_BYTES_MIN: u32 = 512;

/// A stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) place: Place,
    pub(crate) sum: u64,
    pub(crate) birth: Txg,
    pub(crate) stored_bytes: u32,
    pub(crate) logical_bytes: u32,
    pub(crate) codec: u8,
}

impl Extent {
    /// Whether the block is stored in several places, described by a row of its own.
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.codec & IN_PIECES != 0
    }

    pub(crate) fn units(&self) -> u64 {
        u64::from(self.stored_bytes).div_ceil(UNIT_BYTES)
    }
}

/// The blocks of one row.
pub(crate) type Group = [Option<Extent>; GROUP_BLOCKS as usize];

pub(crate) fn encode_group(group: &Group) -> Vec<u8> {
    let mut out = Writer::default();
    for (index, extent) in group.iter().enumerate() {
        let Some(extent) = extent else { continue };
        out.u8(index as u8).u64(extent.place.pack()).u64(extent.sum).u64(extent.birth.0);
        out.u32(extent.stored_bytes).u32(u32::from(extent.codec) << 24 | extent.logical_bytes);
    }
    out.bytes
}

pub(crate) fn decode_group(bytes: &[u8]) -> Result<Group> {
    let strange = || PoolError::bad_value("extents", "a row of another shape");
    let mut input = Reader::new(bytes);
    let mut group = [None; GROUP_BLOCKS as usize];
    for _ in 0..bytes.len() / 33 {
        let mut one = || {
            let (index, place, sum) = (input.u8()?, Place::unpack(input.u64()?), input.u64()?);
            let (birth, stored_bytes, rest) = (Txg(input.u64()?), input.u32()?, input.u32()?);
            let (codec, logical_bytes) = ((rest >> 24) as u8, rest & 0xff_ffff);
            let is_sound = stored_bytes > 0
                && stored_bytes <= logical_bytes
                && logical_bytes <= BLOCK_BYTES_MAX
                && group.get(usize::from(index)).is_some_and(Option::is_none);
            let extent = Extent { place, sum, birth, stored_bytes, logical_bytes, codec };
            is_sound.then_some((index, extent))
        };
        let (index, extent) = one().ok_or_else(strange)?;
        group[usize::from(index)] = Some(extent);
    }
    input.end().ok_or_else(strange)?;
    Ok(group)
}

/// The pieces of a block: place (8), checksum (8), bytes (4) of each.
pub(crate) fn decode_pieces(extent: &Extent, row: Option<&[u8]>) -> Result<Vec<Extent>> {
    let strange = || PoolError::bad_value("pieces", format!("the row of the block at {}", extent.place));
    let row = row.ok_or_else(strange)?;
    let mut input = Reader::new(row);
    let mut pieces = Vec::new();
    for _ in 0..row.len() / 20 {
        let mut one = || {
            let (place, sum, stored_bytes) = (Place::unpack(input.u64()?), input.u64()?, input.u32()?);
            (stored_bytes > 0).then_some(Extent { place, sum, stored_bytes, codec: RAW, ..*extent })
        };
        pieces.push(one().ok_or_else(strange)?);
    }
    input.end().ok_or_else(strange)?;
    let total: u64 = pieces.iter().map(|piece| u64::from(piece.stored_bytes)).sum();
    let is_whole = total == u64::from(extent.stored_bytes)
        && pieces.first().is_some_and(|piece| piece.place == extent.place)
        && pieces.iter().rev().skip(1).all(|piece| u64::from(piece.stored_bytes) % UNIT_BYTES == 0);
    if is_whole { Ok(pieces) } else { Err(strange()) }
}

/// Flag beside the codec: see [`Extent::is_in_pieces`].
pub(crate) const IN_PIECES: u8 = 0x80;
const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// Bytes up to the last non-zero one, rounded up to 512.
fn significant(block: &[u8]) -> &[u8] {
    let words = block.rchunks_exact(8).take_while(|word| **word == [0; 8]).count();
    let len = (block.len() - words * 8).next_multiple_of(512).min(block.len());
    &block[..len]
}

/// Logical bytes of a block, codec, and what to store in their place.
pub(crate) type Packed<'a> = (&'a [u8], u8, Option<Vec<u8>>);

/// The bytes that are stored.
pub(crate) fn stored<'p>(packed: &'p Packed<'_>) -> &'p [u8] {
    packed.2.as_deref().unwrap_or(packed.0)
}

/// What to store of a block: `None` for a hole, else logical length, codec and compressed bytes (`None`:
/// stored uncompressed).
pub(crate) fn pack(block: &[u8], compression: Compression) -> Option<Packed<'_>> {
    let bytes = significant(block);
    if bytes.is_empty() {
        return None;
    }
    // Saving less than a unit saves nothing.
    let limit = ((bytes.len() as u64).div_ceil(UNIT_BYTES) - 1) * UNIT_BYTES;
    let packed = match compression {
        _ if limit == 0 => None,
        Compression::Off => None,
        Compression::Lz4 => Some((LZ4, lz4_flex::block::compress(bytes))),
        Compression::Zstd => zstd::bulk::compress(bytes, 3).ok().map(|packed| (ZSTD, packed)),
    };
    match packed.filter(|(_, packed)| packed.len() as u64 <= limit) {
        Some((codec, packed)) => Some((bytes, codec, Some(packed))),
        None => Some((bytes, RAW, None)),
    }
}

/// Undoes [`pack`] into `block`, whose other bytes become zero. `None`: the bytes are malformed.
pub(crate) fn unpack(stored: &[u8], extent: &Extent, block: &mut [u8]) -> Option<()> {
    let (logical, rest) = block.split_at_mut_checked(extent.logical_bytes as usize)?;
    match extent.codec & !IN_PIECES {
        RAW => {
            logical.copy_from_slice(stored.get(..logical.len())?);
        }
        LZ4 => {
            let len = lz4_flex::block::decompress_into(stored, logical).ok()?;
            (len == logical.len()).then_some(())?;
        }
        ZSTD => {
            let len = zstd::bulk::decompress_to_buffer(stored, logical).ok()?;
            (len == logical.len()).then_some(())?;
        }
        _ => return None,
    }
    rest.fill(0);
    Some(())
}
