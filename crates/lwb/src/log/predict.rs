//! How large the next block should be, and how long an open one should wait.

use std::time::Duration;

use crate::format::{BLOCK_HEADER_BYTES, padded, stored_bytes};

const BURSTS: usize = 8;
/// Assumed latency of a new log, so that a wait ends.
const LATENCY_FIRST_NS: u64 = 100_000;
const TIMEOUT_MAX: Duration = Duration::from_millis(20);
/// Approximate cost of putting a thread to sleep and waking it.
const SLEEP_MIN: Duration = Duration::from_micros(30);

/// The last bursts. A burst is everything assigned to blocks until a block is closed with nothing after it.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    bytes: [u32; BURSTS],
    at: usize,
    now: u32,
    /// Decreases by one with each burst that meets no other thread; above 0 the load is parallel.
    parallel: u32,
}

impl Bursts {
    /// Notes that pieces of `bytes`, with their headers, were assigned to a block.
    pub(super) fn note(&mut self, bytes: usize) {
        self.now = self.now.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Ends the burst.
    pub(super) fn end(&mut self) {
        self.bytes[self.at % BURSTS] = std::mem::take(&mut self.now);
        self.at += 1;
    }

    /// The size that was large enough for all but one of the last bursts, in bytes; at most `max`.
    pub(super) fn predict(&self, max: u32) -> u32 {
        let mut bytes = self.bytes;
        bytes.sort_unstable();
        // With few bursts so far, unused entries count as small ones, and the largest burst decides.
        let enough = if self.at < BURSTS { bytes[BURSTS - 1] } else { bytes[BURSTS - 2] };
        block_bytes(enough as usize, max)
    }

    /// Notes a commit; `meets` says whether other threads have records in the open block or blocks in
    /// progress.
    pub(super) fn commit(&mut self, meets: bool) {
        self.parallel = if meets { BURSTS as u32 } else { self.parallel.saturating_sub(1) };
    }

    /// Whether it is worth waiting for others.
    pub(super) fn is_parallel(&self) -> bool {
        self.parallel > 0
    }
}

/// Size of a block that holds pieces of `bytes`, at most `max`.
pub(super) fn block_bytes(bytes: usize, max: u32) -> u32 {
    let needed = stored_bytes(bytes.max(padded(0)) + BLOCK_HEADER_BYTES);
    u32::try_from(needed).map_or(max, |needed| needed.min(max))
}

/// A moving average of the time that a block takes from its write to its acknowledgement.
#[derive(Debug)]
pub(super) struct Latency(u64);

impl Default for Latency {
    fn default() -> Self {
        Latency(LATENCY_FIRST_NS)
    }
}

impl Latency {
    pub(super) fn note(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0 = self.0 - self.0 / 8 + took / 8;
    }

    /// How long an open block waits; zero if that is shorter than a sleep and a wakeup take.
    pub(super) fn timeout(&self, percent: u32) -> Duration {
        let timeout = Duration::from_nanos(self.0.saturating_mul(percent.into()) / 100).min(TIMEOUT_MAX);
        if timeout < SLEEP_MIN { Duration::ZERO } else { timeout }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_burst_in_eight_is_left_out() {
        let mut bursts = Bursts::default();
        assert_eq!(bursts.predict(131_072), 4096);
        bursts.note(5000);
        bursts.end();
        assert_eq!(bursts.predict(131_072), 8192, "the only one there is counts");
        for _ in 0..7 {
            bursts.note(3000);
            bursts.end();
        }
        assert_eq!(bursts.predict(131_072), 4096);
        bursts.note(200_000);
        bursts.end();
        bursts.note(200_000);
        bursts.end();
        assert_eq!(bursts.predict(131_072), 131_072, "two are not");
        assert_eq!(bursts.predict(16_384), 16_384);
    }

    #[test]
    fn company_is_remembered_for_eight_bursts() {
        let mut bursts = Bursts::default();
        bursts.commit(false);
        assert!(!bursts.is_parallel());
        bursts.commit(true);
        for _ in 0..7 {
            bursts.commit(false);
            assert!(bursts.is_parallel());
        }
        bursts.commit(false);
        assert!(!bursts.is_parallel());
    }

    #[test]
    fn the_timeout_follows_the_latency() {
        let mut latency = Latency::default();
        for _ in 0..100 {
            latency.note(Duration::from_millis(4));
        }
        let timeout = latency.timeout(10);
        assert!(timeout > Duration::from_micros(390) && timeout < Duration::from_micros(410), "{timeout:?}");
        latency.note(Duration::MAX);
        assert_eq!(latency.timeout(100), TIMEOUT_MAX);
        assert_eq!(latency.timeout(0), Duration::ZERO);
        let mut quick = Latency::default();
        (0..100).for_each(|_| quick.note(Duration::from_micros(20)));
        assert_eq!(quick.timeout(10), Duration::ZERO, "2 us are no sleep");
    }
}
