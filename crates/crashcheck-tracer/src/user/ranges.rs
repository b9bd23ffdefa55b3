//! Whether an address may be PM: asked at every store of the program, so it takes a few instructions and no
//! lock.

#![allow(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Longest access: one that begins so far before a range may reach into it.
const ACCESS_BYTES_MAX: u64 = 64;

/// Ranges at one moment.
#[derive(Debug, Default)]
struct Snapshot {
    first: u64,
    span: u64,
    /// Each begins [`ACCESS_BYTES_MAX`] early: begin and length.
    ranges: Vec<(u64, u64)>,
}

/// Ranges of memory that have PM.
///
/// Concurrency: readers see the ranges before a change or those after it. Snapshots are kept as long as the
/// process lives, because readers do not say when they are done; there is one for each `mmap` or `munmap` of
/// PM.
#[derive(Debug)]
pub(crate) struct Ranges {
    now: AtomicPtr<Snapshot>,
    /// All that there were.
    kept: Mutex<Vec<usize>>,
}

impl Ranges {
    pub(crate) const fn new() -> Ranges {
        Ranges { now: AtomicPtr::new(std::ptr::null_mut()), kept: Mutex::new(Vec::new()) }
    }

    /// Whether an access that begins here may touch one of the ranges.
    #[inline]
    pub(crate) fn may_have(&self, address: u64) -> bool {
        let now = self.now.load(Ordering::Acquire);
        if now.is_null() {
            return false;
        }
        // SAFETY: it was made by `set` from a box that is never freed, before it was published.
        let now = unsafe { &*now };
        address.wrapping_sub(now.first) < now.span
            && now.ranges.iter().any(|(first, span)| address.wrapping_sub(*first) < *span)
    }

    /// Replaces them. Ordered.
    pub(crate) fn set(&self, ranges: &[(u64, u64)]) {
        let early = |(start, end): &(u64, u64)| {
            let first = start.saturating_sub(ACCESS_BYTES_MAX - 1);
            (first, end - first)
        };
        let ranges: Vec<_> = ranges.iter().map(early).collect();
        let first = ranges.first().map_or(0, |(first, _)| *first);
        let end = ranges.last().map_or(0, |(first, span)| first + span);
        let snapshot = Box::into_raw(Box::new(Snapshot { first, span: end - first, ranges }));
        // So that tools that look for lost memory find it.
        self.kept.lock().expect("no panic with the lock").push(snapshot.addr());
        self.now.store(snapshot, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_pm() {
        let ranges = Ranges::new();
        assert!(!ranges.may_have(0));
        ranges.set(&[(0x1000, 0x2000), (0x5000, 0x6000)]);
        for (address, expected) in [
            (0xfc0, false),
            (0xfc1, true),
            (0x1fff, true),
            (0x2000, false),
            (0x4fff, true),
            (0x5fff, true),
            (0x6000, false),
            (u64::MAX, false),
        ] {
            assert_eq!(ranges.may_have(address), expected, "{address:#x}");
        }
        ranges.set(&[]);
        assert!(!ranges.may_have(0x1000) && !ranges.may_have(0));
    }
}
