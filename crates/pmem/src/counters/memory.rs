//! The memory of a table: a file that others can read, or memory of this process alone.
//!
//! It is never unmapped: threads of the process may count for as long as it lives. All of a file is
//! allocated, so that no store can meet a full file system.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, open};
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::process::Identity;
use super::read;

const WORD_BYTES: usize = size_of::<AtomicU64>();
const PREFIX: &str = "pm-counters.";

/// The file of a process.
pub(super) fn file_of(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{PREFIX}{pid}"))
}

/// The process of a file, by its name.
pub(super) fn pid_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Words of zeroes in a new file, which has its name once `begin` has filled in what readers look for first.
/// Files of processes that have ended are removed. `None`: that is not possible.
pub(super) fn in_folder(
    folder: &Path,
    pid: u32,
    words: usize,
    begin: impl FnOnce(&[AtomicU64]),
) -> Option<&'static [AtomicU64]> {
    remove_stale(folder);
    let path = file_of(folder, pid);
    // A process that has the number once more, or has become another program by `exec`, replaces it: what
    // readers have open stays as long as it was.
    let new = path.with_extension(format!("{pid}.new"));
    let _ = std::fs::remove_file(&new);
    let made = create(&new, words);
    let named = made.ok().filter(|words| {
        begin(words);
        std::fs::rename(&new, &path).is_ok()
    });
    if named.is_none() {
        let _ = std::fs::remove_file(&new);
    }
    named
}

fn create(path: &Path, words: usize) -> io::Result<&'static [AtomicU64]> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
    fallocate(&file, FallocateFlags::empty(), 0, (words * WORD_BYTES) as u64)?;
    map(&file, words)
}

/// The descriptor is closed after this; the mapping stays.
fn map(file: &OwnedFd, words: usize) -> io::Result<&'static [AtomicU64]> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an address that is free.
    let base = unsafe { mmap(std::ptr::null_mut(), words * WORD_BYTES, access, MapFlags::SHARED, file, 0)? };
    // SAFETY: mapped for ever, as long as that, aligned to a page; the file is ours (a new one, which only
    // this user may change) and every bit pattern is an atomic word.
    Ok(unsafe { leaked(base.cast(), words) })
}

/// Words of zeroes that only this process has.
pub(super) fn own(words: usize) -> &'static [AtomicU64] {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: as in `map`.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), words * WORD_BYTES, access, MapFlags::PRIVATE) };
    match base {
        // SAFETY: as in `map`.
        Ok(base) => unsafe { leaked(base.cast(), words) },
        // No address space: the allocator answers for that.
        Err(_) => Vec::leak((0..words).map(|_| AtomicU64::new(0)).collect()),
    }
}

/// # Safety
/// `base` is mapped for ever, for so many words, and holds only what is reached as atomic words.
unsafe fn leaked(base: *mut AtomicU64, words: usize) -> &'static [AtomicU64] {
    let base = NonNull::new(base).expect("mmap returned no address zero");
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(base.as_ptr(), words) }
}

/// Removes the files of processes that have ended; those of another PID namespace may live.
fn remove_stale(folder: &Path) {
    let me = Identity::own();
    for (pid, path) in read::files(folder).unwrap_or_default() {
        if read::identity(&path).is_some_and(|of| of.pid == pid && of.has_ended(me.namespace)) {
            // Another process may have removed it.
            let _ = std::fs::remove_file(&path);
        }
    }
}
