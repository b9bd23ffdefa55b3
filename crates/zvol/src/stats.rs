//! Counters that cost a few relaxed additions an operation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Operations that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeOperation {
    /// Reads.
    Read,
    /// Writes, also of zeroes.
    Write,
    /// Discards.
    Discard,
    /// Flushes, and the waits of writes with FUA.
    Flush,
}

const KINDS: usize = 4;

#[derive(Debug, Default)]
struct Counters {
    ops: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    timed_ops: AtomicU64,
    latency_ns: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Live([Counters; KINDS]);

impl Live {
    /// Counts an operation that begins. One of 16 is timed, and every flush: a clock costs as much as a cached read's
    /// bookkeeping.
    pub(crate) fn start(&self, operation: VolumeOperation) -> Option<Instant> {
        // Independent sums: no order between them is promised.
        let before = self.0[operation as usize].ops.fetch_add(1, Ordering::Relaxed);
        (operation == VolumeOperation::Flush || before.is_multiple_of(16)).then(Instant::now)
    }

    /// Counts how it ended.
    pub(crate) fn end(&self, operation: VolumeOperation, timer: Option<Instant>, bytes: u64, failed: bool) {
        let counters = &self.0[operation as usize];
        if let Some(since) = timer {
            let latency_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            counters.timed_ops.fetch_add(1, Ordering::Relaxed);
            counters.latency_ns.fetch_add(latency_ns, Ordering::Relaxed);
        }
        if failed {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        } else if bytes > 0 {
            counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn of(&self, operation: VolumeOperation) -> VolumeStats {
        let counters = &self.0[operation as usize];
        VolumeStats {
            ops: counters.ops.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            timed_ops: counters.timed_ops.load(Ordering::Relaxed),
            latency_ns_sum: counters.latency_ns.load(Ordering::Relaxed),
        }
    }
}

/// Counters of one operation since the volume was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Operations that began.
    pub ops: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Those that failed.
    pub errors: u64,
    /// Those that were timed.
    pub timed_ops: u64,
    /// Sum of their latencies.
    pub latency_ns_sum: u64,
}
