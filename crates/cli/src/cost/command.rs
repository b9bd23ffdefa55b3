//! Runs the command that is measured.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Context, Result};
use crate::output::note;
use crate::run::{NOT_STARTED, code, pass_on};

/// Runs a command to its end, and returns its exit code. What it prints goes to standard error, since the
/// report is on standard output. Signals are for the command: the measurement ends with it.
pub(super) fn run(words: &[OsString], bytes_file: Option<&Path>) -> Result<u8> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::from(io::stderr()));
    if let Some(path) = bytes_file {
        command.env("FASTNESS_BYTES_FILE", path);
    }
    // Before the command is there: a signal must not end this process without it.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            note(format_args!("fastness: cannot run {}: {error}", words[0].display()));
            return Ok(NOT_STARTED);
        }
    };
    // Its number may be another's once it has ended; this is not.
    let itself = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from)?;
    let handle = signals.handle();
    let pass = move || signals.forever().for_each(|signal| pass_on(signal, &itself));
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(pass)?;
    let status = child.wait().with_context(|| format!("cannot wait for {}", words[0].display()));
    handle.close();
    // It panics nowhere.
    let _ = thread.join();
    Ok(code(status?))
}
