//! Counters that cost a few relaxed additions an operation.

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
    /// Counts one operation that began at `since`, with the bytes that it was asked for.
    pub fn note(&self, operation: Operation, len_bytes: u64, since: Instant, failed: bool) {
        // Independent sums: no ordering between them is promised.
        let counters = &self.by_operation[operation as usize];
        counters.ops.fetch_add(1, Ordering::Relaxed);
        counters.latency_ns.fetch_add(as_ns(since.elapsed()), Ordering::Relaxed);
        if failed {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        } else {
            counters.bytes.fetch_add(len_bytes, Ordering::Relaxed);
        }
    }

    /// The counters now.
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
    /// requests that were refused before they reached the medium do not count.
    pub ops: u64,
    /// Those that failed.
    pub errors: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Sum of their latencies; a request of a batch lasts from the batch's start to its own end.
    pub latency_ns_sum: u64,
}

/// Counters of a device at one time; the counters are read one by one, not as of one instant.
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
