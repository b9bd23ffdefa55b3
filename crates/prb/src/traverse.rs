//! Chunk traversal: the entries of a chunk, front to back, until something is not an entry.
//!
//! Bytes in a chunk are never trusted: headers are copied into DRAM by a poison-safe read and checked, and
//! every access stays inside the chunk.
//!
//! On a mirror it walks the union: at each offset an entry counts if its header is on either side, and its
//! body if it is whole on either. Why that is right: `docs/adr/2026-11-22-mirrored-pm-log.md`. Source:
//! zil-pmem thesis, 5.10.

use std::fmt;
use std::ops::Range;

use fastness_pmem::{Medium, ReadError};

use crate::entry::{DamagedHeader, EntryHeader, HEADER_BYTES, Insertion, NoHeader, Remains};

/// An entry's header and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Offset of the header in its chunk, in bytes.
    pub offset: usize,
    /// The header.
    pub header: EntryHeader,
}

impl Located {
    pub(crate) fn body_offset(&self) -> usize {
        self.offset + HEADER_BYTES
    }

    pub(crate) fn padded_body(&self) -> usize {
        self.header.alignment.round_up(self.header.body_len_bytes as usize)
    }

    pub(crate) fn end(&self) -> usize {
        self.body_offset() + self.padded_body()
    }
}

/// Why the traversal of a chunk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// No header fits after the last entry.
    Full,
    /// An empty header: the regular end.
    Empty,
    /// A header with missing words: an insertion torn by the crash, or words that turned to zeroes.
    Torn,
    /// A header that was whole once, and its owner, if that is certain.
    Damaged(Option<DamagedHeader>),
    /// A whole header of an earlier use of the chunk: the regular end after an insertion with one fence.
    Stale,
    /// An entry inserted with one fence whose body is not whole: an insertion torn by the crash, or
    /// corruption.
    TornBody,
    /// A header with a matching checksum and impossible fields: another version, or forged.
    Unknown,
    /// A header whose body would reach beyond the chunk.
    OutOfBounds,
    /// The header cannot be read.
    Poison(ReadError),
}

impl End {
    /// True if no crash of a correct writer leaves such an end.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Unknown | Self::OutOfBounds | Self::Poison(_))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(Some(DamagedHeader { log, txg })) => {
                write!(f, "a damaged header of log {log}, {txg}")
            }
            Self::Damaged(None) => f.write_str("a damaged header"),
            Self::Poison(error) => write!(f, "{error}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A body that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The medium reports an error.
    #[error(transparent)]
    Poison(#[from] ReadError),
    /// The body's checksum does not match.
    #[error("body checksum mismatch at region offset {region_offset:#x}")]
    Checksum {
        /// Region offset of the body.
        region_offset: u64,
    },
    /// The bytes between the body and the next entry are not all zero, although the body is whole.
    #[error("padding is not zero after the body at region offset {region_offset:#x}")]
    Padding {
        /// Region offset of the body.
        region_offset: u64,
    },
    /// The header on the medium is no longer the one that the scan found.
    #[error("the entry header at region offset {region_offset:#x} changed since the scan")]
    HeaderChanged {
        /// Region offset of the header.
        region_offset: u64,
    },
    /// The caller's buffer is too small.
    #[error("the buffer holds {buffer_bytes} bytes, the body has {body_bytes}")]
    BufferTooSmall {
        /// Bytes of the buffer.
        buffer_bytes: usize,
        /// Bytes of the body.
        body_bytes: u64,
    },
}

/// Walks the entries of one chunk.
///
/// Iterate, then ask [`Traversal::end`] why it stopped.
pub struct Traversal<'m, M> {
    medium: &'m M,
    sides: Range<usize>,
    offset: usize,
    epoch: Option<u64>,
    /// Whether the place of the next header may hold anything: an insertion with one fence need not leave it
    /// empty.
    may_be_stale: bool,
    end: Option<End>,
}

impl<'m, M: Medium> Traversal<'m, M> {
    /// Starts at the chunk's first byte.
    pub fn new(medium: &'m M) -> Self {
        Self::starting_at(medium, 0)
    }

    /// Starts at `offset`, where an entry may be; for searching behind the end of a damaged chunk.
    ///
    /// # Panics
    /// Caller bug only: `offset` is outside of the chunk.
    pub fn starting_at(medium: &'m M, offset: usize) -> Self {
        assert!(offset <= medium.len_bytes(), "offset {offset} is inside of the chunk");
        Self { medium, sides: 0..medium.sides(), offset, epoch: None, may_be_stale: false, end: None }
    }

    /// As [`new`](Self::new), but reads one side only, as if it were alone.
    pub fn of_side(medium: &'m M, side: usize) -> Self {
        Self { sides: side..side + 1, ..Self::new(medium) }
    }

    /// The same from `offset` on.
    pub(crate) fn at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// The traversals that find everything in a chunk: one, or one of each side of a mirror if the sides hold
    /// different uses of the chunk. No crash causes that: one of them is an older copy. Its entries are not
    /// needed, those of the other may be, and nothing in the chunk tells which is which.
    pub fn of_chunk(medium: &'m M) -> impl Iterator<Item = Self> {
        let apart = if sides_are_apart(medium) { medium.sides() } else { 0 };
        let union = (apart == 0).then(|| Self::new(medium));
        union.into_iter().chain((0..apart).map(move |side| Self::of_side(medium, side)))
    }

    /// Why the traversal stopped; `None` if it has not.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Offset of the first byte after the last entry.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn step(&mut self) -> Result<Located, End> {
        if self.medium.len_bytes() - self.offset < HEADER_BYTES {
            return Err(End::Full);
        }
        let mut end = None;
        for side in self.sides.clone() {
            match self.look(side) {
                Ok(entry) => return Ok(entry),
                // Of two ends, the undamaged one: `side_report` reports the other side.
                Err(other) if end.is_none_or(|end: End| end.is_damage()) => end = Some(other),
                Err(_) => {}
            }
        }
        Err(end.expect("a medium has a side"))
    }

    /// The entry at the current offset on a side.
    fn look(&mut self, side: usize) -> Result<Located, End> {
        let mut bytes = [0; HEADER_BYTES];
        self.medium.read_side(side, self.offset, &mut bytes).map_err(End::Poison)?;
        let header = EntryHeader::decode(&bytes).map_err(|no| match no {
            NoHeader::Empty => End::Empty,
            NoHeader::Torn => End::Torn,
            NoHeader::Damaged(remains) => self.damaged(&remains),
            NoHeader::Unknown => End::Unknown,
        })?;
        if self.epoch.is_some_and(|epoch| epoch != header.epoch) {
            return Err(End::Stale);
        }
        let entry = Located { offset: self.offset, header };
        let room = (self.medium.len_bytes() - entry.body_offset()) as u64;
        // Compare before any sum with a length from the medium, so that nothing can overflow.
        if header.body_len_bytes > room || entry.padded_body() as u64 > room {
            return Err(End::OutOfBounds);
        }
        if header.insertion == Insertion::OneFence && !self.body_is_whole(&entry)? {
            return Err(End::TornBody);
        }
        self.epoch = Some(header.epoch);
        Ok(entry)
    }

    /// Judges a header that has all its words and a wrong checksum.
    fn damaged(&self, remains: &Remains) -> End {
        // Part of an old body, unless it claims to be of this use of the chunk.
        let is_old = self.may_be_stale && self.epoch.is_none_or(|epoch| !remains.is_of(epoch));
        if is_old { End::Stale } else { End::Damaged(remains.owner()) }
    }

    fn body_is_whole(&self, entry: &Located) -> Result<bool, End> {
        let mut body = vec![0; entry.header.body_len_bytes as usize];
        match first_good(self.sides.clone(), |side| read_whole_body(self.medium, side, entry, &mut body)) {
            Ok(()) => Ok(true),
            Err(BodyError::Poison(error)) => Err(End::Poison(error)),
            Err(_) => Ok(false),
        }
    }
}

/// True if both sides begin with a whole entry, but with different ones.
pub(crate) fn sides_are_apart<M: Medium>(medium: &M) -> bool {
    let first = |side| Traversal::of_side(medium, side).next();
    medium.sides() > 1
        && matches!((first(0), first(1)), (Some(first), Some(second)) if first.header != second.header)
}

impl<M: Medium> Iterator for Traversal<'_, M> {
    type Item = Located;

    fn next(&mut self) -> Option<Located> {
        if self.end.is_some() {
            return None;
        }
        match self.step() {
            Ok(entry) => {
                self.offset = entry.end();
                self.may_be_stale = entry.header.insertion == Insertion::OneFence;
                Some(entry)
            }
            Err(end) => {
                self.end = Some(end);
                None
            }
        }
    }
}

/// Reads and checks an entry's body into the front of `buffer`, after making sure that the header on the
/// medium is still the one that was scanned. On a mirror, what one side cannot provide comes from the other.
///
/// # Errors
/// See [`BodyError`]; for a mirror, the error of the first side. After [`BodyError::Padding`] the body is in
/// the buffer and its checksum matches. Source: zil-pmem thesis, 5.7 (online corruption) and 5.10.
pub fn read_body<M: Medium>(medium: &M, entry: &Located, buffer: &mut [u8]) -> Result<(), BodyError> {
    read_body_of(medium, 0..medium.sides(), entry, buffer)
}

/// As [`read_body`], but reads only some sides.
pub(crate) fn read_body_of<M: Medium>(
    medium: &M,
    sides: Range<usize>,
    entry: &Located,
    buffer: &mut [u8],
) -> Result<(), BodyError> {
    let body_bytes = entry.header.body_len_bytes;
    let buffer_bytes = buffer.len();
    let Some(body) = usize::try_from(body_bytes).ok().and_then(|len| buffer.get_mut(..len)) else {
        return Err(BodyError::BufferTooSmall { buffer_bytes, body_bytes });
    };
    first_good(sides.clone(), |side| check_header(medium, side, entry))?;
    first_good(sides.clone(), |side| read_whole_body(medium, side, entry, body))?;
    if entry.header.insertion == Insertion::OneFence {
        // A crash may have left this entry whole but not its padding: that says nothing about the body.
        return Ok(());
    }
    first_good(sides, |side| check_padding(medium, side, entry))
}

/// Succeeds if any side does; otherwise returns the first side's error.
fn first_good<E>(sides: Range<usize>, mut attempt: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
    let mut failed = None;
    for side in sides {
        match attempt(side) {
            Ok(()) => return Ok(()),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn check_header<M: Medium>(medium: &M, side: usize, entry: &Located) -> Result<(), BodyError> {
    let mut header = [0; HEADER_BYTES];
    medium.read_side(side, entry.offset, &mut header)?;
    if EntryHeader::decode(&header) == Ok(entry.header) {
        return Ok(());
    }
    Err(BodyError::HeaderChanged { region_offset: medium.region_offset() + entry.offset as u64 })
}

/// Reads the body from a side into `body`, which has its length.
fn read_whole_body<M: Medium>(
    medium: &M,
    side: usize,
    entry: &Located,
    body: &mut [u8],
) -> Result<(), BodyError> {
    medium.read_side(side, entry.body_offset(), body)?;
    if entry.header.checksum_kind.of(body) == entry.header.body_checksum {
        return Ok(());
    }
    Err(BodyError::Checksum { region_offset: medium.region_offset() + entry.body_offset() as u64 })
}

fn check_padding<M: Medium>(medium: &M, side: usize, entry: &Located) -> Result<(), BodyError> {
    let len = entry.header.body_len_bytes as usize;
    let mut padding = [0; 256];
    let padding = &mut padding[..entry.padded_body() - len];
    medium.read_side(side, entry.body_offset() + len, padding)?;
    if padding.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    Err(BodyError::Padding { region_offset: medium.region_offset() + entry.body_offset() as u64 })
}
