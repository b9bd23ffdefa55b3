//! Counters that cost a few relaxed additions per operation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use histogram::{AtomicHistogram, Histogram};

/// Operations that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeOperation {
    /// Reads.
    Read,
    /// Writes, including writes of zeroes, that return before they are durable.
    Write,
    /// Writes that are durable when they return: with FUA, or under `sync=always`.
    SyncWrite,
    /// Discards.
    Discard,
    /// Flushes.
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

#[derive(Debug, Default)]
pub(crate) struct Live([Counters; KINDS]);

impl Live {
    /// Counts the start of an operation. Times one in 16, and every one that a caller waits for: reading a
    /// clock costs as much as a cached read's bookkeeping.
    pub(crate) fn start(&self, operation: VolumeOperation) -> Option<Instant> {
        // Independent sums: no order between them is promised.
        let before = self.0[operation as usize].ops.fetch_add(1, Ordering::Relaxed);
        let is_waited_for = matches!(operation, VolumeOperation::Flush | VolumeOperation::SyncWrite);
        (is_waited_for || before.is_multiple_of(16)).then(Instant::now)
    }

    /// Counts the operation's result.
    pub(crate) fn end(&self, operation: VolumeOperation, timer: Option<Instant>, bytes: u64, failed: bool) {
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

    pub(crate) fn of(&self, operation: VolumeOperation) -> VolumeStats {
        let counters = &self.0[operation as usize];
        VolumeStats {
            ops: counters.ops.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            latency_ns_sum: counters.latency_ns.load(Ordering::Relaxed),
            latencies: counters.latencies.load(),
        }
    }
}

/// Counters of one operation since the volume was opened.
#[derive(Debug, Clone)]
pub struct VolumeStats {
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
