//! A thread that writes dirty chunks to the directory, time after time.

use std::sync::Arc;
use std::time::Duration;

use fastness_sync::atomic::Ordering;
use fastness_sync::{Condvar, Mutex, lock, thread, wait_for};

use crate::cache::Cache;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::protocol::Protocol;

/// The period that suits a local disk; slow backing stores want a longer one.
pub const PERIOD_DEFAULT: Duration = Duration::from_millis(10);

/// Flushes a cache periodically until it is dropped. Errors are in the cache's status; what was not written
/// is tried again in the next period.
#[derive(Debug)]
pub struct Flusher {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread.
    pub fn start<M: CacheMedium + 'static>(cache: Arc<Cache<M>>, period: Duration) -> Flusher {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let flush = move || {
            let mut stop = lock(&stopped.0);
            while !*stop {
                drop(stop);
                // An error is kept with its file, for the status.
                let _ = cache.flush_in_background();
                stop = lock(&stopped.0);
                if !*stop {
                    stop = wait_for(&stopped.1, stop, period);
                }
            }
        };
        Flusher { stop, thread: Some(thread::spawn(flush)) }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by itself.
            let _ = thread.join();
        }
    }
}

impl<M: CacheMedium> Cache<M> {
    /// Writes everything to the files that they do not have yet.
    pub(crate) fn flush_files(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for file in self.files.take_trouble() {
            // Its length is not held while it is flushed: writes go on.
            let finished = match file.is_unfinished.load(Ordering::Relaxed) {
                true => file.size.hold().and_then(|_size| self.finish_truncation(&file)),
                false => Ok(()),
            };
            let finished = finished.and_then(|()| self.protocol.flush(Some(&file)));
            if finished.is_err() {
                self.files.note_trouble();
            }
            result = result.and(finished);
        }
        result.and(self.protocol.flush(None))
    }

    /// What a flusher does: as [`flush`](Self::flush), but names are synced once there is a reason to.
    pub(crate) fn flush_in_background(&self) -> Result<(), Error> {
        let (flushed, synced) = (self.flush_files(), self.names.sync_if_due());
        flushed.and(synced)
    }
}
