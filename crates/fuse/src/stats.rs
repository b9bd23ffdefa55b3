//! Counters of a mount: for each operation how often, how long, how many failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use histogram::{AtomicHistogram, Histogram};
use rustix::io::Errno;

use crate::wire::{self, OPCODES};

/// Latency buckets: 8 for each power of two, so that a percentile is at most an eighth too long.
const GROUPING_POWER: u8 = 3;
/// Longest distinguishable latency: 2^40 ns, 18 minutes.
const MAX_POWER: u8 = 40;

/// Counters of one operation.
#[derive(Debug, Clone)]
pub struct OperationStats {
    /// Its name in the protocol.
    pub operation: &'static str,
    /// How often.
    pub count: u64,
    /// How many of these were errors other than "no such file", "no such attribute" and "not implemented".
    pub errors: u64,
    /// Time that they took together.
    pub total: Duration,
    /// How long each took in nanoseconds, in buckets an eighth of their values wide.
    pub latencies: Histogram,
}

#[derive(Debug)]
struct Counter {
    count: AtomicU64,
    errors: AtomicU64,
    total_ns: AtomicU64,
    latencies: AtomicHistogram,
}

impl Default for Counter {
    fn default() -> Counter {
        let latencies = AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("powers within their bounds");
        let [count, errors, total_ns] = Default::default();
        Counter { count, errors, total_ns, latencies }
    }
}

#[derive(Debug)]
pub(crate) struct Counters(Box<[Counter]>);

impl Default for Counters {
    fn default() -> Counters {
        Counters((0..OPCODES).map(|_| Counter::default()).collect())
    }
}

impl Counters {
    /// Before the answer: a client that has it finds its request counted.
    pub(crate) fn count(&self, opcode: u32, error: Option<Errno>) {
        let Some(counter) = self.0.get(opcode as usize) else { return };
        counter.count.fetch_add(1, Ordering::Relaxed);
        let is_usual = |error| matches!(error, Errno::NOENT | Errno::NODATA | Errno::NOSYS);
        if error.is_some_and(|error| !is_usual(error)) {
            counter.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After the answer, which is part of what a request takes.
    pub(crate) fn took(&self, opcode: u32, took: Duration) {
        let Some(counter) = self.0.get(opcode as usize) else { return };
        let took_ns = took.as_nanos() as u64;
        counter.total_ns.fetch_add(took_ns, Ordering::Relaxed);
        counter.latencies.increment(took_ns.min((1 << MAX_POWER) - 1)).expect("within the bound");
    }

    /// Of the operations that there were.
    pub(crate) fn snapshot(&self) -> Vec<OperationStats> {
        let of = |(opcode, counter): (usize, &Counter)| OperationStats {
            operation: wire::name_of(opcode as u32),
            count: counter.count.load(Ordering::Relaxed),
            errors: counter.errors.load(Ordering::Relaxed),
            total: Duration::from_nanos(counter.total_ns.load(Ordering::Relaxed)),
            latencies: counter.latencies.load(),
        };
        self.0.iter().enumerate().map(of).filter(|stats| stats.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_an_eighth_too_long() {
        let counters = Counters::default();
        for us in 1..=1000 {
            counters.count(wire::LOOKUP, None);
            counters.took(wire::LOOKUP, Duration::from_micros(us));
        }
        counters.count(wire::LOOKUP, Some(Errno::IO));
        counters.took(wire::LOOKUP, Duration::MAX);
        let stats = counters.snapshot();
        let [OperationStats { count: 1001, errors: 1, latencies, .. }] = &stats[..] else {
            panic!("{stats:?}")
        };
        let buckets: Vec<_> = latencies.iter().filter(|bucket| bucket.count() > 0).collect();
        assert_eq!(buckets.iter().map(|bucket| bucket.count()).sum::<u64>(), 1001);
        let (mut seen, mut median_ns) = (0, 0);
        for bucket in &buckets {
            if seen < 500 {
                median_ns = bucket.end();
            }
            seen += bucket.count();
        }
        assert!((500_000..=562_500).contains(&median_ns), "{median_ns}");
        assert!(buckets.last().unwrap().end() >= (1 << 40) - 1);
    }
}
