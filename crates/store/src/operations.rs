//! Counters that cost a few relaxed additions per operation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use histogram::{AtomicHistogram, Histogram};

/// Operations that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes, including writes of zeroes, that return before they are durable.
    Write,
    /// Writes that are durable when they return: with FUA, to files opened with `O_SYNC`, or under
    /// `sync=always`.
    SyncWrite,
    /// Discards, and holes punched into files.
    Discard,
    /// Flushes, and files made durable.
    Flush,
}

const KINDS: usize = 5;
/// Latency buckets: 8 for each power of two, so that a percentile is at most an eighth too long.
const GROUPING_POWER: u8 = 3;
/// Longest distinguishable latency: 2^40 ns, 18 minutes.
const MAX_POWER: u8 = 40;

#[derive(Debug)]
struct Counters {
    ops: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency_ns: AtomicU64,
    latencies: AtomicHistogram,
}

impl Default for Counters {
    fn default() -> Counters {
        let latencies = AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("powers within their bounds");
        let [ops, bytes, errors, latency_ns] = Default::default();
        Counters { ops, bytes, errors, latency_ns, latencies }
    }
}

/// Counters of the operations on a volume or on files.
#[derive(Debug, Default)]
pub struct OperationCounters([Counters; KINDS]);

impl OperationCounters {
    /// Counts the start of an operation. Times one in 16, and every one that a caller waits for: reading a
    /// clock costs as much as a cached read's bookkeeping.
    pub fn start(&self, operation: Operation) -> Option<Instant> {
        // Independent sums: no order between them is promised.
        let before = self.0[operation as usize].ops.fetch_add(1, Ordering::Relaxed);
        let is_waited_for = matches!(operation, Operation::Flush | Operation::SyncWrite);
        (is_waited_for || before.is_multiple_of(16)).then(Instant::now)
    }

    /// Counts the operation's result.
    pub fn end(&self, operation: Operation, timer: Option<Instant>, bytes: u64, failed: bool) {
        let counters = &self.0[operation as usize];
        if let Some(since) = timer {
            let latency_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            counters.latency_ns.fetch_add(latency_ns, Ordering::Relaxed);
            counters.latencies.increment(latency_ns.min((1 << MAX_POWER) - 1)).expect("within the bound");
        }
        if failed {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        } else if bytes > 0 {
            counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counters of one operation.
    pub fn of(&self, operation: Operation) -> OperationStats {
        let counters = &self.0[operation as usize];
        OperationStats {
            ops: counters.ops.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            latency_ns_sum: counters.latency_ns.load(Ordering::Relaxed),
            latencies: counters.latencies.load(),
        }
    }
}

/// Counters of one operation since the volume or file system was opened.
#[derive(Debug, Clone)]
pub struct OperationStats {
    /// Operations started.
    pub ops: u64,
    /// Bytes of the successful ones.
    pub bytes: u64,
    /// Failed operations.
    pub errors: u64,
    /// Sum of the latencies of the timed ones.
    pub latency_ns_sum: u64,
    /// Their latencies in nanoseconds, in buckets an eighth of their values wide.
    pub latencies: Histogram,
}
