//! A background process that runs a pool, and what it reports to its parent.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use fastness_daemon::{Failure, ImportWatch, ImportingReport, PoolReport, Request, run_dir};
use serde::{Deserialize, Serialize};

use crate::connect::ask;
use crate::error::{Context, Result, gone};
use crate::progress::Progress;

use super::Import;

/// What the new process reports, one line of JSON each, until it is ready or has failed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Announcement {
    /// The current step.
    Importing(ImportingReport),
    /// The pool of this name is imported and accepts requests.
    Ready(String),
    /// The import failed, and the process ends.
    Failed(Failure),
}

impl Announcement {
    pub(super) fn say(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        Ok(out.flush()?)
    }
}

/// Reports the progress of the import to the parent.
pub(super) fn watch() -> ImportWatch {
    ImportWatch::new(|report| {
        // The import continues even if the parent has ended.
        let _ = Announcement::Importing(report.clone()).say(&mut std::io::stdout());
    })
}

impl Import {
    /// Starts a process that imports the pool, and returns when it is ready; shows the progress if that takes
    /// long.
    pub(crate) fn background(&self) -> Result<PoolReport> {
        let log_path = run_dir()?.join(format!("{}.log", self.name));
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.with_context(|| format!("cannot write {}", log_path.display()))?;
        let child = self.command()?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.context("cannot start a process for the pool")?;
        let progress = Progress::start();
        for line in BufReader::new(child.stdout.take().expect("a pipe that was asked for")).lines() {
            let line = line.context("cannot read the output of the process for the pool")?;
            match serde_json::from_str(&line) {
                Ok(Announcement::Importing(report)) => progress.tell(report),
                Ok(Announcement::Ready(name)) => {
                    drop(progress);
                    return ask(&name, &Request::Status);
                }
                Ok(Announcement::Failed(failure)) => return Err(failure.into()),
                // Half a line: the process ended while it wrote, and no more follows.
                Err(_) => {}
            }
        }
        drop(progress);
        let status = child.wait().context("cannot wait for the process for the pool")?;
        let log = log_path.display();
        Err(gone(format!(
            "the process for pool {} has gone before the pool was imported ({status}); {log} may say why",
            self.name
        )))
    }

    /// This import as a command of its own.
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command
            .args(["pool", "import", &self.name])
            .args(&self.new_name)
            .args(["--foreground", "--announce"]);
        command.args(self.bounds.arguments());
        for place in &self.places {
            command.arg("-d").arg(place);
        }
        for path in &self.log_paths {
            command.arg("--log").arg(path);
        }
        let flags = [
            (self.is_forced, "--force"),
            (self.is_read_only, "--read-only"),
            (self.is_degraded, "--degraded"),
            (self.is_destroyed, "--destroyed"),
            (self.is_quiet, "--no-serve"),
            (self.consent.missing, "--missing-log"),
            (self.consent.damaged, "--drop-log-tail"),
        ];
        command.args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
        Ok(command)
    }
}
