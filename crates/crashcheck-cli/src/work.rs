//! Temporary files and programs of a test, which end with it.

use std::path::Path;
use std::process::Command;

use fastness_crashcheck::process::{Folder, begin_guard, serve_guard};
use fastness_terminal::Outcome;

use crate::error::{Context, Result};

/// The program that these commands are part of.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its arguments for the command `guard`.
    pub guard: &'static [&'static str],
}

/// A folder for temporary files, in memory if possible. From now on programs under test end with this
/// process, and the folder goes, however it ends.
pub(crate) fn begin(program: &Program) -> Result<Folder> {
    let path = std::env::current_exe().context("cannot find this program")?;
    let mut guard = Command::new(path);
    guard.args(program.guard);
    begin_guard(guard).context("cannot start what ends programs under test if this one is killed")?;
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    Folder::new(&parent, "run").with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// The process that [`begin`] starts.
pub(crate) fn guard() -> Result<Outcome> {
    serve_guard(std::io::stdin().lock()).context("cannot read what there is to end")?;
    Ok(Outcome::Clean)
}
