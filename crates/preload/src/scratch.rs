//! Memory for one call: not of the allocator, which may be the one that a signal handler has interrupted.
//!
//! Short pieces are kept for later calls: two system calls and page faults would cost more than the copy.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a kept piece has.
const KEPT_BYTES: usize = 64 << 10;

/// Pieces that no call uses. A child of `fork` has copies of its own.
static KEPT: [AtomicPtr<u8>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];

/// Bytes of one call.
pub(crate) struct Scratch {
    base: *mut u8,
    len: usize,
    mapped_bytes: usize,
}

impl Scratch {
    /// Bytes with any contents; `None`: there is no memory.
    pub(crate) fn new(len: usize) -> Option<Scratch> {
        let mapped_bytes = len.max(KEPT_BYTES);
        if mapped_bytes == KEPT_BYTES {
            let bases = KEPT.iter().map(|kept| match kept.load(Ordering::Relaxed).is_null() {
                true => null_mut(),
                false => kept.swap(null_mut(), Ordering::Acquire),
            });
            if let Some(base) = bases.into_iter().find(|base| !base.is_null()) {
                return Some(Scratch { base, len, mapped_bytes });
            }
        }
        // SAFETY: new memory, wherever the kernel finds some.
        let base = unsafe {
            libc::mmap(
                null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Scratch { base: base.cast(), len, mapped_bytes })
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped, of that length at least, ours.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let keep = |kept: &AtomicPtr<u8>| {
            kept.compare_exchange(null_mut(), self.base, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        if self.mapped_bytes == KEPT_BYTES && KEPT.iter().any(keep) {
            return;
        }
        // SAFETY: ours; nothing borrows it any more.
        unsafe { libc::munmap(self.base.cast::<c_void>(), self.mapped_bytes) };
    }
}
