//! How long recoveries take, and so how long the next one may.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Once a recovery has hung, others that do not end within so many times the slowest one hang as well.
const TIMES: u32 = 20;
const LEAST: Duration = Duration::from_secs(2);
/// If none has ended yet: a part of the time that was asked for.
const PART: u32 = 6;

/// What recoveries have taken so far.
#[derive(Debug, Default)]
pub struct Pace {
    slowest_ns: AtomicU64,
    has_hung: AtomicBool,
}

impl Pace {
    /// How long the next one may take; `most` until the first has hung.
    pub fn time_out(&self, most: Duration) -> Duration {
        if !self.has_hung.load(Ordering::Relaxed) {
            return most;
        }
        let slowest = Duration::from_nanos(self.slowest_ns.load(Ordering::Relaxed));
        let adapted = if slowest.is_zero() { most / PART } else { slowest * TIMES };
        adapted.max(LEAST).min(most)
    }

    /// One has ended, or was killed after its time-out.
    pub fn note(&self, took: Duration, has_hung: bool) {
        if has_hung {
            self.has_hung.store(true, Ordering::Relaxed);
        } else {
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.slowest_ns.fetch_max(took, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_one_that_hangs_the_others_get_less_time() {
        let (pace, most, ms) = (Pace::default(), Duration::from_secs(60), Duration::from_millis);
        pace.note(ms(10), false);
        assert_eq!(pace.time_out(most), most);
        pace.note(most, true);
        assert_eq!(pace.time_out(most), LEAST);
        assert_eq!(pace.time_out(ms(500)), ms(500), "never more than was asked for");
        pace.note(ms(700), false);
        pace.note(ms(300), false);
        assert_eq!(pace.time_out(most), ms(14_000));
        pace.note(ms(50_000), false);
        assert_eq!(pace.time_out(most), most);
        let none_has_ended = Pace::default();
        none_has_ended.note(most, true);
        assert_eq!(none_has_ended.time_out(most), ms(10_000));
    }
}
