//! The entry header: 256 bytes that make a body part of a log.
//!
//! The byte-exact layout is in `docs/format.md`. Each used word of eight bytes has seven bytes of content and
//! a tag, so that no such word of a whole header is zero, nor becomes zero by a flipped bit. The place of a
//! header is zero before the header is written, and a crash leaves each word old or new. So a missing word is
//! the result of a crash, and a header with all of its words but a wrong checksum is damaged: it was whole
//! once.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::{Checksum, ChecksumKind};
use crate::counters::Counters;
use crate::ids::{EntryId, LogGuid, Txg};

/// Bytes of an entry header.
pub const HEADER_BYTES: usize = 256;
/// Version of the layout.
pub const FORMAT_VERSION: u16 = 2;
/// Largest number in a header, such as a txg: what fits into a word next to its tag.
pub(crate) const NUMBER_MAX: u64 = CONTENT;
/// Longest body: the length has five bytes, followed by two of the identity check.
const BODY_LEN_MAX: u64 = (1 << ID_CHECK_SHIFT) - 1;
const ID_CHECK_SHIFT: u32 = 40;
const FLAG_ONE_FENCE: u8 = 1;

const WORDS: usize = HEADER_BYTES / 8;
/// Bytes of content in a word.
const CONTENT_BYTES: usize = 7;
const CONTENT: u64 = (1 << (8 * CONTENT_BYTES)) - 1;
/// The last byte of a word: all four of its set bits, and all others of the word, would have to flip to make
/// the word zero.
const TAG: u64 = 0xa5 << (8 * CONTENT_BYTES);
/// Maximum number of words of a checksum.
const SUM_WORDS_MAX: usize = size_of::<Checksum>().div_ceil(CONTENT_BYTES);

// First words of the fields.
const LOG: usize = 0;
/// The last word of the log GUID, and the layout of the entry.
const FORM: usize = 2;
const TXG: usize = 3;
const EPOCH: usize = 4;
/// Words 0 to 4: which log the entry belongs to, and which use of the chunk.
const IDENTITY_WORDS: usize = EPOCH + 1;
const GENERATION: usize = 5;
const GSID: usize = 6;
const BODY_LEN: usize = 7;
const COUNTERS: usize = 8;
const BODY_SUM: usize = 12;
/// The checksum of all words before it.
const HEADER_SUM: usize = WORDS - SUM_WORDS_MAX;
const _: () = assert!(BODY_SUM + SUM_WORDS_MAX <= HEADER_SUM);

/// A quick check whether a header may begin with these bytes.
pub(crate) fn may_begin_header(bytes: &[u8]) -> bool {
    bytes.get(CONTENT_BYTES) == Some(&((TAG >> (8 * CONTENT_BYTES)) as u8))
}

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

    /// The length of a body of `len` bytes with its padding.
    pub const fn round_up(self, len: usize) -> usize {
        len.next_multiple_of(self.bytes())
    }
}

/// How an entry gets into its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Insertion {
    /// Body, fence, header, fence: a valid header implies a whole body.
    TwoFences,
    /// Body and header, one fence: a torn body is detected by its strong checksum.
    OneFence,
}

/// The contents of an entry header.
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
    /// Random number of this use of the chunk; entries of an earlier use have a different one.
    pub epoch: u64,
}

/// The owner of a damaged header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedHeader {
    /// The log that the entry belongs to.
    pub log: LogGuid,
    /// The transaction group of the change in the body.
    pub txg: Txg,
}

/// Why 256 bytes are not an entry header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoHeader {
    /// All words are zero: the place is empty (or was emptied).
    Empty,
    /// Words are missing: a crash interrupted an insertion, or the emptying of the chunk.
    Torn,
    /// Every word is present, but the checksum does not match: the header was whole once. Where a crash may
    /// leave arbitrary bytes, it may also be those.
    Damaged(Remains),
    /// The checksum matches, but this version does not understand the fields.
    Unknown,
}

/// The remains of a damaged header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remains {
    identity: [u64; IDENTITY_WORDS],
    id_check: u16,
}

impl Remains {
    /// The owner, if the identity is undamaged.
    pub(crate) fn owner(&self) -> Option<DamagedHeader> {
        if id_check(&self.identity) != self.id_check {
            return None;
        }
        let log = log_of([0, 1, 2].map(|index| self.identity[LOG + index] & CONTENT))?;
        Some(DamagedHeader { log, txg: Txg(self.identity[TXG] & CONTENT) })
    }

    /// Whether it belongs to this use of the chunk, by its epoch or by its identity check.
    pub(crate) fn is_of(&self, epoch: u64) -> bool {
        let mut identity = self.identity;
        identity[EPOCH] = TAG | epoch;
        self.identity[EPOCH] == identity[EPOCH] || id_check(&identity) == self.id_check
    }
}

/// 16 bits that show whether the identity is undamaged, without the checksum of the whole header.
fn id_check(identity: &[u64; IDENTITY_WORDS]) -> u16 {
    let mut bytes = [0; IDENTITY_WORDS * 8];
    bytes.chunks_exact_mut(8).zip(identity).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    let crc = crc32c::crc32c(&bytes);
    (crc >> 16) as u16 ^ crc as u16
}

/// The GUID in the contents of three words; only two bytes of the third belong to it.
fn log_of(parts: [u64; 3]) -> Option<LogGuid> {
    let [low, middle, high] = parts.map(u128::from);
    LogGuid::from_bytes((low | middle << 56 | high << 112).to_le_bytes())
}

/// A header as stored on the medium.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
struct Words([U64; WORDS]);

const _: () = assert!(size_of::<Words>() == HEADER_BYTES);

impl Words {
    fn put(&mut self, word: usize, content: u64) {
        self.0[word] = U64::new(TAG | content);
    }

    fn content(&self, word: usize) -> u64 {
        self.0[word].get() & CONTENT
    }

    fn identity(&self) -> [u64; IDENTITY_WORDS] {
        std::array::from_fn(|index| self.0[index].get())
    }

    /// Spreads a checksum over the words of its kind.
    fn put_sum(&mut self, first: usize, kind: ChecksumKind, sum: &Checksum) {
        let mut bytes = [0; SUM_WORDS_MAX * CONTENT_BYTES + 1];
        bytes[..sum.len()].copy_from_slice(sum);
        for index in 0..sum_words(kind) {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[index * CONTENT_BYTES..][..8]);
            self.put(first + index, u64::from_le_bytes(word) & CONTENT);
        }
    }

    fn sum(&self, first: usize, kind: ChecksumKind) -> Checksum {
        let mut bytes = [0; SUM_WORDS_MAX * CONTENT_BYTES + 1];
        for index in 0..sum_words(kind) {
            let content = self.content(first + index).to_le_bytes();
            bytes[index * CONTENT_BYTES..][..8].copy_from_slice(&content);
        }
        let mut sum = [0; size_of::<Checksum>()];
        sum.copy_from_slice(&bytes[..size_of::<Checksum>()]);
        sum
    }

    fn checksum(&self, kind: ChecksumKind) -> Checksum {
        kind.of(&self.as_bytes()[..HEADER_SUM * 8])
    }

    fn has_checksum(&self, kind: ChecksumKind) -> bool {
        let mut sealed = Words([U64::ZERO; WORDS]);
        sealed.put_sum(HEADER_SUM, kind, &self.checksum(kind));
        sealed.0[HEADER_SUM..] == self.0[HEADER_SUM..]
    }

    fn remains(&self) -> Remains {
        Remains { identity: self.identity(), id_check: (self.content(BODY_LEN) >> ID_CHECK_SHIFT) as u16 }
    }

    /// Whether any word is missing that every kind of checksum uses.
    fn is_torn(&self) -> bool {
        self.0[..=BODY_SUM].iter().chain([&self.0[HEADER_SUM]]).any(|word| word.get() == 0)
    }

    /// Whether a checksum lacks one of its words.
    fn is_sum_torn(&self, kind: ChecksumKind) -> bool {
        let sum = |first: usize| &self.0[first..first + sum_words(kind)];
        sum(BODY_SUM).iter().chain(sum(HEADER_SUM)).any(|word| word.get() == 0)
    }
}

/// Part of an encoded header's checksum, which depends on every field of the header and, through the body's
/// checksum, on the body.
pub(crate) fn header_sum(header: &[u8; HEADER_BYTES]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&header[HEADER_BYTES - 32..HEADER_BYTES - 24]);
    u64::from_le_bytes(first)
}

/// Number of words of a checksum.
fn sum_words(kind: ChecksumKind) -> usize {
    kind.len_bytes().div_ceil(CONTENT_BYTES)
}

impl EntryHeader {
    /// The header as stored on the medium.
    ///
    /// Shape: 256 bytes, little endian, `docs/format.md`.
    ///
    /// # Panics
    /// Caller bug only: a number above 2^56 - 1, or a length above 2^40 - 1.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let Counters { newest, counts: [first, second, third] } = self.counters;
        let (id, kind) = (self.id, self.checksum_kind);
        let all = self.txg.0 | self.epoch | id.generation.0 | id.gsid.0 | newest.0 | first | second | third;
        assert!(all <= NUMBER_MAX && self.body_len_bytes <= BODY_LEN_MAX, "a number does not fit");
        let mut words = Words([U64::ZERO; WORDS]);
        let guid = u128::from_le_bytes(self.log.to_bytes());
        let flags = if self.insertion == Insertion::OneFence { FLAG_ONE_FENCE } else { 0 };
        let [low, high] = FORMAT_VERSION.to_le_bytes();
        let form = u64::from_le_bytes([0, 0, low, high, kind as u8, flags, self.alignment as u8, 0]);
        words.put(LOG, guid as u64 & CONTENT);
        words.put(LOG + 1, (guid >> 56) as u64 & CONTENT);
        words.put(FORM, (guid >> 112) as u64 | form);
        words.put(TXG, self.txg.0);
        words.put(EPOCH, self.epoch);
        words.put(GENERATION, id.generation.0);
        words.put(GSID, id.gsid.0);
        words.put(BODY_LEN, self.body_len_bytes | u64::from(id_check(&words.identity())) << ID_CHECK_SHIFT);
        for (index, count) in [newest.0, first, second, third].into_iter().enumerate() {
            words.put(COUNTERS + index, count);
        }
        words.put_sum(BODY_SUM, kind, &self.body_checksum);
        let checksum = words.checksum(kind);
        words.put_sum(HEADER_SUM, kind, &checksum);
        zerocopy::transmute!(words)
    }

    /// Reads a header for fuzzing; programs find headers by a [`Traversal`](crate::Traversal).
    #[cfg(fuzzing)]
    pub fn decode_for_fuzzing(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    /// Reads a header; the bytes are not trusted.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, NoHeader> {
        let words: &Words = zerocopy::transmute_ref!(bytes);
        if words.is_torn() {
            let is_empty = words.0.iter().all(|word| word.get() == 0);
            return Err(if is_empty { NoHeader::Empty } else { NoHeader::Torn });
        }
        let [_, _, low, high, kind, flags, alignment_log2, _] = words.0[FORM].get().to_le_bytes();
        // A flipped bit does not turn one kind into another.
        let damaged = NoHeader::Damaged(words.remains());
        let Some(kind) = ChecksumKind::from_byte(kind) else { return Err(damaged) };
        if words.is_sum_torn(kind) {
            return Err(NoHeader::Torn);
        }
        if !words.has_checksum(kind) {
            return Err(damaged);
        }
        let header = words.fields(kind, flags, alignment_log2).ok_or(NoHeader::Unknown)?;
        // Anything else is unknown to this version.
        if u16::from_le_bytes([low, high]) != FORMAT_VERSION || header.encode() != *bytes {
            return Err(NoHeader::Unknown);
        }
        Ok(header)
    }
}

impl Words {
    /// The fields, if all are possible.
    fn fields(&self, checksum_kind: ChecksumKind, flags: u8, alignment_log2: u8) -> Option<EntryHeader> {
        let insertion = match flags {
            0 => Insertion::TwoFences,
            FLAG_ONE_FENCE if checksum_kind.is_strong() => Insertion::OneFence,
            _ => return None,
        };
        let id = EntryId::new(self.content(GENERATION), self.content(GSID));
        if id.generation.0 == 0 || id.gsid.0 == 0 {
            return None;
        }
        let counts = [1, 2, 3].map(|index| self.content(COUNTERS + index));
        Some(EntryHeader {
            log: log_of([0, 1, 2].map(|index| self.content(LOG + index)))?,
            txg: Txg(self.content(TXG)),
            id,
            counters: Counters { newest: Txg(self.content(COUNTERS)), counts },
            body_len_bytes: self.content(BODY_LEN) & BODY_LEN_MAX,
            body_checksum: self.sum(BODY_SUM, checksum_kind),
            checksum_kind,
            alignment: Alignment::from_log2(alignment_log2)?,
            insertion,
            epoch: self.content(EPOCH),
        })
    }
}

#[cfg(test)]
mod tests;
