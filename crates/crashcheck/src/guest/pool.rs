//! Guests that recover one image after another.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::failures::Failures;
use super::{Guest, GuestError, Nvme, Output, Restore, Result, Snapshot, new_folder, ram};
use crate::process::Folder;

/// Guests of one snapshot that recover images of PM and disks, for any number of threads, scripts and tests.
///
/// A guest that has translated its kernel's code is ten times as fast as a new one. So idle guests are kept
/// for later; there are never more of them than threads have used at the same time.
///
/// A guest has its disks on files of its own, which are filled again for each image: the recovery of the one
/// before has written to them, so what differs between the images is not all that differs. What the guest's
/// kernel has cached of a disk is gone when nothing has it open any more, that is once it is unmounted.
#[derive(Debug)]
pub struct Guests<'a> {
    snapshot: &'a Snapshot,
    images_per_guest: usize,
    idle: Mutex<Vec<Warm>>,
    failures: Failures,
}

/// A guest that can recover another image.
#[derive(Debug)]
struct Warm {
    // In this order: the guest is gone before its disks are.
    guest: Guest,
    disks: Disks,
    /// Images that it has seen.
    seen: usize,
}

/// Files of a guest's disks, and how long they are.
#[derive(Debug)]
struct Disks {
    folder: Option<Folder>,
    len_bytes: Vec<u64>,
}

impl<'a> Guests<'a> {
    /// None yet. A guest sees up to `images_per_guest` images, one after the other; 1 is a fresh guest for
    /// each, where all starts from the same state. With more, what a guest costs is shared, and the time of
    /// day is another for each image.
    pub fn new(snapshot: &'a Snapshot, images_per_guest: usize) -> Self {
        Guests { snapshot, images_per_guest, idle: Mutex::default(), failures: Failures::default() }
    }

    /// Where they come from.
    pub fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    /// What the script, which leaves nothing mounted, says of an image of PM and images of disks in whole
    /// blocks of 512 bytes. The files stay as they are.
    ///
    /// What a guest says of an image on which it does not succeed counts if it says the same once more, or
    /// that is known from another image, and if it then recovers, as before, one that is known to be good.
    /// Otherwise a fresh guest is asked.
    ///
    /// # Errors
    /// Those of [`Snapshot::restore`] and [`Guest::command`]: a panic while an image is mounted is one.
    pub fn extract(&self, script: &str, timeout: Duration, pm: &Path, disks: &[PathBuf]) -> Result<Output> {
        let len_bytes = disks.iter().map(|disk| len_bytes(disk)).collect::<Result<Vec<_>>>()?;
        if let Some(mut warm) = self.take(&len_bytes)
            && let Ok(output) = warm.recover(script, timeout, pm, disks)?
            && (output.is_success() || self.is_so(&mut warm, script, timeout, (pm, disks), &output)?)
        {
            self.put(warm);
            return Ok(output);
        }
        let mut own_disks = Disks::new(self.snapshot, len_bytes)?;
        let nvme = own_disks.fill(disks)?;
        let restore = Restore { pm_image: Some(pm.to_owned()), nvme, ..Restore::default() };
        let mut fresh = Warm { guest: self.snapshot.restore(&restore)?, disks: own_disks, seen: 1 };
        let output = fresh.guest.recover(script, timeout)?;
        if self.images_per_guest > 1 {
            let is_well = if output.is_success() {
                self.failures.note_good(&self.snapshot.config().folder, script, pm, disks, &output)?;
                true
            } else if output.timed_out {
                false
            } else {
                self.failures.note(script, &output);
                self.is_well(&mut fresh, script, timeout)
            };
            if is_well {
                self.put(fresh);
            }
        }
        Ok(output)
    }

    /// One with such disks. If there is none, one with others ends, so that there is room for another.
    fn take(&self, len_bytes: &[u64]) -> Option<Warm> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = idle.iter().position(|warm| warm.disks.len_bytes == len_bytes);
        if found.is_none() {
            idle.pop();
        }
        found.map(|index| idle.swap_remove(index))
    }

    /// Keeps a guest that is as good as before.
    fn put(&self, warm: Warm) {
        if warm.seen < self.images_per_guest {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(warm);
        }
    }

    /// Whether what a guest says of an image, on which the script has failed, is due to the image; then the
    /// guest is as good as before.
    fn is_so(
        &self,
        warm: &mut Warm,
        script: &str,
        timeout: Duration,
        (pm, disks): (&Path, &[PathBuf]),
        failed: &Output,
    ) -> Result<bool> {
        if failed.timed_out {
            return Ok(false);
        }
        let is_same = self.failures.is_known(script, failed)
            || matches!(warm.recover(script, timeout, pm, disks)?, Ok(again) if again == *failed);
        let is_so = is_same && self.is_well(warm, script, timeout);
        if is_so {
            self.failures.note(script, failed);
        }
        Ok(is_so)
    }

    /// Whether a guest recovers an image that is known to be good.
    fn is_well(&self, warm: &mut Warm, script: &str, timeout: Duration) -> bool {
        let Some(good) = self.failures.good(script) else { return false };
        let said = warm.recover(script, timeout, &good.pm, &good.disks);
        matches!(said, Ok(Ok(said)) if said.is_success() && said.stdout == good.said)
    }
}

impl Warm {
    /// What the script says of another image. The inner error is the guest's.
    fn recover(
        &mut self,
        script: &str,
        timeout: Duration,
        pm: &Path,
        disks: &[PathBuf],
    ) -> Result<Result<Output>> {
        self.guest.write_pm(pm)?;
        self.disks.fill(disks)?;
        self.seen += 1;
        Ok(self.guest.recover(script, timeout))
    }
}

impl Disks {
    fn new(snapshot: &Snapshot, len_bytes: Vec<u64>) -> Result<Disks> {
        let has_some = !len_bytes.is_empty();
        let folder = has_some.then(|| new_folder(&snapshot.config().folder)).transpose()?;
        Ok(Disks { folder, len_bytes })
    }

    /// Copies images to where the guest has its disks.
    fn fill(&mut self, images: &[PathBuf]) -> Result<Vec<Nvme>> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let fill = |(index, from): (usize, &PathBuf)| {
            let image = folder.join(&format!("disk{index}"));
            ram::fill(from, &image)?;
            Ok(Nvme { image })
        };
        images.iter().enumerate().map(fill).collect()
    }
}

fn len_bytes(file: &Path) -> Result<u64> {
    Ok(std::fs::metadata(file).map_err(GuestError::io("cannot read", file))?.len())
}
