//! Long work in the background, one at a time: scrub, resilver.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastness_base::{ErrorKind, chain, panic_text};
use fastness_store::{PoolError, ScrubReport};
use fastness_sync::{Condvar, Mutex, lock, wait_while_for};

use crate::journal::Journal;
use crate::protocol::Failure;
use crate::report::JobReport;

/// Reports the progress of a job to a client; `false` ends the reports, not the job.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(JobReport) -> bool;

/// Name of the job that reads every copy.
pub(crate) const SCRUB: &str = "scrub";
/// Name of the job that discards what is free.
pub(crate) const TRIM: &str = "trim";
/// Maximum number of places named in a report; the rest are only counted.
const LOST_MAX: usize = 100;
/// How often waiting clients get a report.
const PROGRESS: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct State {
    report: ScrubReport,
    /// Whether it has made its first report: errors in the request are found before that.
    is_begun: bool,
    /// `None` while it runs.
    outcome: Option<Result<(), PoolError>>,
    elapsed: Duration,
}

/// A job that runs or has ended.
#[derive(Debug)]
pub(crate) struct Job {
    what: String,
    started: Instant,
    is_stopped: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// The work of a job; it passes its progress to its argument, and stops when that returns `false`.
pub(crate) type Work =
    Box<dyn FnOnce(&mut dyn FnMut(&ScrubReport) -> bool) -> Result<ScrubReport, PoolError> + Send>;

/// The running job, or the last one.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<Option<Arc<Job>>>);

impl Jobs {
    /// Starts a job, if none is running.
    pub(crate) fn start(
        &self,
        what: String,
        journal: &Arc<Journal>,
        work: Work,
    ) -> Result<Arc<Job>, Failure> {
        let mut current = lock(&self.0);
        if let Some(job) = current.as_ref().filter(|job| job.is_running()) {
            let text = format!(
                "{} is under way; wait for it, or end it with `fastness pool scrub --stop`",
                job.what
            );
            return Err(Failure::refuse(ErrorKind::Retry, text));
        }
        let job = Arc::new(Job {
            what,
            started: Instant::now(),
            is_stopped: AtomicBool::new(false),
            state: Mutex::new(State {
                report: ScrubReport::default(),
                is_begun: false,
                outcome: None,
                elapsed: Duration::ZERO,
            }),
            changed: Condvar::new(),
        });
        let (own, journal) = (job.clone(), journal.clone());
        let thread =
            std::thread::Builder::new().name("job".to_owned()).spawn(move || own.run(&journal, work));
        thread.map_err(|error| Failure::new(ErrorKind::Retry, &error))?;
        *current = Some(job.clone());
        Ok(job)
    }

    /// Stops the running job, and waits for it.
    pub(crate) fn stop(&self) {
        let job = lock(&self.0).clone();
        if let Some(job) = job {
            job.is_stopped.store(true, Ordering::SeqCst);
            job.wait(&mut |_| true);
        }
    }

    /// Whether a job is running.
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|job| job.is_running())
    }

    pub(crate) fn report(&self) -> Option<JobReport> {
        lock(&self.0).as_ref().map(|job| job.report())
    }
}

impl Job {
    fn run(&self, journal: &Journal, work: Work) {
        let mut progress = |report: &ScrubReport| {
            let mut state = lock(&self.state);
            state.report.clone_from(report);
            if !state.is_begun {
                state.is_begun = true;
                self.changed.notify_all();
            }
            !self.is_stopped.load(Ordering::SeqCst)
        };
        // A job that never ended would block the next one and an export.
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut progress)));
        let result =
            result.unwrap_or_else(|panic| Err(PoolError::Panicked { what: panic_text(&*panic).to_owned() }));
        let mut state = lock(&self.state);
        state.elapsed = self.started.elapsed();
        let outcome = result.map(|report| state.report = report);
        let text = match &outcome {
            Ok(()) if self.is_stopped.load(Ordering::SeqCst) => format!("{} stopped", self.what),
            Ok(()) if self.what == TRIM => format!("{} done", self.what),
            Ok(()) => format!(
                "{} done: {} wrong copies, {} places without a right one",
                self.what,
                state.report.wrong_copies,
                state.report.lost.len()
            ),
            Err(error) => format!("{} failed: {}", self.what, chain(error)),
        };
        match &outcome {
            Err(_) => journal.fail(text),
            Ok(()) if state.report.wrong_copies > 0 || !state.report.lost.is_empty() => journal.warn(text),
            Ok(()) => journal.note(text),
        }
        state.outcome = Some(outcome);
        self.changed.notify_all();
    }

    fn is_running(&self) -> bool {
        lock(&self.state).outcome.is_none()
    }

    /// Waits for the end, and calls `tell` now and then until it returns `false`.
    pub(crate) fn wait(&self, tell: &mut dyn FnMut(JobReport) -> bool) {
        loop {
            let runs = |state: &State| state.outcome.is_none();
            if !runs(&wait_while_for(&self.changed, lock(&self.state), PROGRESS, runs)) {
                return;
            }
            if !tell(self.report()) {
                return;
            }
        }
    }

    /// Waits until it has begun, or failed to.
    pub(crate) fn wait_begun(&self) {
        let mut state = lock(&self.state);
        while !state.is_begun && state.outcome.is_none() {
            state = fastness_sync::wait(&self.changed, state);
        }
    }

    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match &lock(&self.state).outcome {
            Some(Err(error)) => Some(error.clone().into()),
            _ => None,
        }
    }

    pub(crate) fn report(&self) -> JobReport {
        let state = lock(&self.state);
        let is_stopped = self.is_stopped.load(Ordering::SeqCst);
        let (name, error) = match &state.outcome {
            None => ("running", None),
            Some(Ok(())) if is_stopped => ("stopped", None),
            Some(Ok(())) => ("done", None),
            Some(Err(error)) => ("failed", Some(chain(error))),
        };
        let elapsed = if state.outcome.is_some() { state.elapsed } else { self.started.elapsed() };
        let mut lost: Vec<_> = state.report.lost.iter().take(LOST_MAX).map(ToString::to_string).collect();
        if state.report.lost.len() > LOST_MAX {
            lost.push(format!("and {} more", state.report.lost.len() - LOST_MAX));
        }
        JobReport {
            what: self.what.clone(),
            state: name.to_owned(),
            done_bytes: state.report.done_bytes,
            total_bytes: state.report.total_bytes,
            wrong_copies: state.report.wrong_copies,
            lost,
            elapsed_s: elapsed.as_secs(),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_has_failed_and_the_next_one_can_run() {
        let (jobs, journal) = (Jobs::default(), Arc::default());
        let work: Work = Box::new(|_| panic!("boom"));
        let job = jobs.start("scrub".to_owned(), &journal, work).unwrap();
        job.wait(&mut |_| true);
        assert!(job.failure().is_some_and(|failure| failure.message.contains("boom")));
        assert_eq!(jobs.report().unwrap().state, "failed");
        jobs.stop();
        let job = jobs.start("scrub".to_owned(), &journal, Box::new(|_| Ok(ScrubReport::default()))).unwrap();
        job.wait(&mut |_| true);
        assert_eq!(jobs.report().unwrap().state, "done");
    }
}
