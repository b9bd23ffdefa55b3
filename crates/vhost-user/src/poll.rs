//! Looking for requests for a while before sleeping: as long as it pays, and within a bound.

use std::time::{Duration, Instant};

/// How long a queue's thread looks for requests before it sleeps.
///
/// A look that finds something has saved a system call here and one in the front end, and costs what would
/// have been waited anyway. One that finds nothing has burnt its time: of that, no more is spent than the
/// share below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// Longest look; zero: none.
    pub longest: Duration,
    /// Share of the time of one CPU that looks in vain may take, in percent.
    pub vain_percent: u32,
}

impl Default for Polling {
    fn default() -> Polling {
        Polling { longest: Duration::from_micros(50), vain_percent: 5 }
    }
}

/// Time that may have been saved up for looks in vain.
const SAVED_MAX: Duration = Duration::from_millis(1);

/// The looks of one thread.
pub(crate) struct Poller {
    polling: Polling,
    /// What looks in vain may still cost.
    left: Duration,
    /// When `left` was last added to.
    since: Instant,
}

impl Poller {
    pub(crate) fn new(polling: Polling) -> Poller {
        Poller { polling, left: SAVED_MAX, since: Instant::now() }
    }

    /// Looks whether there is something; false if it is time to sleep.
    pub(crate) fn look<E>(&mut self, mut find: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let begun = Instant::now();
        let gained = (begun - self.since) * self.polling.vain_percent.min(100) / 100;
        (self.left, self.since) = ((self.left + gained).min(SAVED_MAX), begun);
        let until = self.polling.longest;
        // Only what can be paid as a whole.
        if until.is_zero() || until > self.left {
            return Ok(false);
        }
        loop {
            for _ in 0..16 {
                if find()? {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            let spent = begun.elapsed();
            if spent >= until {
                self.left = self.left.saturating_sub(spent);
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_in_vain_are_paid_from_a_budget() {
        let polling = Polling { longest: Duration::from_micros(200), vain_percent: 5 };
        let mut poller = Poller::new(polling);
        let (begun, mut looks) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(50) {
            let mut is_asked = false;
            let find = || {
                is_asked = true;
                Ok::<_, ()>(false)
            };
            assert!(!poller.look(find).unwrap());
            looks += u128::from(is_asked);
        }
        // Each takes its 200 us at least: of the millisecond saved up, and of 5 % of the time.
        let paid = SAVED_MAX + begun.elapsed() * 5 / 100;
        assert!((1..=paid.as_micros() / 200 + 1).contains(&looks), "{looks} looks of {paid:?}");
    }

    #[test]
    fn a_look_that_finds_something_costs_nothing_of_it() {
        let mut poller = Poller::new(Polling { vain_percent: 0, ..Polling::default() });
        for _ in 0..1000 {
            assert!(poller.look(|| Ok::<_, ()>(true)).unwrap());
        }
        assert_eq!(poller.left, SAVED_MAX);
    }
}
