//! Replay: what its owner does with each record, and what can stop it.

use std::error::Error;

use fastness_error::ErrorKind;
use fastness_prb::{BodyError, EntryId, LogError, Misuse};

use crate::ids::{DatasetId, Txg};
use crate::pool::{Pool, PoolFailure};
use crate::record::{Head, Record, RecordError};

/// Carries records out.
pub trait ReplayHandler<P: Pool> {
    /// Applies a record in the transaction, with which the place that replay has come to is stored as well. A record
    /// that may be reordered, of an object that does not exist, does nothing and is no error.
    ///
    /// # Errors
    /// What stands in the way; nothing may have been changed then, and replay stops before this record.
    fn apply(
        &mut self,
        tx: &P::Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// What a replay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records applied.
    pub records: u64,
    /// Records that are there but were not when the log was claimed; they were left out.
    pub reappeared: u64,
}

/// What can be done about a log that cannot be claimed or replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Try again, after the cause was removed.
    Retry,
    /// Give up what cannot be replayed, and all that depends on it. What was acknowledged is lost.
    DropTail,
    /// Change nothing: the dataset (at claim: the pool) is as of the last synced txg, and the log is kept.
    ReadOnly,
}

impl Choice {
    /// All of them.
    pub const ALL: [Choice; 3] = [Self::Retry, Self::DropTail, Self::ReadOnly];
}

/// What stopped a replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayCause {
    /// The record's bytes on the medium are damaged.
    #[error("its bytes are damaged")]
    Body(#[source] BodyError),
    /// Its bytes are whole, but no record.
    #[error("it is no record that can be carried out")]
    Record(#[source] RecordError),
    /// The record's txg is not that of its entry in the log: crafted, or a defect.
    #[error("it says {record}, its entry {entry}")]
    OtherTxg {
        /// In the record.
        record: Txg,
        /// In the entry.
        entry: Txg,
    },
    /// The handler could not carry it out.
    #[error("it cannot be carried out")]
    Handler(#[source] Box<dyn Error + Send + Sync>),
    /// Records are missing.
    #[error("the log is not whole")]
    Log(#[source] LogError),
    /// The pool takes no changes.
    #[error(transparent)]
    Pool(PoolFailure),
    /// The log is in no state to be replayed.
    #[error(transparent)]
    Misuse(Misuse),
}

/// A replay stopped. What was replayed stays replayed; a later call goes on behind it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{dataset}: replay stopped at record {number}{}",
    entry.map(|(id, at)| format!(", {id}, at region offset {at:#x}")).unwrap_or_default()
)]
pub struct ReplayFailure {
    /// Whose log.
    pub dataset: DatasetId,
    /// Which record of this replay, from 1.
    pub number: u64,
    /// Its place in the log and on the medium; `None` if it is none in particular.
    pub entry: Option<(EntryId, u64)>,
    /// What stands in the way.
    #[source]
    pub cause: ReplayCause,
}

impl ReplayFailure {
    /// What can be done about it.
    pub fn choices(&self) -> &'static [Choice] {
        match self.cause {
            // Not the log's fault; dropping records would lose them for nothing.
            ReplayCause::Pool(_) => &[Choice::Retry, Choice::ReadOnly],
            ReplayCause::Misuse(_) => &[Choice::ReadOnly],
            _ => &Choice::ALL,
        }
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            ReplayCause::Body(_) | ReplayCause::OtherTxg { .. } | ReplayCause::Log(_) => ErrorKind::Corrupt,
            ReplayCause::Record(error) => error.kind(),
            ReplayCause::Handler(_) | ReplayCause::Misuse(_) => ErrorKind::Invalid,
            ReplayCause::Pool(failure) => failure.kind,
        }
    }
}
