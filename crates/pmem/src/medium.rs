//! The seam between PM data structures and the memory they live in.
//!
//! A structure needs three things from its memory: copy bytes in, a fence that makes them durable, and a read
//! that survives poison. The real region, the recorder of `pm-model` and fault-injecting wrappers all
//! implement this one trait; it is used through generics, so the hot path has no dynamic dispatch. Above the
//! logs, where its type would only be passed on, it is an [`AnyRange`](crate::AnyRange).

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::slots::WriterSlots;

/// Bytes of one cache line: the unit in which the CPU writes memory back.
pub const LINE_BYTES: usize = 64;

/// Consumes the bytes of a copy while they are on their way, so that a checksum costs no second pass.
pub trait Summer {
    /// Bytes that the summer takes at a time: a multiple of [`LINE_BYTES`], inside of the L1 cache. While it
    /// sums a block, the stores of that block drain.
    const BLOCK_BYTES: usize = 512;

    /// Takes the next `block` of the copied bytes, in address order.
    ///
    /// Every block but the last has [`Summer::BLOCK_BYTES`] bytes; none is empty.
    fn update(&mut self, block: &[u8]);
}

/// Sums nothing: a plain copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSum;

impl Summer for NoSum {
    #[inline(always)]
    fn update(&mut self, _block: &[u8]) {}
}

/// An exclusively owned range of byte-addressable memory that keeps its contents.
///
/// Shape: offsets are bytes from the start of the range; the range starts at a 64-byte boundary and its
/// length is a multiple of 64.
/// Persistence: bytes written by [`Medium::copy`] are weakly persistent: a crash leaves any 8-byte pieces
/// of them (x86: see `pm-model`'s numbered rules) until [`Medium::fence`] has returned on the same thread.
/// Concurrency: writing takes `&mut self`, so two writers can never share bytes.
pub trait Medium: Send {
    /// Length of the range in bytes.
    fn len_bytes(&self) -> usize;

    /// Offset of this range in its region, in bytes; error locations are given in region offsets.
    fn region_offset(&self) -> u64;

    /// Copies `src` to `offset`, fills with zeroes up to `offset + extent_bytes`, and hands the bytes of
    /// `src` (not the zeroes) to `summer` in the same pass.
    ///
    /// Persistence: nothing is durable before the next [`Medium::fence`].
    ///
    /// # Panics
    /// Caller bug only: `offset` or `extent_bytes` is not a multiple of 64, `src` is longer than
    /// `extent_bytes`, or the range ends before `offset + extent_bytes`.
    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S)
    where
        Self: Sized;

    /// Where bytes are mapped, for a device that stores to them in place of the CPU: all of them, before the
    /// next call to the range. They count as copied. `None`: the CPU has to do it.
    ///
    /// # Panics
    /// Caller bug only: as [`Medium::copy`].
    fn mapped(&mut self, _offset: usize, _len_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    /// A device that was given `offset` may store to it at any time from now on: every further fence of the
    /// region fails, and its memory stays mapped for as long as the process lives.
    fn lose(&mut self, _offset: usize) {}

    /// The slots that all writers to the region share, if their number is limited.
    fn writer_slots(&self) -> Option<Arc<WriterSlots>> {
        None
    }

    /// Starts to write back bytes that are there already, without changing them; the next
    /// [`Medium::fence`] waits for it.
    ///
    /// Why it exists: after a process crash the next process reads stores that may still be in a volatile
    /// CPU cache. Recovery that acts on such bytes writes them back first, or a power cut takes them away.
    ///
    /// # Panics
    /// Caller bug only: the bytes are not inside of the range.
    fn write_back(&mut self, offset: usize, len_bytes: usize);

    /// Waits until everything that this range copied before is durable, as far as the region's durability
    /// goes; later stores become durable after it.
    ///
    /// # Errors
    /// `msync` failed, where durability needs it; or the region went away and stores since then have not
    /// reached it ([`RegionLost`](crate::RegionLost)). The range is poisoned afterwards: the region refuses
    /// further fences until it is opened again, because the kernel may have dropped the data.
    fn fence(&mut self) -> Result<(), PersistError>;

    /// Whether a fence of the range would fail, as far as is known without one.
    ///
    /// # Errors
    /// That of the fence.
    fn check(&self) -> Result<(), PersistError> {
        Ok(())
    }

    /// Copies bytes out of the range.
    ///
    /// # Errors
    /// [`ReadError`] with the region offset of the first unreadable byte, if a machine check (poison) or a
    /// truncated file made part of the range unreadable, or if the bytes lie outside of the range.
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError>;

    /// As [`fence`](Self::fence) of both ranges. A fence of the CPU is the thread's and covers all of its
    /// stores, so ranges that need nothing else override this with a single one.
    ///
    /// # Errors
    /// As [`fence`](Self::fence), of either or of both.
    fn fence_both(&mut self, other: &mut Self) -> Result<(), Box<SidesFailed>>
    where
        Self: Sized,
    {
        // PERSIST: each range completes its own stores; for media whose fence is not the thread's.
        SidesFailed::of(self.fence(), other.fence())
    }

    /// Number of copies of every byte: 1, or as many as a [`Mirror`](crate::Mirror) has sides.
    #[inline]
    fn sides(&self) -> usize {
        1
    }

    /// The side whose fence has failed, and which has not taken part since; [`sides`](Self::sides) counts it
    /// still, and reading it is an error. A caller that made what was fenced since then durable on the
    /// other side alone has to see to it that this one is never taken for current.
    #[inline]
    fn lost_side(&self) -> Option<usize> {
        None
    }

    /// As [`read`](Self::read), from the copy of one side.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Panics
    /// Caller bug only: there is no such side.
    #[inline]
    fn read_side(&self, side: usize, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        assert_eq!(side, 0, "there is one side");
        self.read(offset, dst)
    }

    /// As [`copy`](Self::copy) without a sum, to the copy of one side: to repair it.
    ///
    /// # Panics
    /// As [`copy`](Self::copy); there is no such side.
    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize);
}

/// Why a read from PM returned no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The memory controller reported an uncorrectable error, or the file behind the mapping ended early.
    Poison,
    /// The requested bytes are not inside the range.
    OutOfRange,
    /// The side of a mirror that they are on was lost.
    Lost,
}

/// A read from PM failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot read persistent memory at region offset {region_offset:#x}: {}", match kind {
    ReadErrorKind::Poison => "the medium reports poison, or the file was truncated",
    ReadErrorKind::OutOfRange => "outside of the range",
    ReadErrorKind::Lost => "that side of the mirror was lost",
})]
pub struct ReadError {
    /// Region offset of the first byte that could not be read.
    pub region_offset: u64,
    /// Why.
    pub kind: ReadErrorKind,
}

/// What a fence of two ranges met.
#[derive(Debug)]
pub struct SidesFailed(pub [Option<PersistError>; 2]);

impl SidesFailed {
    /// The error of two fences, if one of them has failed.
    ///
    /// # Errors
    /// What either has met.
    #[inline(always)]
    pub fn of(
        first: Result<(), PersistError>,
        second: Result<(), PersistError>,
    ) -> Result<(), Box<SidesFailed>> {
        match (first, second) {
            (Ok(()), Ok(())) => Ok(()),
            (first, second) => Err(SidesFailed::boxed(first.err(), second.err())),
        }
    }

    #[cold]
    fn boxed(first: Option<PersistError>, second: Option<PersistError>) -> Box<SidesFailed> {
        Box::new(SidesFailed([first, second]))
    }
}

/// A fence could not make bytes durable.
#[derive(Debug, thiserror::Error)]
#[error("cannot persist region bytes {start:#x}..{end:#x}")]
pub struct PersistError {
    /// Region offset of the first byte that may not be durable.
    pub start: u64,
    /// Region offset after the last byte that may not be durable.
    pub end: u64,
    /// The system call's error.
    #[source]
    pub source: io::Error,
}
