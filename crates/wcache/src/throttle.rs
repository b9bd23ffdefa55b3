//! Slows writers down as the log fills, so that none has to stop.
//!
//! Writers share one queue in time: each takes its place after the one before, at a distance in which the
//! origin takes as many bytes as the write adds to the log, times a factor that grows from 0, where the delay
//! begins, through 1 in the middle, without bound towards where the log counts as full. So the fill settles
//! where as much comes as goes, and a change of the origin's speed moves it a little. The delay of one write
//! has a bound: what is left of the log then lasts for a long time, because each writer adds one write in it.
//!
//! Source of the curve: the write throttle of OpenZFS, `module/zfs/dmu_tx.c`.

use std::time::{Duration, Instant};

use fastness_sync::atomic::{AtomicU64, Ordering};

/// Fill from which writers are delayed, in 1024ths.
const BEGINS: u64 = 512;
/// Fill that counts as full, in 1024ths.
const FULL: u64 = 976;
/// Longest delay of one write.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(60);
/// Speed of an origin of which nothing is known yet, in bytes of log a second.
const RATE_FIRST: u64 = 64 << 20;
const RATE_MIN: u64 = 64 << 10;

/// The queue of writers.
#[derive(Debug)]
pub(crate) struct Throttle {
    start: Instant,
    /// When the next write may go on, in ns since the start.
    next_ns: AtomicU64,
    /// Bytes of log that the origin takes in a second.
    rate: AtomicU64,
    delays: AtomicU64,
    delay_ns: AtomicU64,
}

impl Throttle {
    pub(crate) fn new() -> Throttle {
        Throttle {
            start: fastness_sync::now(),
            next_ns: AtomicU64::new(0),
            rate: AtomicU64::new(RATE_FIRST),
            delays: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
        }
    }

    /// What the origin has taken: bytes of log, and how long that took.
    pub(crate) fn note(&self, bytes: u64, took: Duration) {
        let found = bytes as f64 / took.as_secs_f64().max(1e-6);
        let old = self.rate.load(Ordering::Relaxed) as f64;
        let rate = (old * 0.7 + found * 0.3).min(1e12) as u64;
        self.rate.store(rate.max(RATE_MIN), Ordering::Relaxed);
    }

    /// Bytes of log that the origin takes in a second, as far as is known.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// How often writers were delayed, and for how many ns in all.
    pub(crate) fn delays(&self) -> (u64, u64) {
        (self.delays.load(Ordering::Relaxed), self.delay_ns.load(Ordering::Relaxed))
    }

    /// Lets a write of `bytes` of log wait for its turn.
    #[inline]
    pub(crate) fn pace(&self, bytes: u64, used_per_1024: u32) {
        if u64::from(used_per_1024) > BEGINS {
            self.delay(bytes, u64::from(used_per_1024));
        }
    }

    #[cold]
    fn delay(&self, bytes: u64, used: u64) {
        let now = fastness_sync::now().saturating_duration_since(self.start).as_nanos() as u64;
        let delay = self.turn(bytes, used, now);
        if delay > 0 {
            self.delays.fetch_add(1, Ordering::Relaxed);
            self.delay_ns.fetch_add(delay, Ordering::Relaxed);
            fastness_sync::sleep(Duration::from_nanos(delay));
        }
    }

    /// How long a write has to wait from `now` on, in ns.
    fn turn(&self, bytes: u64, used: u64, now: u64) -> u64 {
        let most = DELAY_MAX.as_nanos() as u64;
        let even = bytes as f64 * 1e9 / self.rate() as f64;
        let distance = match FULL.saturating_sub(used) {
            0 => most,
            left => ((even * (used - BEGINS) as f64 / left as f64) as u64).min(most),
        };
        let mut turn = 0;
        let _ = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            // Nobody waits for longer than the bound: those beyond it go on together.
            turn = (next.max(now) + distance).min(now + most);
            Some(turn.max(next))
        });
        turn - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers that write as fast as they may, an origin that takes `rate` bytes a second in batches: nobody
    /// waits for longer than the bound, the log does not fill, and the origin is never short of work.
    fn simulate(writers: u64, rate: u64, capacity: u64, batch_ns: u64) -> (u64, u64) {
        let throttle = Throttle::new();
        let bytes = 4608;
        let (mut now, mut used, mut most_used, mut longest) = (0_u64, 0_u64, 0, 0);
        let mut ready = vec![0_u64; writers as usize];
        let mut next_batch = batch_ns;
        while now < 20_000_000_000 {
            let (writer, at) = ready.iter().copied().enumerate().min_by_key(|(_, at)| *at).unwrap();
            while next_batch <= at {
                let taken = (u128::from(rate) * u128::from(batch_ns) / 1_000_000_000) as u64;
                used = used.saturating_sub(taken);
                throttle.note(taken, Duration::from_nanos(batch_ns));
                next_batch += batch_ns;
            }
            now = at;
            let fill = used * 1024 / capacity;
            let delay = if fill > BEGINS { throttle.turn(bytes, fill, now) } else { 0 };
            used += bytes;
            most_used = most_used.max(used);
            longest = longest.max(delay);
            ready[writer] = now + delay + 3000;
        }
        (most_used * 1024 / capacity, longest)
    }

    #[test]
    fn the_fill_settles_and_nobody_waits_long() {
        for (writers, rate, batch_ms) in
            [(1, 200 << 20, 50), (8, 200 << 20, 50), (8, 20 << 20, 100), (1, 2 << 20, 100), (8, 4 << 20, 200)]
        {
            let (used, longest) = simulate(writers, rate, 256 << 20, batch_ms * 1_000_000);
            assert!(used < 1000, "{writers} writers, {rate} bytes/s: {used}/1024 used");
            assert!(longest <= DELAY_MAX.as_nanos() as u64, "{longest} ns");
        }
    }

    /// Without a delay the same load fills the log: the test above can fail.
    #[test]
    fn nothing_is_delayed_while_the_log_is_half_empty_and_the_bound_holds_when_it_is_full() {
        let throttle = Throttle::new();
        assert_eq!(throttle.turn(4608, BEGINS, 7), 0);
        let most = DELAY_MAX.as_nanos() as u64;
        assert_eq!(throttle.turn(4608, FULL, 1000), most);
        assert_eq!(throttle.turn(4608, 1024, 1000), most, "a second one goes on at the same time");
        assert!(throttle.turn(4608, FULL + 1, 1000 + most) <= most);
    }
}
