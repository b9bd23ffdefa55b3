//! A part of the region as the log of records takes it: from its own first byte on.

use fastness_pmem::{Medium, PersistError, ReadError, RegionInfo, SidesFailed, Summer};
use fastness_pmlog::LogMedium;

use crate::medium::CacheMedium;

/// A range whose offsets count from the beginning of the log.
#[derive(Debug)]
pub(crate) struct LogRange<M> {
    range: M,
    /// Region offset of the log.
    start: u64,
}

impl<M: CacheMedium> LogRange<M> {
    /// All of `range` is the log's.
    pub(crate) fn new(range: M) -> LogRange<M> {
        LogRange { start: range.region_offset(), range }
    }
}

impl<M: CacheMedium> Medium for LogRange<M> {
    #[inline]
    fn len_bytes(&self) -> usize {
        self.range.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.range.region_offset() - self.start
    }

    #[inline]
    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        self.range.copy(offset, src, extent_bytes, summer);
    }

    fn writer_slots(&self) -> Option<std::sync::Arc<fastness_pmem::WriterSlots>> {
        self.range.writer_slots()
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        self.range.write_back(offset, len_bytes);
    }

    #[inline]
    fn fence(&mut self) -> Result<(), PersistError> {
        // PERSIST: that of the range, for whoever orders stores by this one.
        self.range.fence()
    }

    fn check(&self) -> Result<(), PersistError> {
        self.range.check()
    }

    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        self.range.read(offset, dst)
    }

    fn fence_both(&mut self, other: &mut Self) -> Result<(), Box<SidesFailed>> {
        // PERSIST: as above.
        self.range.fence_both(&mut other.range)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        self.range.copy_side(side, offset, src, extent_bytes);
    }
}

impl<M: CacheMedium> LogMedium for LogRange<M> {
    fn split(self, mid: usize) -> (Self, Self) {
        let start = self.start;
        let (low, high) = self.range.divide(mid);
        (LogRange { range: low, start }, LogRange { range: high, start })
    }

    fn region_info(&self) -> Option<&RegionInfo> {
        None
    }
}
