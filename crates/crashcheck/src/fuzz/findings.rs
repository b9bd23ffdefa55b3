//! What was found: each cause once, with an input that was made smaller.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::subject::{Depth, Place, Ran};
use super::{Fuzz, Told, corpus, file};
use crate::error::{CheckError, Result, make_dir};
use crate::process::Ending;
use crate::report::{CauseReport, Report, cause_reports};

/// What the report of a finding has at least.
const REPORT_TIME: Duration = Duration::from_secs(30);

/// Why an input is a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingCause {
    /// A crash leaves what is wrong: kind and places of its cause, and what the recovery said.
    Crash {
        /// For people; places follow.
        what: String,
        /// Functions and lines.
        places: Vec<String>,
        /// What the recovery said, where that tells it from others.
        said: Vec<String>,
    },
    /// The program itself was killed, without any crash.
    Ended(Ending),
}

impl FindingCause {
    fn of(cause: CauseReport) -> FindingCause {
        FindingCause::Crash { what: cause.what, places: cause.places, said: cause.said }
    }

    /// The causes that a report has, but for those that have no other letters than `ignore`.
    fn all(report: &Report, ignore: &str) -> Vec<FindingCause> {
        let causes = cause_reports(std::slice::from_ref(report)).into_iter();
        let counts = |cause: &CauseReport| cause.letters.chars().any(|letter| !ignore.contains(letter));
        causes.filter(counts).map(FindingCause::of).collect()
    }

    /// Whether one who knows `self` learns nothing from `other`: it is the same, or needs more to be lost.
    fn covers(&self, other: &FindingCause) -> bool {
        match (self, other) {
            (
                FindingCause::Crash { what, places, said },
                FindingCause::Crash { what: other_what, places: other_places, said: other_said },
            ) => {
                let is_part = places.iter().all(|place| other_places.contains(place));
                what == other_what
                    && said == other_said
                    && is_part
                    && (!places.is_empty() || other_places.is_empty())
            }
            (one, other) => one == other,
        }
    }
}

impl std::fmt::Display for FindingCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FindingCause::Crash { what, places, said } => {
                let places: Vec<&str> = places.iter().chain(said).map(String::as_str).collect();
                write!(f, "{what} {}", places.join(", "))
            }
            FindingCause::Ended(ending) => write!(f, "without any crash the program {ending}"),
        }
    }
}

/// A cause, and an input that shows it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// `NAME-1` and so on: what its files are called.
    pub name: String,
    /// Why.
    pub cause: FindingCause,
    /// The input, as small as it was made.
    pub input: PathBuf,
    /// How long it is, in bytes, and how long it was.
    pub len_bytes: (usize, usize),
    /// What a crash shows, of all images that the test asks for; none if the program itself was killed.
    pub report: Option<Report>,
}

/// All findings so far.
pub(super) struct Findings<'a> {
    fuzz: &'a Fuzz<'a>,
    found: Vec<Finding>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(fuzz: &'a Fuzz<'a>) -> Findings<'a> {
        Findings { fuzz, found: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    pub(super) fn into_found(self) -> Vec<Finding> {
        self.found
    }

    fn is_known(&self, cause: &FindingCause) -> bool {
        self.found.iter().any(|finding| finding.cause.covers(cause))
    }

    /// Keeps each cause of a report that is new.
    ///
    /// # Errors
    /// [`CheckError`]
    pub(super) fn add_report(&mut self, input: &[u8], report: &Report, place: &Place) -> Result<()> {
        for cause in FindingCause::all(report, self.fuzz.ignore) {
            if !self.is_known(&cause) {
                self.add(input, cause, place)?;
            }
        }
        Ok(())
    }

    /// Keeps that the program was killed, if that is new.
    ///
    /// # Errors
    /// [`CheckError`]
    pub(super) fn add_ending(&mut self, input: &[u8], ending: Ending, place: &Place) -> Result<()> {
        let cause = FindingCause::Ended(ending);
        if self.is_known(&cause) { Ok(()) } else { self.add(input, cause, place) }
    }

    fn add(&mut self, input: &[u8], cause: FindingCause, place: &Place) -> Result<()> {
        (self.fuzz.tell)(&Told::Found(&cause));
        let small = self.smaller(input, &cause, place)?;
        let folder = self.fuzz.output;
        make_dir(folder)?;
        let name = format!("{}-{}", self.fuzz.subject.name(), self.found.len() + 1);
        let path = file(folder, &name, "input");
        std::fs::write(&path, &small).map_err(CheckError::file("write", &path))?;
        let mut report = None;
        if matches!(cause, FindingCause::Crash { .. }) {
            self.fuzz.subject.run(place, &small)?;
            report = self.fuzz.subject.judge(place, Depth::Full, self.report_deadline())?;
            let trace = file(folder, &name, "trace");
            std::fs::copy(&place.trace, &trace).map_err(CheckError::file("write", &trace))?;
        }
        if let Some(report) = &mut report {
            report.name.clone_from(&name);
        }
        let len_bytes = (small.len(), input.len());
        self.found.push(Finding { name, cause, input: path, len_bytes, report });
        (self.fuzz.tell)(&Told::Saved(&self.found[self.found.len() - 1]));
        Ok(())
    }

    /// The report of a finding is made though the time is over.
    fn report_deadline(&self) -> Option<Instant> {
        let later = Instant::now().checked_add(REPORT_TIME)?;
        self.fuzz.deadline.map(|deadline| deadline.max(later))
    }

    /// A smaller input with the same cause.
    fn smaller(&self, input: &[u8], cause: &FindingCause, place: &Place) -> Result<Vec<u8>> {
        let subject = self.fuzz.subject;
        let mut fails = |input: &[u8]| {
            // What is left of the time is for the report.
            if self.fuzz.is_over() || input.len() > corpus::INPUT_BYTES_MAX {
                return Ok(false);
            }
            match (subject.run(place, input)?, cause) {
                (Ran::Ended(ending, _), FindingCause::Ended(wanted)) => Ok(ending == *wanted),
                (Ran::Ended(ending, _), FindingCause::Crash { .. }) if ending.is_success() => {
                    let report = subject.judge(place, Depth::Quick, self.fuzz.deadline)?;
                    Ok(report
                        .is_some_and(|report| FindingCause::all(&report, self.fuzz.ignore).contains(cause)))
                }
                _ => Ok(false),
            }
        };
        subject.shrink(input, self.fuzz.shrink_runs, &mut fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_needs_more_to_be_lost_is_known() {
        let crash = |what: &str, places: &[&str], said: &[&str]| FindingCause::Crash {
            what: what.to_owned(),
            places: places.iter().map(|place| (*place).to_owned()).collect(),
            said: said.iter().map(|line| (*line).to_owned()).collect(),
        };
        let one = crash("lost", &["put (a.c:1)"], &[]);
        assert!(one.covers(&one));
        assert!(one.covers(&crash("lost", &["del (a.c:9)", "put (a.c:1)"], &[])));
        assert!(!crash("lost", &["del (a.c:9)", "put (a.c:1)"], &[]).covers(&one));
        assert!(!one.covers(&crash("logic", &["put (a.c:1)"], &[])));
        assert!(!one.covers(&crash("lost", &["put (a.c:1)"], &["no magic"])));
        assert!(!crash("fails", &[], &[]).covers(&crash("fails", &["a"], &[])), "nothing known is no part");
        let killed = FindingCause::Ended(Ending::Signal(11));
        assert!(killed.covers(&killed) && !killed.covers(&FindingCause::Ended(Ending::Signal(6))));
        assert_eq!(one.to_string(), "lost put (a.c:1)");
        assert_eq!(killed.to_string(), "without any crash the program was killed by signal 11");
    }
}
