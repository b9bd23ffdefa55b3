//! Looking for requests for a while before sleeping: as long as it pays, and within a bound.

use std::time::{Duration, Instant};

/// How long a queue's thread looks for requests before it sleeps.
///
/// A look that finds something has saved a system call here and one in the front end, and costs what would
/// have been waited anyway. One that finds nothing has burnt its time: of that, no more is spent than the
/// share below; and the next look is half as long, unless the longest one would have found something.
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
/// No look becomes shorter than this.
const SHORTEST: Duration = Duration::from_micros(5);

/// The looks of one thread.
pub(crate) struct Poller {
    polling: Polling,
    /// What looks in vain may still cost.
    left: Duration,
    /// When `left` was last added to.
    since: Instant,
    /// How long the next look is.
    until: Duration,
    /// When the last look ended, if it was in vain.
    vain: Option<Instant>,
}

impl Poller {
    pub(crate) fn new(polling: Polling) -> Poller {
        Poller { polling, left: SAVED_MAX, since: Instant::now(), until: polling.longest, vain: None }
    }

    /// Makes looks longer or shorter, by what the last one would have needed.
    fn adapt(&mut self, now: Instant) {
        let Some(vain) = self.vain.take() else { return };
        let longest = self.polling.longest;
        let needed = self.until + (now - vain);
        let next = if needed < longest { self.until * 2 } else { self.until / 2 };
        self.until = next.max(SHORTEST).min(longest);
    }

    /// Looks whether there is something; false if it is time to sleep.
    pub(crate) fn look<E>(&mut self, mut find: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let begun = Instant::now();
        let gained = (begun - self.since) * self.polling.vain_percent.min(100) / 100;
        (self.left, self.since) = ((self.left + gained).min(SAVED_MAX), begun);
        self.adapt(begun);
        let until = self.until;
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
                self.vain = Some(begun + spent);
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look in vain, and the next one after a pause; how long the next is to be.
    fn after(poller: &mut Poller, pause: Duration) -> Duration {
        poller.left = SAVED_MAX;
        assert!(!poller.look(|| Ok::<_, ()>(false)).unwrap());
        let vain = poller.vain.expect("it looked");
        poller.adapt(vain + pause);
        poller.until
    }

    #[test]
    fn looks_become_shorter_if_nothing_comes_and_longer_if_it_would_have() {
        let polling = Polling { longest: Duration::from_micros(50), vain_percent: 0 };
        let mut poller = Poller::new(polling);
        let long = Duration::from_millis(1);
        let shorter: Vec<_> = (0..5).map(|_| after(&mut poller, long).as_nanos()).collect();
        assert_eq!(shorter, [25_000, 12_500, 6250, 5000, 5000]);
        // What came 10 us after each look.
        let soon = Duration::from_micros(10);
        let longer: Vec<_> = (0..4).map(|_| after(&mut poller, soon).as_nanos()).collect();
        assert_eq!(longer, [10_000, 20_000, 40_000, 20_000]);
        // One that finds something changes nothing.
        assert!(poller.look(|| Ok::<_, ()>(true)).unwrap());
        assert_eq!((poller.until.as_nanos(), poller.vain), (20_000, None));
        // None at all remains none.
        let mut never = Poller::new(Polling { longest: Duration::ZERO, vain_percent: 5 });
        assert!(!never.look(|| -> Result<bool, ()> { panic!("a look of no time") }).unwrap());
    }

    #[test]
    fn looks_in_vain_are_paid_from_a_budget() {
        // Always as long: one of 5 us is the shortest.
        let polling = Polling { longest: SHORTEST, vain_percent: 5 };
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
        // Each takes its 5 us at least: of the millisecond saved up, and of 5 % of the time.
        let paid = SAVED_MAX + begun.elapsed() * 5 / 100;
        assert!((1..=paid.as_micros() / 5 + 1).contains(&looks), "{looks} looks of {paid:?}");
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
