//! The entry header: 256 bytes that make a body part of a log.
//!
//! The byte-exact layout is in `docs/format.md`; [`RawHeader`] is that table in Rust.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::{Checksum, ChecksumKind};
use crate::counters::Counters;
use crate::ids::{EntryId, LogGuid, Txg};

/// Bytes of an entry header.
pub const HEADER_BYTES: usize = 256;
/// Version of the layout.
pub const FORMAT_VERSION: u16 = 1;
/// The header checksum covers the bytes before it.
const SUMMED_BYTES: usize = 224;
/// Largest txg, generation and gsid: room to count on without overflow.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 1;
const FLAG_ONE_FENCE: u8 = 1;

/// The alignment of entries in a chunk; bodies are zero-padded to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Alignment {
    /// 64 bytes: one cache line, for media like DRAM (NVDIMM-N, CXL).
    Line = 6,
    /// 256 bytes: the internal write unit of Optane. Source: dissertation (2025), 3.5.
    Optane = 8,
}

impl Alignment {
    /// The alignment in bytes.
    pub const fn bytes(self) -> usize {
        1 << self as u8
    }

    pub(crate) fn from_log2(log2: u8) -> Option<Self> {
        [Self::Line, Self::Optane].into_iter().find(|&a| a as u8 == log2)
    }

    pub(crate) const fn round_up(self, len: usize) -> usize {
        len.next_multiple_of(self.bytes())
    }
}

/// How an entry gets into its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// Body, fence, header, fence: a valid header implies a whole body.
    TwoFences,
    /// Body and header, one fence: a torn body is found by its strong checksum.
    OneFence,
}

/// What an entry header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader {
    /// The log that the entry belongs to.
    pub log: LogGuid,
    /// The transaction group of the change in the body.
    pub txg: Txg,
    /// Place in the log.
    pub id: EntryId,
    /// Entries of earlier generations that this one depends on.
    pub counters: Counters,
    /// Body length in bytes, without padding.
    pub body_len_bytes: u64,
    /// Checksum of the body.
    pub body_checksum: Checksum,
    /// Kind of both checksums.
    pub checksum_kind: ChecksumKind,
    /// Alignment of the entry after this one.
    pub alignment: Alignment,
    /// How the entry was inserted.
    pub insertion: Insertion,
    /// Random number of this use of the chunk; entries of an earlier use have another.
    pub epoch: u64,
}

/// Why 256 bytes are not an entry header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// The log GUID has a half of zero: the place is empty (or was emptied).
    Empty,
    /// The checksum does not fit: torn, corrupt, or never a header.
    Checksum,
    /// The checksum fits but the fields make no sense to this version.
    Unknown,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
struct RawHeader {
    log: [u8; 16],
    txg: U64,
    generation: U64,
    gsid: U64,
    body_len_bytes: U64,
    version: U16,
    checksum_kind: u8,
    flags: u8,
    alignment_log2: u8,
    reserved: [u8; 3],
    epoch: U64,
    counters_newest: U64,
    counters: [U64; 3],
    body_checksum: Checksum,
    padding: [u8; 96],
    header_checksum: Checksum,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

impl EntryHeader {
    /// The header as it stands on the medium.
    ///
    /// Shape: 256 bytes, little endian, `docs/format.md`.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            log: self.log.to_bytes(),
            txg: U64::new(self.txg.0),
            generation: U64::new(self.id.generation.0),
            gsid: U64::new(self.id.gsid.0),
            body_len_bytes: U64::new(self.body_len_bytes),
            version: U16::new(FORMAT_VERSION),
            checksum_kind: self.checksum_kind as u8,
            flags: if self.insertion == Insertion::OneFence { FLAG_ONE_FENCE } else { 0 },
            alignment_log2: self.alignment as u8,
            reserved: [0; 3],
            epoch: U64::new(self.epoch),
            counters_newest: U64::new(self.counters.newest.0),
            counters: self.counters.counts.map(U64::new),
            body_checksum: self.body_checksum,
            padding: [0; 96],
            header_checksum: [0; 32],
        };
        let mut bytes: [u8; HEADER_BYTES] = zerocopy::transmute!(raw);
        let checksum = self.checksum_kind.of(&bytes[..SUMMED_BYTES]);
        bytes[SUMMED_BYTES..].copy_from_slice(&checksum);
        bytes
    }

    /// Reads a header for fuzzing; programs find headers by a [`Traversal`](crate::Traversal).
    #[cfg(fuzzing)]
    pub fn decode_for_fuzzing(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// Reads a header; the bytes are not trusted.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NoHeader> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        let Some(log) = LogGuid::from_bytes(raw.log) else { return Err(NoHeader::Empty) };
        // A flipped kind selects another checksum, which then does not fit.
        let Some(checksum_kind) = ChecksumKind::from_byte(raw.checksum_kind) else {
            return Err(NoHeader::Checksum);
        };
        if checksum_kind.of(&bytes[..SUMMED_BYTES]) != raw.header_checksum {
            return Err(NoHeader::Checksum);
        }
        let Some(alignment) = Alignment::from_log2(raw.alignment_log2) else { return Err(NoHeader::Unknown) };
        let insertion = match raw.flags {
            0 => Insertion::TwoFences,
            FLAG_ONE_FENCE if checksum_kind.is_strong() => Insertion::OneFence,
            _ => return Err(NoHeader::Unknown),
        };
        let id = EntryId::new(raw.generation.get(), raw.gsid.get());
        let in_range = |number: u64| (1..=NUMBER_MAX).contains(&number);
        let numbers = [id.generation.0, id.gsid.0].into_iter().all(in_range) && raw.txg.get() <= NUMBER_MAX;
        let unused_zero = raw.reserved == [0; 3] && raw.padding == [0; 96];
        if raw.version.get() != FORMAT_VERSION || !unused_zero || !numbers {
            return Err(NoHeader::Unknown);
        }
        Ok(Self {
            log,
            txg: Txg(raw.txg.get()),
            id,
            counters: Counters { newest: Txg(raw.counters_newest.get()), counts: raw.counters.map(U64::get) },
            body_len_bytes: raw.body_len_bytes.get(),
            body_checksum: raw.body_checksum,
            checksum_kind,
            alignment,
            insertion,
            epoch: raw.epoch.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> EntryHeader {
        EntryHeader {
            log: LogGuid::from_bytes(*b"0123456789abcdef").unwrap(),
            txg: Txg(0x1112),
            id: EntryId::new(0x2122, 0x3132),
            counters: Counters { newest: Txg(0x4142), counts: [0x51, 0x52, 0x53] },
            body_len_bytes: 0x6162,
            body_checksum: ChecksumKind::Crc32c.of(b"body"),
            checksum_kind: ChecksumKind::Crc32c,
            alignment: Alignment::Optane,
            insertion: Insertion::TwoFences,
            epoch: 0x7172,
        }
    }

    /// The bytes of `docs/format.md`, written out by hand.
    #[test]
    fn golden_bytes() {
        let bytes = example().encode();
        let mut expected = [0u8; 256];
        expected[..16].copy_from_slice(b"0123456789abcdef");
        expected[16..18].copy_from_slice(&[0x12, 0x11]);
        expected[24..26].copy_from_slice(&[0x22, 0x21]);
        expected[32..34].copy_from_slice(&[0x32, 0x31]);
        expected[40..42].copy_from_slice(&[0x62, 0x61]);
        expected[48..53].copy_from_slice(&[1, 0, 2, 0, 8]);
        expected[56..58].copy_from_slice(&[0x72, 0x71]);
        expected[64..66].copy_from_slice(&[0x42, 0x41]);
        expected[72] = 0x51;
        expected[80] = 0x52;
        expected[88] = 0x53;
        expected[96..100].copy_from_slice(&crc32c::crc32c(b"body").to_le_bytes());
        let header_checksum = crc32c::crc32c(&expected[..224]).to_le_bytes();
        expected[224..228].copy_from_slice(&header_checksum);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn decode_returns_what_was_encoded() {
        for checksum_kind in ChecksumKind::ALL {
            for alignment in [Alignment::Line, Alignment::Optane] {
                let header = EntryHeader { checksum_kind, alignment, ..example() };
                assert_eq!(EntryHeader::decode(&header.encode()), Ok(header));
            }
        }
        let one_fence =
            EntryHeader { checksum_kind: ChecksumKind::Xxh3, insertion: Insertion::OneFence, ..example() };
        assert_eq!(EntryHeader::decode(&one_fence.encode()), Ok(one_fence));
    }

    #[test]
    fn no_flipped_bit_passes() {
        for checksum_kind in ChecksumKind::ALL {
            let good = EntryHeader { checksum_kind, ..example() }.encode();
            for bit in 0..HEADER_BYTES * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(EntryHeader::decode(&bad).is_err(), "{} bit {bit}", checksum_kind.name());
            }
        }
    }

    #[test]
    fn zeroes_are_an_empty_place() {
        assert_eq!(EntryHeader::decode(&[0; 256]), Err(NoHeader::Empty));
    }
}
