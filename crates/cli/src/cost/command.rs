//! Runs the command that is measured.

use fastness_terminal::note;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::passed_on::{NOT_STARTED, PassedOn};

/// Runs a command to its end, and returns its exit code. What it prints goes to standard error, since the
/// report is on standard output. Signals are for the command: the measurement ends with it.
pub(super) fn run(words: &[OsString], bytes_file: Option<&Path>) -> Result<u8> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::from(io::stderr()));
    if let Some(path) = bytes_file {
        command.env("FASTNESS_BYTES_FILE", path);
    }
    let signals = PassedOn::begin(|| {})?;
    match command.spawn() {
        Ok(child) => signals.wait(child, &words[0]),
        Err(error) => {
            note(format_args!("fastness: cannot run {}: {error}", words[0].display()));
            Ok(NOT_STARTED)
        }
    }
}
