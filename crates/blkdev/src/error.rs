//! Errors of block devices: the place, the operation, and what the caller must do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use fastness_base::ErrorKind;

/// An operation on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// Read.
    Read,
    /// Write that is durable after the next flush.
    Write,
    /// Write that is durable on return.
    WriteFua,
    /// Flush of the volatile caches.
    Flush,
    /// Discard (TRIM, hole).
    Discard,
    /// Write of zeroes without sending them.
    WriteZeroes,
}

impl Operation {
    /// All of them, in the order of their statistics.
    pub const ALL: [Operation; 6] = [
        Operation::Read,
        Operation::Write,
        Operation::WriteFua,
        Operation::Flush,
        Operation::Discard,
        Operation::WriteZeroes,
    ];

    /// Whether the operation changes what the device holds; a read and a flush do not.
    pub fn is_change(self) -> bool {
        !matches!(self, Operation::Read | Operation::Flush)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::WriteFua => "FUA write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::WriteZeroes => "write of zeroes",
        })
    }
}

/// One operation on a block device failed.
///
/// State afterwards: after a failed read, the buffer's contents are unspecified. After a failed write,
/// everything before [`offset`](Self::offset) was transferred, and each sector from there on holds old or new
/// bytes. After a failed flush or FUA write the device is poisoned.
#[derive(Debug, thiserror::Error)]
#[error("{operation} on {device} failed at offset {offset:#x} ({len_bytes} bytes left): {cause}")]
pub struct BlockError {
    /// Name of the device ([`DeviceInfo::name`](crate::DeviceInfo::name)).
    pub device: Arc<str>,
    /// The operation.
    pub operation: Operation,
    /// First byte that was not transferred; 0 for a flush.
    pub offset: u64,
    /// Bytes that were not transferred; 0 for a flush.
    pub len_bytes: u64,
    /// Why.
    #[source]
    pub cause: Cause,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The range reaches past the end of the device.
    #[error("the device has {device_len_bytes} bytes")]
    OutOfRange {
        /// Length of the device.
        device_len_bytes: u64,
    },
    /// Offset or length is not a multiple of the logical block size.
    #[error("offset and length must be multiples of {block_bytes}")]
    Misaligned {
        /// The logical block size.
        block_bytes: u32,
    },
    /// The device cannot be written (opened read-only, or `EROFS`).
    #[error("the device is read-only")]
    ReadOnly,
    /// The file system under the device is out of space (`ENOSPC`, `EDQUOT`, `EFBIG`).
    #[error("no space under the device")]
    NoSpace(#[source] io::Error),
    /// The medium failed (`EIO` and its relatives).
    #[error("the medium failed")]
    Media(#[source] io::Error),
    /// The device no longer exists (`ENODEV`, `ENXIO`, ...).
    #[error("the device is gone")]
    Gone(#[source] io::Error),
    /// The device ended early: a file was truncated under us.
    #[error("the device ended early")]
    Ended,
    /// An earlier flush or FUA write failed: what it should have made durable may be lost, and no later one
    /// can tell.
    #[error("an earlier flush failed; open the device again and recover")]
    Poisoned,
    /// Another client has taken the device over, or the device did not answer in time, so that requests may
    /// still reach it: nothing succeeds through this handle any more.
    #[error("fenced: another client has the device now, or it did not answer in time; open it again")]
    Fenced(#[source] io::Error),
    /// Try again (`EAGAIN`, `ENOMEM`, ...).
    #[error("not now")]
    Busy(#[source] io::Error),
    /// Any other error of a system call.
    #[error("refused")]
    Other(#[source] io::Error),
}

impl Cause {
    /// The cause that an error of a system call stands for.
    pub fn from_io(error: io::Error) -> Cause {
        match error.raw_os_error() {
            Some(libc::EROFS | libc::EPERM | libc::EACCES) => Cause::ReadOnly,
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Cause::NoSpace(error),
            Some(
                libc::EIO
                | libc::EREMOTEIO
                | libc::EHWPOISON
                | libc::EILSEQ
                | libc::ENODATA
                | libc::ETIMEDOUT
                | libc::EBADMSG
                | libc::EUCLEAN
                | libc::ENOLINK
                | libc::EBADE,
            ) => Cause::Media(error),
            Some(libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN | libc::ESTALE) => {
                Cause::Gone(error)
            }
            Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EBUSY | libc::ENOBUFS) => {
                Cause::Busy(error)
            }
            _ => Cause::Other(error),
        }
    }
}

impl BlockError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match &self.cause {
            Cause::OutOfRange { .. } | Cause::Misaligned { .. } | Cause::ReadOnly | Cause::Other(_) => {
                ErrorKind::Invalid
            }
            Cause::NoSpace(_) => ErrorKind::NoSpace,
            Cause::Media(_) | Cause::Gone(_) | Cause::Ended => ErrorKind::MediaFailed,
            Cause::Poisoned | Cause::Fenced(_) => ErrorKind::Closed,
            Cause::Busy(_) => ErrorKind::Retry,
        }
    }

    /// Whether the device has vanished.
    pub fn is_gone(&self) -> bool {
        matches!(self.cause, Cause::Gone(_))
    }
}

fastness_base::has_kind!(BlockError);

/// A device could not be opened or created. Nothing stays open or locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No such file or device.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// What should have been opened.
        path: PathBuf,
    },
    /// A file to be created already exists.
    #[error("{} exists already", path.display())]
    AlreadyExists {
        /// What should have been created.
        path: PathBuf,
    },
    /// A process, perhaps this one, has the device open exclusively, or it is mounted.
    #[error("{} is in use", path.display())]
    InUse {
        /// The file or device.
        path: PathBuf,
    },
    /// A handle of this process that a failed flush poisoned is still open; drop it first.
    #[error("{} is poisoned by a failed flush and still open", path.display())]
    Poisoned {
        /// The file or device.
        path: PathBuf,
    },
    /// The medium, the file system or the permissions forbid writing.
    #[error("{} cannot be opened for writing", path.display())]
    ReadOnly {
        /// The file or device.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is a {found}; a device is a regular file or a block device", path.display())]
    UnsupportedType {
        /// What should have been opened.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The block size or the length does not fit.
    #[error("{}: {reason}", path.display())]
    Geometry {
        /// The file or device.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// `Direct::On` was requested but is not available.
    #[error("{} cannot be opened for direct I/O: {reason}", path.display())]
    DirectUnavailable {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// `EngineChoice::Uring` was requested but is not available.
    #[error("io_uring is not available for {}: {reason}", path.display())]
    UringUnavailable {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The file system lacks the space to allocate the whole file.
    #[error("no space to allocate {len_bytes} bytes for {}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// Another system call failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The file or device.
        path: PathBuf,
        /// What was being done: completes "cannot ... PATH".
        operation: &'static str,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            OpenError::InUse { .. } => ErrorKind::Retry,
            OpenError::Poisoned { .. } => ErrorKind::Closed,
            OpenError::NoSpace { .. } => ErrorKind::NoSpace,
            OpenError::ReadOnly { source, .. } => ErrorKind::of_denial(source).unwrap_or(ErrorKind::Invalid),
            OpenError::Io { source, .. } => match source.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => ErrorKind::Denied,
                Some(libc::EIO | libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => ErrorKind::MediaFailed,
                Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
                Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
                    ErrorKind::Retry
                }
                _ => ErrorKind::Invalid,
            },
            OpenError::NotFound { .. }
            | OpenError::AlreadyExists { .. }
            | OpenError::UnsupportedType { .. }
            | OpenError::Geometry { .. }
            | OpenError::DirectUnavailable { .. }
            | OpenError::UringUnavailable { .. } => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(OpenError);
