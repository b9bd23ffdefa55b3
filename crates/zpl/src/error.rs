//! Errors of a file system, and the numbers that programs know them by.

use std::sync::Arc;

use fastness_base::{ErrorKind, HasKind};
use fastness_store::{ChangeError, CommitError, DatasetKind, PoolError, StoreError};
use rustix::io::Errno;

use crate::ino::Ino;

/// Why an operation on a file system failed.
///
/// State afterwards: nothing was changed, unless the operation says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// There is no such name.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// A directory is needed.
    #[error("not a directory")]
    NotADirectory,
    /// Directories are not allowed here.
    #[error("is a directory")]
    IsADirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// Longer than 255 bytes, or a target longer than 4095.
    #[error("the name is too long")]
    NameTooLong,
    /// The file has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The object was removed, and its number means nothing any more.
    #[error("inode {0} does not exist any more")]
    Stale(Ino),
    /// The arguments make no sense together.
    #[error("{0}")]
    Invalid(&'static str),
    /// Offsets end at 2^62.
    #[error("the file would be too large")]
    TooLarge,
    /// There is no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The value of an extended attribute is too long, or the list of names is.
    #[error("the attribute is too long")]
    AttributeTooLong,
    /// The file system does not do this.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// This kind of file cannot do this.
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// There is no data, or no hole, at or after the offset.
    #[error("no data there")]
    NoData,
    /// 256 names of one directory have the same hash.
    #[error("the directory cannot take this name: too many names have its hash")]
    Collisions,
    /// The dataset exists and holds no files.
    #[error("{name} is no file system")]
    NotAFileSystem {
        /// The dataset.
        name: String,
    },
    /// The file system was written by a later version.
    #[error("{name} has version {found} of files; this program knows {known}")]
    OtherVersion {
        /// The dataset.
        name: String,
        /// Version found.
        found: u8,
        /// The newest known.
        known: u8,
    },
    /// A row contradicts itself or another one.
    #[error("inode {ino}: {what}")]
    Damaged {
        /// Where.
        ino: Ino,
        /// What is wrong.
        what: &'static str,
    },
    /// The pool refused or failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Neither the log nor the pool made it durable.
    #[error(transparent)]
    Commit(Arc<CommitError>),
    /// The store failed.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

/// Result of an operation on a file system.
pub type Result<T, E = FsError> = std::result::Result<T, E>;

impl FsError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FsError::Pool(error) => error.kind(),
            FsError::Commit(error) => error.kind(),
            FsError::Store(error) => error.kind(),
            FsError::Damaged { .. } => ErrorKind::Corrupt,
            FsError::Collisions => ErrorKind::NoSpace,
            _ => ErrorKind::Invalid,
        }
    }

    /// The number that a program sees.
    pub fn errno(&self) -> Errno {
        match self {
            FsError::NotFound => Errno::NOENT,
            FsError::Exists => Errno::EXIST,
            FsError::NotADirectory => Errno::NOTDIR,
            FsError::IsADirectory => Errno::ISDIR,
            FsError::NotEmpty => Errno::NOTEMPTY,
            FsError::NameTooLong => Errno::NAMETOOLONG,
            FsError::TooManyLinks => Errno::MLINK,
            FsError::Stale(_) => Errno::STALE,
            FsError::Invalid(_) => Errno::INVAL,
            FsError::TooLarge => Errno::FBIG,
            FsError::NoAttribute => Errno::NODATA,
            FsError::AttributeTooLong => Errno::TOOBIG,
            FsError::NotSupported(_) => Errno::OPNOTSUPP,
            FsError::NotPermitted(_) => Errno::PERM,
            FsError::NoData => Errno::NXIO,
            FsError::Collisions => Errno::NOSPC,
            FsError::Pool(PoolError::ReadOnly(_)) => Errno::ROFS,
            FsError::Pool(PoolError::NoSpace { is_quota: true, .. }) => Errno::DQUOT,
            FsError::Pool(error) => of_kind(error.kind()),
            FsError::Commit(error) => of_kind(error.kind()),
            FsError::Store(error) => of_kind(error.kind()),
            FsError::NotAFileSystem { .. } | FsError::OtherVersion { .. } | FsError::Damaged { .. } => {
                Errno::IO
            }
        }
    }
}

/// The pool's own refusals.
fn of_kind(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Retry => Errno::AGAIN,
        ErrorKind::Invalid => Errno::INVAL,
        _ => Errno::IO,
    }
}

impl HasKind for FsError {
    fn kind(&self) -> ErrorKind {
        FsError::kind(self)
    }
}

impl From<ChangeError> for FsError {
    fn from(error: ChangeError) -> FsError {
        match error {
            ChangeError::Pool(error) => FsError::Pool(error),
            ChangeError::Commit(error) => FsError::Commit(Arc::new(error)),
        }
    }
}

impl From<StoreError> for FsError {
    fn from(error: StoreError) -> FsError {
        match error {
            StoreError::Pool(error) => FsError::Pool(error),
            StoreError::UnknownKind { dataset, kind } if kind != DatasetKind::Filesystem => {
                FsError::NotAFileSystem { name: dataset }
            }
            error => FsError::Store(Arc::new(error)),
        }
    }
}
