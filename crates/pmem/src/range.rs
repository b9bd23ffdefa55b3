//! An exclusively owned part of a region.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::counters;
use crate::error::ErrorKind;
use crate::gate::{Gate, store};
use crate::info::RegionInfo;
use crate::kernels;
use crate::mapping::Mapping;
use crate::medium::{LINE_BYTES, Medium, NoSum, PersistError, ReadError, ReadErrorKind, SidesFailed, Summer};
use crate::method::Kernel;
use crate::pkeys::{self, WriteGuard};
use crate::sigbus::{self, Watched};
use crate::slots::WriterSlots;
use crate::view::View;

/// An exclusively owned, contiguous part of a region.
///
/// Invariant kept: the ranges of a region never overlap, and no reference to their bytes is ever made, so two
/// writers cannot share bytes and the compiler never assumes that PM keeps still. A [view](PmRange::view)
/// reads beside the writer.
/// Shape: starts at a multiple of 64 bytes in the region; the length is a multiple of 64, perhaps 0.
/// Concurrency: `Send`, and readable from several threads while none writes. What one thread copied must be
/// fenced by that thread before the range moves to another.
pub struct PmRange {
    mapping: Arc<Mapping>,
    /// First byte of the range in the mapping.
    base: NonNull<u8>,
    len_bytes: usize,
    region_offset: usize,
    kernel: Kernel,
    msync: bool,
    key_index: Option<u32>,
    /// Of the mapping, one step nearer: every fence looks at it.
    watched: &'static Watched,
    /// Bytes of the range copied since the last fence; kept only if fences call `msync`.
    dirty: Range<usize>,
    gate: Option<Arc<Gate>>,
}

// SAFETY: the bytes are this range's alone (construction: `whole` consumes the region, `split_at` the range),
// and the Arc keeps them mapped.
unsafe impl Send for PmRange {}
// SAFETY: `&PmRange` only reads, and writing needs `&mut`.
unsafe impl Sync for PmRange {}

const CLEAN: Range<usize> = 0..0;

impl PmRange {
    pub(crate) fn whole(mapping: Mapping, gate: Option<Arc<Gate>>) -> PmRange {
        PmRange {
            base: mapping.map.base(),
            len_bytes: mapping.map.len_bytes(),
            region_offset: 0,
            kernel: mapping.info.kernel,
            msync: mapping.info.msync,
            key_index: mapping.key.as_ref().map(pkeys::Key::index),
            watched: mapping.map.watched(),
            dirty: CLEAN,
            gate,
            mapping: Arc::new(mapping),
        }
    }

    /// Splits into bytes `0..mid` and the rest; either may be empty.
    ///
    /// # Errors
    /// [`SplitError`], which gives the range back, if `mid` is no multiple of 64 or outside.
    pub fn split_at(self, mid: usize) -> Result<(PmRange, PmRange), SplitError> {
        if !mid.is_multiple_of(LINE_BYTES) || mid > self.len_bytes {
            return Err(SplitError { range: self, mid });
        }
        let PmRange {
            mapping,
            base,
            len_bytes,
            region_offset,
            kernel,
            msync,
            key_index,
            watched,
            dirty,
            gate,
        } = self;
        // What is not fenced yet stays with the half that owns the bytes.
        let dirty_low = clip(&dirty, 0..mid);
        let dirty_high = clip(&dirty, mid..len_bytes);
        let low = PmRange {
            mapping: Arc::clone(&mapping),
            base,
            len_bytes: mid,
            region_offset,
            kernel,
            msync,
            key_index,
            watched,
            dirty: dirty_low,
            gate: gate.clone(),
        };
        let high = PmRange {
            mapping,
            // SAFETY: `mid` is at most the length of the range, which lies inside of one mapping.
            base: unsafe { base.add(mid) },
            len_bytes: len_bytes - mid,
            region_offset: region_offset + mid,
            kernel,
            msync,
            key_index,
            watched,
            dirty: dirty_high,
            gate,
        };
        Ok((low, high))
    }

    /// Reads the range while its owner writes to it; see [`View`](crate::View). It keeps the region mapped,
    /// and its lock, as the range does.
    pub fn view(&self) -> PmView {
        PmView(PmRange { mapping: Arc::clone(&self.mapping), dirty: CLEAN, gate: None, ..*self })
    }

    /// What was found out about the region that this is a part of.
    pub fn region_info(&self) -> &RegionInfo {
        &self.mapping.info
    }

    /// Writes `src` at `offset`, with zeroes up to a whole line, through the region's gate if it has one
    /// ([`Region::with_gate`](crate::Region::with_gate)).
    ///
    /// Persistence: the bytes are durable on return, as far as the region's durability goes.
    ///
    /// # Errors
    /// As [`Gate::write_pm`].
    ///
    /// # Panics
    /// As [`Medium::copy`].
    #[inline]
    pub fn write_pm(&mut self, offset: usize, src: &[u8]) -> Result<(), PersistError> {
        // Out of the range meanwhile: a gate writes to the range.
        match self.gate.take() {
            None => store(self, offset, src),
            Some(gate) => {
                let written = gate.write_pm(self, offset, src);
                self.gate = Some(gate);
                written
            }
        }
    }

    /// Whether a fence of the region has failed, or the region is lost; every further fence fails.
    pub fn is_poisoned(&self) -> bool {
        self.mapping.is_poisoned()
    }

    #[inline(always)]
    fn check_extent(&self, offset: usize, extent_bytes: usize) {
        assert!((offset | extent_bytes).is_multiple_of(LINE_BYTES), "offset and extent are whole lines");
        assert!(
            extent_bytes <= self.len_bytes && offset <= self.len_bytes - extent_bytes,
            "the extent is inside of the range"
        );
    }

    #[inline]
    fn note_dirty(&mut self, start: usize, end: usize) {
        if self.msync {
            self.dirty = if self.dirty.is_empty() {
                start..end
            } else {
                self.dirty.start.min(start)..self.dirty.end.max(end)
            };
        }
    }

    #[inline]
    fn let_thread_read(&self) {
        if let Some(key_index) = self.key_index {
            pkeys::ensure_readable(key_index);
        }
    }

    #[cold]
    fn persist_dirty(&mut self) -> Result<(), PersistError> {
        let in_region = |span: &Range<usize>| span.start + self.region_offset..span.end + self.region_offset;
        let span = in_region(&self.dirty);
        // A fence of a poisoned region can vouch for nothing in the range.
        let blame = if self.dirty.is_empty() { in_region(&(0..self.len_bytes)) } else { span.clone() };
        let span = if self.dirty.is_empty() { CLEAN } else { span };
        self.mapping.persist(span, blame.start as u64..blame.end as u64)?;
        self.dirty = CLEAN;
        Ok(())
    }

    /// What a fence does after the CPU's own.
    #[inline(always)]
    fn finish_fence(&mut self) -> Result<(), PersistError> {
        if self.watched.is_lost() {
            let start = self.region_offset as u64;
            return self.mapping.check_lost(&(start..start + self.len_bytes as u64));
        }
        if self.msync { self.persist_dirty() } else { Ok(()) }
    }

    /// As many bytes as can be read from `offset` on, which are inside of the range.
    fn read_some(&self, offset: usize, dst: &mut [u8]) -> usize {
        self.let_thread_read();
        // SAFETY: the bytes are inside of the range, which stays mapped; `&self` excludes writers, but for
        // those beside a view, and the copy is one that the compiler knows nothing of: it makes no reference
        // to the bytes, and whoever reads through a view checks them. Mapping the region prepared the
        // handler.
        let copied = unsafe { sigbus::copy_out(self.base.as_ptr().add(offset), dst) };
        // After the copy: the memory may have been replaced while it was read.
        if self.watched.is_lost() { self.read_left(offset, dst) } else { copied }
    }

    /// The same of what is left of a region that is lost.
    #[cold]
    fn read_left(&self, offset: usize, dst: &mut [u8]) -> usize {
        let Some(left) = self.mapping.left() else { return 0 };
        // SAFETY: it is as long as the region, and stays mapped as long as this is borrowed; nobody writes
        // it.
        unsafe { sigbus::copy_out(left.base().as_ptr().add(self.region_offset + offset), dst) }
    }
}

impl Medium for PmRange {
    fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn region_offset(&self) -> u64 {
        self.region_offset as u64
    }

    #[inline]
    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        assert!(src.len() <= extent_bytes, "the source fits into the extent");
        self.check_extent(offset, extent_bytes);
        let _guard = self.key_index.map(WriteGuard::enter);
        // Before the copy: were the summer to panic, the lines stored so far count as dirty.
        self.note_dirty(offset, offset + extent_bytes);
        counters::count(self.mapping.number, extent_bytes, || self.mapping.label());
        // SAFETY: the extent is inside of the range (asserted), which is mapped, writable, under the guard if
        // there is a key, and ours alone; `src` is an ordinary slice, and no reference into PM exists, so
        // they do not overlap; base and offset are line-aligned; the kernel was chosen for this CPU.
        unsafe { kernels::copy(self.kernel, self.base.as_ptr().add(offset), src, extent_bytes, summer) };
    }

    fn mapped(&mut self, offset: usize, len_bytes: usize) -> Option<NonNull<u8>> {
        self.check_extent(offset, len_bytes);
        self.note_dirty(offset, offset + len_bytes);
        counters::count(self.mapping.number, len_bytes, || self.mapping.label());
        // SAFETY: the extent is inside of the range, which lies inside of one mapping.
        Some(unsafe { self.base.add(offset) })
    }

    fn lose(&mut self, offset: usize) {
        self.watched.lose_to_a_device((self.region_offset + offset) as u64);
        // Its addresses must never be anybody else's.
        std::mem::forget(Arc::clone(&self.mapping));
    }

    fn writer_slots(&self) -> Option<Arc<WriterSlots>> {
        self.gate.as_ref()?.slots().cloned()
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        let end = offset.checked_add(len_bytes).filter(|&end| end <= self.len_bytes);
        let end = end.unwrap_or_else(|| panic!("{len_bytes} bytes at {offset} are not in the range"));
        // In msync mode, opening the region has synced what others stored, and fences cover what we copied.
        if len_bytes == 0 || self.msync {
            return;
        }
        let mut start = offset - offset % LINE_BYTES;
        let page = rustix::param::page_size();
        while start < end {
            let next = end.min((self.region_offset + start + 1).next_multiple_of(page) - self.region_offset);
            // A page that is not there has nothing to write back, and reading it says so. Flushing it would
            // cost the region.
            if self.read_some(start, &mut [0]) == 1 {
                // SAFETY: `start..next` is inside of the range, which is mapped, and starts with a line.
                unsafe { kernels::write_back(self.base.as_ptr().add(start), next - start) };
            }
            start = next;
        }
    }

    #[inline]
    fn fence(&mut self) -> Result<(), PersistError> {
        // PERSIST: everything this thread copied is accepted by the persistence domain before any later
        // store; excludes that a crash keeps a later commit mark and loses what it vouches for. Before an
        // `msync` it also makes non-temporal stores visible to the kernel's write-back.
        kernels::fence();
        self.finish_fence()
    }

    #[inline]
    fn fence_both(&mut self, other: &mut PmRange) -> Result<(), Box<SidesFailed>> {
        // PERSIST: as in `fence`; the fence is the thread's, so one covers the stores to both ranges.
        // Excludes that a crash keeps a later commit mark on one of them and loses what it vouches for on the
        // other.
        kernels::fence();
        SidesFailed::of(self.finish_fence(), other.finish_fence())
    }

    fn check(&self) -> Result<(), PersistError> {
        let start = self.region_offset as u64;
        self.mapping.check(start..start + self.len_bytes as u64)
    }

    #[inline]
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        if dst.len() > self.len_bytes || offset > self.len_bytes - dst.len() {
            let first = self.region_offset.saturating_add(offset.max(self.len_bytes));
            return Err(ReadError { region_offset: first as u64, kind: ReadErrorKind::OutOfRange });
        }
        let copied = self.read_some(offset, dst);
        if copied < dst.len() {
            let first = self.region_offset + offset + copied;
            return Err(ReadError { region_offset: first as u64, kind: ReadErrorKind::Poison });
        }
        Ok(())
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        assert_eq!(side, 0, "there is one side");
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}

impl View for PmRange {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        // What is in front of the range is outside of it, as is what comes after.
        let offset = region_offset.wrapping_sub(self.region_offset());
        Medium::read(self, usize::try_from(offset).unwrap_or(usize::MAX), dst)
    }
}

/// A view of a range of a mapped region. It keeps the region mapped, and its lock.
#[derive(Debug)]
pub struct PmView(PmRange);

impl View for PmView {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        View::read(&self.0, region_offset, dst)
    }
}

/// The part of `span` inside of `window`, relative to it.
fn clip(span: &Range<usize>, window: Range<usize>) -> Range<usize> {
    let start = span.start.max(window.start);
    let end = span.end.min(window.end);
    if start < end { start - window.start..end - window.start } else { CLEAN }
}

impl fmt::Debug for PmRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PmRange")
            .field("path", &self.mapping.info.path)
            .field("region_offset", &self.region_offset)
            .field("len_bytes", &self.len_bytes)
            .finish_non_exhaustive()
    }
}

/// A range cannot be split there; it comes back whole.
#[derive(Debug, thiserror::Error)]
#[error("cannot split {len} bytes at {mid}: not a multiple of 64, or outside", len = range.len_bytes)]
pub struct SplitError {
    /// The range, unchanged.
    pub range: PmRange,
    /// Where it was to be split, in bytes from its start.
    pub mid: usize,
}

impl SplitError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

fastness_base::has_kind!(SplitError);
