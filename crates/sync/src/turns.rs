//! Threads of the system, of which a simulation lets one go on at a time.
//!
//! Motivation: a model checker must see every lock below; the libraries that a whole stack stands on have
//! their own. Here the locks are real ones. One that another thread has is not waited for but tried again,
//! when that has gone on; and a condition is not slept on but looked at again. So no thread is ever woken
//! beside the one whose turn it is. What sleeps in the system all the same, on a library's lock, the
//! simulation has to see from outside.
//!
//! Time is the simulation's, so that a schedule can be repeated.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Who may go on.
#[derive(Debug, Clone, Copy)]
pub struct Decider {
    /// Whether this thread belongs to the simulation.
    pub is_one: fn() -> bool,
    /// Gives the turn away and returns when it is this thread's again. `true`: it cannot go on before another
    /// has.
    pub take: fn(bool),
    /// What time it is for this thread.
    pub now: fn() -> Option<Instant>,
    /// Lets so much time go by; false if this thread's time is that of the system.
    pub sleep: fn(Duration) -> bool,
    /// Which of the simulation's threads this is.
    pub number: fn() -> Option<u64>,
}

static DECIDER: OnceLock<Decider> = OnceLock::new();

/// Asks `decider` from now on, in all threads of this process. Only the first call counts.
pub fn decide_by(decider: Decider) {
    let _ = DECIDER.set(decider);
}

thread_local! {
    static UNDISTURBED: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread keeps its turn for as long as it can go on.
pub fn is_undisturbed() -> bool {
    UNDISTURBED.get() > 0
}

pub(crate) struct Undisturbed;

impl Undisturbed {
    pub(crate) fn begin() -> Undisturbed {
        UNDISTURBED.set(UNDISTURBED.get() + 1);
        Undisturbed
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        UNDISTURBED.set(UNDISTURBED.get() - 1);
    }
}

fn decider() -> Option<&'static Decider> {
    DECIDER.get().filter(|decider| (decider.is_one)())
}

pub(crate) fn acquire<G>(mut attempt: impl FnMut() -> Result<G, TryLockError<G>>) -> Option<G> {
    let decider = decider()?;
    if !is_undisturbed() {
        (decider.take)(false);
    }
    loop {
        match attempt() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => (decider.take)(true),
        }
    }
}

pub(crate) fn now() -> Option<Instant> {
    DECIDER.get().and_then(|decider| (decider.now)())
}

pub(crate) fn sleep(rest: Duration) -> bool {
    DECIDER.get().is_some_and(|decider| (decider.sleep)(rest))
}

pub(crate) fn number() -> Option<u64> {
    DECIDER.get().and_then(|decider| (decider.number)())
}

/// The guard of a mutex, which knows it.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    guard: std::sync::MutexGuard<'a, T>,
}

impl<'a, T> MutexGuard<'a, T> {
    pub(crate) fn new(mutex: &'a Mutex<T>, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { mutex, guard }
    }

    pub(crate) fn wait(self, condvar: &Condvar) -> MutexGuard<'a, T> {
        self.look_again().unwrap_or_else(|MutexGuard { mutex, guard }| MutexGuard {
            mutex,
            guard: condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        })
    }

    pub(crate) fn wait_for(self, condvar: &Condvar, rest: Duration) -> MutexGuard<'a, T> {
        self.look_again().unwrap_or_else(|MutexGuard { mutex, guard }| {
            let waited = condvar.wait_timeout(guard, rest).unwrap_or_else(PoisonError::into_inner);
            if waited.1.timed_out() {
                // The time of a simulation does not go on by itself.
                sleep(rest);
            }
            MutexGuard { mutex, guard: waited.0 }
        })
    }

    /// Lets go of the lock until another thread has gone on; for a thread of the simulation.
    fn look_again(self) -> Result<MutexGuard<'a, T>, MutexGuard<'a, T>> {
        let Some(decider) = decider() else { return Err(self) };
        let mutex = self.mutex;
        drop(self);
        (decider.take)(true);
        // A thread of the simulation gets every lock so.
        Ok(MutexGuard { mutex, guard: acquire(|| mutex.try_lock()).expect("still one of its threads") })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
