//! Descriptors of this library, which the program does not know of.
//!
//! A program that closes all descriptors that it did not open would close these, too, and a number that it
//! is given again would be taken for ours. They have high numbers, and calls of the program that would close
//! them do not.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger numbers are not protected; there are none unless the program has as many open.
const NUMBERS: usize = 1 << 16;

static OURS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn place(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OURS.get(fd / 64)?, 1 << (fd % 64)))
}

#[inline]
pub(crate) fn is_ours(fd: i32) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The next of our numbers from `from` on, up to `last`.
pub(crate) fn next(from: u32, last: u32) -> Option<u32> {
    (from..=last.min(NUMBERS as u32 - 1)).find(|&fd| is_ours(fd as i32))
}

pub(crate) fn protect(fd: i32) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// It is about to be closed.
pub(crate) fn release(fd: i32) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Gives a descriptor a high number, if there is one. It is not protected yet: what is dropped is closed by
/// the same calls that a program makes.
pub(crate) fn raise(fd: OwnedFd) -> OwnedFd {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure of ours; if it fails, the limit is 0.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let least = (limit.rlim_cur / 2).min(NUMBERS as u64 / 2) as i32;
    // SAFETY: it duplicates a descriptor that is open.
    let number = unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    match number {
        ..0 => fd,
        // SAFETY: the kernel has just made it, for us alone.
        number => unsafe { OwnedFd::from_raw_fd(number as i32) },
    }
}
