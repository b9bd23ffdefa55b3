//! Errors of the cache, and what the caller must do about each.

use std::io;

use fastness_base::{ErrorKind, HasKind};
use fastness_pmem::{PersistError, ReadError};

use crate::copied::Copied;
pub use crate::log_error::LogError;

/// A call failed, or a region was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backing store refused. Nothing that was acknowledged is lost: what it did not take stays in PM.
    #[error("the backing store failed to {action}")]
    Backing {
        /// What it was to do.
        action: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// A fence failed: the region refuses all further ones until it is opened again.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// PM cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A tag contradicts itself.
    #[error("the tag at region offset {region_offset:#x} is damaged")]
    Tag {
        /// Where it is.
        region_offset: u64,
    },
    /// An operation log contradicts itself, although its operation is to be made again.
    #[error("the operation log at region offset {region_offset:#x} is damaged")]
    Operation {
        /// Where it is.
        region_offset: u64,
    },
    /// The log of names contradicts itself.
    #[error("the log of names is damaged at region offset {region_offset:#x}")]
    Names {
        /// Where.
        region_offset: u64,
    },
    /// The log of the protocol Log.
    #[error("the log of records failed")]
    Log(#[source] Box<LogError>),
    /// Two keys belong to one file, or one key to two.
    #[error("the tags of inode {inode} disagree about its key")]
    Keys {
        /// The file.
        inode: u64,
    },
    /// The region holds no cache, or its superblock is damaged.
    #[error("the superblock at region offset {region_offset:#x} has {problem}")]
    Superblock {
        /// Where the first copy is.
        region_offset: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The region holds a cache of another version of the format.
    #[error("it holds a cache of version {found}; flush and detach that with the program that made it")]
    Version {
        /// That version.
        found: u16,
    },
    /// The region holds a cache already.
    #[error("the region holds a cache already; what is in it would be lost")]
    Exists,
    /// The region cannot be divided like that.
    #[error("{0}")]
    Geometry(&'static str),
    /// The region belongs to another directory, or the directory to another region.
    #[error("the region and the directory do not belong together: {0}")]
    WrongDirectory(&'static str),
    /// The directory does not say that it belongs to a region; see
    /// [`Options::pair_anew`](crate::Options::pair_anew).
    #[error(
        "the directory belongs to no region: it was detached, and this is an older copy of the region, which would \
         undo what was written since; or its file .fastness-responder is lost"
    )]
    Unmarked,
    /// The region or the directory is a copy from before the last opening; see
    /// [`Options::pair_anew`](crate::Options::pair_anew).
    #[error("{0}")]
    Copy(Copied),
    /// A slot is held by data of a file that is no longer in the directory.
    #[error("the slot is held by acknowledged data of inode {inode}, which is not in the directory")]
    Orphan {
        /// The file.
        inode: u64,
    },
    /// PM has acknowledged data of files that are not in the directory
    /// ([`Cache::orphans`](crate::Cache::orphans)).
    #[error("{chunks} chunks belong to files that are not in the directory")]
    Orphans {
        /// How many; with the protocol Log, syncs.
        chunks: u64,
    },
    /// All keys of 56 bits have been given out.
    #[error("the region has given out all its keys; detach it and create it again")]
    KeysExhausted,
    /// More files are removed while they are open, or being truncated, than the region has room to note.
    #[error("too many files are removed while they are open")]
    IntentsFull,
    /// Another process serves the cache, and has ended while this one waited for a lock.
    #[error("the process that serves the cache has ended")]
    NotServed,
    /// A slot has no room, and only the process that serves the cache makes some.
    #[error("the slot has no room")]
    NoRoom,
    /// Data remain that the backing store did not take.
    #[error("{chunks} chunks could not be written to the backing store")]
    NotFlushed {
        /// How many.
        chunks: u64,
    },
}

impl Error {
    pub(crate) fn backing(action: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Backing { action, source }
    }

    /// The error number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Error::Backing { source, .. } => source.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            Error::Persist(_)
            | Error::Read(_)
            | Error::Tag { .. }
            | Error::Operation { .. }
            | Error::Names { .. }
            | Error::Keys { .. }
            | Error::Superblock { .. }
            | Error::Version { .. }
            | Error::Orphan { .. }
            | Error::Orphans { .. }
            | Error::NoRoom
            | Error::NotFlushed { .. } => Errno::IO.raw_os_error(),
            // As a mount whose server has ended.
            Error::NotServed => Errno::NOTCONN.raw_os_error(),
            Error::Log(error) if error.kind() == ErrorKind::NoSpace => Errno::NOSPC.raw_os_error(),
            Error::Log(_) => Errno::IO.raw_os_error(),
            Error::Exists => Errno::EXIST.raw_os_error(),
            Error::Geometry(_) | Error::WrongDirectory(_) | Error::Unmarked | Error::Copy(_) => {
                Errno::INVAL.raw_os_error()
            }
            Error::KeysExhausted | Error::IntentsFull => Errno::NOSPC.raw_os_error(),
        }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::Backing { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
                io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                io::ErrorKind::NotFound
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidInput => ErrorKind::Invalid,
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => ErrorKind::Retry,
                _ => ErrorKind::MediaFailed,
            },
            Error::Persist(_) | Error::NotServed => ErrorKind::Closed,
            Error::Read(_) => ErrorKind::MediaFailed,
            Error::Log(error) => error.kind(),
            Error::Tag { .. } | Error::Operation { .. } | Error::Names { .. } | Error::Keys { .. } => {
                ErrorKind::Corrupt
            }
            Error::Superblock { .. }
            | Error::Version { .. }
            | Error::Exists
            | Error::Geometry(_)
            | Error::WrongDirectory(_)
            | Error::Unmarked
            | Error::Copy(_)
            | Error::Orphan { .. }
            | Error::Orphans { .. } => ErrorKind::Invalid,
            Error::KeysExhausted | Error::IntentsFull => ErrorKind::NoSpace,
            Error::NotFlushed { .. } | Error::NoRoom => ErrorKind::Retry,
        }
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Error {
        Error::Log(Box::new(error))
    }
}
