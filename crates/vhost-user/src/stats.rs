//! Counters of what virtual machines asked for: a few relaxed additions for each request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use histogram::{AtomicHistogram, Histogram};

use crate::request::{Done, Kind};

/// Latency buckets: 8 for each power of two, so that a percentile is at most an eighth too long.
const GROUPING_POWER: u8 = 3;
/// Longest distinguishable latency: 2^40 ns, 18 minutes.
const MAX_POWER: u8 = 40;
/// One in so many requests is timed, and every flush: two looks at a clock take as long as a tenth of a
/// write.
const SAMPLE: u64 = 16;

/// Requests of one kind since the server was made.
#[derive(Debug, Clone)]
pub struct RequestStats {
    /// `read`, `write`, `flush`, `discard`, `write_zeroes`, `get_id` (the serial number) or `unknown`.
    pub request: &'static str,
    /// Requests that were taken.
    pub ops: u64,
    /// Bytes that the successful ones read, wrote, discarded or zeroed.
    pub bytes: u64,
    /// Failed requests.
    pub errors: u64,
    /// Sum of the latencies of those that were timed, in ns.
    pub latency_ns_sum: u64,
    /// Their latencies in ns, from when a request is taken until its answer, in buckets an eighth of their
    /// values wide.
    pub latencies: Histogram,
}

#[derive(Debug)]
struct Counter {
    ops: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency_ns: AtomicU64,
    latencies: AtomicHistogram,
}

impl Default for Counter {
    fn default() -> Counter {
        let latencies = AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("powers within their bounds");
        let [ops, bytes, errors, latency_ns] = Default::default();
        Counter { ops, bytes, errors, latency_ns, latencies }
    }
}

/// Of one queue: queues share no line of memory with each other.
#[derive(Debug, Default)]
pub(crate) struct Counters([Counter; Kind::ALL.len()]);

impl Counters {
    /// Counts a request that was taken; returns a timer if it is one to be timed.
    pub(crate) fn start(&self, kind: Kind) -> Option<Instant> {
        // Independent sums: no order between them is promised.
        let before = self.0[kind as usize].ops.fetch_add(1, Ordering::Relaxed);
        (kind == Kind::Flush || before.is_multiple_of(SAMPLE)).then(Instant::now)
    }

    /// Counts its result; before the answer, so a client that has it finds its request counted.
    pub(crate) fn end(&self, kind: Kind, timer: Option<Instant>, done: &Done) {
        let counter = &self.0[kind as usize];
        if let Some(since) = timer {
            let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            counter.latency_ns.fetch_add(ns, Ordering::Relaxed);
            counter.latencies.increment(ns.min((1 << MAX_POWER) - 1)).expect("within the bound");
        }
        if done.has_failed {
            counter.errors.fetch_add(1, Ordering::Relaxed);
        } else if done.bytes > 0 {
            counter.bytes.fetch_add(done.bytes, Ordering::Relaxed);
        }
    }
}

/// The sums of all queues, for the kinds that there were.
pub(crate) fn sum<'a>(queues: impl Iterator<Item = &'a Counters> + Clone) -> Vec<RequestStats> {
    let of = |kind: &Kind| {
        let counters = queues.clone().map(|all| &all.0[*kind as usize]);
        let total = |value: fn(&Counter) -> &AtomicU64| {
            counters.clone().map(|counter| value(counter).load(Ordering::Relaxed)).sum()
        };
        let mut latencies = Histogram::new(GROUPING_POWER, MAX_POWER).expect("powers within their bounds");
        for counter in counters.clone() {
            let added = latencies.checked_add_assign(&counter.latencies.load());
            added.expect("the same buckets, and few counts");
        }
        RequestStats {
            request: kind.name(),
            ops: total(|counter| &counter.ops),
            bytes: total(|counter| &counter.bytes),
            errors: total(|counter| &counter.errors),
            latency_ns_sum: total(|counter| &counter.latency_ns),
            latencies,
        }
    };
    Kind::ALL.iter().map(of).filter(|stats| stats.ops > 0).collect()
}
