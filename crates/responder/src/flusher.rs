//! A thread that writes dirty chunks to the directory, time after time.

use std::sync::Arc;
use std::time::Duration;

use fastness_sync::{Condvar, Mutex, lock, thread, wait_for};

use crate::cache::Cache;
use crate::medium::CacheMedium;

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
    /// Starts the thread; it flushes for the first time after a period.
    pub fn start<M: CacheMedium + 'static>(cache: Arc<Cache<M>>, period: Duration) -> Flusher {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let flush = move || {
            let mut stop = lock(&stopped.0);
            while !*stop {
                stop = wait_for(&stopped.1, stop, period);
                if *stop {
                    return;
                }
                drop(stop);
                // An error is kept with its file, for the status.
                let _ = cache.tend();
                stop = lock(&stopped.0);
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
