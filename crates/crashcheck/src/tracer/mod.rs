//! Traces of programs, recorded by the QEMU plug-in of the crate `crashcheck-tracer`.
//!
//! The plug-in is a separate program, under another licence: it is found, started and waited for here, and
//! its result is a trace in a file. Nothing else needs QEMU.
//!
//! Which PM: files that the program maps; `write`, `fsync` and `msync` on them are traced as a DAX file
//! system does them. Limits: x86-64 programs; children of the program are not traced, nor what it executes in
//! its place; `MAP_SYNC` only where the files' file system has it. A trace is whole however the program ends,
//! but for `SIGKILL` and other signals that end QEMU with it without a core dump, such as `SIGTERM`.

mod error;
mod find;

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fastness_crashcheck_trace::Reader;
use rustix::process::Signal;

use crate::process::{Ending, run_visibly};

pub use error::TracerError;
pub use find::{PLUGIN_VARIABLE, Programs, QEMU_VARIABLE, Tools};

/// A signal that ends a program, and that QEMU passes on to it, so that the trace is ended. `SIGTERM` ends
/// QEMU itself.
const ASKING: Signal = Signal::QUIT;
/// QEMU's exit code when the plug-in cannot do its work.
const FAILED_CODE: i32 = 125;

/// A file that is PM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PmFile {
    /// Its path, for the program and for the trace.
    pub path: PathBuf,
    /// Its length; a file that does not exist is made with it, all zero. None: it exists.
    pub len_bytes: Option<u64>,
}

/// A file into which the program writes its log of operations; made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationsLog {
    /// Its path.
    pub path: PathBuf,
    /// It is the program's standard output.
    pub is_stdout: bool,
}

/// How a program is traced.
#[derive(Debug, Clone)]
pub struct UserTracer {
    /// Its PM, at least one file; region `n` of the trace is the `n`th.
    pub pm: Vec<PmFile>,
    /// Loads, too.
    pub has_reads: bool,
    /// Return addresses of each event, for programs that are compiled with frame pointers.
    pub has_stacks: bool,
    /// After this the program is asked to end (SIGQUIT), and then made to (SIGKILL).
    pub timeout: Duration,
    /// Its standard input; none: that of this process, or nothing if that is a terminal.
    pub input: Option<PathBuf>,
    /// Where its standard output and error go; none: to those of this process.
    pub output: Option<PathBuf>,
    /// Where its log of operations goes, each write of which becomes a message; none: nowhere.
    pub operations: Option<OperationsLog>,
    /// Where it goes which blocks of its code ran ([`coverage`](fastness_crashcheck_trace::coverage)).
    pub coverage: Option<PathBuf>,
    /// Where it runs; none: where this process does.
    pub current_dir: Option<PathBuf>,
    /// Where QEMU and the plug-in are.
    pub tools: Tools,
}

/// A trace that was recorded to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// Number of its events.
    pub events: u64,
    /// How the program ended.
    pub end: Ending,
}

impl UserTracer {
    /// Runs a program, given with its arguments, and writes its trace. The program does not outlive the
    /// calling thread. What was at `out` before is lost.
    ///
    /// How the program ends is not an error: the trace of a program that dies is complete.
    ///
    /// # Errors
    /// [`TracerError`]; there is no trace then, or it is cut off.
    pub fn trace(&self, command: &[OsString], out: &Path) -> Result<Traced, TracerError> {
        let program = command.first().ok_or(TracerError::Nothing("program"))?;
        if self.pm.is_empty() {
            return Err(TracerError::Nothing("persistent memory"));
        }
        self.pm.iter().try_for_each(PmFile::make)?;
        // A trace of an earlier run is not taken for this one's.
        match std::fs::remove_file(out) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TracerError::io("remove the old", out, error));
            }
            _ => {}
        }
        let Tools { qemu_user, plugin } = &self.tools;
        let mut qemu = Command::new(qemu_user);
        qemu.arg("-plugin").arg(self.plugin_option(plugin, out)?).arg(program).args(&command[1..]);
        if let Some(dir) = &self.current_dir {
            qemu.current_dir(dir);
        }
        if let Some(path) = &self.output {
            let io = |error| TracerError::io("write", path, error);
            let file = File::create(path).map_err(io)?;
            qemu.stdout(file.try_clone().map_err(io)?).stderr(file);
        }
        if let Some(log) = &self.operations {
            let file = File::create(&log.path).map_err(|error| TracerError::io("write", &log.path, error))?;
            if log.is_stdout {
                qemu.stdout(file);
            }
        }
        // In a process group of its own the program cannot read from a terminal.
        match &self.input {
            Some(path) => {
                let file = File::open(path).map_err(|error| TracerError::io("read", path, error))?;
                qemu.stdin(file);
            }
            None if std::io::IsTerminal::is_terminal(&std::io::stdin()) => {
                qemu.stdin(Stdio::null());
            }
            None => {}
        }
        let end = run_visibly(&mut qemu, ASKING, self.timeout)
            .map_err(|error| TracerError::io("run", qemu_user, error))?;
        if end == Ending::Code(FAILED_CODE) {
            return Err(TracerError::Failed);
        }
        Ok(Traced { events: count_events(out, end)?, end })
    }

    /// The plug-in and its arguments, as one option of QEMU.
    fn plugin_option(&self, plugin: &Path, out: &Path) -> Result<OsString, TracerError> {
        let mut option = escaped(plugin)?;
        option.push_str(",out=");
        option.push_str(&escaped(out)?);
        for file in &self.pm {
            option.push_str(",pm=");
            option.push_str(&escaped(&file.path)?);
        }
        if let Some(log) = &self.operations {
            option.push_str(",operations=");
            option.push_str(&escaped(&log.path)?);
        }
        if let Some(path) = &self.coverage {
            option.push_str(",coverage=");
            option.push_str(&escaped(path)?);
        }
        for (is_on, text) in [(self.has_reads, ",reads=on"), (self.has_stacks, ",stack=on")] {
            option.push_str(if is_on { text } else { "" });
        }
        option.push_str(",with_parent=on");
        Ok(option.into())
    }
}

/// A path in an option of QEMU: commas are doubled.
fn escaped(path: &Path) -> Result<String, TracerError> {
    let text = path.to_str().ok_or_else(|| TracerError::NotText(path.to_owned()))?;
    Ok(text.replace(',', ",,"))
}

impl PmFile {
    /// Makes the file, if it is not there.
    fn make(&self) -> Result<(), TracerError> {
        let io = |error| TracerError::io("create", &self.path, error);
        let file = match (self.path.exists(), self.len_bytes) {
            (true, Some(expected)) => {
                let actual = self.path.metadata().map_err(io)?.len();
                let path = self.path.clone();
                return if actual == expected {
                    Ok(())
                } else {
                    Err(TracerError::Size { path, expected, actual })
                };
            }
            (true, None) => return Ok(()),
            (false, None) => return Err(TracerError::NoSize(self.path.clone())),
            (false, Some(len_bytes)) => File::create_new(&self.path).and_then(|file| file.set_len(len_bytes)),
        };
        file.map_err(io)
    }
}

/// Reads the trace to its end: it is whole.
fn count_events(out: &Path, end: Ending) -> Result<u64, TracerError> {
    let incomplete = |source| TracerError::Incomplete { end, source };
    let file = File::open(out).map_err(|_| TracerError::NoTrace { end })?;
    let mut reader = Reader::new(BufReader::new(file)).map_err(incomplete)?;
    while reader.next().map_err(incomplete)?.is_some() {}
    Ok(reader.count())
}

#[cfg(test)]
mod tests;
