//! Claim: what an import finds of each dataset's log, and what can prevent it; the same for all kinds.

use std::collections::BTreeMap;

use fastness_base::ErrorKind;
use fastness_prb::Misuse;

use crate::error::LogError;
use crate::header::HeaderFault;
use crate::replay::Choice;
use fastness_base::{DatasetId, Txg};

/// Why a log cannot be claimed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimCause {
    /// The stored header is invalid.
    #[error(transparent)]
    Prefix(#[from] HeaderFault),
    /// Kind pmem: the kind's own part of it is damaged.
    #[error(transparent)]
    Header(#[from] fastness_prb::HeaderError),
    /// Kind pmem: two datasets have the header of one log.
    #[error(transparent)]
    Setup(#[from] Misuse),
    /// Kind pmem: entries are missing or damaged; the error names them and their places.
    #[error(transparent)]
    Claim(#[from] fastness_prb::ClaimError),
    /// Kind pmem: entries are missing, and no other entry counts them.
    #[error("entries are missing: {0}")]
    Hidden(fastness_prb::Hidden),
    /// Kind lwb: the kind's own part of the header is damaged.
    #[error(transparent)]
    ChainHeader(#[from] fastness_lwb::HeaderError),
    /// Kind lwb: the chain is damaged, ends too early, or uses blocks that another chain has.
    #[error(transparent)]
    Chain(#[from] fastness_lwb::ClaimError),
}

impl ClaimCause {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Prefix(HeaderFault::Version { .. } | HeaderFault::OtherKind { .. }) => ErrorKind::Invalid,
            Self::ChainHeader(error) => error.kind(),
            Self::Chain(error) => error.kind(),
            _ => ErrorKind::Corrupt,
        }
    }
}

fastness_base::has_kind!(ClaimCause);

/// A log that cannot be claimed. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the log of {dataset} cannot be claimed: {cause}")]
pub struct ClaimProblem {
    /// The dataset.
    pub dataset: DatasetId,
    /// The reason.
    #[source]
    pub cause: ClaimCause,
}

impl ClaimProblem {
    /// What can be done about it; see `resolve` of the import.
    pub fn choices(&self) -> &'static [Choice] {
        &Choice::ALL
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind()
    }
}

fastness_base::has_kind!(ClaimProblem);

/// What was found of one dataset's log.
#[derive(Debug, Clone)]
pub struct ClaimSummary {
    /// The dataset.
    pub dataset: DatasetId,
    /// Records to replay.
    pub records: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, the records whose data is not in the log but in the pool, where it was claimed too.
    pub indirect: usize,
    /// Kind pmem: places missing in the last generation: records that were being written at the crash, or
    /// lost. Kind lwb: 0, a chain just ends there.
    pub gaps: u64,
    /// Records given up by choice. Kind lwb: 0, their number is unknown.
    pub dropped: usize,
    /// The first reason for that.
    pub loss: Option<ClaimCause>,
}

/// Whether an import can finish: no problem is left, and the transaction is of the txg that was claimed for.
pub(crate) fn check_finish(
    problems: &BTreeMap<DatasetId, ClaimProblem>,
    claimed: Txg,
    found: Txg,
) -> Result<(), LogError> {
    if let Some(first) = problems.keys().next() {
        return Err(LogError::Unclaimed { count: problems.len(), first: *first });
    }
    if claimed == found { Ok(()) } else { Err(LogError::OtherTxg { claimed, found }) }
}
