//! How many descriptors this process may have, and what they are for.
//!
//! A file that is open takes up to three: one without access, one that keeps it writable, and the cache's. So
//! an eighth of the limit may be open, a sixteenth is for files that the kernel knows (`nodes`), and as much
//! for what the cache keeps open for a while. The rest is for what requests need while they are carried out:
//! up to ten each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastness_fuse::{Caller, Errno, Reply};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::FrontError;

/// What the cache keeps open where there are enough.
const IDLE_FILES_MAX: u64 = 1024;
/// How long a program waits for files that were closed.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);
/// With fewer than so many nothing works.
const LEAST: u64 = 64;

/// The limit of this process, and what has met it.
#[derive(Debug)]
pub(crate) struct Descriptors {
    most: u64,
    open: AtomicU64,
    refused: AtomicU64,
}

/// A file or directory that a program has open, until this is dropped.
#[derive(Debug)]
pub(crate) struct Opening(Arc<Descriptors>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Raises the limit of this process as far as it may go.
fn raise() {
    let now = getrlimit(Resource::Nofile);
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most = most.and_then(|most| most.trim().parse().ok());
    let more = most.max(now.maximum).filter(|_| now.maximum.is_some());
    // More than allowed is for root; if the limit stays as it is, fewer files can be open.
    let set = |maximum| setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let _ = set(more).or_else(|_| set(now.maximum));
}

impl Descriptors {
    /// Those of this process, of which there are as many as it may have from now on.
    ///
    /// # Errors
    /// [`FrontError::Refused`]: too few for anything.
    pub(crate) fn raised() -> Result<Descriptors, FrontError> {
        raise();
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if most < LEAST {
            return Err(FrontError::Refused(format!(
                "the server may have {most} files open at a time, and needs {LEAST}: raise the limit (`ulimit -Hn`)"
            )));
        }
        Ok(Descriptors::of(most))
    }

    pub(crate) fn of(most: u64) -> Descriptors {
        Descriptors { most: most.max(LEAST), open: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// The limit.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Files and directories that programs may have open at a time.
    pub(crate) fn open_max(&self) -> u64 {
        self.most / 8
    }

    /// Files that the kernel knows and that are held by a descriptor.
    pub(crate) fn nodes_max(&self) -> usize {
        usize::try_from(self.most / 16).unwrap_or(usize::MAX)
    }

    /// For the cache ([`fastness_responder::Options::files_max`]), which keeps four times as many new ones.
    pub(crate) fn idle_files_max(&self) -> usize {
        (self.most / 64).min(IDLE_FILES_MAX) as usize
    }

    /// Files that a recovery has open at a time ([`fastness_responder::Options::recovery_files`]), before
    /// there are programs.
    pub(crate) fn recovery_files(&self) -> usize {
        usize::try_from(self.most / 4).unwrap_or(usize::MAX)
    }

    /// Requests that are carried out at a time.
    pub(crate) fn threads_max(&self, usual: usize) -> usize {
        usual.min((self.most / 32) as usize).max(4)
    }

    /// One more is about to be opened.
    ///
    /// # Errors
    /// [`Errno::MFILE`]: there may not be one more.
    pub(crate) fn open(self: &Arc<Self>) -> Reply<Opening> {
        let one_more = |open| (open < self.open_max()).then_some(open + 1);
        let opened = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        opened.map(|_| Opening(self.clone())).map_err(|_| Errno::MFILE)
    }

    /// As [`open`](Self::open), for a program: the kernel tells of what was closed a moment later.
    ///
    /// # Errors
    /// As [`open`](Self::open), after a second; [`Errno::AGAIN`]: the request was put off.
    pub(crate) fn open_for(self: &Arc<Self>, caller: Caller<'_>) -> Reply<Opening> {
        let begun = Instant::now();
        loop {
            if let Ok(opening) = self.open() {
                return Ok(opening);
            }
            if !caller.may_wait() {
                caller.put_off();
                return Err(Errno::AGAIN);
            }
            if begun.elapsed() > PATIENCE || caller.is_interrupted() {
                self.refused();
                return Err(Errno::MFILE);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A program was refused something for want of descriptors.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// What is open now, and how often there were none left.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.open.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_fits() {
        for most in [64, 256, 1024, 20_000, 1 << 20, u64::MAX] {
            let given = Descriptors::of(most);
            let of_cache = 5 * given.idle_files_max() as u64;
            let of_requests = 10 * given.threads_max(64) as u64;
            let used = [3 * given.open_max(), given.nodes_max() as u64, of_cache, of_requests];
            let used: u128 = used.iter().map(|used| u128::from(*used)).sum();
            assert!(most < 256 || used <= u128::from(most) * 7 / 8, "{used} of {most}");
            assert!(given.open_max() >= 8 && given.nodes_max() >= 4 && given.idle_files_max() >= 1);
        }
    }

    #[test]
    fn the_last_one_is_refused() {
        let given = Arc::new(Descriptors::of(64));
        let mut opened: Vec<_> = (0..given.open_max()).map(|_| given.open().unwrap()).collect();
        assert_eq!(given.open().unwrap_err(), Errno::MFILE);
        opened.pop();
        opened.push(given.open().unwrap());
        assert_eq!(given.counts(), (given.open_max(), 0));
        drop(opened);
        assert_eq!(given.counts(), (0, 0));
    }
}
