//! The header that the owner of a log persists for it, in its own transactions: where the chain begins and
//! which part of it counts.
//!
//! The log writes only blocks. Each change of the header is handed to the owner, with the txg in which it
//! must be durable. Layout: `docs/format.md`, section "Header of a block log".

use crate::error::HeaderError;
use crate::format::{get, get_ahead, get_u32, get_u64, put, put_ahead};
use crate::ids::{AHEAD, Ahead, BlockSeq, Extent, LogGuid, Lsn, Txg};

/// Version of the encoding.
pub const HEADER_VERSION: u16 = 2;
/// Length of every encoding, in bytes.
pub const HEADER_BYTES: usize = 136;

const FIRST_AT: usize = 24;
const FIRST_SEQ_AT: usize = 72;
const DURABLE_AT: usize = 80;
const FIRST_TXG_AT: usize = 88;
const LAST_SEQ_AT: usize = 96;
const LAST_LSN_AT: usize = 104;
const REPLAYED_AT: usize = 112;
const ZERO_AT: usize = 120;
const SUM_AT: usize = HEADER_BYTES - 4;

/// State of a log as its owner persists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Header {
    /// There is no chain.
    #[default]
    None,
    /// There is a chain, which may have blocks.
    Logging(Chain),
    /// The chain was claimed after a crash; its records are being replayed.
    Claimed(Claim),
}

/// Where a chain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub guid: LogGuid,
    /// Place of its first block, written or not.
    pub first: Extent,
    /// The same for the next ones, so that they are found if the first one is lost.
    pub then: [Option<Extent>; AHEAD - 1],
    /// Number of the first block.
    pub first_seq: BlockSeq,
    /// The last block that was durable when the header was made, or the one before the first. A chain that
    /// ends earlier is damaged.
    pub durable_seq: BlockSeq,
}

/// What claim found of a chain, and how far replay has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The chain.
    pub chain: Chain,
    /// The first txg that had not synced at the crash: records of older ones are not replayed.
    pub first_txg: Txg,
    /// The last claimed block, or the one before the first.
    pub last_seq: BlockSeq,
    /// The last claimed record; 0 if there was none.
    pub last_lsn: Lsn,
    /// The last replayed record; 0 if there was none.
    pub replayed: Lsn,
}

impl Header {
    /// The header as bytes.
    ///
    /// Shape: [`HEADER_BYTES`], little endian, `docs/format.md`.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, HEADER_VERSION.to_le_bytes());
        let (state, chain) = match self {
            Header::None => (0, None),
            Header::Logging(chain) => (1, Some(chain)),
            Header::Claimed(claim) => (2, Some(&claim.chain)),
        };
        out[2] = state;
        if let Some(chain) = chain {
            put(&mut out, 8, chain.guid.to_bytes());
            put_ahead(&mut out, FIRST_AT, &chain.places());
            put(&mut out, FIRST_SEQ_AT, chain.first_seq.0.to_le_bytes());
            put(&mut out, DURABLE_AT, chain.durable_seq.0.to_le_bytes());
        }
        if let Header::Claimed(claim) = self {
            put(&mut out, FIRST_TXG_AT, claim.first_txg.0.to_le_bytes());
            put(&mut out, LAST_SEQ_AT, claim.last_seq.0.to_le_bytes());
            put(&mut out, LAST_LSN_AT, claim.last_lsn.0.to_le_bytes());
            put(&mut out, REPLAYED_AT, claim.replayed.0.to_le_bytes());
        }
        let sum = crc32c::crc32c(&out[..SUM_AT]);
        put(&mut out, SUM_AT, sum.to_le_bytes());
        out
    }

    /// Reads a header from the front of `bytes`, which may be longer; the bytes are not trusted.
    ///
    /// # Errors
    /// [`HeaderError`], of kind Corrupt or (another version) Invalid.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderError> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(HeaderError::TooShort { len_bytes: bytes.len() })?;
        if get_u32(bytes, SUM_AT) != crc32c::crc32c(&bytes[..SUM_AT]) {
            return Err(HeaderError::Checksum);
        }
        let version = u16::from_le_bytes(get(bytes, 0));
        if version != HEADER_VERSION {
            return Err(HeaderError::Version { found: version, known: HEADER_VERSION });
        }
        let zero_from = match bytes[2] {
            0 => 8,
            1 => FIRST_TXG_AT,
            2 => ZERO_AT,
            _ => return Err(HeaderError::Field { offset: 2 }),
        };
        for range in [3..8, zero_from..SUM_AT] {
            if let Some(at) = bytes[range.clone()].iter().position(|byte| *byte != 0) {
                return Err(HeaderError::Field { offset: range.start + at });
            }
        }
        match bytes[2] {
            0 => Ok(Header::None),
            1 => Ok(Header::Logging(Chain::decode(bytes)?)),
            _ => Ok(Header::Claimed(Claim::decode(bytes)?)),
        }
    }
}

impl Chain {
    /// Where the first blocks are.
    pub(crate) fn places(&self) -> Ahead {
        let mut places = Ahead::default();
        places[0] = Some(self.first);
        places[1..].copy_from_slice(&self.then);
        places
    }

    fn decode(bytes: &[u8]) -> Result<Chain, HeaderError> {
        let field = |offset| HeaderError::Field { offset };
        let guid = LogGuid::from_bytes(get(bytes, 8)).ok_or(field(8))?;
        let places = get_ahead(bytes, FIRST_AT).map_err(field)?;
        let first = places[0].ok_or(field(FIRST_AT))?;
        let mut then = [None; AHEAD - 1];
        then.copy_from_slice(&places[1..]);
        let first_seq = BlockSeq(get_u64(bytes, FIRST_SEQ_AT));
        if first_seq.0 == 0 {
            return Err(field(FIRST_SEQ_AT));
        }
        let durable_seq = BlockSeq(get_u64(bytes, DURABLE_AT));
        if durable_seq.next() < first_seq {
            return Err(field(DURABLE_AT));
        }
        Ok(Chain { guid, first, then, first_seq, durable_seq })
    }
}

impl Claim {
    fn decode(bytes: &[u8]) -> Result<Claim, HeaderError> {
        let claim = Claim {
            chain: Chain::decode(bytes)?,
            first_txg: Txg(get_u64(bytes, FIRST_TXG_AT)),
            last_seq: BlockSeq(get_u64(bytes, LAST_SEQ_AT)),
            last_lsn: Lsn(get_u64(bytes, LAST_LSN_AT)),
            replayed: Lsn(get_u64(bytes, REPLAYED_AT)),
        };
        if claim.last_seq.next() < claim.chain.first_seq {
            return Err(HeaderError::Field { offset: LAST_SEQ_AT });
        }
        if claim.replayed > claim.last_lsn {
            return Err(HeaderError::Field { offset: REPLAYED_AT });
        }
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> [Header; 3] {
        let extent = |offset, len_bytes| Extent { place: crate::ids::Place { device: 3, offset }, len_bytes };
        let chain = Chain {
            guid: LogGuid::from_bytes([7; 16]).unwrap(),
            first: extent(0x1_2345_6000, 0x8000),
            then: [Some(extent(0x9000, 0x1000)), None],
            first_seq: BlockSeq(9),
            durable_seq: BlockSeq(11),
        };
        let claim =
            Claim { chain, first_txg: Txg(44), last_seq: BlockSeq(12), last_lsn: Lsn(90), replayed: Lsn(80) };
        [Header::None, Header::Logging(chain), Header::Claimed(claim)]
    }

    #[test]
    fn decode_returns_what_was_encoded() {
        for header in examples() {
            let mut bytes = header.encode().to_vec();
            assert_eq!(Header::decode(&bytes), Ok(header));
            bytes.extend([0xee; 9]);
            assert_eq!(Header::decode(&bytes), Ok(header));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_an_error() {
        for header in examples() {
            let good = header.encode();
            for bit in 0..good.len() * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(Header::decode(&bad).is_err(), "{header:?} bit {bit}");
            }
            assert!((0..good.len()).all(|len| Header::decode(&good[..len]).is_err()));
        }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = examples()[2].encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "02000200000000000707070707070707070707070707070700604523010000000300000000800000\
                        0090000000000000030000000010000000000000000000000000000000000000\
                        09000000000000000b000000000000002c000000000000000c000000000000005a00000000000000\
                        5000000000000000000000000000000000000000";
        assert_eq!(hex[..264], *expected);
    }

    #[test]
    fn fields_out_of_their_bounds_are_named() {
        let cases: [(usize, u8, usize); 11] = [
            (2, 3, 2),
            (3, 1, 3),
            (24, 1, 24),
            (36, 1, 24),
            (41, 0x91, 40),
            (68, 1, 56),
            (72, 0, 72),
            (80, 7, 80),
            (96, 7, 96),
            (112, 91, 112),
            (122, 1, 122),
        ];
        for (at, value, offset) in cases {
            let mut bytes = examples()[2].encode();
            bytes[at] = value;
            let sum = crc32c::crc32c(&bytes[..SUM_AT]);
            put(&mut bytes, SUM_AT, sum.to_le_bytes());
            assert_eq!(Header::decode(&bytes), Err(HeaderError::Field { offset }), "byte {at}");
        }
    }
}
