//! How many flushes at a time, and how long one waits for company: learnt from how long flushes take.
//!
//! Where flushes slow each other (a disk that carries out one after the other), one at a time serves most
//! commits if it waits a moment: those that the last flush woke are about to commit again. Where they do not,
//! a commit that waits for others only loses time.

use std::time::{Duration, Instant};

/// Flushes at a time while it is not known whether they slow each other, and in a probe.
const PROBE: u32 = 2;
/// One flush in so many may run beside another, to see whether they still slow each other.
const PROBE_EVERY: u32 = 32;
/// What a flush waits for company, as a part of the time that one takes.
const GATHER_PART: u32 = 10;
const GATHER_MAX: Duration = Duration::from_millis(20);

/// Moving averages of how long flushes take, each with no other one or begun beside one.
#[derive(Debug)]
pub(super) struct Pace {
    max: u32,
    alone: Option<Duration>,
    beside: Option<Duration>,
    since_probe: u32,
}

/// A flush in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    at: Instant,
    is_beside: bool,
    /// How many had begun before it.
    count: u64,
}

/// Threads that are about to commit again are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gather {
    /// The value of the counter of commits when all are here.
    pub(super) commits: u64,
    pub(super) until: Instant,
}

impl Begun {
    /// `others`: flushes in progress; `count`: how many have begun before.
    pub(super) fn new(at: Instant, others: u32, count: u64) -> Begun {
        Begun { at, is_beside: others > 0, count }
    }
}

impl Pace {
    /// `max`: flushes at a time, at most.
    pub(super) fn new(max: u32) -> Pace {
        Pace { max: max.max(1), alone: None, beside: None, since_probe: 0 }
    }

    /// How many flushes there may be at a time now.
    pub(super) fn flushes(&self) -> u32 {
        let wanted = match self.is_exclusive() {
            Some(true) if self.since_probe < PROBE_EVERY => 1,
            Some(false) => self.max,
            _ => PROBE,
        };
        wanted.min(self.max)
    }

    /// Notes the end of a flush; `count` flushes have begun so far, this one among them.
    pub(super) fn note(&mut self, begun: Begun, now: Instant, count: u64) {
        self.since_probe = if begun.is_beside { 0 } else { self.since_probe.saturating_add(1) };
        let was_joined = count > begun.count + 1;
        let average = match begun.is_beside {
            true => &mut self.beside,
            false if was_joined => return,
            false => &mut self.alone,
        };
        let took = now.saturating_duration_since(begun.at);
        *average = Some(average.map_or(took, |average| average - average / 8 + took / 8));
    }

    /// How long to wait for company before a flush; `None` if it does not pay.
    pub(super) fn gather_time(&self) -> Option<Duration> {
        self.alone
            .filter(|_| self.is_exclusive() == Some(true))
            .map(|alone| (alone / GATHER_PART).min(GATHER_MAX))
    }

    /// Whether a commit has no reason to wait for others.
    pub(super) fn is_overlapping(&self) -> bool {
        self.is_exclusive() == Some(false)
    }

    /// Whether flushes slow each other; `None` if it is not known yet. One that begins in the middle of
    /// another one, and waits for its end, takes half as long again.
    fn is_exclusive(&self) -> Option<bool> {
        Some(self.beside? > self.alone? * 5 / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A flush that takes `took`, beside another one or not.
    fn flush(pace: &mut Pace, is_beside: bool, took: Duration) {
        let at = Instant::now();
        pace.note(Begun::new(at, u32::from(is_beside), 0), at + took, 1);
    }

    #[test]
    fn flushes_that_slow_each_other_run_one_at_a_time_and_wait_for_company() {
        let mut pace = Pace::new(8);
        assert_eq!((pace.flushes(), pace.gather_time()), (2, None), "nothing is known");
        flush(&mut pace, false, MS);
        assert_eq!((pace.flushes(), pace.gather_time()), (2, None), "half is known");
        flush(&mut pace, true, MS * 3 / 2);
        assert_eq!((pace.flushes(), pace.gather_time()), (1, Some(MS / 10)));
        (0..PROBE_EVERY).for_each(|_| flush(&mut pace, false, MS));
        assert_eq!(pace.flushes(), 2, "a probe");
        flush(&mut pace, true, MS * 3 / 2);
        assert_eq!(pace.flushes(), 1);
    }

    #[test]
    fn flushes_that_do_not_slow_each_other_run_beside_each_other() {
        let mut pace = Pace::new(8);
        flush(&mut pace, false, MS);
        flush(&mut pace, true, MS);
        assert_eq!((pace.flushes(), pace.gather_time()), (8, None));
        assert!(pace.is_overlapping());
        assert_eq!(Pace::new(1).flushes(), 1);
    }

    #[test]
    fn a_disk_may_change_its_mood() {
        let mut pace = Pace::new(8);
        flush(&mut pace, false, MS);
        flush(&mut pace, true, MS);
        (0..40).for_each(|_| flush(&mut pace, true, MS * 2));
        assert_eq!(pace.flushes(), 1);
        (0..40).for_each(|_| flush(&mut pace, true, MS));
        assert_eq!(pace.flushes(), 8);
    }

    #[test]
    fn nobody_waits_long_for_company_on_a_slow_disk() {
        let mut pace = Pace::new(8);
        flush(&mut pace, false, MS * 4000);
        flush(&mut pace, true, MS * 8000);
        assert_eq!(pace.gather_time(), Some(GATHER_MAX));
    }

    #[test]
    fn a_flush_that_another_one_joined_says_nothing() {
        let mut pace = Pace::new(8);
        let at = Instant::now();
        pace.note(Begun::new(at, 0, 0), at + MS, 2);
        assert_eq!(pace.alone, None);
    }
}
