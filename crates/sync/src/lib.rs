//! Locks, atomics and threads of `std`, replaced by a model checker's where one runs.
//!
//! Under `--cfg loom` they are loom's, which tries every interleaving of a few steps, and every value that the memory
//! model lets a load return (`scripts/loom`). Under `--cfg shuttle` they are shuttle's, which tries random interleavings
//! of whole scenarios, finds those that hang, and can repeat each of them (`scripts/shuttle`). What a checker does not
//! see, it does not interleave: a crate that is checked so takes all that its threads meet in from here.
//!
//! A lock is never poisoned here: the holders' critical sections keep their invariants at each step, so that a panic of
//! one of them does not make the data unusable.

#![forbid(unsafe_code)]

use std::sync::PoisonError;
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
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread, thread_local,
};

/// Locks for one.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for one of many readers.
#[inline]
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for the only writer.
#[inline]
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until somebody notifies, or for no reason at all; the lock is let go meanwhile.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// What time it is. For a checker it does not pass, so that a schedule can be repeated: nothing takes any time there,
/// and what takes longer than nothing never ends.
#[inline]
pub fn now() -> Instant {
    #[cfg(not(any(loom, shuttle)))]
    return Instant::now();
    #[cfg(any(loom, shuttle))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}

/// As [`wait`], for at most `rest`; see [`now`].
pub fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, rest: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, rest).unwrap_or_else(PoisonError::into_inner).0
}
