//! Errors, and how they are reported to clients.

use std::io;
use std::path::PathBuf;

use crate::wire::reply;

/// Why an export refused a request.
///
/// The protocol has eight error numbers; an export picks the one that fits. Details go to the export's own
/// log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// Writes are not permitted.
    #[error("not permitted")]
    NotPermitted,
    /// The medium failed, or what it holds is corrupt.
    #[error("I/O error")]
    Io,
    /// Out of memory.
    #[error("out of memory")]
    OutOfMemory,
    /// The request is invalid.
    #[error("invalid request")]
    Invalid,
    /// The store is full.
    #[error("no space left")]
    NoSpace,
    /// Too large to be answered in one piece.
    #[error("too large")]
    TooLarge,
    /// Cannot be done, or not as fast as requested.
    #[error("not supported")]
    Unsupported,
    /// The store is going away.
    #[error("shutting down")]
    ShuttingDown,
}

/// Error numbers of the protocol; they are not the platform's. Source: `proto.md`, "Error values".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Operation not permitted.
    Eperm = 1,
    /// Input/output error.
    Eio = 5,
    /// Cannot allocate memory.
    Enomem = 12,
    /// Invalid argument.
    Einval = 22,
    /// No space left on device.
    Enospc = 28,
    /// Value too large; only for a read with the don't-fragment flag.
    Eoverflow = 75,
    /// Operation not supported; only for a fast zero.
    Enotsup = 95,
    /// The server is going away.
    Eshutdown = 108,
}

impl Errno {
    /// The number on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }
}

impl From<ExportError> for Errno {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::NotPermitted => Errno::Eperm,
            ExportError::Io => Errno::Eio,
            ExportError::OutOfMemory => Errno::Enomem,
            ExportError::Invalid => Errno::Einval,
            ExportError::NoSpace => Errno::Enospc,
            ExportError::TooLarge => Errno::Eoverflow,
            ExportError::Unsupported => Errno::Enotsup,
            ExportError::ShuttingDown => Errno::Eshutdown,
        }
    }
}

/// Why an export could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No export has that name.
    #[error("no such export")]
    Unknown,
    /// There is one, but not for this client, or not now.
    #[error("export refused: {reason}")]
    Forbidden {
        /// The reason, which is sent to the client.
        reason: String,
    },
    /// The store is going away.
    #[error("shutting down")]
    ShuttingDown,
}

impl OpenError {
    /// The reply to `INFO`, `GO` and `SET_META_CONTEXT`.
    pub(crate) fn reply(&self) -> u32 {
        match self {
            OpenError::Unknown => reply::ERR_UNKNOWN,
            OpenError::Forbidden { .. } => reply::ERR_POLICY,
            OpenError::ShuttingDown => reply::ERR_SHUTDOWN,
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A limit is too low.
    #[error("limit {name} is {value}; it must be at least {minimum}")]
    Limit {
        /// Field of [`crate::Limits`].
        name: &'static str,
        /// As given.
        value: u64,
        /// Smallest valid value.
        minimum: u64,
    },
    /// Without TLS, only this machine is served.
    #[error("{address} is not a loopback address, and without TLS anybody there could read and write")]
    NotLoopback {
        /// As given.
        address: std::net::SocketAddr,
    },
    /// Another server has the socket.
    #[error("{} is in use by another server", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file that is not a socket is in the way; it was left alone.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl BindError {
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| BindError::System { action, source: source.into() }
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The client broke the protocol in a way that cannot be recovered from.
    #[error("protocol error: {what}")]
    Protocol {
        /// The rule.
        what: &'static str,
    },
    /// The client took too long.
    #[error("the client took too long to {what}")]
    TimedOut {
        /// What it should have done.
        what: &'static str,
    },
    /// The socket failed, or the client disconnected in mid-message.
    #[error("connection lost")]
    Lost(#[source] io::Error),
    /// TLS could not be agreed upon, the client's certificate is missing or no good, or what arrived is
    /// damaged.
    #[error("TLS failed")]
    Tls {
        /// What is wrong.
        #[source]
        source: rustls::Error,
    },
    /// The server is full, or going away.
    #[error("connection refused: {why}")]
    Refused {
        /// Why.
        why: &'static str,
    },
}

impl From<rustix::io::Errno> for ConnectionError {
    fn from(errno: rustix::io::Errno) -> Self {
        ConnectionError::Lost(errno.into())
    }
}
