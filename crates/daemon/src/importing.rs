//! The steps of an import, and how long each took: for clients waiting for it, and for `status` later.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_store::{LogImportStep, ReplayProgress};
use fastness_sync::{Mutex, lock};
use serde::{Deserialize, Serialize};

use crate::journal::Journal;

/// Imports that took longer are noted in the journal.
const LONG: Duration = Duration::from_millis(500);

/// A step of an import; a step with nothing to do may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportStep {
    /// Finds and opens the devices; waits for those that are in use.
    Devices,
    /// Reads labels, the uberblock and the tables, and writes the labels.
    Pool,
    /// Opens the regions of the log.
    Log,
    /// Finds the records in the log, and claims them.
    Claim,
    /// Replays the records of the log into the pool.
    Replay,
    /// Waits until the replayed records are durable in the pool.
    Sync,
    /// Serves the volumes.
    Serve,
}

impl ImportStep {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            ImportStep::Devices => "devices",
            ImportStep::Pool => "pool",
            ImportStep::Log => "log",
            ImportStep::Claim => "claim",
            ImportStep::Replay => "replay",
            ImportStep::Sync => "sync",
            ImportStep::Serve => "serve",
        }
    }

    /// A description of what it does.
    pub fn text(self) -> &'static str {
        match self {
            ImportStep::Devices => "opening the devices",
            ImportStep::Pool => "reading the pool",
            ImportStep::Log => "opening the log",
            ImportStep::Claim => "claiming the log",
            ImportStep::Replay => "replaying the log",
            ImportStep::Sync => "waiting for the disks",
            ImportStep::Serve => "serving the volumes",
        }
    }
}

/// An import in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportingReport {
    /// The step.
    pub step: ImportStep,
    /// Devices that are in use and waited for, or the volume whose records are replayed.
    pub about: String,
    /// Records replayed so far, of all volumes.
    pub done_records: u64,
    /// Records to replay, of all volumes; 0 in other steps.
    pub total_records: u64,
}

/// How long a step took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// The step.
    pub step: ImportStep,
    /// Time.
    pub elapsed_us: u64,
}

/// How long an import took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// From the start of the device search until the last volume is served.
    pub elapsed_us: u64,
    /// Its steps.
    pub steps: Vec<StepReport>,
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.elapsed_us / 1000)?;
        let told = self.steps.iter().filter(|of| of.elapsed_us >= 1000);
        for (index, StepReport { step, elapsed_us }) in told.enumerate() {
            let before = if index == 0 { ": " } else { ", " };
            write!(f, "{before}{} {} ms", step.name(), elapsed_us / 1000)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct State {
    current: Option<(ImportStep, Instant)>,
    ended: Vec<StepReport>,
}

impl State {
    fn end_step(&mut self) {
        let Some((step, begun)) = self.current.take() else { return };
        let elapsed_us = begun.elapsed().as_micros() as u64;
        match self.ended.last_mut() {
            Some(last) if last.step == step => last.elapsed_us += elapsed_us,
            _ => self.ended.push(StepReport { step, elapsed_us }),
        }
    }
}

struct Inner {
    state: Mutex<State>,
    tell: Box<dyn Fn(&ImportingReport) + Send + Sync>,
}

/// Times the steps of an import, and reports each when it begins and when it makes progress.
#[derive(Clone)]
pub struct ImportWatch(Arc<Inner>);

impl ImportWatch {
    /// Reports to `tell`, which runs on the importing thread.
    pub fn new(tell: impl Fn(&ImportingReport) + Send + Sync + 'static) -> ImportWatch {
        ImportWatch(Arc::new(Inner { state: Mutex::default(), tell: Box::new(tell) }))
    }

    /// A step begins, and the one before ends.
    pub fn begin(&self, step: ImportStep) {
        {
            let mut state = lock(&self.0.state);
            if state.current.is_some_and(|(current, _)| current == step) {
                return;
            }
            state.end_step();
            state.current = Some((step, Instant::now()));
        }
        self.tell(step, String::new(), (0, 0));
    }

    /// These devices are in use, and waited for.
    pub fn waits_for(&self, devices: &[&str]) {
        self.begin(ImportStep::Devices);
        let text = format!("{} in use by another process", devices.join(", "));
        self.tell(ImportStep::Devices, text, (0, 0));
    }

    fn tell(&self, step: ImportStep, about: String, (done_records, total_records): (u64, u64)) {
        (self.0.tell)(&ImportingReport { step, about, done_records, total_records });
    }

    /// Observes the steps of the log; the journal gets a note for every tenth of a replay.
    pub(crate) fn of_log<'a>(&'a self, journal: &'a Journal) -> impl FnMut(LogImportStep<'_>) + 'a {
        let mut noted = 0;
        move |step| match step {
            LogImportStep::Open => self.begin(ImportStep::Log),
            LogImportStep::Claim => self.begin(ImportStep::Claim),
            LogImportStep::Sync => self.begin(ImportStep::Sync),
            LogImportStep::Replay(ReplayProgress { dataset, done_records, total_records }) => {
                self.begin(ImportStep::Replay);
                self.tell(ImportStep::Replay, dataset.to_owned(), (done_records, total_records));
                let percent = done_records * 100 / total_records.max(1);
                if percent >= noted + 10 {
                    noted = percent;
                    journal.note(format!(
                        "replaying the log: {percent} % of {total_records} records, now {dataset}"
                    ));
                }
            }
        }
    }

    /// The import has ended; the next one begins anew.
    pub(crate) fn end(&self, journal: &Journal) -> ImportReport {
        let mut state = lock(&self.0.state);
        state.end_step();
        let steps = std::mem::take(&mut state.ended);
        let elapsed_us = steps.iter().map(|step| step.elapsed_us).sum();
        let report = ImportReport { elapsed_us, steps };
        if Duration::from_micros(elapsed_us) >= LONG {
            journal.note(format!("the import took {report}"));
        }
        report
    }
}

impl Default for ImportWatch {
    fn default() -> ImportWatch {
        ImportWatch::new(|_| ())
    }
}

impl fmt::Debug for ImportWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImportWatch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_timed_and_told() {
        let told: Arc<Mutex<Vec<ImportingReport>>> = Arc::default();
        let sink = told.clone();
        let watch = ImportWatch::new(move |report| lock(&sink).push(report.clone()));
        let journal = Journal::default();
        for _ in 0..2 {
            watch.begin(ImportStep::Devices);
            watch.waits_for(&["a", "b"]);
            std::thread::sleep(Duration::from_millis(2));
            watch.begin(ImportStep::Pool);
            let mut log = watch.of_log(&journal);
            log(LogImportStep::Claim);
            for done_records in [0, 50] {
                let progress = ReplayProgress { dataset: "tank/v", done_records, total_records: 100 };
                log(LogImportStep::Replay(progress));
            }
            log(LogImportStep::Sync);
            drop(log);
            let ImportReport { elapsed_us, steps } = watch.end(&journal);
            use ImportStep::{Claim, Devices, Pool, Replay, Sync};
            let names: Vec<_> = steps.iter().map(|step| step.step).collect();
            assert_eq!(names, [Devices, Pool, Claim, Replay, Sync]);
            assert!(steps[0].elapsed_us >= 2000 && elapsed_us >= steps[0].elapsed_us);
            let told = std::mem::take(&mut *lock(&told));
            assert_eq!(told.len(), 8, "{told:?}");
            assert_eq!(told[1].about, "a, b in use by another process");
            assert_eq!((told[6].step, &*told[6].about, told[6].done_records), (Replay, "tank/v", 50));
        }
        assert_eq!(journal.events().len(), 1);
    }

    #[test]
    fn a_report_leaves_out_what_took_no_time() {
        let step = |step, elapsed_us| StepReport { step, elapsed_us };
        let steps = vec![
            step(ImportStep::Devices, 900),
            step(ImportStep::Pool, 12_345),
            step(ImportStep::Sync, 1000),
        ];
        let report = ImportReport { elapsed_us: 14_245, steps };
        assert_eq!(report.to_string(), "14 ms: pool 12 ms, sync 1 ms");
        assert_eq!(ImportReport::default().to_string(), "0 ms");
    }
}
