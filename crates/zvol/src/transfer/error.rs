//! Why a snapshot is not sent or received.

use fastness_base::ErrorKind;
use fastness_store::{PoolError, StoreError};
use fastness_stream::StreamError;

use crate::error::VolumeError;

/// Why a snapshot is not sent or received.
///
/// State afterwards: volumes are as they were; what was received stays only after
/// [`Interrupted`](Self::Interrupted).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The stream is refused, or ended.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A volume or the pool refused or failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// It is no snapshot.
    #[error("{0} is no snapshot of a volume: name one, as VOLUME@NAME")]
    NoSnapshot(String),
    /// The snapshot of a token is gone.
    #[error("no snapshot here has the GUID {0:016x} of the token: it was destroyed, or is in another pool")]
    NoSuchGuid(u64),
    /// A full stream for a name that is in use.
    #[error("{0} exists already: receive into another name, or an increment on one of its snapshots")]
    Exists(String),
    /// An increment for a volume without its beginning.
    #[error(
        "{volume} has no snapshot with the GUID {guid:016x}, which the increment is on: receive that one before"
    )]
    NoBase {
        /// The volume.
        volume: String,
        /// GUID of the snapshot.
        guid: u64,
    },
    /// The snapshot was received before.
    #[error("{0} is the snapshot of the stream already")]
    AlreadyThere(String),
    /// Volumes of different block sizes.
    #[error("{volume} has blocks of {found} bytes, and the stream has {sent}")]
    OtherBlocks {
        /// The volume.
        volume: String,
        /// Its block size.
        found: u64,
        /// That of the stream.
        sent: u32,
    },
    /// A stream that goes on, where nothing has begun or something else has.
    #[error("{volume} has not what this stream goes on with: {why}")]
    OtherPart {
        /// The volume.
        volume: String,
        /// What does not fit.
        why: &'static str,
    },
    /// A new stream, where part of one is there.
    #[error("part of {volume} was received before: go on with the token {token}, or discard it")]
    Partial {
        /// The volume.
        volume: String,
        /// Where that one goes on.
        token: String,
    },
    /// Another stream is being received into the volume.
    #[error(
        "{0} is being received already, from another stream: wait for its end, or end the command that receives it"
    )]
    BeingReceived(String),
    /// Nothing of a volume is there.
    #[error("no part of {0} is waiting for the rest")]
    NotReceiving(String),
    /// The rest may follow: what came is kept, as of this token.
    #[error("{source}; what came of {volume} is kept, go on with the token {token}")]
    Interrupted {
        /// The volume.
        volume: String,
        /// Where the stream goes on.
        token: String,
        /// Why it ended.
        #[source]
        source: Box<TransferError>,
    },
}

impl TransferError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TransferError::Stream(error) => error.kind(),
            TransferError::Volume(error) => error.kind(),
            TransferError::Interrupted { source, .. } => source.kind(),
            TransferError::Partial { .. } | TransferError::BeingReceived(_) => ErrorKind::Retry,
            TransferError::NoSnapshot(_)
            | TransferError::NoSuchGuid(_)
            | TransferError::Exists(_)
            | TransferError::NoBase { .. }
            | TransferError::AlreadyThere(_)
            | TransferError::OtherBlocks { .. }
            | TransferError::OtherPart { .. }
            | TransferError::NotReceiving(_) => ErrorKind::Invalid,
        }
    }

    /// The pool's error behind it, if that is one.
    pub fn of_pool(&self) -> Option<&PoolError> {
        match self {
            TransferError::Volume(VolumeError::Pool(error)) => Some(error),
            TransferError::Interrupted { source, .. } => source.of_pool(),
            _ => None,
        }
    }
}

fastness_base::has_kind!(TransferError);

impl From<PoolError> for TransferError {
    fn from(error: PoolError) -> TransferError {
        VolumeError::from(error).into()
    }
}

impl From<StoreError> for TransferError {
    fn from(error: StoreError) -> TransferError {
        VolumeError::from(error).into()
    }
}
