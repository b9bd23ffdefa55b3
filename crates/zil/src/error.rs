//! Why something is not in the log, and what happened to a commit.

use std::fmt;

use fastness_base::ErrorKind;
use fastness_prb::Misuse;

use crate::pool::PoolFailure;
use fastness_base::{DatasetId, Txg};

/// Why a log did not take records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogCause {
    /// The header that makes the log known is not durable yet: the log is new.
    Starting,
    /// The log was suspended.
    Suspended,
    /// The log from before the last crash has not been replayed.
    NotReplayed,
    /// The dataset is gone.
    Destroyed,
    /// No space in the log; a synced txg frees some.
    NoRoom,
    /// A record is longer than the kind can write.
    TooLarge,
    /// An earlier record that bypassed the commit list is not in the log.
    Behind,
    /// The data of a record could not be read back from the pool.
    ReadBack,
    /// The data of a record went with its file, or was cut off its volume, before it was read back.
    Gone,
    /// The medium failed; nothing more can be written to it. Kind lwb: not until a txg has started a new
    /// chain.
    Failed,
    /// A side of the log's mirror was lost, and the pool has not recorded that yet: the next txg will.
    SideLost,
    /// A defect in the program.
    Bug,
}

impl LogCause {
    /// All causes.
    pub const ALL: [LogCause; 12] = [
        Self::Starting,
        Self::Suspended,
        Self::NotReplayed,
        Self::Destroyed,
        Self::NoRoom,
        Self::TooLarge,
        Self::Behind,
        Self::ReadBack,
        Self::Gone,
        Self::Failed,
        Self::SideLost,
        Self::Bug,
    ];

    /// Whether the cause is an error, and not part of the log's life cycle or a lack of space.
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
            Self::Gone => "the data of a record is gone from its file or volume",
            Self::Failed => "the medium of the log has failed",
            Self::SideLost => "a side of the log was lost, and the pool has not recorded it yet",
            Self::Bug => "the log is in a state that it cannot be in",
        })
    }
}

/// Records are not in the log; waiting for their txg makes them durable too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not in the log ({cause}); durable with {txg}")]
pub struct NotPersisted {
    /// The newest txg of a record that is not in the log.
    pub txg: Txg,
    /// Why.
    pub cause: LogCause,
}

/// A commit or flush failed: what it should have covered is not known to be durable.
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

fastness_base::has_kind!(CommitError);

/// A log cannot be created, suspended or destroyed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It was not replayed.
    #[error("the log of {dataset} was not replayed")]
    Busy {
        /// Its dataset.
        dataset: DatasetId,
    },
    /// It is gone, with its dataset.
    #[error("the log of {dataset} was destroyed")]
    Destroyed {
        /// Its dataset.
        dataset: DatasetId,
    },
    /// The dataset already has one.
    #[error("{dataset} has a log already")]
    Exists {
        /// The dataset.
        dataset: DatasetId,
    },
    /// An import must store its header updates in its first txg.
    #[error("the logs were claimed for {claimed}, the transaction is of {found}")]
    OtherTxg {
        /// The first txg.
        claimed: Txg,
        /// That of the transaction.
        found: Txg,
    },
    /// Logs that are not claimed: their entries could be overwritten.
    #[error("{count} logs cannot be claimed, {first} first; choose what to do about each")]
    Unclaimed {
        /// How many.
        count: usize,
        /// One of them.
        first: DatasetId,
    },
    /// The pool takes no changes.
    #[error(transparent)]
    Pool(#[from] PoolFailure),
    /// The log is not in a state that allows this.
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl LogError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Busy { .. } | Self::Exists { .. } | Self::Unclaimed { .. } => ErrorKind::Invalid,
            Self::Destroyed { .. } => ErrorKind::Closed,
            Self::Pool(failure) => failure.kind,
            Self::OtherTxg { .. } | Self::Misuse(_) => ErrorKind::Bug,
        }
    }
}

fastness_base::has_kind!(LogError);
