//! Writer slots: how many threads may write to PM at a time.
//!
//! Waiting for PM keeps the CPU busy, so more writers than the medium can serve only waste CPU time. A thread
//! that finds no free slot waits off the CPU. Semaphore and bitmap are one atomic word: a set bit is a taken
//! slot, and an operation that would make the semaphore negative is one that finds all bits set.
//!
//! **Which slot.** A thread prefers the slot that it used last, whose lines may still be in its CPU's cache;
//! else it takes the lowest free one, so that few writers use few slots.
//!
//! **Waiting.** Threads that find no slot stand in a line, in the order in which they came (`Turns`); the
//! first one is the *head*. The head spins for less than the time of a large entry, then asks the next
//! release to wake it and sleeps. If other threads took the slot before it ran (they *barge*: a slot that
//! waits for a thread to wake goes unused), the slots are saturated: waking once per release would cost more
//! CPU than the writes. So the head rests for [`REST`] and then asks for a *hand-off*: the next release gives
//! it the slot directly. Each waiter thus costs one wake-up and one hand-off per rest, whatever the rate of
//! releases, and none starves.
//!
//! Source: zil-pmem thesis, 5.12.1; dissertation (2025), 3.1.3, 3.4 (cost of contention) and 5.1.1.

mod primitives;
mod turns;

use std::time::Duration;

use fastness_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, lock, wait};

use primitives::{rest, spin_loop};
use turns::Turns;

/// Maximum number of slots.
pub const WRITERS_MAX: u32 = 32;

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

/// A fixed number of slots, each lent to one thread at a time.
///
/// Concurrency: between the return of an acquisition and the release of the same number, no other thread has
/// that number, and what one holder did before its release happens before what the next one does.
#[derive(Debug)]
pub struct WriterSlots {
    state: OwnLine<AtomicU64>,
    /// The handed-off slot's number plus one.
    granted: AtomicU32,
    all: u64,
    turns: Turns,
    /// True while the head sleeps on `wake`.
    sleeping: Mutex<bool>,
    wake: Condvar,
    waits: AtomicU64,
}

/// The slot (as a bit) that this thread used last, of whatever [`WriterSlots`]: a hint.
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
struct OwnLine<T>(T);

impl WriterSlots {
    /// So many slots, all of them free.
    ///
    /// # Panics
    /// Caller bug only: none, or more than [`WRITERS_MAX`].
    pub fn new(count: u32) -> Self {
        assert!((1..=WRITERS_MAX).contains(&count), "1 to {WRITERS_MAX} slots");
        Self {
            state: OwnLine(AtomicU64::new(0)),
            granted: AtomicU32::new(0),
            all: (1 << count) - 1,
            turns: Turns::default(),
            sleeping: Mutex::new(false),
            wake: Condvar::new(),
            waits: AtomicU64::new(0),
        }
    }

    /// Number of slots.
    pub fn count(&self) -> u32 {
        self.all.count_ones()
    }

    /// Takes a slot until the guard is dropped; waits off the CPU while there is none.
    #[inline]
    pub fn enter(&self) -> Entered<'_> {
        Entered { slots: self, slot: self.acquire() }
    }

    /// The same, if there is a free slot.
    #[inline]
    pub fn try_enter(&self) -> Option<Entered<'_>> {
        self.try_acquire().map(|slot| Entered { slots: self, slot })
    }

    /// Takes a free slot, and returns its number; waits off the CPU while there is none.
    #[inline]
    pub fn acquire(&self) -> u32 {
        self.try_acquire().unwrap_or_else(|| self.wait_for_slot())
    }

    /// Takes a free slot if there is one.
    #[inline]
    pub fn try_acquire(&self) -> Option<u32> {
        self.take_or_set(0)
    }

    /// Takes the free slot with the highest number, which writers use least.
    pub fn try_acquire_last(&self) -> Option<u32> {
        let state = &self.state.0;
        let mut now = state.load(Ordering::Relaxed);
        loop {
            let slot = (!now & self.all).checked_ilog2()?;
            match state.compare_exchange_weak(now, now | 1 << slot, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(slot),
                Err(changed) => now = changed,
            }
        }
    }

    /// How often a thread found no free slot.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
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

    /// Gives a slot back: once, by whoever acquired it.
    #[inline]
    pub fn release(&self, slot: u32) {
        let state = &self.state.0;
        let mut now = state.load(Ordering::Relaxed);
        loop {
            // A slot that is handed off stays taken: no thread can barge in.
            let next = if now & HAND_OFF != 0 { now & !HAND_OFF } else { now & !((1 << slot) | WAKE) };
            match state.compare_exchange_weak(now, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(changed) => now = changed,
            }
        }
        if now & (WAKE | HAND_OFF) != 0 {
            self.notify_head(now, slot);
        }
    }

    #[cold]
    fn notify_head(&self, flags: u64, slot: u32) {
        if flags & HAND_OFF != 0 {
            self.granted.store(slot + 1, Ordering::Release);
        }
        if *lock(&self.sleeping) {
            self.wake.notify_one();
        }
    }

    #[cold]
    fn wait_for_slot(&self) -> u32 {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let _head = self.turns.wait_for_turn();
        self.spin_for_slot()
            .or_else(|| self.sleep_until_release())
            .unwrap_or_else(|| self.wait_for_hand_off())
    }

    fn spin_for_slot(&self) -> Option<u32> {
        for _ in 0..SPINS {
            if let Some(slot) = self.try_acquire() {
                return Some(slot);
            }
            spin_loop();
        }
        None
    }

    /// Sleeps until a slot was released; another thread may have taken it since.
    fn sleep_until_release(&self) -> Option<u32> {
        let mut sleeping = lock(&self.sleeping);
        if let Some(slot) = self.take_or_set(WAKE) {
            return Some(slot);
        }
        *sleeping = true;
        while self.state.0.load(Ordering::Relaxed) & WAKE != 0 {
            sleeping = wait(&self.wake, sleeping);
        }
        *sleeping = false;
        drop(sleeping);
        self.try_acquire()
    }

    /// Rests, then has the next released slot handed over.
    fn wait_for_hand_off(&self) -> u32 {
        rest(REST);
        if let Some(slot) = self.take_or_set(HAND_OFF) {
            return slot;
        }
        for _ in 0..SPINS {
            if let Some(slot) = self.take_granted() {
                return slot;
            }
            spin_loop();
        }
        let mut sleeping = lock(&self.sleeping);
        *sleeping = true;
        let slot = loop {
            if let Some(slot) = self.take_granted() {
                break slot;
            }
            sleeping = wait(&self.wake, sleeping);
        };
        *sleeping = false;
        slot
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

/// A taken slot; dropping it releases it.
#[derive(Debug)]
pub struct Entered<'a> {
    slots: &'a WriterSlots,
    slot: u32,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slots.release(self.slot);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
