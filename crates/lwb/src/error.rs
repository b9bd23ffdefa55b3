//! Errors, each with what the caller must do.

use fastness_base::ErrorKind;

use crate::ids::{BlockSeq, Place};
use crate::space::SpaceError;

/// A commit could not make records durable in the log. They may be in it or not; the caller waits instead
/// until their txgs have synced, which also starts a new chain.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// No chain has been made durable yet.
    #[error("the log has no chain yet")]
    NotStarted,
    /// The owner has stopped the log.
    #[error("the log is stopped")]
    Stopped,
    /// There was no space for the next block.
    #[error("no room for the next log block")]
    NoSpace(#[source] SpaceError),
    /// A block with these records, or earlier ones, could not be written.
    #[error("log block {} at {place} could not be written", seq.0)]
    Write {
        /// The block.
        seq: BlockSeq,
        /// Where it should have been written.
        place: Place,
        /// Why.
        #[source]
        source: SpaceError,
    },
    /// A flush failed that the records, or earlier ones, depend on.
    #[error("log blocks from {} on could not be flushed", seq.0)]
    Flush {
        /// The first block that the flush was to make durable.
        seq: BlockSeq,
        /// Why.
        #[source]
        source: SpaceError,
    },
    /// A thread panicked while it wrote or flushed blocks with these records, or earlier ones.
    #[error("the thread that wrote log blocks from {} on panicked", seq.0)]
    Panicked {
        /// The first block that is not durable.
        seq: BlockSeq,
    },
}

impl CommitError {
    /// What the caller must do; in any case, waiting for the txg makes the records durable.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CommitError::NotStarted | CommitError::Stopped => ErrorKind::Retry,
            CommitError::NoSpace(source) => source.kind(),
            CommitError::Write { source, .. } | CommitError::Flush { source, .. } => source.kind(),
            CommitError::Panicked { .. } => ErrorKind::Bug,
        }
    }
}

fastness_base::has_kind!(CommitError);

/// Bytes that are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Too few bytes.
    #[error("a log header of {len_bytes} bytes is too short")]
    TooShort {
        /// How many.
        len_bytes: usize,
    },
    /// The checksum does not match.
    #[error("the checksum of a log header does not fit")]
    Checksum,
    /// Another version.
    #[error("a log header has version {found}, known is {known}")]
    Version {
        /// What it says.
        found: u16,
        /// What this program knows.
        known: u16,
    },
    /// A value that no log header can have.
    #[error("a log header has an impossible value at byte {offset}")]
    Field {
        /// Where, in bytes.
        offset: usize,
    },
}

impl HeaderError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HeaderError::Version { .. } => ErrorKind::Invalid,
            HeaderError::TooShort { .. } | HeaderError::Checksum | HeaderError::Field { .. } => {
                ErrorKind::Corrupt
            }
        }
    }
}

fastness_base::has_kind!(HeaderError);
