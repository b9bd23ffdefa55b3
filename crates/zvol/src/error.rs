//! Errors of volumes.

use std::sync::Arc;

use fastness_base::ErrorKind;
use fastness_store::{ChangeError, CommitError, DatasetKind, PoolError, StoreError};

/// Why an operation on a volume failed.
///
/// State afterwards: nothing was changed, unless the operation says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The pool refused or failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Neither the log nor the pool made it durable.
    #[error(transparent)]
    Commit(Arc<CommitError>),
    /// The volume's log cannot be created or destroyed.
    #[error(transparent)]
    Log(Arc<StoreError>),
    /// The dataset exists and is of another kind.
    #[error("{name} is no volume")]
    NotAVolume {
        /// The dataset.
        name: String,
    },
    /// A range that is not inside the volume.
    #[error("{len_bytes} bytes at {offset} are outside of {name}, which has {size_bytes}")]
    OutOfRange {
        /// The volume.
        name: String,
        /// First byte.
        offset: u64,
        /// Length of the range.
        len_bytes: u64,
        /// Size of the volume.
        size_bytes: u64,
    },
    /// A size that a volume cannot have.
    #[error("a volume of {size_bytes} bytes cannot be: {why}")]
    BadSize {
        /// The size that was wanted.
        size_bytes: u64,
        /// The rule that it violates.
        why: &'static str,
    },
    /// The volume's dataset has no data object: its creation was not atomic, which is a defect, or it is
    /// damaged.
    #[error("volume {name} has no data")]
    NoData {
        /// The volume.
        name: String,
    },
}

impl VolumeError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            VolumeError::Pool(error) => error.kind(),
            VolumeError::Commit(error) => error.kind(),
            VolumeError::Log(error) => error.kind(),
            VolumeError::NotAVolume { .. } | VolumeError::OutOfRange { .. } | VolumeError::BadSize { .. } => {
                ErrorKind::Invalid
            }
            VolumeError::NoData { .. } => ErrorKind::Corrupt,
        }
    }
}

fastness_base::has_kind!(VolumeError);

impl From<ChangeError> for VolumeError {
    fn from(error: ChangeError) -> VolumeError {
        match error {
            ChangeError::Commit(error) => VolumeError::Commit(Arc::new(error)),
            ChangeError::Pool(error) => VolumeError::Pool(error),
        }
    }
}

impl From<StoreError> for VolumeError {
    fn from(error: StoreError) -> VolumeError {
        match error {
            StoreError::Pool(error) => VolumeError::Pool(error),
            StoreError::UnknownKind { dataset, kind } if kind != DatasetKind::Volume => {
                VolumeError::NotAVolume { name: dataset }
            }
            error => VolumeError::Log(Arc::new(error)),
        }
    }
}

/// Result of an operation on a volume.
pub type Result<T, E = VolumeError> = std::result::Result<T, E>;
