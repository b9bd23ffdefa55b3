//! Locks, atomics and threads of `std`, replaced by a model checker's where one runs.
//!
//! Under `--cfg loom` they are loom's, which tries every interleaving of a few steps, and every value that
//! the memory model lets a load return (`scripts/loom`). Under `--cfg shuttle` they are shuttle's, which
//! tries random interleavings of whole scenarios, finds those that hang, and can repeat each of them
//! (`scripts/shuttle`). What a checker does not see, it does not interleave: a crate that is checked so takes
//! all that its threads meet in from here.
//!
//! A lock is never poisoned here: the holders' critical sections keep their invariants at each step, so that
//! a panic of one of them does not make the data unusable.

#![forbid(unsafe_code)]

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

#[cfg(loom)]
pub use loom::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};
#[cfg(not(any(loom, shuttle, feature = "turns")))]
pub use std::sync::MutexGuard;
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};
#[cfg(feature = "turns")]
pub use turns::MutexGuard;

/// Locks for one.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let guard = acquire(|| mutex.try_lock(), || mutex.lock());
    #[cfg(feature = "turns")]
    return MutexGuard::new(mutex, guard);
    #[cfg(not(feature = "turns"))]
    guard
}

/// Locks for one of many readers.
#[inline]
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    acquire(|| lock.try_read(), || lock.read())
}

/// Locks for the only writer.
#[inline]
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    acquire(|| lock.try_write(), || lock.write())
}

/// Takes a lock by `block`. In a simulation of several threads (feature `turns`), by `attempt` when it is
/// this thread's turn.
#[inline(always)]
pub fn acquire<G>(
    attempt: impl FnMut() -> Result<G, TryLockError<G>>,
    block: impl FnOnce() -> Result<G, PoisonError<G>>,
) -> G {
    #[cfg(feature = "turns")]
    if let Some(guard) = turns::acquire(attempt) {
        return guard;
    }
    #[cfg(not(feature = "turns"))]
    let _ = attempt;
    block().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until somebody notifies, or for no reason at all; the lock is let go meanwhile.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    #[cfg(feature = "turns")]
    return guard.wait(condvar);
    #[cfg(not(feature = "turns"))]
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Does something that a library calls back for, under locks of its own. In a simulation of several threads
/// no other one has its turn meanwhile, unless this one cannot go on: whom the library's locks wake is
/// nobody's to decide.
#[inline(always)]
pub fn undisturbed<T>(act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "turns")]
    let _undisturbed = turns::Undisturbed::begin();
    act()
}

/// What time it is. For a checker it does not pass, so that a schedule can be repeated: nothing takes any
/// time there, and what takes longer than nothing never ends.
#[inline]
pub fn now() -> Instant {
    #[cfg(feature = "turns")]
    if let Some(now) = turns::now() {
        return now;
    }
    #[cfg(not(any(loom, shuttle)))]
    return Instant::now();
    #[cfg(any(loom, shuttle))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}

/// Sleeps for at least `rest`; for a checker, until others have gone on.
pub fn sleep(rest: Duration) {
    #[cfg(feature = "turns")]
    if turns::sleep(rest) {
        return;
    }
    #[cfg(not(any(loom, shuttle)))]
    thread::sleep(rest);
    #[cfg(any(loom, shuttle))]
    {
        let _ = rest;
        thread::yield_now();
    }
}

/// The number of this thread, to divide threads over counters and locks. Threads that begin one after the
/// other have numbers that follow each other.
#[inline]
pub fn number_of_thread() -> u64 {
    #[cfg(feature = "turns")]
    if let Some(number) = turns::number() {
        return number;
    }
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    std::thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// As [`wait`], for at most `rest`; see [`now`].
pub fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, rest: Duration) -> MutexGuard<'a, T> {
    #[cfg(feature = "turns")]
    return guard.wait_for(condvar, rest);
    #[cfg(not(feature = "turns"))]
    condvar.wait_timeout(guard, rest).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits while `is_so`, for at most `rest`; see [`now`].
pub fn wait_while_for<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    rest: Duration,
    is_so: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    let end = now() + rest;
    while is_so(&guard) {
        let rest = end.saturating_duration_since(now());
        if rest.is_zero() {
            break;
        }
        guard = wait_for(condvar, guard, rest);
    }
    guard
}

#[cfg(not(any(loom, shuttle)))]
pub mod order;
#[cfg(feature = "turns")]
pub mod turns;
