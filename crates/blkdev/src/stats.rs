//! Counters that cost a few relaxed additions per operation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Operation;

const KINDS: usize = Operation::ALL.len();

#[derive(Debug, Default)]
struct Counters {
    ops: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    latency_ns: AtomicU64,
}

/// Live counters of one device.
#[derive(Debug, Default)]
pub struct Stats {
    by_operation: [Counters; KINDS],
}

impl Stats {
    /// Counts one operation of `len_bytes` that began at `since`.
    pub fn note(&self, operation: Operation, len_bytes: u64, since: Instant, failed: bool) {
        // Independent sums, with no ordering between them.
        let counters = &self.by_operation[operation as usize];
        counters.ops.fetch_add(1, Ordering::Relaxed);
        counters.latency_ns.fetch_add(as_ns(since.elapsed()), Ordering::Relaxed);
        if failed {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        } else {
            counters.bytes.fetch_add(len_bytes, Ordering::Relaxed);
        }
    }

    /// The current counters.
    pub fn snapshot(&self) -> StatsSnapshot {
        StatsSnapshot {
            by_operation: std::array::from_fn(|index| {
                let counters = &self.by_operation[index];
                OperationStats {
                    ops: counters.ops.load(Ordering::Relaxed),
                    errors: counters.errors.load(Ordering::Relaxed),
                    bytes: counters.bytes.load(Ordering::Relaxed),
                    latency_ns_sum: counters.latency_ns.load(Ordering::Relaxed),
                }
            }),
        }
    }
}

fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Counters of one operation since the device was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationStats {
    /// Operations that ended, in success or error. A vectored request and each request of a batch count once;
    /// requests refused before they reach the medium do not count.
    pub ops: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Bytes of the operations that succeeded.
    pub bytes: u64,
    /// Sum of their latencies; for a request of a batch, from the batch's start to its own end.
    pub latency_ns_sum: u64,
}

/// Counters of a device; they are read one by one, not as of one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    by_operation: [OperationStats; KINDS],
}

impl StatsSnapshot {
    /// Counters of one operation.
    pub fn of(&self, operation: Operation) -> OperationStats {
        self.by_operation[operation as usize]
    }
}
