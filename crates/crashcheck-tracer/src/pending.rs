//! Which threads have done something that a fence would wait for.

use std::sync::atomic::{AtomicBool, Ordering};

/// Threads with a flag of their own; later ones share the last flag.
const THREADS: usize = 1024;

/// A flag for each thread: it has stored to PM, or flushed a line of it, since its last fence.
///
/// A fence waits for what its own thread did, so a fence of a thread without the flag says nothing and is
/// left out. Concurrency: a thread's flag is written in its own callbacks, or before it runs.
#[derive(Debug)]
pub(crate) struct Pending(Box<[AtomicBool]>);

impl Pending {
    pub(crate) fn new() -> Pending {
        Pending((0..THREADS).map(|_| AtomicBool::new(false)).collect())
    }

    fn flag(&self, thread: u32) -> &AtomicBool {
        &self.0[(thread as usize).min(THREADS - 1)]
    }

    pub(crate) fn is_set(&self, thread: u32) -> bool {
        self.flag(thread).load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, thread: u32) {
        self.flag(thread).store(true, Ordering::Relaxed);
    }

    pub(crate) fn clear(&self, thread: u32) {
        self.flag(thread).store(false, Ordering::Relaxed);
    }

    /// Any thread's.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|flag| flag.load(Ordering::Relaxed))
    }
}
