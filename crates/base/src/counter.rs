//! Counters of requests: a few relaxed additions for each.
//!
//! How often, how many bytes, how many failed, how long. Which requests are counted, and which of them are
//! timed, is up to the owner. Nothing orders one counter with another.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use histogram::{AtomicHistogram, Histogram};

/// Latency buckets: 8 for each power of two, so that a percentile is at most an eighth too long.
const GROUPING_POWER: u8 = 3;
/// Longest distinguishable latency: 2^40 ns, 18 minutes.
const MAX_POWER: u8 = 40;
/// One request in so many is timed, where not all are: two looks at a clock take as long as a tenth of a
/// write, and as much as the bookkeeping of a cached read.
const SAMPLE: u64 = 16;

/// Counts requests of one kind.
///
/// Concurrency: any number of threads.
#[derive(Debug)]
pub struct Counter {
    ops: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency_ns: AtomicU64,
    latencies: AtomicHistogram,
}

/// What was counted.
#[derive(Debug, Clone)]
pub struct Counts {
    /// Requests that were begun.
    pub ops: u64,
    /// Bytes of the successful ones.
    pub bytes: u64,
    /// Failed requests.
    pub errors: u64,
    /// Sum of the latencies of those that were timed, in ns.
    pub latency_ns_sum: u64,
    /// Their latencies in ns, in buckets an eighth of their values wide.
    pub latencies: Histogram,
}

impl Default for Counter {
    fn default() -> Counter {
        let latencies = AtomicHistogram::new(GROUPING_POWER, MAX_POWER).expect("powers within their bounds");
        let [ops, bytes, errors, latency_ns] = Default::default();
        Counter { ops, bytes, errors, latency_ns, latencies }
    }
}

impl Counter {
    /// Counts a request; returns how many came before it.
    #[inline]
    pub fn add(&self) -> u64 {
        self.ops.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts that a request has begun. Returns a timer if all are to be timed, or it is one in 16.
    #[inline]
    pub fn begin(&self, all_timed: bool) -> Option<Instant> {
        let before = self.add();
        (all_timed || before.is_multiple_of(SAMPLE)).then(Instant::now)
    }

    /// Counts what came of a request: how many bytes, or `None` if it has failed.
    #[inline]
    pub fn end(&self, timer: Option<Instant>, bytes: Option<u64>) {
        if let Some(since) = timer {
            self.took(since.elapsed());
        }
        match bytes {
            None => self.fail(),
            Some(0) => {}
            Some(bytes) => drop(self.bytes.fetch_add(bytes, Ordering::Relaxed)),
        }
    }

    /// Counts that a request has failed.
    #[inline]
    pub fn fail(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts how long a request took.
    #[inline]
    pub fn took(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min((1 << MAX_POWER) - 1);
        self.latency_ns.fetch_add(ns, Ordering::Relaxed);
        self.latencies.increment(ns).expect("within the bound");
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        Counts {
            ops: self.ops.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            latency_ns_sum: self.latency_ns.load(Ordering::Relaxed),
            latencies: self.latencies.load(),
        }
    }
}

impl Default for Counts {
    fn default() -> Counts {
        let latencies = Histogram::new(GROUPING_POWER, MAX_POWER).expect("powers within their bounds");
        Counts { ops: 0, bytes: 0, errors: 0, latency_ns_sum: 0, latencies }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_ns_sum += other.latency_ns_sum;
        self.latencies.checked_add_assign(&other.latencies).expect("the same buckets, and few counts");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_an_eighth_too_long() {
        let counter = Counter::default();
        for us in 1..=1000 {
            counter.took(Duration::from_micros(us));
        }
        counter.took(Duration::MAX);
        let latencies = counter.counts().latencies;
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

    #[test]
    fn one_in_sixteen_is_timed_or_all_are() {
        let (some, all) = (Counter::default(), Counter::default());
        for nth in 0..32 {
            some.end(some.begin(false), Some(nth % 2));
            all.end(all.begin(true), None);
        }
        let mut sum = some.counts();
        assert_eq!((sum.ops, sum.bytes, sum.errors), (32, 16, 0));
        let timed = |counts: &Counts| counts.latencies.iter().map(|bucket| bucket.count()).sum::<u64>();
        assert_eq!(timed(&sum), 2);
        sum += all.counts();
        assert_eq!((sum.ops, sum.bytes, sum.errors, timed(&sum)), (64, 16, 32, 34));
    }
}
