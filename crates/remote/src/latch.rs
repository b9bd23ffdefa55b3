//! What fenced a device: set once, never taken back.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// The error after which nothing succeeds any more.
#[derive(Debug, Default)]
pub(crate) struct Latch(AtomicI32);

impl Latch {
    /// Sets it, unless it is set.
    pub(crate) fn set(&self, errno: i32) {
        // An error that is no number still has to set it.
        let _ = self.0.compare_exchange(0, errno.max(1), Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The error that set it.
    pub(crate) fn error(&self) -> Option<io::Error> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            errno => Some(io::Error::from_raw_os_error(errno)),
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}
