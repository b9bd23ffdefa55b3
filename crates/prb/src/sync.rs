//! The synchronisation primitives of the commit slots, replaced by `loom`'s under its model checker.

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::hint::spin_loop;

/// `std`'s cell with the closure interface of `loom`'s.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// Leaves the CPU for about `rest`.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn rest(rest: std::time::Duration) {
    std::thread::sleep(rest);
}

/// Takes no time in a model, nor does [`rest`]: loom does not run a thread that yields before all others are
/// done, so what follows, the hand-off, would never be explored concurrently with them.
#[cfg(any(loom, shuttle))]
pub(crate) fn spin_loop() {}

/// See [`spin_loop`].
#[cfg(any(loom, shuttle))]
pub(crate) fn rest(_rest: std::time::Duration) {}
