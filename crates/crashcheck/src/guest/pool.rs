//! Many extractions, some at a time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Guest, Output, Restore, Result, Snapshot};

/// How [`extract_all`] works.
#[derive(Debug, Clone, Copy)]
pub struct Extraction<'a> {
    /// Run in the guest for each image. It leaves nothing mounted.
    pub script: &'a str,
    /// For each image.
    pub timeout: Duration,
    /// Guests at a time; at least one.
    pub parallel: usize,
    /// How many images one guest may see, one after the other. 1 is a fresh guest for each, where all starts from the same
    /// state. With more, what a guest costs is shared, and the time of day is another for each image. An image on which the script
    /// does not succeed is always done again in a fresh guest, and the next image gets a fresh one, too.
    pub images_per_guest: usize,
}

/// Extracts the state of each image, and hands the results to `sink` as they come, with the image's number in `images`.
///
/// Concurrency: `sink` is called by one thread at a time. A guest that fails is a result like others.
pub fn extract_all(
    snapshot: &Snapshot,
    images: impl IntoIterator<Item = PathBuf, IntoIter: Send>,
    how: Extraction<'_>,
    sink: impl FnMut(usize, &Path, Result<Output>) + Send,
) {
    let images = Mutex::new(images.into_iter().enumerate());
    let sink = Mutex::new(sink);
    thread::scope(|scope| {
        for _ in 0..how.parallel.max(1) {
            scope.spawn(|| {
                let mut worker = Worker::new(snapshot, how);
                // A statement of its own: the lock is not held while the guest runs.
                while let Some((number, image)) =
                    { images.lock().unwrap_or_else(PoisonError::into_inner).next() }
                {
                    let found = worker.extract(&image);
                    sink.lock().unwrap_or_else(PoisonError::into_inner)(number, &image, found);
                }
            });
        }
    });
}

/// Looks at images one after the other.
#[derive(Debug)]
pub struct Worker<'a> {
    snapshot: &'a Snapshot,
    how: Extraction<'a>,
    guest: Option<Guest>,
    /// Images that the guest has seen.
    seen: usize,
}

impl<'a> Worker<'a> {
    /// One without a guest yet; [`Extraction::parallel`] is nothing to it.
    pub fn new(snapshot: &'a Snapshot, how: Extraction<'a>) -> Self {
        Worker { snapshot, how, guest: None, seen: 0 }
    }

    /// The state of an image.
    ///
    /// # Errors
    /// Those of [`Snapshot::extract`].
    pub fn extract(&mut self, image: &Path) -> Result<Output> {
        if self.how.images_per_guest <= 1 {
            return self.snapshot.extract(image, self.how.script, self.how.timeout);
        }
        let is_fresh = self.guest.is_none() || self.seen >= self.how.images_per_guest;
        let done = self.in_guest(image, is_fresh);
        if !done.as_ref().is_ok_and(Output::is_success) {
            self.guest = None;
            if !is_fresh {
                return self.snapshot.extract(image, self.how.script, self.how.timeout);
            }
        }
        done
    }

    fn in_guest(&mut self, image: &Path, is_fresh: bool) -> Result<Output> {
        let mut guest = match self.guest.take().filter(|_| !is_fresh) {
            Some(mut guest) => {
                guest.write_pm(image)?;
                self.seen += 1;
                guest
            }
            None => {
                self.seen = 1;
                self.snapshot.restore(&Restore { pm_image: Some(image.to_owned()), ..Restore::default() })?
            }
        };
        let done = guest.command(self.how.script, self.how.timeout);
        self.guest = Some(guest);
        done
    }
}
