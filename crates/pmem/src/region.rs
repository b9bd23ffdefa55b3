//! A region: PM, or what stands in for it, opened exclusively.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::error::RegionError;
use crate::gate::Gate;
use crate::info::RegionInfo;
use crate::mapping::Mapping;
use crate::open;
use crate::options::OpenOptions;
use crate::range::PmRange;

/// An open region of PM, not yet handed out.
///
/// Invariant kept: at most one `Region`, or the ranges made of it, exists for a file or device on this
/// machine (advisory lock, `flock`); all bytes of it are allocated, so that a store cannot meet `ENOSPC` as
/// `SIGBUS`. Shape: bytes 0 to [`RegionInfo::len_bytes`]. Concurrency: the lock is released when the region
/// and its last range are dropped, or the process ends. A program that ignores the lock and truncates the
/// file loses the region for this one: stores and reads survive it, reads of what is not there are errors,
/// and once a store was to go there, so is every fence.
pub struct Region {
    mapping: Mapping,
    gate: Option<Arc<Gate>>,
}

impl Region {
    /// Opens a devdax device or a file; the whole of it is the region.
    ///
    /// Holes of a file are allocated, keeping contents. Where fences call `msync`, the file is first written
    /// back and its clean pages dropped, so that what is read is on the medium.
    ///
    /// # Errors
    /// [`RegionError`]; nothing stays open. A file may have been allocated further.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Region, RegionError> {
        Ok(Region { mapping: open::open(path.as_ref(), options)?, gate: None })
    }

    /// Creates a file of `len_bytes` zeroes, all of them allocated, and opens it.
    ///
    /// Persistence: on return the file and its directory entry are durable, as far as the file system goes.
    /// A crash inside may leave a file that is shorter, or of zeroes; the next call uses one of no bytes.
    ///
    /// # Errors
    /// [`RegionError`]; [`RegionError::AlreadyExists`] if there is something else than a file of no bytes.
    /// What was created is removed again.
    pub fn create_file(
        path: impl AsRef<Path>,
        len_bytes: u64,
        options: &OpenOptions,
    ) -> Result<Region, RegionError> {
        Ok(Region { mapping: open::create_file(path.as_ref(), len_bytes, options)?, gate: None })
    }

    /// Maps once more what another process has opened, by its descriptor ([`Region::descriptor`]): the lock
    /// is held until both have let go of it. Two mappings can store to the same bytes; what keeps their users
    /// apart is the callers' matter. Nothing is allocated or synced: that was done when it was opened.
    ///
    /// # Errors
    /// [`RegionError`]: the descriptor is of something else.
    pub fn join(descriptor: OwnedFd, options: &OpenOptions) -> Result<Region, RegionError> {
        Ok(Region { mapping: open::join(File::from(descriptor), options)?, gate: None })
    }

    /// A descriptor for another process that is to [`join`](Self::join) the region.
    ///
    /// # Errors
    /// Anonymous memory has none; those of the system call.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let file = self.mapping.file().ok_or(io::ErrorKind::Unsupported)?;
        file.as_fd().try_clone_to_owned()
    }

    /// A region of anonymous memory, for tests: emulated PM that ends with it.
    ///
    /// # Errors
    /// [`RegionError`], kind Invalid for a length that is no multiple of
    /// [`REGION_ALIGN_BYTES`](crate::REGION_ALIGN_BYTES).
    pub fn anonymous(len_bytes: u64) -> Result<Region, RegionError> {
        Self::anonymous_with(len_bytes, &OpenOptions::new())
    }

    /// As [`Region::anonymous`], with options.
    ///
    /// # Errors
    /// As [`Region::anonymous`], and if the write method or the protection is not available.
    pub fn anonymous_with(len_bytes: u64, options: &OpenOptions) -> Result<Region, RegionError> {
        Ok(Region { mapping: open::anonymous(len_bytes, options)?, gate: None })
    }

    /// Lets writers pass through a gate. Give the same one to all regions on the same modules: they share
    /// their bandwidth.
    #[must_use]
    pub fn with_gate(self, gate: Arc<Gate>) -> Region {
        Region { gate: Some(gate), ..self }
    }

    /// What was found out about the region.
    pub fn info(&self) -> &RegionInfo {
        &self.mapping.info
    }

    /// Maps every page now, so that no store has to wait for a page fault. Contents stay as they are.
    ///
    /// Why it exists: on emulated PM in tmpfs the first store to each page costs more than an entry of 4 KiB.
    ///
    /// # Errors
    /// Of the system call (before Linux 5.14 there is none); the region can be used all the same.
    pub fn populate(&self) -> std::io::Result<()> {
        self.mapping.map.populate()
    }

    /// The whole region as one range.
    pub fn into_range(self) -> PmRange {
        PmRange::whole(self.mapping, self.gate)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("info", self.info()).finish_non_exhaustive()
    }
}
