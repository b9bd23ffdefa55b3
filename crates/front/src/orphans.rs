//! What PM has of files that are not in the directory, saved elsewhere.

use std::fs::{File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use fastness_responder::{Error, Orphan};
use serde::{Deserialize, Serialize};

use crate::error::FrontError;
use crate::pairing::Recovery;

/// A file that was saved, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named as they are shown")]
pub struct SavedOrphan {
    /// Where it was saved.
    pub path: String,
    /// It was this inode of the directory's file system, born then: ns since 1970; 0: not known.
    pub inode: u64,
    pub born_ns: u64,
    /// Its length after the last write that was in PM, and when that was.
    pub size: u64,
    pub modified_ns: u64,
    /// Bytes that were in PM; all others are holes, which only the file itself has.
    pub saved_bytes: u64,
}

impl Recovery {
    /// Saves what PM has of files that are not in the directory, each as a file in `dir`, which is made if it
    /// is not there. The files have the mode 0600, and holes where PM had nothing.
    ///
    /// Persistence: durable on return; PM has all of it still.
    ///
    /// # Errors
    /// [`FrontError`]: a file of that name is there, or cannot be written; some may have been saved.
    pub fn save_orphans(&self, dir: &Path) -> Result<Vec<SavedOrphan>, FrontError> {
        let fail = |error| FrontError::io("save files to", dir, error);
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
            _ => {}
        }
        let region = self.info.path.clone().unwrap_or_default();
        let orphans = self.cache.orphans().map_err(FrontError::cache("cannot read", &region))?;
        let mut saved = Vec::new();
        for orphan in &orphans {
            let is_only = orphans.iter().filter(|other| other.file.inode == orphan.file.inode).count() == 1;
            let name = match is_only {
                true => format!("inode-{}", orphan.file.inode),
                false => format!("inode-{}-born-{}", orphan.file.inode, orphan.file.generation),
            };
            saved.push(self.save(orphan, &dir.join(name))?);
        }
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)?;
        Ok(saved)
    }

    fn save(&self, orphan: &Orphan, path: &Path) -> Result<SavedOrphan, FrontError> {
        let fail = |error| FrontError::io("save a file to", path, error);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
        let (mut pieces, mut size) = (Pieces::default(), orphan.size);
        let copied = self.cache.copy_orphan(orphan.file, &mut |offset, bytes| {
            file.write_all_at(bytes, offset)?;
            pieces.add(offset, bytes.len() as u64);
            size = size.max(offset + bytes.len() as u64);
            Ok(())
        });
        copied.map_err(|error| match error {
            Error::Backing { source, .. } => fail(source),
            error => FrontError::cache("cannot read", &self.info.path.clone().unwrap_or_default())(error),
        })?;
        let modified = UNIX_EPOCH + Duration::from_nanos(orphan.modified_ns);
        let times = FileTimes::new().set_modified(modified);
        let done = file.set_len(size).and_then(|()| file.set_times(times)).and_then(|()| file.sync_all());
        done.map_err(fail)?;
        Ok(SavedOrphan {
            path: path.display().to_string(),
            inode: orphan.file.inode,
            born_ns: orphan.file.generation,
            size,
            modified_ns: orphan.modified_ns,
            saved_bytes: pieces.bytes(),
        })
    }

    /// Gives up what PM has of files that are not in the directory; says of how many files that was.
    ///
    /// Persistence: it is gone on return.
    ///
    /// # Errors
    /// [`FrontError::Cache`]; some may be gone.
    pub fn give_up_orphans(&self) -> Result<u64, FrontError> {
        let region: PathBuf = self.info.path.clone().unwrap_or_default();
        let count = self.cache.orphans().map_or(0, |orphans| orphans.len() as u64);
        let fail = "cannot give up files that are not in the directory, in";
        self.cache.give_up_orphans().map_err(FrontError::cache(fail, &region))?;
        Ok(count)
    }
}

/// Ranges that were written, which may overlap.
#[derive(Debug, Default)]
struct Pieces(Vec<(u64, u64)>);

impl Pieces {
    fn add(&mut self, offset: u64, len: u64) {
        self.0.push((offset, offset + len));
    }

    fn bytes(mut self) -> u64 {
        self.0.sort_unstable();
        let (mut sum, mut end) = (0, 0);
        for (from, to) in self.0 {
            sum += to.max(end) - from.max(end);
            end = end.max(to);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_written_twice_count_once() {
        let mut pieces = Pieces::default();
        for (offset, len) in [(10, 5), (0, 4), (12, 10), (11, 2), (100, 1)] {
            pieces.add(offset, len);
        }
        assert_eq!(pieces.bytes(), 4 + 12 + 1);
    }
}
