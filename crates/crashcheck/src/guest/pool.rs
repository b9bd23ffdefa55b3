//! Many images in few guests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::Folder;
use super::{Guest, Nvme, Output, Restore, Result, Snapshot, ram};

/// How a [`Worker`] works.
#[derive(Debug, Clone, Copy)]
pub struct Extraction<'a> {
    /// Run in the guest for each image. It leaves nothing mounted.
    pub script: &'a str,
    /// For each image.
    pub timeout: Duration,
    /// How many images one guest may see, one after the other. 1 is a fresh guest for each, where all starts from the same
    /// state. With more, what a guest costs is shared, and the time of day is another for each image. An image on which the script
    /// does not succeed is always done again in a fresh guest, and the next image gets a fresh one, too.
    pub images_per_guest: usize,
}

/// Looks at images one after the other: of PM, and of disks beside it.
///
/// A guest has its disks on files of the worker's own, which are filled again for each image: the recovery of the one before
/// has written to them, so what differs between the images is not all that differs. What the guest's kernel has cached of a
/// disk is gone when nothing has it open any more, that is once it is unmounted.
#[derive(Debug)]
pub struct Worker<'a> {
    snapshot: &'a Snapshot,
    how: Extraction<'a>,
    // In this order: the guest is gone before its disks are.
    guest: Option<Guest>,
    /// Images that the guest has seen, and disks that it has.
    seen: usize,
    disks: usize,
    folder: Option<Folder>,
}

impl<'a> Worker<'a> {
    /// One without a guest yet.
    pub fn new(snapshot: &'a Snapshot, how: Extraction<'a>) -> Self {
        Worker { snapshot, how, guest: None, seen: 0, disks: 0, folder: None }
    }

    /// What the script says of an image of PM and images of disks: whole blocks of 512 bytes, as long for each image. The files
    /// stay as they are.
    ///
    /// # Errors
    /// Those of [`Snapshot::restore`] and [`Guest::command`]: a panic while an image is mounted is one.
    pub fn extract(&mut self, pm: &Path, disks: &[PathBuf]) -> Result<Output> {
        let has_seen_all = self.seen >= self.how.images_per_guest || disks.len() != self.disks;
        let is_fresh = self.guest.is_none() || has_seen_all;
        let done = self.look(pm, disks, is_fresh);
        if done.as_ref().is_ok_and(Output::is_success) {
            return done;
        }
        self.guest = None;
        if is_fresh {
            return done;
        }
        let done = self.look(pm, disks, true);
        self.guest = None;
        done
    }

    fn look(&mut self, pm: &Path, disks: &[PathBuf], is_fresh: bool) -> Result<Output> {
        let guest = match self.guest.take().filter(|_| !is_fresh) {
            Some(mut guest) => {
                guest.write_pm(pm)?;
                self.fill(disks)?;
                self.seen += 1;
                guest
            }
            None => {
                (self.seen, self.disks) = (1, disks.len());
                let nvme = self.fill(disks)?;
                let restore = Restore { pm_image: Some(pm.to_owned()), nvme, ..Restore::default() };
                self.snapshot.restore(&restore)?
            }
        };
        self.guest.insert(guest).command(self.how.script, self.how.timeout)
    }

    /// Copies images of disks to where guests have them.
    fn fill(&mut self, disks: &[PathBuf]) -> Result<Vec<Nvme>> {
        if disks.is_empty() {
            return Ok(Vec::new());
        }
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => Folder::new(&self.snapshot.config().folder)?,
        };
        let folder = self.folder.insert(folder);
        let fill = |(index, disk): (usize, &PathBuf)| {
            let image = folder.join(&format!("disk{index}"));
            ram::fill(disk, &image)?;
            Ok(Nvme { image })
        };
        disks.iter().enumerate().map(fill).collect()
    }
}
