//! The ioctls of block devices that rustix does not have.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// Source: Linux include/uapi/linux/fs.h; the encoding is the same on x86-64 and aarch64.
const BLKROGET: libc::c_ulong = 0x125e;
const BLKDISCARD: libc::c_ulong = 0x1277;
const BLKZEROOUT: libc::c_ulong = 0x127f;
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Length of a block device in bytes.
pub(crate) fn block_len_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut len_bytes = 0u64;
    // SAFETY: the descriptor is open for the call; BLKGETSIZE64 stores one u64 through the pointer, which
    // points to one that lives and is not otherwise used until the call returns. Other drivers answer ENOTTY.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &raw mut len_bytes) })?;
    Ok(len_bytes)
}

/// Whether the kernel refuses writes to a block device.
pub(crate) fn block_is_read_only(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut flag: libc::c_int = 0;
    // SAFETY: as above; BLKROGET stores one int.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), BLKROGET as _, &raw mut flag) })?;
    Ok(flag != 0)
}

/// Discards a range of a block device.
pub(crate) fn block_discard(fd: BorrowedFd<'_>, offset: u64, len_bytes: u64) -> io::Result<()> {
    let range = [offset, len_bytes];
    // SAFETY: BLKDISCARD reads two u64, start and length, through the pointer; the array lives during the
    // call.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) })
}

/// Zeroes a range of a block device.
pub(crate) fn block_zero(fd: BorrowedFd<'_>, offset: u64, len_bytes: u64) -> io::Result<()> {
    let range = [offset, len_bytes];
    // SAFETY: BLKZEROOUT reads two u64, start and length, through the pointer; the array lives during the
    // call.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), BLKZEROOUT as _, range.as_ptr()) })
}
