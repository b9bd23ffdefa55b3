//! Errors of traces.

use std::io;

use fastness_base::ErrorKind;

/// Result of reading or writing a trace.
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

/// Why a trace cannot be read or written. Offsets are in bytes from the beginning of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file, or pipe, failed.
    #[error("cannot {what} the trace at offset {offset}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        offset: u64,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It does not begin as a trace does.
    #[error("this is no trace: it begins with {found:02x?}")]
    NotATrace {
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// A newer program wrote it.
    #[error("the trace has version {found}, this program reads version {known}")]
    Version {
        /// That of the trace.
        found: u16,
        /// That of this program.
        known: u16,
    },
    /// It ends before its end.
    #[error("the trace is cut off at offset {offset}, in {what}")]
    CutOff {
        /// Where it ends.
        offset: u64,
        /// What is missing.
        what: &'static str,
    },
    /// Bytes that contradict themselves.
    #[error("the trace is damaged at offset {offset}: {what}")]
    Damaged {
        /// Where the part begins that is damaged.
        offset: u64,
        /// How that is known.
        what: String,
    },
    /// An event that a trace cannot have: its writer's mistake.
    #[error("event {number} cannot be in a trace: {what}")]
    Invalid {
        /// Number of the event, from 0.
        number: u64,
        /// Why not.
        what: String,
    },
}

impl TraceError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TraceError::Io { .. } => ErrorKind::MediaFailed,
            TraceError::NotATrace { .. } | TraceError::Version { .. } => ErrorKind::Invalid,
            TraceError::CutOff { .. } | TraceError::Damaged { .. } => ErrorKind::Corrupt,
            TraceError::Invalid { .. } => ErrorKind::Bug,
        }
    }
}

fastness_base::has_kind!(TraceError);
