//! Folders for temporary files, removed with their owner.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::guard::{self, Charge};

/// Names begin with this, what they are for, and the process.
const PREFIX: &str = "fastness-crashcheck";

/// A new folder; dropped, it is removed with all that is in it. What a killed process leaves, its guard
/// removes ([`guard`](super::begin_guard)), or the next process that makes one.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one in `parent`, for guests or whatever `what` says, and removes those of processes that have
    /// ended.
    ///
    /// # Errors
    /// Those of making it.
    pub fn new(parent: &Path, what: &str) -> io::Result<Folder> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        sweep(parent);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}-{what}-{}-{number}", std::process::id()));
        // The folder of an ended process with the same number.
        let _ = fs::remove_dir_all(&path);
        guard::tell(&Charge::Folder(path.clone()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Removes the folders of processes that have ended.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_prefix('-'));
        let mut parts = rest.unwrap_or_default().rsplit('-');
        if let (Some(number), Some(process)) = (parts.next(), parts.next())
            && number.parse::<u64>().is_ok()
            && process.parse::<u32>().is_ok()
            && !Path::new("/proc").join(process).exists()
        {
            // Of another user: theirs to remove.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_are_swept() {
        let parent = tempfile::tempdir().unwrap();
        // Above the largest number that Linux gives.
        let dead = parent.path().join(format!("{PREFIX}-guest-4194305-0"));
        for path in
            [&dead, &parent.path().join(format!("{PREFIX}-guest-x-0")), &parent.path().join("other-1-0")]
        {
            fs::create_dir(path).unwrap();
        }
        let first = Folder::new(parent.path(), "guest").unwrap();
        let second = Folder::new(parent.path(), "run").unwrap();
        assert!(!dead.exists() && first.path().exists() && second.path().exists());
        drop((first, second));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
    }
}
