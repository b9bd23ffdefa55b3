//! What exhaustive testing would cost, in words.

use std::collections::{BTreeMap, BTreeSet};

use super::data::{CutPointReport, LeftOutReport, Measured, StepReport};
use super::source::Source;
use crate::Result;
use crate::check::CutPoint;
use crate::trace::{open_trace, text};

/// Points that a terminal shows.
pub(super) const SHOWN: usize = 3;

/// What was left out; none if nothing was.
///
/// # Errors
/// Those of the trace.
pub(super) fn left_out(source: &Source<'_>) -> Result<Option<LeftOutReport>> {
    let left_out = source.left_out;
    if left_out.points() == 0 {
        return Ok(None);
    }
    let events = events(source, left_out.largest().map(|point| point.event).max().unwrap_or(0))?;
    let point = |point: &CutPoint| CutPointReport {
        event: point.event,
        at: events.get(&point.event).cloned().unwrap_or_else(|| "the end of the trace".to_owned()),
        used: point.used,
        possible: point.possible.images,
        possible_log2: point.possible.log2,
        is_cut: point.is_cut,
        is_mixed: point.is_mixed,
    };
    let step = |(per_point, points, images)| StepReport { per_point, points, images };
    Ok(Some(LeftOutReport {
        points: left_out.points(),
        images: left_out.images().images,
        images_log2: left_out.images().log2,
        recovery: Measured(source.recovery_us),
        steps: left_out.steps(source.per_point).into_iter().map(step).collect(),
        largest: left_out.largest().map(point).collect(),
    }))
}

/// What the events are before which these points are.
fn events(source: &Source<'_>, last: u64) -> Result<BTreeMap<u64, String>> {
    let wanted: BTreeSet<u64> = source.left_out.largest().map(|point| point.event).collect();
    let mut events = BTreeMap::new();
    let mut reader = open_trace(source.trace)?;
    while reader.count() <= last {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        if wanted.contains(&number) {
            events.insert(number, text(&event, source.symbols));
        }
    }
    Ok(events)
}

/// A number that people can read: 1,040, or 2^37.
pub(super) fn number(number: u64, log2: u32) -> String {
    if number >= 1 << 24 {
        return format!("2^{log2}");
    }
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl LeftOutReport {
    /// How long so many recoveries would take.
    pub(super) fn time(&self, images: u64) -> String {
        let seconds = images as f64 * self.recovery.0 as f64 / 1e6;
        const YEAR_S: f64 = 365.25 * 86400.0;
        match seconds {
            _ if images == u64::MAX || seconds >= 1000.0 * YEAR_S => "more than a thousand years".to_owned(),
            s if s >= 2.0 * YEAR_S => format!("{:.0} years", s / YEAR_S),
            s if s >= 2.0 * 86400.0 => format!("{:.0} days", s / 86400.0),
            s if s >= 2.0 * 3600.0 => format!("{:.0} hours", s / 3600.0),
            s if s >= 120.0 => format!("{:.0} minutes", s / 60.0),
            s => format!("{s:.0} seconds"),
        }
    }

    /// All of it, at the speed that was measured.
    pub(super) fn whole(&self) -> String {
        let milliseconds = self.recovery.0 as f64 / 1e3;
        let (images, time) = (number(self.images, self.images_log2), self.time(self.images));
        format!("all images would be up to {images} more: {time}, at the {milliseconds:.1} ms that one took")
    }

    /// Bounds that would be enough for more points.
    pub(super) fn steps(&self) -> Vec<String> {
        let step = |step: &StepReport| {
            let (all, images) = (self.points, number(step.images, step.images.max(1).ilog2()));
            format!(
                "--per-point {} takes all images of {} of these {all} points: up to {images} more, {}",
                step.per_point,
                step.points,
                self.time(step.images)
            )
        };
        self.steps.iter().map(step).collect()
    }
}

impl CutPointReport {
    /// How many images were made, of how many.
    pub(super) fn counts(&self) -> String {
        let why = match (self.is_cut, self.is_mixed) {
            (true, true) => "the bound; PM and disks are not mixed",
            (true, false) => "the bound",
            (false, true) => "PM and disks are not mixed",
            (false, false) => "the heuristics",
        };
        let possible = number(self.possible, self.possible_log2);
        format!("{} of {possible} images ({why})", number(self.used as u64, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_for_people() {
        let said = [0, 999, 1040, 123_456, (1 << 24) - 1, 1 << 24].map(|images| number(images, 24));
        assert_eq!(said, ["0", "999", "1,040", "123,456", "16,777,215", "2^24"]);
        let report = LeftOutReport {
            points: 1,
            images: u64::MAX,
            images_log2: 203,
            recovery: Measured(20_000),
            steps: Vec::new(),
            largest: Vec::new(),
        };
        let images = [50, 6000, 600_000, 60_000_000, 6_000_000_000, 1 << 50, u64::MAX];
        let expected = [
            "1 seconds",
            "2 minutes",
            "3 hours",
            "14 days",
            "4 years",
            "more than a thousand years",
            "more than a thousand years",
        ];
        assert_eq!(images.map(|images| report.time(images)), expected);
        assert!(report.whole().contains("up to 2^203 more") && report.whole().contains("20.0 ms"));
    }
}
