//! Locks with ranks: a thread takes them in rising order only, so no two threads ever wait for each other.
//!
//! In builds with debug assertions every lock is checked against those that its thread has: one whose rank is
//! not above all of theirs is a panic, whether or not another thread happens to be in the way. Other builds
//! check nothing, and a lock is as large and as fast as one without a rank. A crate writes its ranks down in
//! one place (`fastness_pool`: `order`).
//!
//! Model checkers find what hangs by themselves, and run their threads on one of the system's: this module
//! does not exist for them.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::{Condvar, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A mutex with a rank, below 64.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8>(crate::Mutex<T>);

/// A lock for many readers or one writer, with a rank below 64.
#[derive(Debug, Default)]
pub struct RwLock<T, const RANK: u8>(crate::RwLock<T>);

impl<T, const RANK: u8> Mutex<T, RANK> {
    /// A lock that nobody has.
    pub fn new(value: T) -> Self {
        Mutex(crate::Mutex::new(value))
    }
}

impl<T, const RANK: u8> RwLock<T, RANK> {
    /// A lock that nobody has.
    pub fn new(value: T) -> Self {
        RwLock(crate::RwLock::new(value))
    }
}

/// A guard of a lock with a rank.
pub struct Guard<G> {
    // Let go before the rank is.
    guard: G,
    held: Held,
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    #[inline(always)]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// A lock for one, with a rank or without.
pub trait Exclusive {
    /// Holds it.
    type Guard<'a>
    where
        Self: 'a;

    /// Waits for it.
    fn take(&self) -> Self::Guard<'_>;
}

/// A lock for many readers or one writer, with a rank or without.
pub trait Shared {
    /// Holds it for reading.
    type Read<'a>
    where
        Self: 'a;
    /// Holds it for writing.
    type Write<'a>
    where
        Self: 'a;

    /// Waits for it, as one of many.
    fn take_shared(&self) -> Self::Read<'_>;

    /// Waits for it, alone.
    fn take_alone(&self) -> Self::Write<'_>;
}

/// Locks for one.
#[inline(always)]
#[track_caller]
pub fn lock<L: Exclusive>(lock: &L) -> L::Guard<'_> {
    lock.take()
}

/// Locks for one of many readers.
#[inline(always)]
#[track_caller]
pub fn read<L: Shared>(lock: &L) -> L::Read<'_> {
    lock.take_shared()
}

/// Locks for the only writer.
#[inline(always)]
#[track_caller]
pub fn write<L: Shared>(lock: &L) -> L::Write<'_> {
    lock.take_alone()
}

/// As [`wait`](crate::wait); the rank stays this thread's meanwhile.
pub fn wait<'a, T>(condvar: &Condvar, guard: Guard<MutexGuard<'a, T>>) -> Guard<MutexGuard<'a, T>> {
    Guard { guard: crate::wait(condvar, guard.guard), held: guard.held }
}

/// As [`wait_for`](crate::wait_for); the rank stays this thread's meanwhile.
pub fn wait_for<'a, T>(
    condvar: &Condvar,
    guard: Guard<MutexGuard<'a, T>>,
    rest: Duration,
) -> Guard<MutexGuard<'a, T>> {
    Guard { guard: crate::wait_for(condvar, guard.guard, rest), held: guard.held }
}

impl<T> Exclusive for crate::Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        T: 'a;

    #[inline(always)]
    fn take(&self) -> MutexGuard<'_, T> {
        crate::lock(self)
    }
}

impl<T, const RANK: u8> Exclusive for Mutex<T, RANK> {
    type Guard<'a>
        = Guard<MutexGuard<'a, T>>
    where
        T: 'a;

    #[inline(always)]
    #[track_caller]
    fn take(&self) -> Guard<MutexGuard<'_, T>> {
        Held::check::<T, RANK>();
        Guard { guard: crate::lock(&self.0), held: Held::new(RANK) }
    }
}

impl<L: Exclusive> Exclusive for Arc<L> {
    type Guard<'a>
        = L::Guard<'a>
    where
        L: 'a;

    #[inline(always)]
    #[track_caller]
    fn take(&self) -> L::Guard<'_> {
        (**self).take()
    }
}

impl<T> Shared for crate::RwLock<T> {
    type Read<'a>
        = RwLockReadGuard<'a, T>
    where
        T: 'a;
    type Write<'a>
        = RwLockWriteGuard<'a, T>
    where
        T: 'a;

    #[inline(always)]
    fn take_shared(&self) -> RwLockReadGuard<'_, T> {
        crate::read(self)
    }

    #[inline(always)]
    fn take_alone(&self) -> RwLockWriteGuard<'_, T> {
        crate::write(self)
    }
}

impl<T, const RANK: u8> Shared for RwLock<T, RANK> {
    type Read<'a>
        = Guard<RwLockReadGuard<'a, T>>
    where
        T: 'a;
    type Write<'a>
        = Guard<RwLockWriteGuard<'a, T>>
    where
        T: 'a;

    #[inline(always)]
    #[track_caller]
    fn take_shared(&self) -> Guard<RwLockReadGuard<'_, T>> {
        Held::check::<T, RANK>();
        Guard { guard: crate::read(&self.0), held: Held::new(RANK) }
    }

    #[inline(always)]
    #[track_caller]
    fn take_alone(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        Held::check::<T, RANK>();
        Guard { guard: crate::write(&self.0), held: Held::new(RANK) }
    }
}

#[cfg(debug_assertions)]
use checked::Held;
#[cfg(not(debug_assertions))]
use unchecked::Held;

#[cfg(debug_assertions)]
mod checked {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::panic::Location;

    std::thread_local! {
        /// A bit for each rank of which this thread has a lock.
        static HELD: Cell<u64> = const { Cell::new(0) };
    }

    /// This thread has a lock of this rank.
    pub(super) struct Held {
        rank: u8,
        /// It stays with its thread.
        _thread: PhantomData<*const ()>,
    }

    impl Held {
        /// Before this thread waits for a lock.
        #[track_caller]
        pub(super) fn check<T, const RANK: u8>() {
            const { assert!(RANK < 64) };
            // A thread that ends has no more bits, and one that panics has said what is wrong already.
            let held = HELD.try_with(Cell::get).unwrap_or(0);
            if held >> RANK != 0 && !std::thread::panicking() {
                let ranks: Vec<u8> = (0..64).filter(|rank| held >> rank & 1 != 0).collect();
                panic!(
                    "lock order: {} of rank {RANK} is taken at {}, by a thread that has locks of ranks {ranks:?}",
                    std::any::type_name::<T>(),
                    Location::caller(),
                );
            }
        }

        /// Once it has it.
        pub(super) fn new(rank: u8) -> Held {
            let _ = HELD.try_with(|held| held.set(held.get() | 1 << rank));
            Held { rank, _thread: PhantomData }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| held.set(held.get() & !(1 << self.rank)));
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    /// Nothing is checked.
    pub(super) struct Held;

    impl Held {
        #[inline(always)]
        pub(super) fn check<T, const RANK: u8>() {}

        #[inline(always)]
        pub(super) fn new(_rank: u8) -> Held {
            Held
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type First = Mutex<u32, 3>;
    type Second = RwLock<u32, 7>;

    #[test]
    fn locks_in_order_are_taken_and_let_go_in_any_order() {
        let (first, second) = (Arc::new(First::new(1)), Second::new(2));
        for _ in 0..2 {
            let mut outer = lock(&first);
            let inner = write(&second);
            *outer += *inner;
            drop(outer);
            drop(inner);
        }
        // Each on its own, in the other order.
        assert_eq!(*read(&second), 2);
        assert_eq!(*lock(&first), 5);
        let without = crate::Mutex::new(3);
        let _inner = read(&second);
        assert_eq!(*lock(&without), 3);
    }

    #[test]
    fn another_thread_may_have_what_is_further_in() {
        let (first, second) = (First::new(1), Second::new(2));
        let _inner = read(&second);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!((*lock(&first), *read(&second)), (1, 2)));
        });
    }

    #[test]
    fn a_thread_that_waits_keeps_its_rank() {
        let (first, condvar) = (First::new(1), Condvar::new());
        let guard = wait_for(&condvar, lock(&first), Duration::from_millis(1));
        assert_eq!(*guard, 1);
        drop(guard);
        assert_eq!(*lock(&first), 1);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_lock_out_of_order_is_a_panic() {
        let (first, second, equal) = (First::new(1), Second::new(2), Second::new(3));
        let refused = |take: &(dyn Fn() + std::panic::RefUnwindSafe)| {
            let panic = std::panic::catch_unwind(take).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        let inner = read(&second);
        let text = refused(&|| drop(lock(&first)));
        assert!(text.contains("u32 of rank 3") && text.contains("[7]"), "{text}");
        assert!(refused(&|| drop(read(&equal))).contains("of rank 7"));
        assert!(refused(&|| drop(read(&second))).contains("of rank 7"), "nor twice, for a writer may wait");
        drop(inner);
        assert_eq!((*lock(&first), *read(&equal)), (1, 3), "what was refused is not held");
    }

    #[cfg(not(debug_assertions))]
    #[test]
    fn a_rank_costs_nothing() {
        assert_eq!(size_of::<Guard<MutexGuard<'_, u32>>>(), size_of::<MutexGuard<'_, u32>>());
        assert_eq!(size_of::<First>(), size_of::<crate::Mutex<u32>>());
    }
}
