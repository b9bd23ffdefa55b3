//! What lets a guest go on after an image on which the script failed.
//!
//! Motivation: a recovery that fails may leave a kernel that is not as before, so its word on further images
//! is worth nothing, and a fresh guest costs ten times what an image does. Where one image in three fails,
//! most of the time went into fresh guests.
//!
//! So two things are kept. One image that a fresh guest has recovered: a guest that has failed recovers it,
//! too, before it sees another image. And what was said of images that failed, by fresh guests, or twice by
//! one that has recovered the good image since: a guest that says the very same of another image does not
//! have to say it twice.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{GuestError, Output, Result, new_folder, ram};
use crate::process::Folder;

/// More different failures are not remembered.
const FAILURES_MAX: usize = 100_000;

/// What is known of failures, and of one image that has none.
#[derive(Debug, Default)]
pub(super) struct Failures {
    said: Mutex<HashSet<[u8; 32]>>,
    good: Mutex<Option<Arc<Good>>>,
}

/// An image that a script recovers.
#[derive(Debug)]
pub(super) struct Good {
    script: String,
    /// Files of its own.
    pub(super) pm: PathBuf,
    pub(super) disks: Vec<PathBuf>,
    /// What the script says of it.
    pub(super) said: Vec<u8>,
    _folder: Folder,
}

impl Failures {
    /// This is so of an image.
    pub(super) fn note(&self, script: &str, output: &Output) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < FAILURES_MAX {
            said.insert(digest(script, output));
        }
    }

    /// Whether it is known to be so of an image.
    pub(super) fn is_known(&self, script: &str, output: &Output) -> bool {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).contains(&digest(script, output))
    }

    /// A fresh guest has recovered this image; it is kept in `parent` if it is the first of the script.
    pub(super) fn note_good(
        &self,
        parent: &Path,
        script: &str,
        pm: &Path,
        disks: &[PathBuf],
        output: &Output,
    ) -> Result<()> {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good.as_ref().is_some_and(|good| good.script == script) {
            return Ok(());
        }
        let folder = new_folder(parent)?;
        let keep = |from: &Path, name: String| {
            let to = folder.join(&name);
            ram::copy(from, &to, 0..0).map(|()| to)
        };
        let kept_pm = keep(pm, "pm".to_owned())?;
        let numbered = disks.iter().enumerate();
        let kept_disks = numbered.map(|(index, disk)| keep(disk, format!("disk{index}")));
        let disks = kept_disks.collect::<Result<Vec<_>, GuestError>>()?;
        let said = output.stdout.clone();
        *good = Some(Arc::new(Good { script: script.to_owned(), pm: kept_pm, disks, said, _folder: folder }));
        Ok(())
    }

    /// The image that a script is known to recover.
    pub(super) fn good(&self, script: &str) -> Option<Arc<Good>> {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.clone().filter(|good| good.script == script)
    }
}

fn digest(script: &str, output: &Output) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for bytes in [script.as_bytes(), &output.status.to_le_bytes(), &output.stdout, &output.stderr] {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }
    *hasher.finalize().as_bytes()
}
