//! The system calls on an open file, behind a trait so that tests can inject what a disk seldom does.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::fs::FallocateFlags;
use rustix::io::ReadWriteFlags;

use crate::file::sys;

/// One system call each; the caller handles short transfers and errors.
pub(crate) trait RawIo: Send + Sync + fmt::Debug {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    fn read_vectored(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
    /// With `dsync`, durable on return (`RWF_DSYNC`).
    fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>], dsync: bool) -> io::Result<usize>;
    fn sync(&self) -> io::Result<()>;
    /// How long it is now.
    fn len_bytes(&self) -> io::Result<u64>;
    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()>;
    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()>;
    /// For engines that call the kernel themselves.
    fn raw_fd(&self) -> Option<RawFd>;
}

/// A regular file.
#[derive(Debug)]
pub(crate) struct RegularFile(pub(crate) File);

/// A block device.
#[derive(Debug)]
pub(crate) struct BlockFile(pub(crate) File);

fn write_vectored(file: &File, offset: u64, parts: &[IoSlice<'_>], dsync: bool) -> io::Result<usize> {
    let flags = if dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    Ok(rustix::io::pwritev2(file, parts, offset, flags)?)
}

macro_rules! transfers {
    () => {
        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            Ok(rustix::io::pread(&self.0, buf, offset)?)
        }
        fn read_vectored(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            Ok(rustix::io::preadv(&self.0, parts, offset)?)
        }
        fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>], dsync: bool) -> io::Result<usize> {
            write_vectored(&self.0, offset, parts, dsync)
        }
        fn sync(&self) -> io::Result<()> {
            Ok(rustix::fs::fdatasync(&self.0)?)
        }
        fn raw_fd(&self) -> Option<RawFd> {
            Some(self.0.as_raw_fd())
        }
    };
}

impl RawIo for RegularFile {
    transfers!();

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, flags, offset, len_bytes)?)
    }

    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, flags, offset, len_bytes)?)
    }
}

impl RawIo for BlockFile {
    transfers!();

    fn len_bytes(&self) -> io::Result<u64> {
        sys::block_len_bytes(self.0.as_fd())
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        sys::block_discard(self.0.as_fd(), offset, len_bytes)
    }

    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        sys::block_zero(self.0.as_fd(), offset, len_bytes)
    }
}
