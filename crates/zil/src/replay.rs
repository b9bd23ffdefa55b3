//! Replay: how its owner applies each record, and what can stop it.

use std::error::Error;
use std::fmt;

use fastness_base::ErrorKind;
use fastness_lwb::{Ended, Lsn, Place};
use fastness_prb::{BodyError, EntryId, LogError, Misuse};

use crate::pool::{Pool, PoolFailure};
use crate::record::{Head, Record, RecordError};
use fastness_base::{DatasetId, Txg};

/// Applies records.
pub trait ReplayHandler<P: Pool> {
    /// Applies a record in the transaction, which also stores how far replay has come. A record that may be
    /// reordered does nothing, without an error, if its object does not exist.
    ///
    /// # Errors
    /// What prevents it; nothing may then have been changed, and replay stops before this record.
    fn apply(
        &mut self,
        tx: &P::Tx,
        head: &Head,
        record: &Record<'_>,
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// Records of one transaction at most.
const BATCH_RECORDS: u32 = 256;
/// Bytes of the records of one transaction, about.
const BATCH_BYTES: u64 = 1 << 20;

/// The transaction that replay has open, and the header that says how far it has come with it. Both become
/// durable with one txg, whatever ends the transaction: enough records, a failure, or that this is dropped.
pub(crate) struct Batch<'a, P: Pool, H> {
    pool: &'a P,
    dataset: DatasetId,
    encode: fn(&H) -> Vec<u8>,
    tx: Option<P::Tx>,
    header: Option<H>,
    records: u32,
    bytes: u64,
}

impl<'a, P: Pool, H> Batch<'a, P, H> {
    pub(crate) fn new(pool: &'a P, dataset: DatasetId, encode: fn(&H) -> Vec<u8>) -> Self {
        Self { pool, dataset, encode, tx: None, header: None, records: 0, bytes: 0 }
    }

    /// Applies a record, of which `header` says that it was applied.
    pub(crate) fn apply(
        &mut self,
        header: H,
        bytes: usize,
        apply: impl FnOnce(&P::Tx) -> Result<(), ReplayCause>,
    ) -> Result<(), ReplayCause> {
        let tx = match self.tx.take() {
            Some(tx) => tx,
            None => self.pool.begin_tx().map_err(ReplayCause::Pool)?,
        };
        let applied = apply(&tx);
        self.tx = Some(tx);
        applied?;
        self.header = Some(header);
        self.records += 1;
        self.bytes += bytes as u64;
        let is_full = self.records >= BATCH_RECORDS || self.bytes >= BATCH_BYTES;
        if is_full || self.tx.as_ref().is_none_or(|tx| !self.pool.may_go_on(tx)) {
            self.end();
        }
        Ok(())
    }

    /// Ends the transaction.
    pub(crate) fn end(&mut self) {
        if let (Some(tx), Some(header)) = (&self.tx, self.header.take()) {
            self.pool.put_log_header(tx, self.dataset, Some(&(self.encode)(&header)));
        }
        (self.tx, self.records, self.bytes) = (None, 0, 0);
    }
}

impl<P: Pool, H> Drop for Batch<'_, P, H> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records applied.
    pub records: u64,
    /// Kind pmem: records that are in the log but were not when it was claimed; they were skipped.
    pub reappeared: u64,
}

/// What can be done about a log that cannot be claimed or replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Try again, after the cause was removed.
    Retry,
    /// Give up what cannot be replayed, and everything that depends on it. Acknowledged changes are lost.
    DropTail,
    /// Change nothing: the dataset (at claim: the pool) is as of the last synced txg, and the log is kept.
    ReadOnly,
}

impl Choice {
    /// All choices.
    pub const ALL: [Choice; 3] = [Self::Retry, Self::DropTail, Self::ReadOnly];
}

/// What stopped a replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayCause {
    /// Kind pmem: the record's bytes on the medium are damaged.
    #[error("its bytes are damaged")]
    Body(#[source] BodyError),
    /// Its bytes are intact, but are not a record.
    #[error("it is no record that can be carried out")]
    Record(#[source] RecordError),
    /// The record's txg differs from that of its entry in the log: crafted, or a defect.
    #[error("it says {record}, its entry {entry}")]
    OtherTxg {
        /// In the record.
        record: Txg,
        /// In the entry.
        entry: Txg,
    },
    /// Kind pmem: the record's data is elsewhere, which is impossible for such records: crafted, or a defect.
    #[error("its data is not in the log, and a log of this kind has no such records")]
    Elsewhere,
    /// The handler could not apply it.
    #[error("it cannot be carried out")]
    Handler(#[source] Box<dyn Error + Send + Sync>),
    /// Kind pmem: records are missing.
    #[error("the log is not whole")]
    Log(#[source] LogError),
    /// Kind lwb: a block that was claimed is gone.
    #[error("the log is damaged at {0}")]
    Damaged(Box<Ended>),
    /// Kind lwb: all blocks are there, but the last claimed record is not.
    #[error("the log ends with record {}, claimed was {}", found.0, claimed.0)]
    Changed {
        /// The last intact record now.
        found: Lsn,
        /// The last one that was claimed.
        claimed: Lsn,
    },
    /// The pool takes no changes.
    #[error(transparent)]
    Pool(PoolFailure),
    /// The log is not in a state to be replayed.
    #[error(transparent)]
    Misuse(Misuse),
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPlace {
    /// Kind pmem.
    Pmem {
        /// Its place in the log.
        entry: EntryId,
        /// On the medium.
        region_offset: u64,
    },
    /// Kind lwb.
    Lwb {
        /// Its number in the log.
        lsn: Lsn,
        /// The block in which it begins.
        block: Place,
    },
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pmem { entry, region_offset } => write!(f, "{entry}, at region offset {region_offset:#x}"),
            Self::Lwb { lsn, block } => write!(f, "record {} of the log, in the block at {block}", lsn.0),
        }
    }
}

/// A replay stopped. What was replayed stays replayed; a later call continues after it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{dataset}: replay stopped at record {number}{}",
    place.map(|place| format!(", {place}")).unwrap_or_default()
)]
pub struct ReplayFailure {
    /// The dataset.
    pub dataset: DatasetId,
    /// Number of the record in this replay, from 1.
    pub number: u64,
    /// Its place in the log and on the medium; `None` if no particular record is concerned.
    pub place: Option<RecordPlace>,
    /// What prevents it.
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
            ReplayCause::Body(_)
            | ReplayCause::OtherTxg { .. }
            | ReplayCause::Elsewhere
            | ReplayCause::Log(_)
            | ReplayCause::Changed { .. } => ErrorKind::Corrupt,
            ReplayCause::Damaged(ended) => ended.end.kind(),
            ReplayCause::Record(error) => error.kind(),
            ReplayCause::Handler(_) | ReplayCause::Misuse(_) => ErrorKind::Invalid,
            ReplayCause::Pool(failure) => failure.kind,
        }
    }
}

fastness_base::has_kind!(ReplayFailure);
