//! The chain header of a block: where the chain goes on, and the verifier by which a reader knows the block.
//!
//! The address of a block is on the medium before the block is, so nothing about its contents can stand beside the
//! address. The block itself carries what identifies it, the *verifier*: the chain's random guid and the block's
//! number. The checksum covers both.

use twox_hash::XxHash3_128;

use crate::format::{get, get_u32, get_u64, put};
use crate::ids::{BlockSeq, Extent, LogGuid, Place, Txg};
use crate::space::{BLOCK_BYTES_MAX, UNIT_BYTES};

/// Version of the format of blocks.
pub(crate) const LWB_VERSION: u16 = 1;
/// Bytes before the first piece.
pub(crate) const BLOCK_HEADER_BYTES: usize = 104;

const MAGIC: [u8; 8] = *b"FASTLWBK";
const VERSION_AT: usize = 8;
const WRITTEN_AT: usize = 12;
const GUID_AT: usize = 16;
const SEQ_AT: usize = 32;
const DURABLE_AT: usize = 40;
const TXG_AT: usize = 48;
const USED_AT: usize = 56;
const NEXT_LEN_AT: usize = 60;
const NEXT_DEVICE_AT: usize = 64;
const NEXT_OFFSET_AT: usize = 72;
const SUM_AT: usize = 88;

/// What a block says about itself.
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
    /// Where the chain goes on; `None` if there was no room.
    pub(crate) next: Option<Extent>,
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
    /// The block in part, or changed.
    Checksum,
    /// A version that this program does not know.
    Version(u16),
    /// Whole, and yet no block that this program writes.
    Malformed {
        /// In the block.
        offset: u32,
    },
}

impl BlockHeader {
    /// Bytes that are written of a block: whole units.
    pub(crate) fn written_bytes(&self) -> u32 {
        self.used_bytes.next_multiple_of(UNIT_BYTES)
    }

    /// Writes the header in front of the pieces, zeroes behind them, and the checksum.
    ///
    /// # Panics
    /// If `block` has not the length that is to be written.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), self.written_bytes() as usize, "a block is written in whole units");
        block[self.used_bytes as usize..].fill(0);
        block[..BLOCK_HEADER_BYTES].fill(0);
        put(block, 0, MAGIC);
        put(block, VERSION_AT, LWB_VERSION.to_le_bytes());
        put(block, WRITTEN_AT, self.written_bytes().to_le_bytes());
        put(block, GUID_AT, self.guid.to_bytes());
        put(block, SEQ_AT, self.seq.0.to_le_bytes());
        put(block, DURABLE_AT, self.durable_seq.0.to_le_bytes());
        put(block, TXG_AT, self.newest_txg.0.to_le_bytes());
        put(block, USED_AT, self.used_bytes.to_le_bytes());
        if let Some(next) = self.next {
            put(block, NEXT_LEN_AT, next.len_bytes.to_le_bytes());
            put(block, NEXT_DEVICE_AT, next.place.device.to_le_bytes());
            put(block, NEXT_OFFSET_AT, next.place.offset.to_le_bytes());
        }
        let sum = XxHash3_128::oneshot(block);
        put(block, SUM_AT, sum.to_le_bytes());
    }

    /// Reads the block that has this verifier; `bytes` is all of its extent, and is as before afterwards.
    pub(crate) fn decode(bytes: &mut [u8], guid: LogGuid, seq: BlockSeq) -> Result<BlockHeader, Reject> {
        if bytes.len() < UNIT_BYTES as usize || get::<8>(bytes, 0) != MAGIC {
            return Err(Reject::NoBlock);
        }
        match LogGuid::from_bytes(get(bytes, GUID_AT)) {
            Some(found) if found == guid => {}
            found => return Err(found.map_or(Reject::NoBlock, Reject::Foreign)),
        }
        let found = BlockSeq(get_u64(bytes, SEQ_AT));
        if found != seq {
            return Err(if found < seq { Reject::Stale(found) } else { Reject::Misplaced(found) });
        }
        let written = get_u32(bytes, WRITTEN_AT);
        if written == 0 || !written.is_multiple_of(UNIT_BYTES) || written as usize > bytes.len() {
            return Err(Reject::Checksum);
        }
        let stored: [u8; 16] = get(bytes, SUM_AT);
        put(bytes, SUM_AT, [0; 16]);
        let sum = XxHash3_128::oneshot(&bytes[..written as usize]);
        put(bytes, SUM_AT, stored);
        if sum.to_le_bytes() != stored {
            return Err(Reject::Checksum);
        }
        Self::decode_fields(bytes, guid, seq, written)
    }

    /// The fields of a block whose checksum fits: written by us, by another version, or forged.
    fn decode_fields(
        bytes: &[u8],
        guid: LogGuid,
        seq: BlockSeq,
        written: u32,
    ) -> Result<BlockHeader, Reject> {
        let version = u16::from_le_bytes(get(bytes, VERSION_AT));
        if version != LWB_VERSION {
            return Err(Reject::Version(version));
        }
        let malformed = |offset: usize| Reject::Malformed { offset: offset as u32 };
        let used_bytes = get_u32(bytes, USED_AT);
        let is_used = used_bytes as usize >= BLOCK_HEADER_BYTES && used_bytes.is_multiple_of(8);
        if !is_used || used_bytes > written || used_bytes.next_multiple_of(UNIT_BYTES) != written {
            return Err(malformed(USED_AT));
        }
        let durable_seq = BlockSeq(get_u64(bytes, DURABLE_AT));
        if durable_seq >= seq {
            return Err(malformed(DURABLE_AT));
        }
        for reserved in
            [10..WRITTEN_AT, 68..NEXT_OFFSET_AT, 80..SUM_AT, used_bytes as usize..written as usize]
        {
            if let Some(at) = bytes[reserved.clone()].iter().position(|byte| *byte != 0) {
                return Err(malformed(reserved.start + at));
            }
        }
        let next = Self::decode_next(bytes).ok_or(malformed(NEXT_LEN_AT))?;
        let newest_txg = Txg(get_u64(bytes, TXG_AT));
        Ok(BlockHeader { guid, seq, durable_seq, newest_txg, used_bytes, next })
    }

    /// The address of the next block, which need not be trustworthy; `None` if it can be none.
    fn decode_next(bytes: &[u8]) -> Option<Option<Extent>> {
        let len_bytes = get_u32(bytes, NEXT_LEN_AT);
        let place = Place { device: get_u32(bytes, NEXT_DEVICE_AT), offset: get_u64(bytes, NEXT_OFFSET_AT) };
        if len_bytes == 0 {
            return (place == Place { device: 0, offset: 0 }).then_some(None);
        }
        let unit = u64::from(UNIT_BYTES);
        let is_whole = len_bytes.is_multiple_of(UNIT_BYTES) && place.offset.is_multiple_of(unit);
        (is_whole && len_bytes <= BLOCK_BYTES_MAX).then_some(Some(Extent { place, len_bytes }))
    }

    /// Where a block whose checksum does not fit says that the chain goes on: a hint for looking for witnesses.
    pub(crate) fn next_hint(bytes: &[u8]) -> Option<Extent> {
        Self::decode_next(bytes)?
    }
}
