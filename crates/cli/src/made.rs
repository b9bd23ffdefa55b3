//! What a command has made, and removes again if it fails.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and folders that a command has made. Dropped, it removes them, the last one first; a folder only if
/// it is empty.
#[derive(Debug, Default)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Notes a path that the command is about to make, where nothing else can make it meanwhile; one that is
    /// there already is left alone.
    pub(crate) fn note(&mut self, path: &Path) {
        if fs::symlink_metadata(path).is_err() {
            self.0.push(path.to_owned());
        }
    }

    /// Notes a path that the command has made.
    pub(crate) fn add(&mut self, path: &Path) {
        self.0.push(path.to_owned());
    }

    /// Removes everything now. A file that another process could take into use is removed while this one
    /// still holds it.
    pub(crate) fn remove(&mut self) {
        for path in self.0.drain(..).rev() {
            // The error that the command ends with is the one to report.
            let _ = if path.is_dir() { fs::remove_dir(&path) } else { fs::remove_file(&path) };
        }
    }

    /// Whether there is something to remove.
    pub(crate) fn is_something(&self) -> bool {
        !self.0.is_empty()
    }

    /// Everything stays.
    pub(crate) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let make = |keeps: bool| {
            let mut made = Made::default();
            for name in ["old", "new", "new/file"] {
                made.note(&path(name));
            }
            fs::create_dir_all(path("new")).unwrap();
            fs::write(path("new/file"), "").unwrap();
            if keeps {
                made.keep();
            }
        };
        fs::write(path("old"), "").unwrap();
        make(false);
        assert!(path("old").exists() && !path("new").exists());
        make(true);
        assert!(path("new/file").exists());
    }
}
