//! The length of a file, under the lock that says who may change it: in this process, or between several.

use std::ops::{Deref, DerefMut};

use fastness_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, read, write};

use crate::board::SharedFile;
use crate::error::Error;

/// A length in bytes, with what the backing store does not have yet.
///
/// Concurrency: who changes it holds it alone; reads and writes inside of the file share it. If other
/// processes use the file, everyone holds it alone: their lock knows no readers.
#[derive(Debug)]
pub(crate) struct Length {
    /// The length; a copy of the shared one, if there is one.
    own: RwLock<u64>,
    shared: Option<SharedFile>,
}

/// The length, held alone.
#[derive(Debug)]
pub(crate) struct HeldLength<'a> {
    own: RwLockWriteGuard<'a, u64>,
    shared: Option<&'a SharedFile>,
}

/// The length, which others may read meanwhile.
#[derive(Debug)]
pub(crate) enum SharedLength<'a> {
    Read(RwLockReadGuard<'a, u64>),
    Held(HeldLength<'a>),
}

impl Length {
    pub(crate) fn new(size: u64, shared: Option<SharedFile>) -> Length {
        Length { own: RwLock::new(size), shared }
    }

    /// What other processes see of the file.
    pub(crate) fn shared(&self) -> Option<&SharedFile> {
        self.shared.as_ref()
    }

    /// # Errors
    /// [`Error::NotServed`], never in the process that serves.
    pub(crate) fn hold(&self) -> Result<HeldLength<'_>, Error> {
        // The lock between processes first: with it, the other one is free.
        if let Some(shared) = &self.shared {
            shared.lock()?;
        }
        let mut own = write(&self.own);
        if let Some(shared) = &self.shared {
            *own = shared.size();
        }
        Ok(HeldLength { own, shared: self.shared.as_ref() })
    }

    /// # Errors
    /// As [`hold`](Self::hold).
    pub(crate) fn share(&self) -> Result<SharedLength<'_>, Error> {
        match self.shared {
            Some(_) => self.hold().map(SharedLength::Held),
            None => Ok(SharedLength::Read(read(&self.own))),
        }
    }
}

impl Deref for HeldLength<'_> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.own
    }
}

impl DerefMut for HeldLength<'_> {
    fn deref_mut(&mut self) -> &mut u64 {
        &mut self.own
    }
}

impl Drop for HeldLength<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared {
            shared.set_size(*self.own);
            shared.unlock();
        }
    }
}

impl Deref for SharedLength<'_> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        match self {
            SharedLength::Read(length) => length,
            SharedLength::Held(length) => length,
        }
    }
}
