//! A folder of its own, and our program in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Result};

/// A folder below the one that `FASTNESS_BENCH_DIR` names, or that for temporary files; removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Folder> {
        let parent = std::env::var_os("FASTNESS_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = parent.join(format!("fastness-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Folder(path))
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Type of the file system: that of the longest mount point above the folder.
    pub(crate) fn file_system(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let folder = self.0.canonicalize().unwrap_or_else(|_| self.0.clone());
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let above = fields.filter(|fields| fields.len() > 2 && folder.starts_with(fields[1]));
        let longest = above.max_by_key(|fields| fields[1].len());
        longest.map_or("an unknown file system".to_owned(), |fields| fields[2].to_owned())
    }

    /// This program, which knows no pools but those of this folder.
    pub(crate) fn program(&self) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.env("FASTNESS_RUN_DIR", self.join("run")).env("FASTNESS_STATE_DIR", self.join("state"));
        Ok(command)
    }

    /// `fastness up` with a pool of this name, and a volume of this size.
    pub(crate) fn up(&self, name: &str, size: &str, options: &[&str]) -> Result<Command> {
        let mut command = self.program()?;
        command.args(["up", "--size", size]).args(options).arg(self.join(name));
        Ok(command)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The user can see what is left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
