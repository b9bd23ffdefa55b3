//! Errors of opening and owning PM, each with the kind that tells the caller what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

pub use fastness_base::ErrorKind;

use crate::medium::{PersistError, ReadError, ReadErrorKind};
use crate::method::WriteMethod;

/// Why protection keys cannot be used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeysRefusal {
    /// Not an x86-64 machine.
    Architecture,
    /// The CPU has none (no `pku` in `/proc/cpuinfo`).
    Cpu,
    /// The CPU has them, the kernel has not switched them on (no `ospke`).
    Kernel,
    /// The kernel gave none away: `errno` of `pkey_alloc`, `ENOSPC` if all 15 are in use.
    Alloc(i32),
    /// The kernel refused to tag the mapping: `errno` of `pkey_mprotect`.
    Protect(i32),
}

impl fmt::Display for KeysRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeysRefusal::Architecture => f.write_str("only x86-64 has them here"),
            KeysRefusal::Cpu => f.write_str("the CPU has none (no `pku` flag in /proc/cpuinfo)"),
            KeysRefusal::Kernel => {
                f.write_str("the kernel has not enabled them (no `ospke` flag in /proc/cpuinfo)")
            }
            KeysRefusal::Alloc(errno) => {
                write!(f, "pkey_alloc failed: {}", io::Error::from_raw_os_error(*errno))
            }
            KeysRefusal::Protect(errno) => {
                write!(f, "pkey_mprotect failed: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

/// A region could not be opened or created. Nothing stays open, locked or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// No such file or device.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// What was to be opened.
        path: PathBuf,
    },
    /// A file was to be created where there is one.
    #[error("{} exists already", path.display())]
    AlreadyExists {
        /// What was to be created.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The region's file or device.
        path: PathBuf,
        /// What was being done: completes "cannot ... PATH".
        operation: &'static str,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The file system has no room to allocate the whole region.
    #[error("no space to allocate {len_bytes} bytes for {}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Length of the region.
        len_bytes: u64,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The region is shorter than the caller or this crate needs.
    #[error("{} has {len_bytes} bytes, at least {min_bytes} are needed", path.display())]
    TooSmall {
        /// The region's file or device.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The least length.
        min_bytes: u64,
    },
    /// The length is not a multiple of what the medium maps at a time.
    #[error("the length of {}, {len_bytes} bytes, is not a multiple of {align_bytes}", path.display())]
    Misaligned {
        /// The region's file or device.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The alignment demanded.
        align_bytes: u64,
    },
    /// The medium is read-only, or permissions forbid writing.
    #[error("{} cannot be opened for writing", path.display())]
    ReadOnly {
        /// The region's file or device.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The region is open, perhaps in this process.
    #[error("{} is already open", path.display())]
    AlreadyOpen {
        /// The region's file or device.
        path: PathBuf,
    },
    /// A block device: there is no way to map it for direct access from user space.
    #[error("{}", block_device_text(path, namespace.as_deref(), *is_pm))]
    BlockDevice {
        /// The device.
        path: PathBuf,
        /// Whether the device is PM (a libnvdimm namespace).
        is_pm: bool,
        /// The namespace under it, where sysfs names it.
        namespace: Option<String>,
    },
    /// Neither a file nor a devdax device.
    #[error("{} is a {found}; a region is a devdax device or a regular file", path.display())]
    UnsupportedType {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file has holes and its file system cannot fill them, so that a store could end in `SIGBUS`.
    #[error("{} has holes that its file system cannot allocate; copy it without holes", path.display())]
    Sparse {
        /// The file.
        path: PathBuf,
    },
    /// The write method does not fit this CPU or this medium.
    #[error("write method {method:?} is not possible: {reason}")]
    MethodUnavailable {
        /// What was asked for.
        method: WriteMethod,
        /// Why not.
        reason: &'static str,
    },
    /// `Protection::Keys` was requested and is not available.
    #[error("memory protection keys are not available: {reason}")]
    KeysUnavailable {
        /// Why not.
        reason: KeysRefusal,
    },
    /// This architecture has no user-space way to make stores to the device durable.
    #[error("{}: durable stores to devdax need x86-64", path.display())]
    UnsupportedArchitecture {
        /// The device.
        path: PathBuf,
    },
}

fn block_device_text(path: &std::path::Path, namespace: Option<&str>, is_pm: bool) -> String {
    let path = path.display();
    if !is_pm {
        return format!(
            "{path} is a block device that is not persistent memory; it cannot be mapped for DAX"
        );
    }
    let namespace = namespace.unwrap_or("namespaceX.Y");
    format!(
        "{path} is a block device: fsdax-mode block devices cannot be mapped for DAX from user space. Either make \
         the namespace a character device (this erases it): `ndctl create-namespace --mode=devdax -f -e \
         {namespace}`, or mount a DAX file system on it (`mount -o dax`) and use a file there"
    )
}

impl RegionError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RegionError::Io { source, .. } | RegionError::ReadOnly { source, .. } => io_kind(source),
            RegionError::NoSpace { .. } => ErrorKind::NoSpace,
            RegionError::AlreadyOpen { .. } => ErrorKind::Retry,
            RegionError::KeysUnavailable { reason: KeysRefusal::Alloc(libc::ENOSPC) } => ErrorKind::Retry,
            RegionError::NotFound { .. }
            | RegionError::AlreadyExists { .. }
            | RegionError::TooSmall { .. }
            | RegionError::Misaligned { .. }
            | RegionError::BlockDevice { .. }
            | RegionError::UnsupportedType { .. }
            | RegionError::Sparse { .. }
            | RegionError::MethodUnavailable { .. }
            | RegionError::KeysUnavailable { .. }
            | RegionError::UnsupportedArchitecture { .. } => ErrorKind::Invalid,
        }
    }
}

fastness_base::has_kind!(RegionError);

/// The kind of an error that a system call on the medium returned.
fn io_kind(error: &io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(libc::EIO | libc::ENXIO | libc::EREMOTEIO | libc::EHWPOISON) => ErrorKind::MediaFailed,
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::NoSpace,
        Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EBUSY) => {
            ErrorKind::Retry
        }
        Some(libc::EACCES | libc::EPERM) => ErrorKind::Denied,
        _ => ErrorKind::Invalid,
    }
}

/// An earlier fence of this region failed; only opening it again helps.
///
/// It is the inner error of [`PersistError::source`] for every fence after the first that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an earlier persist of this region failed; open it again")]
pub struct RegionPoisoned;

/// A store or a flush met `SIGBUS`: what stands in for the region since then is ordinary memory, and nothing
/// reaches the medium any more.
///
/// It is the inner error of [`PersistError::source`] for every fence since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the region went away while it was in use: {cause} at region offset {region_offset:#x}")]
pub struct RegionLost {
    /// The first line that could not be stored to. With plain stores there may be others before it: the
    /// compiler chooses their order.
    pub region_offset: u64,
    /// Why.
    pub cause: LossCause,
}

/// Why a line could not be stored to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The page has no medium.
    NoPage,
    /// A machine check: the store needed bytes that are poisoned.
    MemoryError,
    /// A DMA engine that was to store them has not answered, and may still do it.
    Device,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossCause::NoPage => {
                "the file was cut short, its file system is full, or the device is gone (SIGBUS)"
            }
            LossCause::MemoryError => "the memory reports an uncorrectable error (SIGBUS)",
            LossCause::Device => "a DMA engine does not answer, and may still store to it",
        })
    }
}

impl PersistError {
    /// What the caller must do: [`ErrorKind::Closed`] if an earlier fence had failed, otherwise
    /// [`ErrorKind::NoSpace`] or [`ErrorKind::MediaFailed`].
    pub fn kind(&self) -> ErrorKind {
        if self.source.get_ref().is_some_and(|inner| inner.is::<RegionPoisoned>()) {
            return ErrorKind::Closed;
        }
        match io_kind(&self.source) {
            ErrorKind::NoSpace => ErrorKind::NoSpace,
            _ => ErrorKind::MediaFailed,
        }
    }
}

fastness_base::has_kind!(PersistError);

impl ReadError {
    /// What the caller must do: [`ErrorKind::MediaFailed`] for poison, [`ErrorKind::Invalid`] for an offset
    /// outside of the range (which may well have come from a damaged medium).
    pub fn error_kind(&self) -> ErrorKind {
        match self.kind {
            ReadErrorKind::Poison | ReadErrorKind::Lost => ErrorKind::MediaFailed,
            ReadErrorKind::OutOfRange => ErrorKind::Invalid,
        }
    }
}
