//! A folder for the files of one guest, removed with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{GuestError, Result};

const PREFIX: &str = "fastness-guest-";

/// A new folder; dropped, it is removed with all that is in it.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(parent: &Path) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        // The folder of an ended process with the same number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(GuestError::io("cannot create the folder", &path))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Removes the folders of processes that have ended.
    pub(super) fn sweep(parent: &Path) {
        let Ok(entries) = fs::read_dir(parent) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
            if let Some((process, _)) = process
                && process.parse::<u32>().is_ok()
                && !Path::new("/proc").join(process).exists()
            {
                // Of another user: theirs to remove.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
