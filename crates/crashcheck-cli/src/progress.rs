//! What a terminal shows of recoveries while they run, and failures as they come.

use std::sync::atomic::{AtomicUsize, Ordering};

use fastness_crashcheck::check::{Failure, Step};
use fastness_terminal::{note, progress_bar};
use indicatif::ProgressBar;

/// Failures of a test that are told at once; the report has all.
const TOLD_MAX: usize = 5;
/// What of a recovery's output is told.
const TEXT_CHARS: usize = 100;

/// The bar of one test. It goes when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    name: String,
    failures: AtomicUsize,
}

impl Progress {
    pub(crate) fn new(name: &str) -> Progress {
        let bar = progress_bar("{prefix}: event {pos} of {len}, {msg} {wide_bar} {eta}");
        bar.set_prefix(name.to_owned());
        Progress { bar, name: name.to_owned(), failures: AtomicUsize::new(0) }
    }

    pub(crate) fn tell(&self, step: &Step<'_>) {
        if let Some(failure) = &step.failure {
            let before = self.failures.fetch_add(1, Ordering::Relaxed);
            if before < TOLD_MAX {
                self.bar.suspend(|| note(format_args!("{}: {}", self.name, line(failure))));
            } else if before == TOLD_MAX {
                self.bar.suspend(|| note(format_args!("{}: more in the report", self.name)));
            }
        }
        self.bar.set_length(step.events);
        self.bar.set_position(step.event);
        let failures = self.failures.load(Ordering::Relaxed);
        self.bar.set_message(match failures {
            0 => format!("{} images, {} states", step.done, step.states),
            _ => format!("{} images, {} states, {failures} of them failures", step.done, step.states),
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A failure in one line, of text that is anything but a terminal's commands.
fn line(failure: &Failure<'_>) -> String {
    let Failure { kind, event, text } = failure;
    let text = String::from_utf8_lossy(text);
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let first: String = first.chars().filter(|letter| !letter.is_control()).take(TEXT_CHARS).collect();
    let colon = if first.is_empty() { "" } else { ": " };
    format!("{}: after a crash at event {event} {kind}{colon}{first}", kind.letter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastness_crashcheck::check::FindingKind;

    #[test]
    fn a_failure_is_one_short_line() {
        let said = |text: &[u8]| line(&Failure { kind: FindingKind::RecoveryCrash, event: 7, text });
        assert_eq!(said(b""), "C: after a crash at event 7 the recovery crashes");
        assert_eq!(
            said(b"\n \x1b[2Jno magic\nmore"),
            "C: after a crash at event 7 the recovery crashes: [2Jno magic"
        );
        assert!(said(&[b'x'; 100_000]).len() < 200);
    }
}
