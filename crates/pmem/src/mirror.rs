//! One range, or two with the same contents.

use std::sync::Arc;

use crate::medium::{Medium, NoSum, PersistError, ReadError, ReadErrorKind, SidesFailed, Summer};
use crate::slots::WriterSlots;

/// Most sides of a mirror.
pub const SIDES_MAX: usize = 2;

/// A range, and perhaps another one with the same contents at the same offsets.
///
/// Invariant kept: every copy goes to both, and one fence covers both. What a crash leaves may differ from
/// side to side, as far as it was not fenced. A side whose fence fails takes no more part
/// ([`Medium::lost_side`]): the other goes on, and fences succeed as long as it does. Performance: with one
/// side, a predictable branch; with two, the second copy has no sum, its source is in the cache, and the
/// fence of two ranges of PM is one instruction. Shape: the lengths are the same; [`Medium::region_offset`]
/// is that of the first side.
#[derive(Debug)]
pub struct Mirror<M> {
    first: M,
    second: Option<M>,
    lost: Option<Side>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

impl<M: Medium> Mirror<M> {
    /// A range that stands alone.
    pub fn single(only: M) -> Mirror<M> {
        Mirror { first: only, second: None, lost: None }
    }

    /// Two sides.
    ///
    /// # Panics
    /// Caller bug only: their lengths differ.
    pub fn pair(first: M, second: M) -> Mirror<M> {
        assert_eq!(first.len_bytes(), second.len_bytes(), "sides of a mirror are of one length");
        Mirror { first, second: Some(second), lost: None }
    }

    /// The sides again, lost or not.
    pub fn into_sides(self) -> (M, Option<M>) {
        (self.first, self.second)
    }

    fn side(&self, side: usize) -> &M {
        match (side, &self.second) {
            (0, _) => &self.first,
            (1, Some(second)) => second,
            _ => panic!("there is no side {side}"),
        }
    }

    /// The side that is left.
    #[cold]
    fn left(&mut self) -> &mut M {
        match (self.lost, &mut self.second) {
            (Some(Side::First), Some(second)) => second,
            _ => &mut self.first,
        }
    }

    /// Goes on with the side whose fence succeeded, if there is one.
    #[cold]
    fn note_failure(&mut self, failed: SidesFailed) -> Result<(), PersistError> {
        match failed.0 {
            [None, None] => Ok(()),
            [Some(_), None] => {
                self.lost = Some(Side::First);
                Ok(())
            }
            [None, Some(_)] => {
                self.lost = Some(Side::Second);
                Ok(())
            }
            [Some(error), Some(_)] => Err(error),
        }
    }
}

impl<M: Medium> Medium for Mirror<M> {
    fn len_bytes(&self) -> usize {
        self.first.len_bytes()
    }

    fn region_offset(&self) -> u64 {
        self.first.region_offset()
    }

    #[inline]
    fn copy<S: Summer>(&mut self, offset: usize, src: &[u8], extent_bytes: usize, summer: &mut S) {
        if self.lost.is_some() {
            return self.left().copy(offset, src, extent_bytes, summer);
        }
        self.first.copy(offset, src, extent_bytes, summer);
        if let Some(second) = &mut self.second {
            second.copy(offset, src, extent_bytes, &mut NoSum);
        }
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        // PERSIST: starts the write-back of both sides; the caller's fence covers both. Excludes that what
        // claim has seen on one side is only in a CPU cache when the other is lost.
        self.first.write_back(offset, len_bytes);
        if let Some(second) = &mut self.second {
            second.write_back(offset, len_bytes);
        }
    }

    #[inline]
    fn fence(&mut self) -> Result<(), PersistError> {
        if self.lost.is_some() {
            // PERSIST: as below, of the side that takes part.
            return self.left().fence();
        }
        // PERSIST: what was copied to either side is durable before any later store; excludes that a crash
        // keeps a later store on one side and loses an earlier one on the other.
        match &mut self.second {
            None => self.first.fence(),
            Some(second) => self.first.fence_both(second).or_else(|failed| self.note_failure(*failed)),
        }
    }

    /// Those of the first side's region: the sides are written together.
    fn writer_slots(&self) -> Option<Arc<WriterSlots>> {
        self.first.writer_slots()
    }

    fn lost_side(&self) -> Option<usize> {
        self.lost.map(|side| side as usize)
    }

    /// From the first side that gives the bytes. The error is that of the first.
    fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        let read = self.read_side(0, offset, dst);
        match read {
            Err(error) if self.second.is_some() => self.read_side(1, offset, dst).map_err(|_| error),
            read => read,
        }
    }

    fn sides(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    fn read_side(&self, side: usize, offset: usize, dst: &mut [u8]) -> Result<(), ReadError> {
        let of_side = self.side(side);
        if self.lost_side() == Some(side) {
            // What it has is not what was written since.
            let region_offset = of_side.region_offset() + offset as u64;
            return Err(ReadError { region_offset, kind: ReadErrorKind::Lost });
        }
        of_side.read(offset, dst)
    }

    fn copy_side(&mut self, side: usize, offset: usize, src: &[u8], extent_bytes: usize) {
        let side = match (side, &mut self.second) {
            (0, _) => &mut self.first,
            (1, Some(second)) => second,
            _ => panic!("there is no side {side}"),
        };
        side.copy(offset, src, extent_bytes, &mut NoSum);
    }
}
