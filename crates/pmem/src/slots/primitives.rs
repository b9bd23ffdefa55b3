//! What a model checker has other primitives for.

#[cfg(not(any(loom, shuttle)))]
pub(super) use std::hint::spin_loop;

/// Leaves the CPU for about `rest`.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn rest(rest: std::time::Duration) {
    std::thread::sleep(rest);
}

/// Takes no time in a model, nor does [`rest`]: loom does not run a thread that yields before all others are
/// done, so what follows, the hand-off, would never be explored concurrently with them.
#[cfg(any(loom, shuttle))]
pub(super) fn spin_loop() {}

/// See [`spin_loop`].
#[cfg(any(loom, shuttle))]
pub(super) fn rest(_rest: std::time::Duration) {}
