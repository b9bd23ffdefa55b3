//! Aligned buffers between callers' unaligned ones and direct I/O.

use std::sync::{Mutex, PoisonError};

use crate::aligned::AlignedBuf;

/// Bytes of one bounce buffer; longer transfers go through it in steps.
pub(crate) const BOUNCE_BYTES: usize = 256 << 10;
/// Maximum number of buffers kept; more are allocated while more threads need them.
const KEPT_MAX: usize = 8;

/// A few buffers for reuse.
#[derive(Debug)]
pub(crate) struct BouncePool {
    free: Mutex<Vec<AlignedBuf>>,
    align_bytes: usize,
}

impl BouncePool {
    pub(crate) fn new(align_bytes: usize) -> BouncePool {
        BouncePool { free: Mutex::new(Vec::new()), align_bytes }
    }

    /// Runs `act` with a buffer of [`BOUNCE_BYTES`] with unspecified contents.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut AlignedBuf) -> T) -> T {
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buf = kept.unwrap_or_else(|| AlignedBuf::zeroed(BOUNCE_BYTES, self.align_bytes));
        let outcome = act(&mut buf);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT_MAX {
            free.push(buf);
        }
        outcome
    }
}
