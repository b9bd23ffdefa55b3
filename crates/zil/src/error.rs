//! Why something is not in the log, and what became of a commit.

use std::fmt;

use fastness_error::ErrorKind;

use crate::ids::Txg;
use crate::pool::PoolFailure;

/// Why a log did not take records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogCause {
    /// The header that makes the log known is not durable yet: it is new.
    Starting,
    /// The log was suspended.
    Suspended,
    /// The log of before the last crash was not replayed.
    NotReplayed,
    /// The dataset is gone.
    Destroyed,
    /// No room; a synced txg makes some.
    NoRoom,
    /// A record is longer than the kind can take.
    TooLarge,
    /// An earlier record past the commit list is not in the log.
    Behind,
    /// The data of a record could not be read back from the pool.
    ReadBack,
    /// The medium failed; nothing more can be written to it.
    Failed,
    /// A defect of the program.
    Bug,
}

impl LogCause {
    /// All of them.
    pub const ALL: [LogCause; 10] = [
        Self::Starting,
        Self::Suspended,
        Self::NotReplayed,
        Self::Destroyed,
        Self::NoRoom,
        Self::TooLarge,
        Self::Behind,
        Self::ReadBack,
        Self::Failed,
        Self::Bug,
    ];

    /// Whether it is the work of an error, and not of the log's life cycle or a lack of room.
    pub fn is_error(self) -> bool {
        matches!(self, Self::ReadBack | Self::Failed | Self::TooLarge | Self::Bug)
    }
}

impl fmt::Display for LogCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "the log's header is not durable yet",
            Self::Suspended => "the log is suspended",
            Self::NotReplayed => "the log was not replayed",
            Self::Destroyed => "the log was destroyed",
            Self::NoRoom => "there is no room in the log",
            Self::TooLarge => "a record is too long for the log",
            Self::Behind => "an earlier record is not in the log",
            Self::ReadBack => "the data of a record cannot be read back",
            Self::Failed => "the medium of the log has failed",
            Self::Bug => "the log is in a state that it cannot be in",
        })
    }
}

/// Records are not in the log; waiting for their txg makes them durable as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not in the log ({cause}); durable with {txg}")]
pub struct NotPersisted {
    /// The newest txg of a record that is not in the log.
    pub txg: Txg,
    /// Why.
    pub cause: LogCause,
}

/// A commit or flush failed: it is not known to be durable what it was to cover.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The log did not take the records, and neither did the pool.
    #[error("{not_persisted}, and the pool cannot sync")]
    Pool {
        /// Why the log did not.
        not_persisted: NotPersisted,
        /// Why the pool did not.
        source: PoolFailure,
    },
    /// The log must be replayed before the dataset is changed.
    #[error("the log must be replayed first")]
    NotReplayed,
}

impl CommitError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Pool { source, .. } => source.kind,
            Self::NotReplayed => ErrorKind::Invalid,
        }
    }
}
