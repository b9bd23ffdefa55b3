//! The HDL header: what the owner of a log persists so that the log survives a crash.
//!
//! The log itself writes only entries. Every change of the header is returned to the caller as a
//! [`HeaderUpdate`], to be persisted with its txg. The byte-exact layout is in `docs/format.md`.
//!
//! Source: zil-pmem thesis, 5.7 and 5.13 (ZIL header).

use std::sync::Arc;

use crate::counters::{Counters, ROWS, Row, Table, Tracker};
use crate::entry::NUMBER_MAX;
use crate::error::HeaderError;
use crate::ids::{EntryId, Generation, Gsid, LogGuid, Txg};

/// Version of the encoding.
pub const HEADER_VERSION: u16 = 1;
/// Maximum number of gaps in the last generation that a header records.
///
/// A crash leaves at most one gap for each commit slot; more mean corruption.
pub const GAPS_MAX: usize = 64;
/// Longest encoding in bytes.
pub const HEADER_BYTES_MAX: usize = REPLAYING_BYTES + GAPS_MAX * GAP_BYTES + CHECKSUM_BYTES;

const CHECKSUM_BYTES: usize = 4;
const FIXED_BYTES: usize = 8;
const LOGGING_BYTES: usize = FIXED_BYTES + 16;
const REPLAYING_BYTES: usize = LOGGING_BYTES + 8 + 16 + 2 * TABLE_BYTES + SEAL_BYTES;
const TABLE_BYTES: usize = ROWS * 16;
const SEAL_BYTES: usize = 8 + 8 + 32 + 16 + 8;
const GAP_BYTES: usize = 16;

/// State of a log as its owner persists it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HdlHeader {
    /// There is no log.
    #[default]
    NoZil,
    /// Entries of the log may be in the chunks.
    Logging {
        /// The log.
        log: LogGuid,
    },
    /// The log was claimed after a crash; its entries are being replayed.
    Replaying(Arc<ReplayingHeader>),
}

/// The header of a log between claim and the end of replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayingHeader {
    /// The log.
    pub log: LogGuid,
    /// The first txg that had not synced at the crash; older entries are obsolete.
    pub first_txg: Txg,
    /// How far replay has got.
    pub(crate) checkpoint: Tracker,
    /// What claim found.
    pub(crate) seal: Arc<Seal>,
}

impl ReplayingHeader {
    /// The last replayed entry; 0.0 if there was none.
    pub fn last_replayed(&self) -> EntryId {
        self.checkpoint.last
    }
}

/// What claim found, so that replay can check that it still finds the same.
///
/// `id` and `counters` are those of the artificial entry after the last one (the thesis's E_seal); they cover
/// every claimed entry. `last_generation`, `last_gsid` and `gaps` say exactly which entries of the last
/// generation were claimed: no later entry counts those, so an entry that was invisible at claim and
/// reappears at replay could otherwise stand in for a lost one. It is not replayed: since it was not claimed,
/// its owner may have given up what it refers to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seal {
    pub(crate) id: EntryId,
    pub(crate) counters: Counters,
    pub(crate) last_gsid: Gsid,
    /// Ranges of gsids missing below `last_gsid`: first and number.
    pub(crate) gaps: Vec<(u64, u64)>,
}

impl Seal {
    pub(crate) fn last_generation(&self) -> Generation {
        Generation(self.id.generation.0 - 1)
    }

    /// True if claim found this entry.
    pub(crate) fn claimed(&self, id: EntryId) -> bool {
        match id.generation.cmp(&self.last_generation()) {
            // Every entry of an earlier generation is counted by a later one (or by the seal).
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => {
                let gap = |&(first, count): &(u64, u64)| (first..first + count).contains(&id.gsid.0);
                id.gsid <= self.last_gsid && !self.gaps.iter().any(gap)
            }
            std::cmp::Ordering::Greater => false,
        }
    }
}

/// A changed header, to be persisted by the owner of the log.
///
/// Persistence: nothing is durable yet; each function that returns one says with which txg it must become
/// durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a header update that is not persisted loses the log or replays it twice"]
pub struct HeaderUpdate(HdlHeader);

impl HeaderUpdate {
    pub(crate) fn new(header: HdlHeader) -> Self {
        Self(header)
    }

    /// The header to persist.
    pub fn header(&self) -> &HdlHeader {
        &self.0
    }

    /// The header to persist.
    pub fn into_header(self) -> HdlHeader {
        self.0
    }
}

impl HdlHeader {
    /// The header as bytes, at most [`HEADER_BYTES_MAX`].
    ///
    /// Shape: little endian, `docs/format.md`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REPLAYING_BYTES + CHECKSUM_BYTES);
        let state = match self {
            Self::NoZil => 0u8,
            Self::Logging { .. } => 1,
            Self::Replaying(_) => 2,
        };
        out.extend_from_slice(&HEADER_VERSION.to_le_bytes());
        out.extend_from_slice(&[state, 0, 0, 0, 0, 0]);
        match self {
            Self::NoZil => {}
            Self::Logging { log } => out.extend_from_slice(&log.to_bytes()),
            Self::Replaying(replaying) => replaying.encode(&mut out),
        }
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// Reads a header from the front of `bytes`, which may be longer; the bytes are not trusted.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut input = Input { bytes, offset: 0 };
        let version = input.u16()?;
        let [state, reserved @ ..] = input.array::<6>()?;
        let header = match state {
            0 => Self::NoZil,
            1 => Self::Logging { log: input.guid()? },
            2 => Self::Replaying(Arc::new(ReplayingHeader::decode(&mut input)?)),
            _ => return Err(HeaderError::Field { offset: 2 }),
        };
        let summed = crc32c::crc32c(&bytes[..input.offset]);
        if u32::from_le_bytes(input.array()?) != summed {
            return Err(HeaderError::Checksum);
        }
        if version != HEADER_VERSION {
            return Err(HeaderError::Version { found: version, known: HEADER_VERSION });
        }
        if reserved != [0; 5] {
            return Err(HeaderError::Field { offset: 3 });
        }
        Ok(header)
    }
}

impl ReplayingHeader {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.log.to_bytes());
        let Tracker { last, live, last_table } = self.checkpoint;
        let Seal { id, counters, last_gsid, gaps } = &*self.seal;
        let mut numbers = vec![self.first_txg.0, last.generation.0, last.gsid.0];
        numbers.extend(live.0.iter().chain(&last_table.0).flat_map(|row| [row.txg.0, row.count]));
        numbers.extend([id.generation.0, id.gsid.0, counters.newest.0]);
        numbers.extend(counters.counts);
        numbers.extend([self.seal.last_generation().0, last_gsid.0, gaps.len() as u64]);
        numbers.extend(gaps.iter().flat_map(|&(first, count)| [first, count]));
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    fn decode(input: &mut Input<'_>) -> Result<Self, HeaderError> {
        let log = input.guid()?;
        let first_txg = Txg(input.u64()?);
        let last = input.entry_id()?;
        let checkpoint = Tracker { last, live: input.table()?, last_table: input.table()? };
        let id_offset = input.offset;
        let id = input.entry_id()?;
        let counters =
            Counters { newest: Txg(input.u64()?), counts: [input.u64()?, input.u64()?, input.u64()?] };
        let last_generation = input.u64()?;
        let in_order = id.generation.0 == last_generation.wrapping_add(1) && last_generation <= NUMBER_MAX;
        if !in_order || last.generation.0 > last_generation || last.gsid.0 > NUMBER_MAX {
            return Err(HeaderError::Field { offset: id_offset });
        }
        let gsid_offset = input.offset;
        let last_gsid = Gsid(input.u64()?);
        if last_gsid.0 > NUMBER_MAX {
            return Err(HeaderError::Field { offset: gsid_offset });
        }
        let gaps = Self::decode_gaps(input, last_gsid)?;
        Ok(Self { log, first_txg, checkpoint, seal: Arc::new(Seal { id, counters, last_gsid, gaps }) })
    }

    /// Gaps as in [`Seal`]: not empty, in order, an entry after each, the last one at most `last_gsid`.
    fn decode_gaps(input: &mut Input<'_>, last_gsid: Gsid) -> Result<Vec<(u64, u64)>, HeaderError> {
        let invalid = HeaderError::Field { offset: input.offset };
        let len = input.u64()?;
        if len > GAPS_MAX as u64 {
            return Err(invalid);
        }
        let mut gaps = Vec::with_capacity(len as usize);
        let mut entry_before = 0;
        for _ in 0..len {
            let (first, count) = (input.u64()?, input.u64()?);
            let entry_behind = first.checked_add(count).filter(|&gsid| gsid <= last_gsid.0);
            match entry_behind {
                Some(gsid) if first > entry_before && count > 0 => entry_before = gsid,
                _ => return Err(invalid),
            }
            gaps.push((first, count));
        }
        Ok(gaps)
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let needed = self.offset + N;
        let short = HeaderError::TooShort { len: self.bytes.len(), needed };
        let field = self.bytes.get(self.offset..needed).ok_or(short)?;
        self.offset = needed;
        let mut array = [0; N];
        array.copy_from_slice(field);
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, HeaderError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, HeaderError> {
        self.array().map(u64::from_le_bytes)
    }

    fn guid(&mut self) -> Result<LogGuid, HeaderError> {
        let offset = self.offset;
        LogGuid::from_bytes(self.array()?).ok_or(HeaderError::Field { offset })
    }

    fn entry_id(&mut self) -> Result<EntryId, HeaderError> {
        Ok(EntryId { generation: Generation(self.u64()?), gsid: Gsid(self.u64()?) })
    }

    fn table(&mut self) -> Result<Table, HeaderError> {
        let mut table = Table::default();
        for row in &mut table.0 {
            let offset = self.offset;
            *row = Row { txg: Txg(self.u64()?), count: self.u64()? };
            if row.txg.0 > NUMBER_MAX || row.count > NUMBER_MAX {
                return Err(HeaderError::Field { offset });
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<HdlHeader> {
        let log = LogGuid::from_bytes([7; 16]).unwrap();
        let mut checkpoint = Tracker::default();
        checkpoint.start_generation(Generation(3));
        checkpoint.count(Txg(9), Gsid(1));
        let seal = Seal {
            id: EntryId::new(4, 1),
            counters: Counters { newest: Txg(9), counts: [1, 2, 3] },
            last_gsid: Gsid(17),
            gaps: vec![(2, 1), (5, 3)],
        };
        let replaying = ReplayingHeader { log, first_txg: Txg(8), checkpoint, seal: Arc::new(seal) };
        vec![HdlHeader::NoZil, HdlHeader::Logging { log }, HdlHeader::Replaying(Arc::new(replaying))]
    }

    #[test]
    fn decode_returns_what_was_encoded_also_from_a_longer_buffer() {
        for header in examples() {
            let mut bytes = header.encode();
            assert_eq!(HdlHeader::decode(&bytes), Ok(header.clone()));
            bytes.resize(HEADER_BYTES_MAX, 0xee);
            assert_eq!(HdlHeader::decode(&bytes), Ok(header));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_an_error() {
        for header in examples() {
            let good = header.encode();
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(HdlHeader::decode(&bad).is_err(), "{header:?} bit {bit}");
            }
            for len in 0..good.len() {
                assert!(HdlHeader::decode(&good[..len]).is_err(), "{header:?} cut to {len}");
            }
        }
    }

    #[test]
    fn the_longest_header_has_the_promised_length() {
        let HdlHeader::Replaying(mut replaying) = examples().remove(2) else { unreachable!() };
        let seal = Seal { gaps: vec![(1, 1); GAPS_MAX], ..(*replaying.seal).clone() };
        Arc::make_mut(&mut replaying).seal = Arc::new(seal);
        assert_eq!(HdlHeader::Replaying(replaying).encode().len(), HEADER_BYTES_MAX);
    }

    /// Found by fuzzing: the number of missing entries, summed over the gaps, overflowed.
    #[test]
    fn gaps_that_no_claim_finds_are_an_error() {
        let HdlHeader::Replaying(replaying) = examples().remove(2) else { unreachable!() };
        let gaps_offset = LOGGING_BYTES + 8 + 16 + 2 * TABLE_BYTES + SEAL_BYTES - 8;
        let most = u64::MAX;
        let cases: &[&[(u64, u64)]] = &[
            &[(0, 1)],
            &[(2, 0)],
            &[(17, 1)],
            &[(5, 3), (2, 1)],
            &[(2, 1), (3, 1)],
            &[(2, most)],
            &[(1, most / 2), (most / 2 + 2, most / 2)],
            &[(0, most), (0, most)],
        ];
        for gaps in cases {
            let mut header = (*replaying).clone();
            header.seal = Arc::new(Seal { gaps: gaps.to_vec(), ..(*header.seal).clone() });
            let bytes = HdlHeader::Replaying(Arc::new(header)).encode();
            let error = HeaderError::Field { offset: gaps_offset };
            assert_eq!(HdlHeader::decode(&bytes), Err(error), "{gaps:?}");
        }
    }

    #[test]
    fn a_seal_knows_exactly_what_was_claimed() {
        let HdlHeader::Replaying(replaying) = examples().remove(2) else { unreachable!() };
        let claimed = |generation, gsid| replaying.seal.claimed(EntryId::new(generation, gsid));
        assert!(claimed(2, 999));
        let of_last: Vec<u64> = (1..=20).filter(|&gsid| claimed(3, gsid)).collect();
        assert_eq!(of_last, [1, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);
        assert!(!claimed(4, 1));
    }
}
