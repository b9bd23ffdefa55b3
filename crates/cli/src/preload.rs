//! The library that `fastness run` loads into programs: where it is, and what it is told.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastness_daemon::run_dir;

const LIBRARY: &str = "libfastness_preload.so";
/// The path of another one.
const LIBRARY_VARIABLE: &str = "FASTNESS_PRELOAD_LIBRARY";
/// Tells the library where to ask: `crates/preload/src/process.rs`.
const LEASES_VARIABLE: &str = "FASTNESS_LEASES";
/// Tells it in which folder to publish what the program writes to PM: the same file.
const COUNTERS_VARIABLE: &str = "FASTNESS_COUNTERS";

/// The library: as given in the environment, else beside the program, or where packages put it.
fn find(program: &Path) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(LIBRARY_VARIABLE) {
        return Some(given.into());
    }
    let folder = program.parent()?;
    let places = [folder.join(LIBRARY), folder.join("../lib/fastness").join(LIBRARY)];
    places.into_iter().find(|path| path.is_file())
}

/// What a program is started with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preload(Vec<(&'static str, OsString)>);

impl Preload {
    /// For programs over a mount with this number, whose server gives leases at a socket; `program` is this
    /// one. `None`: there is no library, or no leases. They then read and write through the mount.
    pub(crate) fn new(program: &Path, device: u64, leases: Option<&Path>) -> Option<Preload> {
        let (library, socket) = (find(program)?, leases?);
        let mut libraries = library.into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            libraries.push(":");
            libraries.push(others);
        }
        let mut leases = OsString::from(format!("{device}:"));
        leases.push(absolute(socket));
        let mut told = vec![("LD_PRELOAD", libraries), (LEASES_VARIABLE, leases)];
        // Without it the program runs as well; `fastness top` does not see it.
        told.extend(run_dir().ok().map(|folder| (COUNTERS_VARIABLE, absolute(&folder).into())));
        Some(Preload(told))
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        command.envs(self.0.iter().map(|(name, value)| (name, value)));
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
