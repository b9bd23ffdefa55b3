//! A process in the background that has a pool, and what it says to the one that started it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::Context;
use fastness_daemon::{Failure, ImportWatch, ImportingReport, PoolReport, Request, run_dir};
use serde::{Deserialize, Serialize};

use crate::connect::ask;
use crate::exit::gone;
use crate::progress::Progress;

use super::Import;

/// What the new process says, one line of JSON each, until it is ready or has failed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Announcement {
    /// It does this now.
    Importing(ImportingReport),
    /// The pool of this name is imported, and can be talked to.
    Ready(String),
    /// It is not, and the process ends.
    Failed(Failure),
}

impl Announcement {
    pub(super) fn say(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        Ok(out.flush()?)
    }
}

/// Tells the parent how far the import is.
pub(super) fn watch() -> ImportWatch {
    ImportWatch::new(|report| {
        // A parent that has gone does not stop the import.
        let _ = Announcement::Importing(report.clone()).say(&mut std::io::stdout());
    })
}

impl Import {
    /// Starts a process that has the pool, and returns when it does; shows what it does if that takes long.
    pub(crate) fn background(&self) -> anyhow::Result<PoolReport> {
        let log_path = run_dir()?.join(format!("{}.log", self.name));
        let log = OpenOptions::new().create(true).append(true).open(&log_path);
        let log = log.with_context(|| format!("cannot write {}", log_path.display()))?;
        let child = self.command()?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.context("cannot start a process for the pool")?;
        let progress = Progress::start();
        for line in BufReader::new(child.stdout.take().expect("a pipe that was asked for")).lines() {
            let line = line.context("cannot read what the process for the pool says")?;
            match serde_json::from_str(&line) {
                Ok(Announcement::Importing(report)) => progress.tell(report),
                Ok(Announcement::Ready(name)) => {
                    drop(progress);
                    return ask(&name, &Request::Status);
                }
                Ok(Announcement::Failed(failure)) => return Err(failure.into()),
                // Half a line: it ended while it wrote, and there is no other.
                Err(_) => {}
            }
        }
        drop(progress);
        let status = child.wait().context("cannot wait for the process for the pool")?;
        let log = log_path.display();
        Err(gone(format!(
            "the process for pool {} has gone before it had the pool ({status}); {log} may say why",
            self.name
        )))
    }

    /// This import as a command of its own.
    fn command(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(["pool", "import", &self.name, "--foreground", "--announce"]);
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
            (self.consent.missing, "--missing-log"),
            (self.consent.damaged, "--drop-log-tail"),
        ];
        command.args(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
        Ok(command)
    }
}
