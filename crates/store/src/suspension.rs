//! Requests that wait while the pool is suspended (`failmode=wait`).
//!
//! No layer below waits: a change of a suspended pool fails at once. [`Attached::run`](crate::Attached::run)
//! retries a request that failed so, after the pool was resumed. That is sound because the request has not
//! been answered: what it did before it failed is unordered with respect to other requests in flight, and
//! repeating it leaves the same bytes. A waiting request is never reported as done.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fastness_sync::{Condvar, Mutex, lock, wait_for};

/// Time between two looks at whether a request must end.
const PAUSE: Duration = Duration::from_millis(100);

/// Where requests wait.
#[derive(Debug, Default)]
pub(crate) struct Suspension {
    /// How often the pool was resumed. Changed under the lock.
    resumed: AtomicU64,
    waiting: AtomicUsize,
    changing: Mutex<()>,
    changed: Condvar,
}

impl Suspension {
    /// To be taken before a request begins; see [`wait`](Self::wait).
    pub(crate) fn seen(&self) -> u64 {
        self.resumed.load(Ordering::SeqCst)
    }

    /// Waits until the pool has been resumed since `seen`; false if the request had to end first.
    pub(crate) fn wait(&self, seen: u64, must_end: impl Fn() -> bool) -> bool {
        let mut guard = lock(&self.changing);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.seen() == seen && !must_end() {
            guard = wait_for(&self.changed, guard, PAUSE);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.seen() != seen
    }

    /// The pool is resumed: all waiting requests are retried.
    pub(crate) fn resume(&self) {
        let _guard = lock(&self.changing);
        self.resumed.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Wakes the waiting threads so that they check whether to end.
    pub(crate) fn wake(&self) {
        // Under the lock, so that a thread that has just checked does not miss the wakeup.
        let _guard = lock(&self.changing);
        self.changed.notify_all();
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}
