//! The buffer that the kernel writes records to: mapped, and drained.
//!
//! Shape: a page of header, then a power of two of pages with records, used as a ring. The kernel moves its
//! head, we move the tail; both only grow.
//!
//! Source: `perf_event_open(2)`, "MMAP layout".

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words of the header.
const HEAD: usize = 1024 / 8;
const TAIL: usize = 1032 / 8;

/// An event with its buffer.
#[derive(Debug)]
pub(super) struct Ring {
    event: OwnedFd,
    base: NonNull<u8>,
    /// Of the records: a power of two.
    data_bytes: usize,
    page_bytes: usize,
}

// SAFETY: the memory is reached through `&mut self` alone, and stays mapped as long as the value lives.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the buffer of an event: so many pages of records, a power of two.
    pub(super) fn map(event: OwnedFd, pages: usize) -> io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        let data_bytes = pages.checked_mul(page_bytes).filter(|_| pages.is_power_of_two());
        let data_bytes = data_bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that is free.
        let base = unsafe {
            mmap(std::ptr::null_mut(), page_bytes + data_bytes, access, MapFlags::SHARED, &event, 0)?
        };
        let base = NonNull::new(base.cast()).expect("mmap returned no address zero");
        Ok(Ring { event, base, data_bytes, page_bytes })
    }

    /// To wait for it.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        // SAFETY: in the header's page, aligned; the kernel reads and writes it as one word.
        unsafe { &*self.base.as_ptr().cast::<AtomicU64>().add(word) }
    }

    /// Takes all records that are there out of the ring, into `into`.
    pub(super) fn drain(&mut self, into: &mut Vec<u8>) {
        let (tail, head) = (self.word(TAIL).load(Ordering::Relaxed), self.word(HEAD).load(Ordering::Acquire));
        // SAFETY: the records lie behind the header, in the same mapping. The kernel writes none of those
        // between tail and head before the tail has moved.
        let data =
            unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.page_bytes), self.data_bytes) };
        unwrap(data, tail, head, into);
        self.word(TAIL).store(head, Ordering::Release);
    }
}

/// The bytes from `tail` to `head` of a ring, in one piece.
pub(super) fn unwrap(data: &[u8], tail: u64, head: u64, into: &mut Vec<u8>) {
    let len = usize::try_from(head.wrapping_sub(tail)).map_or(data.len(), |len| len.min(data.len()));
    let start = (tail % data.len() as u64) as usize;
    let first = len.min(data.len() - start);
    into.clear();
    into.extend_from_slice(&data[start..start + first]);
    into.extend_from_slice(&data[..len - first]);
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_one_piece() {
        let data: Vec<u8> = (0..16).collect();
        let of = |tail: u64, head: u64| {
            let mut into = vec![99];
            unwrap(&data, tail, head, &mut into);
            into
        };
        assert_eq!(of(0, 4), [0, 1, 2, 3]);
        assert_eq!(of(14, 18), [14, 15, 0, 1], "around the end");
        assert!(of(160 + 8, 160 + 8).is_empty());
        assert_eq!(of(16 * 7 + 3, 16 * 8 + 3).len(), 16, "full");
        assert_eq!(of(5, 4).len(), 16, "no more than there is, whatever the header says");
        assert_eq!(of(u64::MAX - 1, 2).len(), 4, "the counters may wrap");
    }
}
