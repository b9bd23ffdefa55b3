//! Chunk traversal: the entries of a chunk, front to back, until something is not an entry.
//!
//! Bytes in a chunk are never trusted: headers are copied into DRAM by a poison-safe read and checked, and
//! every access stays inside the chunk.
//! Source: zil-pmem thesis, 5.10.

use fastness_pmem::{Medium, ReadError};

use crate::checksum::ChecksumKind;
use crate::entry::{EntryHeader, HEADER_BYTES, Insertion, NoHeader};

/// An entry's header and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Offset of the header in its chunk, in bytes.
    pub offset: usize,
    /// The header.
    pub header: EntryHeader,
}

impl Located {
    fn body_offset(&self) -> usize {
        self.offset + HEADER_BYTES
    }

    fn padded_body(&self) -> usize {
        self.header.alignment.round_up(self.header.body_len_bytes as usize)
    }

    fn end(&self) -> usize {
        self.body_offset() + self.padded_body()
    }
}

/// Why the traversal of a chunk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// No header fits behind the last entry.
    Full,
    /// An empty header: the regular end.
    Empty,
    /// A header whose checksum does not fit: an insertion that the crash tore, or corruption.
    Torn,
    /// A whole header of an earlier use of the chunk: the regular end behind an insertion with one fence.
    Stale,
    /// An entry inserted with one fence whose body is not whole: an insertion that the crash tore, or
    /// corruption.
    TornBody,
    /// A header with a fitting checksum and fields that cannot be: another version, or forged.
    Unknown,
    /// A header whose body would reach beyond the chunk.
    OutOfBounds,
    /// The header cannot be read.
    Poison(ReadError),
}

impl End {
    /// True if no crash of a correct writer ends a chunk this way.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Unknown | Self::OutOfBounds | Self::Poison(_))
    }
}

/// A body that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The medium reports an error.
    #[error(transparent)]
    Poison(#[from] ReadError),
    /// The body's checksum does not fit.
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

/// Walks over the entries of one chunk.
///
/// Iterate, then ask [`Traversal::end`] why it stopped.
pub struct Traversal<'m, M> {
    medium: &'m M,
    offset: usize,
    epoch: Option<u64>,
    end: Option<End>,
}

impl<'m, M: Medium> Traversal<'m, M> {
    /// Starts at the chunk's first byte.
    pub fn new(medium: &'m M) -> Self {
        Self::starting_at(medium, 0)
    }

    /// Starts at `offset`, where an entry may be; to look for entries behind the end of a damaged chunk.
    ///
    /// # Panics
    /// Caller bug only: `offset` is outside of the chunk.
    pub fn starting_at(medium: &'m M, offset: usize) -> Self {
        assert!(offset <= medium.len_bytes(), "offset {offset} is inside of the chunk");
        Self { medium, offset, epoch: None, end: None }
    }

    /// Why the traversal stopped; `None` before it did.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Offset of the first byte behind the last entry.
    pub fn offset(&self) -> usize {
        self.offset
    }

    fn step(&mut self) -> Result<Located, End> {
        let len = self.medium.len_bytes();
        if len - self.offset < HEADER_BYTES {
            return Err(End::Full);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.medium.read(self.offset, &mut bytes).map_err(End::Poison)?;
        let header = EntryHeader::decode(&bytes).map_err(|no| match no {
            NoHeader::Empty => End::Empty,
            NoHeader::Checksum => End::Torn,
            NoHeader::Unknown => End::Unknown,
        })?;
        if *self.epoch.get_or_insert(header.epoch) != header.epoch {
            return Err(End::Stale);
        }
        let entry = Located { offset: self.offset, header };
        let room = (len - entry.body_offset()) as u64;
        // Compare before any sum with a length from the medium, so that nothing can overflow.
        if header.body_len_bytes > room || entry.padded_body() as u64 > room {
            return Err(End::OutOfBounds);
        }
        if header.insertion == Insertion::OneFence && !self.body_is_whole(&entry)? {
            return Err(End::TornBody);
        }
        Ok(entry)
    }

    fn body_is_whole(&self, entry: &Located) -> Result<bool, End> {
        let mut body = vec![0; entry.header.body_len_bytes as usize];
        match read_body(self.medium, entry, &mut body) {
            Ok(()) => Ok(true),
            Err(BodyError::Poison(error)) => Err(End::Poison(error)),
            Err(_) => Ok(false),
        }
    }
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
/// medium is still the one that was scanned.
///
/// # Errors
/// See [`BodyError`]. After [`BodyError::Padding`] the body is in the buffer and its checksum fits.
/// Source: zil-pmem thesis, 5.7 (online corruption) and 5.10.
pub fn read_body<M: Medium>(medium: &M, entry: &Located, buffer: &mut [u8]) -> Result<(), BodyError> {
    let body_bytes = entry.header.body_len_bytes;
    let buffer_bytes = buffer.len();
    let region_offset = medium.region_offset() + entry.offset as u64;
    let Some(body) = usize::try_from(body_bytes).ok().and_then(|len| buffer.get_mut(..len)) else {
        return Err(BodyError::BufferTooSmall { buffer_bytes, body_bytes });
    };
    let mut header = [0; HEADER_BYTES];
    medium.read(entry.offset, &mut header)?;
    if EntryHeader::decode(&header) != Ok(entry.header) {
        return Err(BodyError::HeaderChanged { region_offset });
    }
    medium.read(entry.body_offset(), body)?;
    let kind: ChecksumKind = entry.header.checksum_kind;
    let region_offset = region_offset + HEADER_BYTES as u64;
    if kind.of(body) != entry.header.body_checksum {
        return Err(BodyError::Checksum { region_offset });
    }
    if entry.header.insertion == Insertion::OneFence {
        // A crash may have left this entry whole and its padding not: that says nothing about the body.
        return Ok(());
    }
    let mut padding = [0; 256];
    let padding = &mut padding[..entry.padded_body() - body.len()];
    medium.read(entry.body_offset() + body.len(), padding)?;
    if padding.iter().any(|&byte| byte != 0) {
        return Err(BodyError::Padding { region_offset });
    }
    Ok(())
}
