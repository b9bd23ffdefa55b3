//! Commit slots: which chunk each thread that writes to PM writes to.
//!
//! A slot gives its holder exclusive access to the slot's value (an open chunk); how many there are, and how
//! a thread waits for one, is the matter of [`WriterSlots`].
//!
//! Source: zil-pmem thesis, 5.12.1; dissertation (2025), 3.1.3.

use std::ops::{Deref, DerefMut};

use fastness_pmem::{WRITERS_MAX, WriterSlots};

use crate::sync::UnsafeCell;

/// Maximum number of slots of a PRB.
pub const SLOTS_MAX: u32 = WRITERS_MAX;

/// A fixed number of values, each lent to one thread at a time.
#[derive(Debug)]
pub struct CommitSlots<T> {
    slots: WriterSlots,
    values: Box<[OwnLine<UnsafeCell<T>>]>,
}

/// Keeps a value away from its neighbours' cache lines (and the adjacent-line prefetcher).
#[derive(Debug)]
#[repr(align(128))]
struct OwnLine<T>(T);

// SAFETY: a value is reached only through a `SlotGuard`, and the slots, which nobody else has, lend each
// number to one guard at a time (acquire/release pairs order the accesses; checked by loom). So `T` moves
// between threads, but is never shared.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for CommitSlots<T> {}

impl<T> CommitSlots<T> {
    /// One slot per value.
    ///
    /// # Panics
    /// Caller bug only: no value, or more than [`SLOTS_MAX`].
    pub fn new(values: impl IntoIterator<Item = T>) -> Self {
        let values: Box<[_]> = values.into_iter().map(|value| OwnLine(UnsafeCell::new(value))).collect();
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        Self { slots: WriterSlots::new(count), values }
    }

    /// Takes a free slot; waits off the CPU while there is none.
    #[inline]
    pub fn acquire(&self) -> SlotGuard<'_, T> {
        SlotGuard { slots: self, index: self.slots.acquire() }
    }

    /// Takes a free slot if there is one.
    pub(crate) fn try_acquire(&self) -> Option<SlotGuard<'_, T>> {
        self.slots.try_acquire().map(|index| SlotGuard { slots: self, index })
    }

    /// Takes the free slot with the highest number, which writers use least.
    pub(crate) fn try_acquire_last(&self) -> Option<SlotGuard<'_, T>> {
        self.slots.try_acquire_last().map(|index| SlotGuard { slots: self, index })
    }

    /// How often a thread found no free slot.
    pub fn waits(&self) -> u64 {
        self.slots.waits()
    }
}

impl<T> CommitSlots<T> {
    /// Returns the values and ends the use of the slots.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.values.into_vec().into_iter().map(|slot| slot.0.into_inner())
    }
}

/// Exclusive access to a slot's value; dropping it releases the slot.
#[derive(Debug)]
pub struct SlotGuard<'a, T> {
    slots: &'a CommitSlots<T>,
    index: u32,
}

impl<T> SlotGuard<'_, T> {
    /// Number of the slot.
    #[inline]
    pub fn index(&self) -> usize {
        self.index as usize
    }
}

impl<T> Deref for SlotGuard<'_, T> {
    type Target = T;

    #[inline]
    #[allow(unsafe_code)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one for the slot, and the reference lives no longer than the guard.
        self.slots.values[self.index as usize].0.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SlotGuard<'_, T> {
    #[inline]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        self.slots.values[self.index as usize].0.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SlotGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slots.slots.release(self.index);
    }
}

#[cfg(test)]
mod tests;
