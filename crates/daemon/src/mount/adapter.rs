//! A mounted file system: how its operations are carried out, and what the kernel knows of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_base::chain;
use fastness_fuse::{Caller, Entry, Errno, Reply};
use fastness_store::{Attached, Outcome};
use fastness_sync::{Mutex, lock};
use fastness_zpl::{Attributes, FileSystem, FsError, Ino};

use crate::journal::Journal;
use crate::mount::known::Known;
use crate::mount::translate::entry;

/// Files that nothing uses any more, and that could not be erased then: the pool was suspended. As many as
/// the kernel knew.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    files: Mutex<Vec<Ino>>,
    are_there: AtomicBool,
}

impl Owed {
    fn add(&self, ino: Ino) {
        lock(&self.files).push(ino);
        self.are_there.store(true, Ordering::SeqCst);
    }

    fn take(&self) -> Vec<Ino> {
        match self.are_there.swap(false, Ordering::SeqCst) {
            true => std::mem::take(&mut *lock(&self.files)),
            false => Vec::new(),
        }
    }
}

/// A mounted file system.
pub(crate) struct Adapter {
    pub(crate) fs: Arc<Attached<FileSystem>>,
    pub(crate) known: Known,
    pub(crate) owed: Owed,
    pub(crate) journal: Arc<Journal>,
    pub(crate) is_read_only: bool,
    /// Reads leave the time of access as it is.
    pub(crate) keeps_access_time: bool,
}

impl Adapter {
    /// Carries out an operation; while the pool is suspended and `failmode` says to wait, it is put off, or
    /// waits if it may. Errors of media go to the journal, with their causes.
    pub(super) fn run<T>(
        &self,
        caller: Caller<'_>,
        mut act: impl FnMut(&FileSystem) -> Result<T, FsError>,
    ) -> Reply<T> {
        let mut value = None;
        let outcome = self.fs.run_until(
            || caller.is_interrupted() || !caller.may_wait(),
            |fs| {
                value = Some(act(fs)?);
                Ok(())
            },
        );
        match outcome {
            Outcome::Done(Ok(())) => Ok(value.expect("it was carried out")),
            Outcome::Done(Err(error)) => Err(self.number(&error)),
            Outcome::Ended if caller.is_interrupted() => Err(Errno::INTR),
            Outcome::Ended if !caller.may_wait() => {
                caller.put_off();
                Err(Errno::AGAIN)
            }
            Outcome::Ended => Err(Errno::NOTCONN),
        }
    }

    pub(super) fn change<T>(
        &self,
        caller: Caller<'_>,
        act: impl FnMut(&FileSystem) -> Result<T, FsError>,
    ) -> Reply<T> {
        if self.is_read_only {
            return Err(Errno::ROFS);
        }
        let changed = self.run(caller, act)?;
        // A step of its own: after a suspension it is tried again, and the change is not.
        match self.run(caller, FileSystem::commit_if_always) {
            Err(_) if caller.is_put_off() => caller.put_off_the_rest(),
            committed => committed?,
        }
        Ok(changed)
    }

    /// Does what no program waits for; not while the pool is suspended, because it would wait in a thread
    /// that serves others. Returns false if it was not done because of that.
    pub(super) fn tidy(&self, act: impl FnOnce(&FileSystem) -> Result<(), FsError>) -> bool {
        if self.is_read_only {
            return true;
        }
        if self.fs.is_suspended() {
            return false;
        }
        let Some(fs) = self.fs.get() else { return false };
        let Err(error) = act(&fs) else { return true };
        drop(fs);
        self.number(&error);
        !self.fs.is_suspended()
    }

    /// The number that a program gets for an error. What is wrong with the medium is noted, with its causes.
    fn number(&self, error: &FsError) -> Errno {
        let errno = error.errno();
        if errno == Errno::IO {
            self.journal.warn(format!("{}: {}", self.fs.name(), chain(error)));
        }
        errno
    }

    /// Tells the kernel of a new file.
    pub(super) fn told(&self, of: &Attributes) -> Entry {
        self.known.add(of.ino);
        entry(of)
    }

    /// A file has lost its last name: it goes, unless the kernel knows it.
    pub(super) fn gone(&self, gone: Option<Ino>) {
        if let Some(ino) = gone {
            self.reap(ino);
        }
    }

    /// Erases a file, and those that could not be erased before. If this fails for another reason than that
    /// the pool is suspended, the next mount erases it.
    fn reap(&self, ino: Ino) {
        for ino in self.owed.take().into_iter().chain([ino]) {
            if !self.tidy(|fs| fs.reap_unless(ino, || self.known.has(ino))) {
                self.owed.add(ino);
            }
        }
    }

    /// The kernel has forgotten a file so often.
    pub(super) fn forgotten(&self, ino: Ino, times: u64) {
        if self.known.sub(ino, times) && ino != Ino::ROOT {
            self.reap(ino);
        }
    }

    /// Attributes of a file that the kernel is to be told of: counted first, so that it is not erased
    /// meanwhile.
    pub(super) fn known_attributes(&self, fs: &FileSystem, ino: Ino) -> Result<Attributes, FsError> {
        self.known.add(ino);
        fs.attributes(ino).map_err(|error| {
            if self.known.sub(ino, 1) {
                // It may have lost its last name meanwhile, and was kept because of this.
                self.owed.add(ino);
            }
            match error {
                FsError::Stale(_) => FsError::NotFound,
                error => error,
            }
        })
    }
}
