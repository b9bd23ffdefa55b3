//! Commit slots: how many threads may write to PM at a time, and which chunk each of them writes to.
//!
//! Waiting for PM keeps the CPU busy, so more writers than the medium can serve only waste CPU time. A slot
//! gives its holder exclusive access to the slot's value (an open chunk); a thread that finds no free slot
//! waits off the CPU. Semaphore and bitmap are one atomic word: a set bit is a taken slot, and an operation
//! that would make the semaphore negative is one that finds all bits set.
//!
//! **Which slot.** A thread prefers the slot that it used last, whose chunk is in its CPU's cache; else it
//! takes the lowest free one, so that few writers fill few chunks.
//!
//! **Waiting.** Threads that find no slot queue up on a lock; the one that holds it is the *head*. The head
//! spins for less than the time of a large entry, then asks the next release to wake it and sleeps. If other
//! threads took the slot before it ran (they *barge*: a slot that waits for a thread to wake goes unused),
//! the slots are saturated: waking once per release would cost more CPU than the writes. So the head rests
//! for [`REST`] and then asks for a *hand-off*: the next release gives it the slot directly. Each waiter thus
//! costs one wake-up and one hand-off per rest, whatever the rate of releases, and none starves.
//!
//! Source: zil-pmem thesis, 5.12.1; dissertation (2025), 3.1.3 and 3.4 (cost of contention).

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use fastness_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, lock, wait};

use crate::sync::{UnsafeCell, rest, spin_loop};

/// Maximum number of slots of a PRB.
pub const SLOTS_MAX: u32 = 32;

/// The head sleeps, and the next release must wake it.
const WAKE: u64 = 1 << 32;
/// The next release must give its slot to the head.
const HAND_OFF: u64 = 1 << 33;

/// How long the head stays off the CPU once the slots are known to be saturated.
const REST: Duration = Duration::from_micros(200);

/// Rounds of spinning for a slot: of the order of one entry of a few KiB.
#[cfg(not(loom))]
const SPINS: u32 = 64;
#[cfg(loom)]
const SPINS: u32 = 1;

/// A fixed number of values, each lent to one thread at a time.
#[derive(Debug)]
pub struct CommitSlots<T> {
    state: OwnLine<AtomicU64>,
    /// The handed-off slot's index plus one.
    granted: AtomicU32,
    all: u64,
    head: Mutex<()>,
    /// True while the head sleeps on `wake`.
    sleeping: Mutex<bool>,
    wake: Condvar,
    waits: AtomicU64,
    slots: Box<[OwnLine<UnsafeCell<T>>]>,
}

/// The slot (as a bit) that this thread used last, of whatever [`CommitSlots`]: a hint.
#[cfg(not(any(loom, shuttle)))]
mod last_slot {
    use std::cell::Cell;

    thread_local!(static LAST: Cell<u64> = const { Cell::new(0) });

    #[inline]
    pub(super) fn get() -> u64 {
        LAST.get()
    }

    #[inline]
    pub(super) fn set(slot: u64) {
        LAST.set(slot);
    }
}

/// No hint in the model: all model threads would share the real one's memory.
#[cfg(any(loom, shuttle))]
mod last_slot {
    pub(super) fn get() -> u64 {
        0
    }

    pub(super) fn set(_slot: u64) {}
}

/// Keeps a value away from its neighbours' cache lines (and the adjacent-line prefetcher).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

// SAFETY: a value is reached only through a `SlotGuard`, and the state word lends each slot to one guard at a
// time (acquire/release pairs order the accesses; checked by loom). So `T` moves between threads, but is
// never shared.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for CommitSlots<T> {}

impl<T> CommitSlots<T> {
    /// One slot per value.
    ///
    /// # Panics
    /// Caller bug only: no value, or more than [`SLOTS_MAX`].
    pub fn new(values: impl IntoIterator<Item = T>) -> Self {
        let slots: Box<[_]> = values.into_iter().map(|value| OwnLine(UnsafeCell::new(value))).collect();
        assert!((1..=SLOTS_MAX as usize).contains(&slots.len()), "1 to {SLOTS_MAX} commit slots");
        Self {
            state: OwnLine(AtomicU64::new(0)),
            granted: AtomicU32::new(0),
            all: (1 << slots.len()) - 1,
            head: Mutex::new(()),
            sleeping: Mutex::new(false),
            wake: Condvar::new(),
            waits: AtomicU64::new(0),
            slots,
        }
    }

    /// Takes a free slot; waits off the CPU while there is none.
    #[inline]
    pub fn acquire(&self) -> SlotGuard<'_, T> {
        let index = self.try_take().unwrap_or_else(|| self.wait_for_slot());
        SlotGuard { slots: self, index }
    }

    /// Takes a free slot if there is one.
    pub(crate) fn try_acquire(&self) -> Option<SlotGuard<'_, T>> {
        self.try_take().map(|index| SlotGuard { slots: self, index })
    }

    /// Takes the free slot with the highest number, which writers use least.
    pub(crate) fn try_acquire_last(&self) -> Option<SlotGuard<'_, T>> {
        let state = &self.state.0;
        let mut now = state.load(Ordering::Relaxed);
        loop {
            let index = (!now & self.all).checked_ilog2()?;
            match state.compare_exchange_weak(now, now | 1 << index, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(SlotGuard { slots: self, index }),
                Err(changed) => now = changed,
            }
        }
    }

    /// How often a thread found no free slot.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    #[inline]
    fn try_take(&self) -> Option<u32> {
        self.take_or_set(0)
    }

    /// Takes a free slot, or atomically sets `flag` if there is none.
    #[inline]
    fn take_or_set(&self, flag: u64) -> Option<u32> {
        let state = &self.state.0;
        let mut now = state.load(Ordering::Relaxed);
        loop {
            let free = !now & self.all;
            let last = free & last_slot::get();
            let slot = if last != 0 { last } else { free & free.wrapping_neg() };
            if slot == 0 && flag == 0 {
                return None;
            }
            let next = if slot != 0 { now | slot } else { now | flag };
            match state.compare_exchange_weak(now, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if slot == 0 => return None,
                Ok(_) => {
                    last_slot::set(slot);
                    return Some(slot.trailing_zeros());
                }
                Err(changed) => now = changed,
            }
        }
    }

    #[inline]
    fn release(&self, index: u32) {
        let state = &self.state.0;
        let mut now = state.load(Ordering::Relaxed);
        loop {
            // A slot that is handed off stays taken: no thread can barge in.
            let next = if now & HAND_OFF != 0 { now & !HAND_OFF } else { now & !((1 << index) | WAKE) };
            match state.compare_exchange_weak(now, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(changed) => now = changed,
            }
        }
        if now & (WAKE | HAND_OFF) != 0 {
            self.notify_head(now, index);
        }
    }

    #[cold]
    fn notify_head(&self, flags: u64, index: u32) {
        if flags & HAND_OFF != 0 {
            self.granted.store(index + 1, Ordering::Release);
        }
        if *lock(&self.sleeping) {
            self.wake.notify_one();
        }
    }

    #[cold]
    fn wait_for_slot(&self) -> u32 {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let _head = lock(&self.head);
        self.spin_for_slot()
            .or_else(|| self.sleep_until_release())
            .unwrap_or_else(|| self.wait_for_hand_off())
    }

    fn spin_for_slot(&self) -> Option<u32> {
        for _ in 0..SPINS {
            if let Some(index) = self.try_take() {
                return Some(index);
            }
            spin_loop();
        }
        None
    }

    /// Sleeps until a slot was released; another thread may have taken it since.
    fn sleep_until_release(&self) -> Option<u32> {
        let mut sleeping = lock(&self.sleeping);
        if let Some(index) = self.take_or_set(WAKE) {
            return Some(index);
        }
        *sleeping = true;
        while self.state.0.load(Ordering::Relaxed) & WAKE != 0 {
            sleeping = wait(&self.wake, sleeping);
        }
        *sleeping = false;
        drop(sleeping);
        self.try_take()
    }

    /// Rests, then has the next released slot handed over.
    fn wait_for_hand_off(&self) -> u32 {
        rest(REST);
        if let Some(index) = self.take_or_set(HAND_OFF) {
            return index;
        }
        for _ in 0..SPINS {
            if let Some(index) = self.take_granted() {
                return index;
            }
            spin_loop();
        }
        let mut sleeping = lock(&self.sleeping);
        *sleeping = true;
        let index = loop {
            if let Some(index) = self.take_granted() {
                break index;
            }
            sleeping = wait(&self.wake, sleeping);
        };
        *sleeping = false;
        index
    }

    fn take_granted(&self) -> Option<u32> {
        let granted = self.granted.load(Ordering::Acquire);
        if granted == 0 {
            return None;
        }
        self.granted.store(0, Ordering::Relaxed);
        Some(granted - 1)
    }
}

impl<T> CommitSlots<T> {
    /// Returns the values and ends the use of the slots.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.slots.into_vec().into_iter().map(|slot| slot.0.into_inner())
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
        self.slots.slots[self.index as usize].0.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SlotGuard<'_, T> {
    #[inline]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        self.slots.slots[self.index as usize].0.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SlotGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slots.release(self.index);
    }
}

#[cfg(test)]
mod tests;
