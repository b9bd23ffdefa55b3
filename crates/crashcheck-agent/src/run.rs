//! The interpreter of J-lang.
//!
//! Operations are system calls relative to one directory, with the process's own umask set aside. One that
//! fails is told and the workload goes on: some generated workloads contain operations that cannot succeed.
//! Data is the letter of the command, `a` for the first that writes, so that a dump shows which command
//! wrote what.

mod command;
mod data;

use std::io::{self, Write};
use std::path::Path;

use fastness_crashcheck_workload::{Command, Workload};
use rustix::fs::{Mode, OFlags};

use crate::hypercall::Hypercall;

/// The result of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations of both sections, without marks and checkpoints.
    pub operations: usize,
    /// Operations that failed.
    pub failed: usize,
}

/// Runs a workload in a directory; failed operations, and their number, go to `report`. With `strict` the
/// first one ends it.
///
/// # Errors
/// The directory cannot be opened, or `report` written.
pub fn run(
    workload: &Workload,
    directory: &Path,
    strict: bool,
    report: &mut dyn Write,
) -> io::Result<Outcome> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, flags, Mode::empty())?;
    let umask = rustix::process::umask(Mode::empty());
    let mut interpreter = command::Interpreter::new(root);
    let mut outcome = Outcome::default();
    for command in workload.setup.iter().chain(&workload.run) {
        match command {
            Command::None => {}
            Command::Mark => Hypercall::Checkpoint(0).issue(),
            Command::Checkpoint(number) => Hypercall::Checkpoint(*number).issue(),
            operation => {
                outcome.operations += 1;
                if let Err(error) = interpreter.execute(operation) {
                    outcome.failed += 1;
                    writeln!(report, "{operation}: {}", io::Error::from(error))?;
                }
            }
        }
        if strict && outcome.failed > 0 {
            break;
        }
    }
    rustix::process::umask(umask);
    if outcome.failed > 0 {
        writeln!(report, "{} of {} operations failed", outcome.failed, outcome.operations)?;
    }
    Ok(outcome)
}
