//! Errors of the log of records.

use std::convert::Infallible;

use fastness_base::ErrorKind;
use fastness_pmlog::{AppendError, CreateError, OpenError, RecoverError, TrimError};
use fastness_prb::{BodyError, EntryId};

/// The log of the protocol Log did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It was not created: the region holds no cache.
    #[error("it cannot be created")]
    Create(#[from] CreateError),
    /// It was not opened; nothing was changed.
    #[error("it cannot be opened")]
    Open(#[from] OpenError),
    /// A record was not written.
    #[error("it takes no record")]
    Append(#[from] AppendError),
    /// Records were not discarded.
    #[error("it cannot be trimmed")]
    Trim(#[from] TrimError),
    /// Records could not be carried out.
    #[error("it cannot be recovered")]
    Recover(#[source] RecoverError<Infallible>),
    /// A record cannot be read while it is needed.
    #[error("it cannot be read")]
    Read(#[from] BodyError),
    /// A record contradicts itself, although its checksum is right.
    #[error("the record at {id} says nothing possible")]
    Record {
        /// Its place.
        id: EntryId,
    },
    /// Records are damaged; see [`Options::drop_tail`](crate::Options::drop_tail).
    #[error(
        "its records are damaged (offsets count from {start:#x} of the region): {before} of them precede the damage \
         and can be carried out, {after} stand after it"
    )]
    Damaged {
        /// Where, with offsets that count from the beginning of the log of records.
        #[source]
        source: OpenError,
        /// Region offset of the log of records.
        start: u64,
        /// Records that can be carried out.
        before: u64,
        /// Records that are damaged, or stand after that.
        after: u64,
    },
    /// What was kept of files that are not in the directory is damaged, or another cache's.
    #[error("the file .fastness-responder.orphans is damaged, or belongs to another cache")]
    Orphans,
    /// No room, although everything that could be discarded was.
    #[error("it has no room")]
    Full,
    /// Its recovery has failed, or was never made.
    #[error("it is not open")]
    NotOpen,
}

impl LogError {
    pub(crate) fn recover(error: RecoverError<Infallible>) -> LogError {
        LogError::Recover(error)
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            LogError::Create(error) => error.kind(),
            LogError::Open(error) => error.kind(),
            LogError::Append(error) => error.kind(),
            LogError::Trim(error) => error.kind(),
            LogError::Recover(error) => error.kind(),
            LogError::Damaged { source, .. } => source.kind(),
            LogError::Read(_) | LogError::Record { .. } | LogError::Orphans => ErrorKind::Corrupt,
            LogError::Full => ErrorKind::NoSpace,
            LogError::NotOpen => ErrorKind::Closed,
        }
    }
}

fastness_base::has_kind!(LogError);
