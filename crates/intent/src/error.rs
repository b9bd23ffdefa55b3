//! Errors of a pool's log.

use fastness_error::ErrorKind;
use fastness_pmem::{PersistError, ReadError, RegionError};
use fastness_pool::PoolError;
use fastness_prb::SetupError;
use fastness_zil::{ClaimProblem, LogError, ReplayFailure};

use crate::region::RegionId;

/// Why a pool's log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntentError {
    /// The pool failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The region cannot be opened or made.
    #[error("the log's region cannot be used")]
    Region(#[source] Box<RegionError>),
    /// The region is shorter than a log needs, or than it was.
    #[error("the log's region has {found_bytes} bytes, it needs {least_bytes}")]
    TooSmall {
        /// Its length.
        found_bytes: u64,
        /// What it must have.
        least_bytes: u64,
    },
    /// Neither superblock is one.
    #[error("the region holds no log of a pool: {0}")]
    NoLog(&'static str),
    /// The pool has another log device than this.
    #[error("the region is log {found}, the pool has log {expected}")]
    OtherLog {
        /// In the region.
        found: RegionId,
        /// In the pool.
        expected: RegionId,
    },
    /// The pool has a log device, and none was given.
    #[error(
        "the pool has log device {expected}, and it is not here; what was acknowledged since the last synced txg is in it"
    )]
    Missing {
        /// In the pool.
        expected: RegionId,
    },
    /// A superblock cannot be read.
    #[error("the region's superblock cannot be read")]
    Read(#[from] ReadError),
    /// The medium does not take a superblock.
    #[error("the region's superblock cannot be written")]
    Persist(#[from] PersistError),
    /// The PRB in the region cannot be set up.
    #[error("the region cannot be set up")]
    Setup(#[source] SetupError),
    /// A log is damaged or not whole.
    #[error(transparent)]
    Claim(Box<ClaimProblem>),
    /// A volume's log stops in the middle.
    #[error(transparent)]
    Replay(Box<ReplayFailure>),
    /// A log is in no state for what was asked.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl IntentError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            IntentError::Pool(error) => error.kind(),
            IntentError::Region(error) => error.kind(),
            IntentError::TooSmall { .. } | IntentError::OtherLog { .. } => ErrorKind::Invalid,
            IntentError::NoLog(_) => ErrorKind::Corrupt,
            IntentError::Missing { .. } | IntentError::Read(_) | IntentError::Persist(_) => {
                ErrorKind::MediaFailed
            }
            IntentError::Setup(_) => ErrorKind::Invalid,
            IntentError::Claim(problem) => problem.kind(),
            IntentError::Replay(failure) => failure.kind(),
            IntentError::Log(error) => error.kind(),
        }
    }
}

impl From<RegionError> for IntentError {
    fn from(error: RegionError) -> IntentError {
        IntentError::Region(Box::new(error))
    }
}

impl From<SetupError> for IntentError {
    fn from(error: SetupError) -> IntentError {
        IntentError::Setup(error)
    }
}

impl From<ClaimProblem> for IntentError {
    fn from(problem: ClaimProblem) -> IntentError {
        IntentError::Claim(Box::new(problem))
    }
}

impl From<ReplayFailure> for IntentError {
    fn from(failure: ReplayFailure) -> IntentError {
        IntentError::Replay(Box::new(failure))
    }
}
