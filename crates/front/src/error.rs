//! Errors of mounts with a cache, and what the caller must do about each.

use std::io;
use std::path::{Path, PathBuf};

use fastness_base::{ErrorKind, HasKind};
use fastness_fuse::{MountError, SessionError};
use fastness_nbd::{BindError, TlsError};
use fastness_pmem::RegionError;
use fastness_responder::Error;

/// Why there is no mount, or no recovery.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontError {
    /// The region cannot be opened or made.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Another process has the region.
    #[error("{} is already open{}", path.display(), by(holder.as_deref()))]
    InUse {
        /// The region.
        path: PathBuf,
        /// That process, if it is known.
        holder: Option<String>,
    },
    /// The cache refuses or fails; nothing that was acknowledged is lost.
    #[error("{action} {}", path.display())]
    Cache {
        /// What was being done.
        action: &'static str,
        /// The region.
        path: PathBuf,
        /// Why not.
        source: Error,
    },
    /// As [`Cache`](Self::Cache), and something can be done about it.
    #[error("{action} {}: {hint}", path.display())]
    CacheWithHint {
        /// What was being done.
        action: &'static str,
        /// The region.
        path: PathBuf,
        /// What can be done.
        hint: String,
        /// Why not.
        source: Error,
    },
    /// The write cache refuses or fails; nothing that was acknowledged is lost.
    #[error("{action} {}", path.display())]
    Block {
        /// What was being done.
        action: &'static str,
        /// The region.
        path: PathBuf,
        /// Why not.
        source: fastness_wcache::Error,
    },
    /// The cache cannot be served.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] TlsError),
    /// New certificates cannot be used.
    #[error(
        "the certificates stay as they were: {why}; connections go on, and new ones get the old certificate"
    )]
    CertificatesStay {
        /// What the caller must do.
        kind: ErrorKind,
        /// Why.
        why: String,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(String),
    /// The kernel refuses to mount or unmount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The kernel's side of the mount failed.
    #[error(transparent)]
    Session(SessionError),
    /// A system call failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
    /// The process that has the region does not answer.
    #[error("the process at {} has not answered for {seconds} s: it is stopped, or too busy", path.display())]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// For so long it was waited for.
        seconds: u64,
    },
    /// The process that has the region answered with this.
    #[error("{message}")]
    Answered {
        /// Its kind.
        kind: ErrorKind,
        /// Its words.
        message: String,
    },
}

fn by(holder: Option<&str>) -> String {
    holder.map_or_else(String::new, |holder| format!(": {holder} has it"))
}

impl FrontError {
    pub(crate) fn io(action: &'static str, path: &Path, error: impl Into<io::Error>) -> FrontError {
        FrontError::Io { action, path: path.to_owned(), source: error.into() }
    }

    pub(crate) fn block(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(fastness_wcache::Error) -> FrontError {
        move |source| FrontError::Block { action, path: path.to_owned(), source }
    }

    pub(crate) fn cache(action: &'static str, path: &Path) -> impl FnOnce(Error) -> FrontError {
        move |source| FrontError::Cache { action, path: path.to_owned(), source }
    }
}

impl HasKind for FrontError {
    fn kind(&self) -> ErrorKind {
        match self {
            FrontError::Region(error) => error.kind(),
            FrontError::Cache { source, .. } | FrontError::CacheWithHint { source, .. } => source.kind(),
            FrontError::Block { source, .. } => source.kind(),
            FrontError::Bind(BindError::InUse { .. }) | FrontError::InUse { .. } => ErrorKind::Retry,
            FrontError::Bind(_) => ErrorKind::Invalid,
            FrontError::Certificates(TlsError::Unreadable { source, .. }) => {
                ErrorKind::of_denial(source).unwrap_or(ErrorKind::Invalid)
            }
            FrontError::Certificates(_) => ErrorKind::Invalid,
            FrontError::Refused(_) | FrontError::Session(_) => ErrorKind::Invalid,
            FrontError::Mount(MountError::Busy(_)) | FrontError::Silent { .. } => ErrorKind::Retry,
            FrontError::Mount(_) => ErrorKind::Invalid,
            FrontError::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
                _ => ErrorKind::Invalid,
            },
            FrontError::Answered { kind, .. } | FrontError::CertificatesStay { kind, .. } => *kind,
        }
    }
}
