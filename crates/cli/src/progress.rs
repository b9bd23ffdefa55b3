//! The progress of an import, shown if it takes longer than half a second.

use std::io::IsTerminal;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastness_daemon::{ImportStep, ImportWatch, ImportingReport, Level, say};
use fastness_sync::{Condvar, Mutex, MutexGuard, lock, wait_while_for};
use fastness_terminal::progress_bar;
use indicatif::{ProgressBar, ProgressStyle};

const SHOW_AFTER: Duration = Duration::from_millis(500);
/// Between two drawings.
const PAUSE: Duration = Duration::from_millis(100);
const RECORDS: &str = "{msg} {wide_bar} {human_pos} of {human_len} records, {eta} left";
const STEP: &str = "{spinner} {msg}, {elapsed}";

#[derive(Default)]
struct State {
    report: Option<ImportingReport>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits; false if the import has ended by then.
    fn wait(&self, time: Duration) -> bool {
        !wait_while_for(&self.changed, self.lock(), time, |state| !state.is_over).is_over
    }

    fn show(&self) {
        if !self.wait(SHOW_AFTER) {
            return;
        }
        let begun = Instant::now();
        let bar = progress_bar(STEP).with_elapsed(SHOW_AFTER);
        let mut said = None;
        while self.wait(PAUSE) {
            let Some(report) = self.lock().report.clone() else { continue };
            if std::io::stderr().is_terminal() {
                draw(&bar, &report);
            } else if said != Some(report.step) {
                // For a file or a journal: a line for each step.
                said = Some(report.step);
                let after = SHOW_AFTER + begun.elapsed();
                say(Level::Info, format_args!("{} (after {:.1} s)", text(&report), after.as_secs_f64()));
            }
        }
        bar.finish_and_clear();
    }
}

/// The current step.
pub(crate) fn text(report: &ImportingReport) -> String {
    match (report.step, &*report.about) {
        (step, "") => step.text().to_owned(),
        (ImportStep::Devices, about) => format!("waiting for {about}"),
        (step, about) => format!("{}: {about}", step.text()),
    }
}

fn draw(bar: &ProgressBar, report: &ImportingReport) {
    let template = if report.total_records > 0 { RECORDS } else { STEP };
    bar.set_style(ProgressStyle::with_template(template).expect("a template that is right"));
    bar.set_message(text(report));
    bar.set_length(report.total_records);
    bar.set_position(report.done_records);
    bar.tick();
}

/// Shows an import on standard error until it is dropped.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start() -> Progress {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        // Without a thread nothing is shown, and the import continues.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || own.show()).ok();
        Progress { shared, thread }
    }

    /// Sets the current step.
    pub(crate) fn tell(&self, report: ImportingReport) {
        self.shared.lock().report = Some(report);
    }

    /// A watch of an import in this process.
    pub(crate) fn watch(&self) -> ImportWatch {
        let shared = self.shared.clone();
        ImportWatch::new(move |report| shared.lock().report = Some(report.clone()))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_words() {
        let report = |step, about: &str| {
            text(&ImportingReport { step, about: about.to_owned(), done_records: 0, total_records: 0 })
        };
        assert_eq!(report(ImportStep::Devices, "a in use"), "waiting for a in use");
        assert_eq!(report(ImportStep::Replay, "tank/v"), "replaying the log: tank/v");
        assert_eq!(report(ImportStep::Claim, ""), "claiming the log");
    }
}
