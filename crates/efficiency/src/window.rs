//! The samples of a run without its first and last second.
//!
//! What is at the ends of a run belongs to its preparation and its end, and an external meter does not begin
//! with it. Memory is bounded: a run of days keeps the samples of a few seconds.
//!
//! Source: dissertation (2025), 4.2.4.

use std::collections::VecDeque;
use std::time::Duration;

use crate::cpu::CpuTimes;

/// A window is at least this long, or nothing is cut off.
const LEAST: Duration = Duration::from_secs(1);

/// All counters at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Since the run began.
    pub at: Duration,
    /// CPU time.
    pub cpu: CpuTimes,
    /// Energy since some time in the past; none: there is no meter.
    pub joules: Option<f64>,
    /// Bytes since some time in the past; none: they are known at the end only.
    pub bytes: Option<u64>,
}

/// Samples of a run: the first and the last, and those at the ends of the window.
#[derive(Debug, Clone)]
pub struct Window {
    cut: Duration,
    first: Sample,
    begin: Option<Sample>,
    recent: VecDeque<Sample>,
}

impl Window {
    /// A run that begins with `first`; `cut` is left out at either end.
    pub fn new(cut: Duration, first: Sample) -> Window {
        let mut window = Window { cut, first, begin: None, recent: VecDeque::new() };
        window.push(first);
        window
    }

    /// The next sample.
    pub fn push(&mut self, sample: Sample) {
        if self.begin.is_none() && sample.at >= self.cut {
            self.begin = Some(sample);
        }
        self.recent.push_back(sample);
        // The first one left is the last one that is not cut off.
        while self.recent.len() > 1 && self.recent[1].at + self.cut <= sample.at {
            self.recent.pop_front();
        }
    }

    /// The first and the last sample of the whole run.
    pub fn whole(&self) -> (Sample, Sample) {
        (self.first, *self.recent.back().unwrap_or(&self.first))
    }

    /// The first and the last sample of the window, and whether the run was long enough for one. If not, they
    /// are those of the whole run.
    pub fn counted(&self) -> (Sample, Sample, bool) {
        let end = *self.recent.front().unwrap_or(&self.first);
        match self.begin {
            Some(begin) if end.at >= begin.at + LEAST => (begin, end, true),
            _ => {
                let (first, last) = self.whole();
                (first, last, false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tenths: u64) -> Sample {
        let cpu = CpuTimes { user: tenths, ..CpuTimes::default() };
        Sample { at: Duration::from_millis(100 * tenths), cpu, joules: None, bytes: Some(tenths * 10) }
    }

    fn of(cut_s: u64, tenths: impl IntoIterator<Item = u64>) -> Window {
        let mut window = Window::new(Duration::from_secs(cut_s), sample(0));
        tenths.into_iter().for_each(|at| window.push(sample(at)));
        window
    }

    #[test]
    fn the_first_and_the_last_second_do_not_count() {
        let window = of(1, 1..=50);
        assert_eq!(window.counted(), (sample(10), sample(40), true));
        assert_eq!(window.whole(), (sample(0), sample(50)));
        // Samples that came late: the window is inside of the cuts.
        let (begin, end, is_cut) = of(1, [7, 13, 19, 38, 44, 51]).counted();
        assert_eq!((begin, end, is_cut), (sample(13), sample(38), true));
        assert_eq!(of(0, 1..=50).counted(), (sample(0), sample(50), true));
    }

    #[test]
    fn a_short_run_counts_as_a_whole() {
        for tenths in [0, 5, 20, 29] {
            let window = of(1, 1..=tenths);
            assert_eq!(window.counted(), (sample(0), sample(tenths), false), "{tenths}");
        }
        assert_eq!(of(1, 1..=30).counted(), (sample(10), sample(20), true));
    }

    #[test]
    fn a_long_run_keeps_few_samples() {
        let window = of(1, 1..=100_000);
        assert!(window.recent.len() <= 12, "{}", window.recent.len());
        assert_eq!(window.counted(), (sample(10), sample(99_990), true));
    }
}
