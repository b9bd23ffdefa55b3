//! Many extractions, some at a time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Output, Result, Snapshot};

/// Extracts the state of each image, `parallel` guests at a time (at least one), and hands the results to `sink` as they
/// come, with the image's number in `images`.
///
/// Concurrency: `sink` is called by one thread at a time. A guest that fails is a result like others.
pub fn extract_all(
    snapshot: &Snapshot,
    images: impl IntoIterator<Item = PathBuf, IntoIter: Send>,
    script: &str,
    timeout: Duration,
    parallel: usize,
    sink: impl FnMut(usize, &Path, Result<Output>) + Send,
) {
    let images = Mutex::new(images.into_iter().enumerate());
    let sink = Mutex::new(sink);
    thread::scope(|scope| {
        for _ in 0..parallel.max(1) {
            scope.spawn(|| {
                // A statement of its own: the lock is not held while the guest runs.
                while let Some((number, image)) =
                    { images.lock().unwrap_or_else(PoisonError::into_inner).next() }
                {
                    let found = snapshot.extract(&image, script, timeout);
                    sink.lock().unwrap_or_else(PoisonError::into_inner)(number, &image, found);
                }
            });
        }
    });
}
