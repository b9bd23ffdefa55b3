//! Who waits for whom: calls that change the same names or files.
//!
//! A call holds the locks of its names and files while the directory changes and until its record is durable,
//! so records of a name are in the order of the changes. Names of other files do not wait.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use fastness_sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use fastness_sync::{lock, read, wait, write};

use crate::backing::FileId;

use super::record::Place;

/// Names and files share locks by their hash.
const LOCKS: usize = 512;

/// The locks of names and files.
#[derive(Debug)]
pub(crate) struct Locks {
    /// Shared by who changes names in a directory; held alone by who removes the directory.
    directories: Vec<RwLock<()>>,
    others: Vec<Mutex<()>>,
}

/// What a call needs.
#[derive(Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// Names that change.
    pub(crate) places: Vec<&'a Place>,
    /// Files that get or lose a name.
    pub(crate) files: Vec<FileId>,
    /// Directories that may be removed.
    pub(crate) removed: Vec<FileId>,
}

/// Locks, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct HeldNames<'a> {
    _shared: Vec<RwLockReadGuard<'a, ()>>,
    _alone: Vec<RwLockWriteGuard<'a, ()>>,
    _others: Vec<MutexGuard<'a, ()>>,
}

fn number(of: impl std::hash::Hash) -> usize {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of) as usize % LOCKS
}

fn of_file(id: FileId) -> usize {
    number((id.inode, id.generation))
}

fn of_place(place: &Place) -> usize {
    number((place.parent.inode, place.parent.generation, &place.name))
}

impl Default for Locks {
    fn default() -> Locks {
        let directories = (0..LOCKS).map(|_| RwLock::new(())).collect();
        Locks { directories, others: (0..LOCKS).map(|_| Mutex::new(())).collect() }
    }
}

impl Locks {
    /// Takes all of them, in the order of their numbers: no two threads wait for each other.
    pub(crate) fn hold(&self, wanted: &Wanted<'_>) -> HeldNames<'_> {
        let mut held = HeldNames::default();
        let alone: BTreeSet<usize> = wanted.removed.iter().map(|id| of_file(*id)).collect();
        let parents = wanted.places.iter().map(|place| of_file(place.parent));
        let all: BTreeSet<usize> = parents.chain(alone.iter().copied()).collect();
        for number in all {
            if alone.contains(&number) {
                held._alone.push(write(&self.directories[number]));
            } else {
                held._shared.push(read(&self.directories[number]));
            }
        }
        let places = wanted.places.iter().map(|place| of_place(place));
        let others: BTreeSet<usize> = places.chain(wanted.files.iter().map(|id| of_file(*id))).collect();
        held._others.extend(others.into_iter().map(|number| lock(&self.others[number])));
        held
    }

    /// The lock of one file.
    pub(crate) fn hold_file(&self, id: FileId) -> MutexGuard<'_, ()> {
        lock(&self.others[of_file(id)])
    }
}

/// Files that are being made: others find them before their record is there.
#[derive(Debug, Default)]
pub(crate) struct Making {
    state: Mutex<InFlight>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct InFlight {
    next: u64,
    active: BTreeSet<u64>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
pub(crate) struct BeingMade<'a> {
    making: &'a Making,
    ticket: u64,
}

impl Making {
    /// The caller waits for no lock, and for no other creation, until it drops the answer.
    pub(crate) fn begin(&self) -> BeingMade<'_> {
        let mut state = lock(&self.state);
        let ticket = state.next;
        state.next += 1;
        state.active.insert(ticket);
        BeingMade { making: self, ticket }
    }

    /// Waits until all have ended that have begun.
    pub(crate) fn wait_for_earlier(&self) {
        let mut state = lock(&self.state);
        let now = state.next;
        while state.active.first().is_some_and(|first| *first < now) {
            state = wait(&self.ended, state);
        }
    }
}

impl Drop for BeingMade<'_> {
    fn drop(&mut self) {
        lock(&self.making.state).active.remove(&self.ticket);
        self.making.ended.notify_all();
    }
}
