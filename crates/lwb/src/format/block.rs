//! The header of a block: where the chain continues, and the verifier that identifies the block to a reader.
//!
//! The address of a block is written before the block itself, so nothing about its contents can be stored
//! with the address. The block itself carries what identifies it, the *verifier*: the chain's random guid and
//! the block's number. Every sector has a tag derived from both (`sector`).

use crate::format::sector::{Contents, SECTOR_BYTES, Sector, Tags, contents_of, stored_bytes};
use crate::format::{get, get_u32, get_u64, put};
use crate::ids::{AHEAD, Ahead, BlockSeq, Extent, LogGuid, Place, Txg};
use crate::space::{BLOCK_BYTES_MAX, UNIT_BYTES};

/// Version of the block format.
pub(crate) const LWB_VERSION: u16 = 2;
/// Offset of the first piece in the contents.
pub(crate) const BLOCK_HEADER_BYTES: usize = NEXT_AT + AHEAD * EXTENT_BYTES;
/// Bytes of an encoded extent.
const EXTENT_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"FASTLWBK";
const VERSION_AT: usize = 8;
const USED_AT: usize = 12;
const GUID_AT: usize = 16;
const SEQ_AT: usize = 32;
const DURABLE_AT: usize = 40;
const TXG_AT: usize = 48;
const NEXT_AT: usize = 56;

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) guid: LogGuid,
    pub(crate) seq: BlockSeq,
    /// The last block of the chain that was durable when this one was written.
    pub(crate) durable_seq: BlockSeq,
    /// Newest txg of a record in the block; 0 without records.
    pub(crate) newest_txg: Txg,
    /// Header and pieces, in bytes.
    pub(crate) used_bytes: u32,
    /// Where the next blocks are, or will be; empty if there was no space.
    pub(crate) next: Ahead,
}

/// Why the bytes at a place are not the block that was expected there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reject {
    /// No block at all.
    NoBlock,
    /// A block of another chain.
    Foreign(LogGuid),
    /// An older block of this chain.
    Stale(BlockSeq),
    /// A later block of this chain.
    Misplaced(BlockSeq),
    /// Some sectors of the block are present, others were never written.
    Torn,
    /// A sector of the block was written and has changed since.
    Damaged {
        /// Which.
        sector: u32,
    },
    /// An unknown version.
    Version(u16),
    /// Whole, but not a block that this program writes.
    Malformed {
        /// In the contents.
        offset: u32,
    },
}

impl BlockHeader {
    /// Bytes of a block that are written: whole units.
    pub(crate) fn written_bytes(&self) -> usize {
        stored_bytes(self.used_bytes as usize)
    }

    /// Puts the header in front of the pieces.
    pub(crate) fn put(&self, contents: &mut Contents<'_>) {
        let mut out = [0; BLOCK_HEADER_BYTES];
        put(&mut out, 0, MAGIC);
        put(&mut out, VERSION_AT, LWB_VERSION.to_le_bytes());
        put(&mut out, USED_AT, self.used_bytes.to_le_bytes());
        put(&mut out, GUID_AT, self.guid.to_bytes());
        put(&mut out, SEQ_AT, self.seq.0.to_le_bytes());
        put(&mut out, DURABLE_AT, self.durable_seq.0.to_le_bytes());
        put(&mut out, TXG_AT, self.newest_txg.0.to_le_bytes());
        put_ahead(&mut out, NEXT_AT, &self.next);
        contents.put(&out);
    }

    /// Decodes the block with this verifier. `block` is its whole extent; the contents of the written part go
    /// to `contents`.
    pub(crate) fn decode(
        block: &[u8],
        guid: LogGuid,
        seq: BlockSeq,
        contents: &mut Vec<u8>,
    ) -> Result<BlockHeader, Reject> {
        let tags = Tags::of(guid, seq);
        let sectors = || block.chunks_exact(SECTOR_BYTES).enumerate();
        let looks = |count: usize| sectors().take(count).map(|(index, sector)| tags.look(index, sector));
        let damaged = |count| looks(count).position(|sector| sector == Sector::Damaged);
        let Some((first, Sector::Whole)) = block.get(..SECTOR_BYTES).zip(looks(1).next()) else {
            if let Some(sector) = damaged(usize::MAX) {
                return Err(Reject::Damaged { sector: sector as u32 });
            }
            let is_torn = looks(usize::MAX).any(|sector| sector == Sector::Whole);
            return Err(if is_torn { Reject::Torn } else { Self::identify(block, guid, seq) });
        };
        contents_of(first, contents);
        let header = Self::decode_fields(contents, guid, seq)?;
        let written = header.written_bytes();
        if written > block.len() {
            return Err(Reject::Malformed { offset: USED_AT as u32 });
        }
        if let Some(sector) = damaged(written / SECTOR_BYTES) {
            return Err(Reject::Damaged { sector: sector as u32 });
        }
        if looks(written / SECTOR_BYTES).any(|sector| sector != Sector::Whole) {
            return Err(Reject::Torn);
        }
        contents_of(&block[..written], contents);
        let behind = &contents[header.used_bytes as usize..];
        match behind.iter().position(|byte| *byte != 0) {
            Some(at) => Err(Reject::Malformed { offset: header.used_bytes + at as u32 }),
            None => Ok(header),
        }
    }

    /// What a place holds instead of the block.
    fn identify(block: &[u8], guid: LogGuid, seq: BlockSeq) -> Reject {
        let Some((found, found_seq)) = whose(block) else { return Reject::NoBlock };
        match found_seq.cmp(&seq) {
            _ if found != guid => Reject::Foreign(found),
            std::cmp::Ordering::Greater => Reject::Misplaced(found_seq),
            _ => Reject::Stale(found_seq),
        }
    }

    /// The header in a whole first sector: written by us, by another version, or forged.
    fn decode_fields(contents: &[u8], guid: LogGuid, seq: BlockSeq) -> Result<BlockHeader, Reject> {
        let malformed = |offset: usize| Err(Reject::Malformed { offset: offset as u32 });
        if get::<8>(contents, 0) != MAGIC {
            return malformed(0);
        }
        let version = u16::from_le_bytes(get(contents, VERSION_AT));
        if version != LWB_VERSION {
            return Err(Reject::Version(version));
        }
        if contents[10..USED_AT] != [0; 2] {
            return malformed(10);
        }
        let used_bytes = get_u32(contents, USED_AT);
        let is_used = used_bytes as usize >= BLOCK_HEADER_BYTES && used_bytes.is_multiple_of(8);
        if !is_used || used_bytes > BLOCK_BYTES_MAX {
            return malformed(USED_AT);
        }
        if LogGuid::from_bytes(get(contents, GUID_AT)) != Some(guid) {
            return malformed(GUID_AT);
        }
        if BlockSeq(get_u64(contents, SEQ_AT)) != seq {
            return malformed(SEQ_AT);
        }
        let durable_seq = BlockSeq(get_u64(contents, DURABLE_AT));
        if durable_seq >= seq {
            return malformed(DURABLE_AT);
        }
        let next =
            get_ahead(contents, NEXT_AT).map_err(|offset| Reject::Malformed { offset: offset as u32 })?;
        let newest_txg = Txg(get_u64(contents, TXG_AT));
        Ok(BlockHeader { guid, seq, durable_seq, newest_txg, used_bytes, next })
    }
}

/// The chain and the number of the block that begins here, if its first sector is whole.
fn whose(block: &[u8]) -> Option<(LogGuid, BlockSeq)> {
    let first = block.get(..SECTOR_BYTES).filter(|first| get::<8>(first, 0) == MAGIC)?;
    let guid = LogGuid::from_bytes(get(first, GUID_AT))?;
    let seq = BlockSeq(get_u64(first, SEQ_AT));
    (Tags::of(guid, seq).look(0, first) == Sector::Whole).then_some((guid, seq))
}

/// Writes places: for each its offset, device, length; zeroes where there is none.
pub(crate) fn put_ahead(out: &mut [u8], at: usize, ahead: &Ahead) {
    for (index, extent) in ahead.iter().flatten().enumerate() {
        let at = at + index * EXTENT_BYTES;
        put(out, at, extent.place.offset.to_le_bytes());
        put(out, at + 8, extent.place.device.to_le_bytes());
        put(out, at + 12, extent.len_bytes.to_le_bytes());
    }
}

/// Reads places, which are not trusted. The error is the offset of an invalid one.
pub(crate) fn get_ahead(bytes: &[u8], at: usize) -> Result<Ahead, usize> {
    let mut ahead = Ahead::default();
    for index in 0..AHEAD {
        let at = at + index * EXTENT_BYTES;
        let place = Place { offset: get_u64(bytes, at), device: get_u32(bytes, at + 8) };
        let len_bytes = get_u32(bytes, at + 12);
        if len_bytes == 0 && place == (Place { device: 0, offset: 0 }) {
            continue;
        }
        let is_whole =
            len_bytes.is_multiple_of(UNIT_BYTES) && place.offset.is_multiple_of(u64::from(UNIT_BYTES));
        let is_gap = index > 0 && ahead[index - 1].is_none();
        if !is_whole || len_bytes == 0 || len_bytes > BLOCK_BYTES_MAX || is_gap {
            return Err(at);
        }
        ahead[index] = Some(Extent { place, len_bytes });
    }
    Ok(ahead)
}
