//! A recorded part of a region, for code written against [`Medium`].

use std::io;
use std::ops::Range;
use std::sync::Arc;

use fastness_pmem::{LINE_BYTES, Medium, NoSum, PersistError, ReadError, ReadErrorKind, SidesFailed, Summer};

use crate::fault::{Fault, Faults};
use crate::op::Op;

use super::Recorder;

/// An exclusively owned range of a [`Recorder`]'s region.
///
/// Persistence: copies and fences are recorded, and reads see all copies; what a crash leaves is for
/// [`explore`](crate::explore()) to say. Dropping the range gives its bytes back.
#[derive(Debug)]
pub struct RecordingRange {
    recorder: Recorder,
    /// Region offsets.
    range: Range<usize>,
    faults: Faults,
}

impl RecordingRange {
    pub(super) fn new(recorder: Recorder, range: Range<usize>) -> Self {
        Self { recorder, range, faults: Faults::default() }
    }

    /// The recorder.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Adds a fault; faults of different kinds add up.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.inject(fault);
    }

    /// The error of a fence that fails: EIO, which has no stable `ErrorKind`.
    fn failed_fence(&self) -> PersistError {
        let (start, end) = (self.range.start as u64, self.range.end as u64);
        PersistError { start, end, source: io::Error::from_raw_os_error(5) }
    }

    /// Divides the range at `offset`; faults go with their bytes, and a failing fence with the first part.
    ///
    /// # Panics
    /// If `offset` is not a multiple of 64 within the range.
    #[must_use]
    pub fn split(mut self, offset: usize) -> (Self, Self) {
        assert!(offset.is_multiple_of(LINE_BYTES) && offset <= self.len_bytes(), "cannot split at {offset}");
        let middle = self.range.start + offset;
        let upper_range = middle..self.range.end;
        let mut recording = self.recorder.lock();
        recording.give_back(&self.range);
        self.range.end = middle;
        recording.lend(self.range.clone());
        recording.lend(upper_range.clone());
        drop(recording);
        let faults = self.faults.split_off(offset);
        let upper = Self { recorder: self.recorder.clone(), range: upper_range, faults };
        (self, upper)
    }
}

impl Drop for RecordingRange {
    fn drop(&mut self) {
        self.recorder.lock().give_back(&self.range);
    }
}

impl Medium for RecordingRange {
    fn len_bytes(&self) -> usize {
        self.range.len()
    }

    fn region_offset(&self) -> u64 {
        self.range.start as u64
    }

    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        let whole = offset.is_multiple_of(LINE_BYTES) && extent_bytes.is_multiple_of(LINE_BYTES);
        assert!(whole, "a copy consists of whole lines: {extent_bytes} bytes at {offset}");
        assert!(src.len() <= extent_bytes, "{} bytes do not fit into {extent_bytes}", src.len());
        let end = offset.checked_add(extent_bytes).filter(|&end| end <= self.len_bytes());
        let Some(end) = end else { panic!("{extent_bytes} bytes at {offset} leave the range") };
        src.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
        self.faults.overwrite(&(offset..end));
        let lines = extent_bytes / LINE_BYTES;
        let end = end - (lines - self.faults.lines_stored(lines)) * LINE_BYTES;
        let start = self.range.start;
        let src = &src[..src.len().min(end - offset)];
        self.recorder.lock().copy(start + offset, src, start + end);
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        assert!(
            offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes()),
            "outside of the range"
        );
        if self.faults.is_gone() {
            return;
        }
        let start = (self.range.start + offset) / LINE_BYTES * LINE_BYTES;
        for line in (start..self.range.start + offset + len_bytes).step_by(LINE_BYTES) {
            self.recorder.record(Op::clwb(line as u64));
        }
    }

    fn fence(&mut self) -> Result<(), PersistError> {
        let is_gone = self.faults.is_gone();
        let mut recording = self.recorder.lock();
        if !is_gone && (recording.refuses_fences || self.faults.fence_fails()) {
            recording.refuses_fences = true;
            drop(recording);
            return Err(self.failed_fence());
        }
        // The CPU's fence is made, whatever became of the memory: it completes what the thread stored
        // elsewhere.
        recording.fence();
        drop(recording);
        if is_gone { Err(self.failed_fence()) } else { Ok(()) }
    }

    /// Of two ranges of one recorder: one `sfence`, as it is the thread's.
    fn fence_both(&mut self, other: &mut Self) -> Result<(), Box<SidesFailed>> {
        // PERSIST: as asked by the code under test; ranges of two recorders have no thread in common.
        if !Arc::ptr_eq(&self.recorder.0, &other.recorder.0) {
            return SidesFailed::of(self.fence(), other.fence());
        }
        if other.faults.fence_fails() {
            self.recorder.lock().refuses_fences = true;
        }
        if self.recorder.lock().refuses_fences {
            return SidesFailed::of(Err(self.failed_fence()), Err(other.failed_fence()));
        }
        let first = self.fence();
        SidesFailed::of(first, if other.faults.is_gone() { Err(other.failed_fence()) } else { Ok(()) })
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        let region_offset = |offset: usize| (self.range.start as u64).saturating_add(offset as u64);
        let end = offset.checked_add(dst.len()).filter(|&end| end <= self.len_bytes());
        let Some(end) = end else {
            let first = offset.max(self.len_bytes());
            return Err(ReadError { region_offset: region_offset(first), kind: ReadErrorKind::OutOfRange });
        };
        if self.faults.is_gone() {
            return Err(ReadError { region_offset: region_offset(offset), kind: ReadErrorKind::Poison });
        }
        if let Some(first) = self.faults.first_unreadable(&(offset..end)).filter(|_| !dst.is_empty()) {
            return Err(ReadError { region_offset: region_offset(first), kind: ReadErrorKind::Poison });
        }
        dst.copy_from_slice(&self.recorder.lock().image[self.range.start + offset..self.range.start + end]);
        Ok(())
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        assert_eq!(side, 0, "there is one side");
        self.copy(offset, src, extent_bytes, &mut NoSum);
    }
}
