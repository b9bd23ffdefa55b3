//! A range on whichever medium, so that what is above the logs need not name it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::medium::{Medium, PersistError, ReadError, SidesFailed, Summer};
use crate::range::PmRange;
use crate::slots::WriterSlots;

/// A range of a mapped region, or of a medium that stands in for one: a recorder, a simulation.
///
/// Performance: of a mapped region, one predictable branch for each call. Stand-ins are called dynamically,
/// and their sums are taken in a second pass.
pub enum AnyRange {
    /// Of a mapped region.
    Mapped(PmRange),
    /// Of something else, with one side.
    StandIn(Box<dyn Medium + Sync>),
}

impl AnyRange {
    /// A range of another medium.
    pub fn stand_in(range: impl Medium + Sync + 'static) -> AnyRange {
        AnyRange::StandIn(Box::new(range))
    }
}

impl From<PmRange> for AnyRange {
    fn from(range: PmRange) -> AnyRange {
        AnyRange::Mapped(range)
    }
}

impl fmt::Debug for AnyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyRange({} bytes at {:#x})", self.len_bytes(), self.region_offset())
    }
}

macro_rules! either {
    ($any:expr, $range:ident => $act:expr) => {
        match $any {
            AnyRange::Mapped($range) => $act,
            AnyRange::StandIn($range) => $act,
        }
    };
}

impl Medium for AnyRange {
    #[inline]
    fn len_bytes(&self) -> usize {
        either!(self, range => range.len_bytes())
    }

    #[inline]
    fn region_offset(&self) -> u64 {
        either!(self, range => range.region_offset())
    }

    #[inline]
    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        match self {
            AnyRange::Mapped(range) => range.copy(offset, src, extent_bytes, summer),
            AnyRange::StandIn(range) => {
                range.copy_side(0, offset, src, extent_bytes);
                src.chunks(S::BLOCK_BYTES).for_each(|block| summer.update(block));
            }
        }
    }

    fn mapped(&mut self, offset: usize, len_bytes: usize) -> Option<NonNull<u8>> {
        either!(self, range => range.mapped(offset, len_bytes))
    }

    fn lose(&mut self, offset: usize) {
        either!(self, range => range.lose(offset));
    }

    fn writer_slots(&self) -> Option<Arc<WriterSlots>> {
        either!(self, range => range.writer_slots())
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        either!(self, range => range.write_back(offset, len_bytes));
    }

    #[inline]
    fn fence(&mut self) -> Result<(), PersistError> {
        // PERSIST: the range's own; nothing is added to what its caller relies on.
        either!(self, range => range.fence())
    }

    #[inline]
    fn fence_both(&mut self, other: &mut AnyRange) -> Result<(), Box<SidesFailed>> {
        match (self, other) {
            // PERSIST: one fence of the CPU covers the stores to both.
            (AnyRange::Mapped(one), AnyRange::Mapped(other)) => one.fence_both(other),
            // PERSIST: each range completes its own stores; for media whose fence is not the thread's.
            (one, other) => SidesFailed::of(one.fence(), other.fence()),
        }
    }

    fn check(&self) -> Result<(), PersistError> {
        either!(self, range => range.check())
    }

    #[inline]
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        either!(self, range => range.read(offset, dst))
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        either!(self, range => range.copy_side(side, offset, src, extent_bytes));
    }
}
