//! Errors of starting to run a pool.

use std::io;
use std::path::PathBuf;

use fastness_base::ErrorKind;
use fastness_nbd::BindError;
use fastness_store::{PoolError, StoreError};

/// Why a pool does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The pool cannot be created or imported.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool's log cannot be used.
    #[error(transparent)]
    Log(StoreError),
    /// The folder of sockets cannot be used.
    #[error("cannot use {} for sockets", path.display())]
    RunDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The control socket cannot be made; another process may have the pool.
    #[error("cannot listen at {}", path.display())]
    Control {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: BindError,
    },
    /// A thread or a signal handler cannot be set up.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A device that holds data.
    #[error("{path} has {what}; say --force to lose it")]
    InUse {
        /// The device.
        path: String,
        /// What is on it.
        what: String,
    },
    /// No device of the pool was found.
    #[error("no pool {pool} was found in: {}", places.join(", "))]
    NotFound {
        /// The pool.
        pool: String,
        /// Where it was looked for.
        places: Vec<String>,
    },
    /// Another process has devices that belong to the pool, or may belong to it.
    #[error("pool {pool} cannot be imported: in use by another process: {}", devices.join(", "))]
    Busy {
        /// The pool.
        pool: String,
        /// The devices.
        devices: Vec<String>,
    },
    /// Several pools have the name.
    #[error("several pools are called {pool}: {}; name one by its GUID", guids.join(", "))]
    Ambiguous {
        /// The name.
        pool: String,
        /// Their GUIDs.
        guids: Vec<String>,
    },
    /// Arguments that make no sense.
    #[error("{0}")]
    Invalid(String),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> StartError {
        match error {
            StoreError::Pool(error) => StartError::Pool(error),
            error => StartError::Log(error),
        }
    }
}

fastness_base::has_kind!(StartError);

impl StartError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StartError::Pool(error) => error.kind(),
            StartError::Log(error) => error.kind(),
            StartError::Control { source, .. } => bind_kind(source),
            StartError::Busy { .. } => ErrorKind::Retry,
            StartError::RunDir { source, .. } => ErrorKind::of_denial(source).unwrap_or(ErrorKind::Invalid),
            StartError::InUse { .. }
            | StartError::NotFound { .. }
            | StartError::Ambiguous { .. }
            | StartError::Invalid(_) => ErrorKind::Invalid,
            StartError::System { source, .. } => ErrorKind::of_denial(source).unwrap_or(ErrorKind::Bug),
        }
    }
}

/// What the caller must do about a socket or port that cannot be listened at.
pub(crate) fn bind_kind(error: &BindError) -> ErrorKind {
    match error {
        BindError::InUse { .. } => ErrorKind::AddressInUse,
        BindError::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            ErrorKind::AddressInUse
        }
        BindError::System { source, .. } => ErrorKind::of_denial(source).unwrap_or(ErrorKind::Invalid),
        _ => ErrorKind::Invalid,
    }
}
