//! Why a stream is refused.

use std::io;

use fastness_base::ErrorKind;

/// What a call returns.
pub type Result<T> = std::result::Result<T, StreamError>;

/// Why a stream cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The other side, or the file, gave an error.
    #[error("the stream cannot be read or written")]
    Io(#[from] io::Error),
    /// It ends within record `record`, or before a last record.
    #[error("the stream ends early, at record {record}: it is not whole")]
    Truncated {
        /// Number of the record.
        record: u64,
    },
    /// It does not begin like one.
    #[error("this is no stream of a snapshot")]
    NoStream,
    /// A later program has written it.
    #[error("the stream has version {found}, and this program reads version {}", crate::VERSION)]
    OtherVersion {
        /// Its version.
        found: u32,
    },
    /// A checksum is wrong: the record is damaged, or is not the one that was written there.
    #[error("the stream is damaged at record {record}: its checksum is wrong")]
    Damaged {
        /// Number of the record.
        record: u64,
    },
    /// A record that no writer makes.
    #[error("record {record} of the stream is none: {what}")]
    Invalid {
        /// Number of the record.
        record: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// Text that is no token.
    #[error("{0} is no token of an interrupted stream")]
    BadToken(String),
}

impl StreamError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StreamError::Io(_) | StreamError::Truncated { .. } => ErrorKind::Retry,
            StreamError::Damaged { .. } | StreamError::Invalid { .. } => ErrorKind::Corrupt,
            StreamError::NoStream | StreamError::OtherVersion { .. } | StreamError::BadToken(_) => {
                ErrorKind::Invalid
            }
        }
    }
}

fastness_base::has_kind!(StreamError);
