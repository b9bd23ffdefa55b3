//! Length and times of a file with a lease: the kernel knows everything else without asking the mount.

use std::ffi::{c_char, c_int, c_uint};

use libc::{off_t, stat, statx as statx_buffer};

use crate::{real, transfer};

const BLOCK: u64 = 512;
const SECOND: u64 = 1_000_000_000;
/// The kernel's answer is good enough.
const DO_NOT_ASK: c_int = libc::AT_STATX_DONT_SYNC;

/// The attributes of a file with a lease.
fn find(fd: c_int, asks: c_int, mask: c_uint) -> Option<statx_buffer> {
    let (size, modified_ns) = transfer::current(fd)?;
    // SAFETY: numbers, all of which may be 0.
    let mut found: statx_buffer = unsafe { std::mem::zeroed() };
    // SAFETY: a name that ends with NUL, and a structure of ours.
    let done = unsafe { real::statx(fd, c"".as_ptr(), asks, mask, &raw mut found) };
    if done != 0 {
        return None;
    }
    found.stx_size = size;
    found.stx_blocks = found.stx_blocks.max(size.div_ceil(BLOCK));
    found.stx_mtime.tv_sec = (modified_ns / SECOND) as i64;
    found.stx_mtime.tv_nsec = (modified_ns % SECOND) as u32;
    let (changed, modified) = (found.stx_ctime, found.stx_mtime);
    if (changed.tv_sec, changed.tv_nsec) < (modified.tv_sec, modified.tv_nsec) {
        found.stx_ctime = modified;
    }
    Some(found)
}

/// As the kernel does it; it has no call for that which does not ask the mount.
fn as_stat(from: &statx_buffer) -> stat {
    // SAFETY: numbers, all of which may be 0.
    let mut to: stat = unsafe { std::mem::zeroed() };
    to.st_dev = libc::makedev(from.stx_dev_major, from.stx_dev_minor);
    to.st_rdev = libc::makedev(from.stx_rdev_major, from.stx_rdev_minor);
    to.st_ino = from.stx_ino;
    to.st_mode = from.stx_mode.into();
    to.st_nlink = from.stx_nlink.into();
    (to.st_uid, to.st_gid) = (from.stx_uid, from.stx_gid);
    (to.st_size, to.st_blocks) = (from.stx_size as off_t, from.stx_blocks as i64);
    to.st_blksize = from.stx_blksize.into();
    (to.st_atime, to.st_atime_nsec) = (from.stx_atime.tv_sec, from.stx_atime.tv_nsec.into());
    (to.st_mtime, to.st_mtime_nsec) = (from.stx_mtime.tv_sec, from.stx_mtime.tv_nsec.into());
    (to.st_ctime, to.st_ctime_nsec) = (from.stx_ctime.tv_sec, from.stx_ctime.tv_nsec.into());
    to
}

unsafe fn attributes(fd: c_int, found: *mut stat) -> c_int {
    match find(fd, libc::AT_EMPTY_PATH | DO_NOT_ASK, libc::STATX_BASIC_STATS) {
        Some(current) => {
            // SAFETY: the program's structure.
            unsafe { found.write(as_stat(&current)) };
            0
        }
        // SAFETY: the program's call.
        None => unsafe { real::fstat(fd, found) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat(fd: c_int, found: *mut stat) -> c_int {
    // SAFETY: the program's call.
    unsafe { attributes(fd, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat64(fd: c_int, found: *mut stat) -> c_int {
    // SAFETY: the program's call.
    unsafe { attributes(fd, found) }
}

/// As programs that were built with an older C library call it.
///
/// # Safety
/// As of `fstat`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstat(_version: c_int, fd: c_int, found: *mut stat) -> c_int {
    // SAFETY: the program's call.
    unsafe { attributes(fd, found) }
}

/// # Safety
/// As of `fstat`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstat64(_version: c_int, fd: c_int, found: *mut stat) -> c_int {
    // SAFETY: the program's call.
    unsafe { attributes(fd, found) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    found: *mut statx_buffer,
) -> c_int {
    // SAFETY: the program's call; the name, if there is one, ends with NUL.
    let is_of_descriptor = flags & libc::AT_EMPTY_PATH != 0 && unsafe { path.is_null() || *path == 0 };
    let asks = flags & !libc::AT_STATX_FORCE_SYNC | DO_NOT_ASK;
    if let Some(current) = is_of_descriptor.then(|| find(at, asks, mask)).flatten() {
        // SAFETY: the program's structure.
        unsafe { found.write(current) };
        return 0;
    }
    // SAFETY: the program's call.
    unsafe { real::statx(at, path, flags, mask, found) }
}

/// The end of the file is where the cache says; the kernel has the position.
unsafe fn seek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    if whence == libc::SEEK_END
        && let Some((size, _)) = transfer::current(fd)
        && let Some(to) = i64::try_from(size).ok().and_then(|size| size.checked_add(offset))
    {
        // SAFETY: the program's call, with the same meaning.
        return unsafe { real::lseek(fd, to, libc::SEEK_SET) };
    }
    // SAFETY: the program's call.
    unsafe { real::lseek(fd, offset, whence) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the program's call.
    unsafe { seek(fd, offset, whence) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the program's call.
    unsafe { seek(fd, offset, whence) }
}
