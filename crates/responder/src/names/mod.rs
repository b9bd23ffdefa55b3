//! Names without waiting for a sync of the directory: a log of names in PM.
//!
//! A call changes the directory, which does not make that durable, then notes what it did in a record, which
//! is durable when the call returns. Later the directory is synced, and the records are free.
//!
//! # Why the directory first, and the record after it
//! A record says what was done, and which file it was done to: a new file has its number only then. A call
//! that fails below leaves no record. Crash cases:
//! 1. Before the record: the call has not returned. The directory may have its change, or not. Of a renaming
//!    it may have what earlier records of either name would undo by half: so it is announced by a record of
//!    its own, which counts if the directory has the renaming.
//! 2. After it: the change is made again, unless the directory has it ([`replay`]).
//! 3. In a sync: the records are there still, and are found done.
//! 4. In a recovery: the next one goes on with what it finds.
//!
//! What others make of a change that has no record yet must not be acknowledged before it is. Calls on the
//! same names and files wait for each other ([`locks`]). What is met for the first time, as a directory to
//! make a file in or as a file to write to, may be new: then creations that have begun are waited for.
//!
//! Two more things follow. A new file's bytes are not taken for durable below before its names are
//! ([`opened`]). And what is removed is held until its records are free, so that a number of an inode names
//! one file in the log.
//!
//! # Code map
//! ```text
//! record   what one call did           ring     reads the records of a log
//! log      the records in PM           locks    who waits for whom
//! sync     frees records               opened   open files: their bytes and their names
//! resolve  what records come to        replay   makes the directory so
//! ```

mod locks;
mod log;
mod opened;
mod record;
pub(crate) mod replay;
mod resolve;
mod ring;
mod sync;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use fastness_sync::atomic::{AtomicBool, AtomicI32, Ordering};
use fastness_sync::{Mutex, MutexGuard, lock};

use crate::backing::{Attributes, Backing, BackingNode, FileId};
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::tag::Seed;

pub(crate) use locks::{HeldNames, Wanted};
pub(crate) use log::Log;
pub(crate) use record::{Assignment, Record};
pub(crate) use ring::{Noted, Ring};

use locks::{Locks, Making};
use record::{Place, RECORD_LINES_MAX};
use sync::Unsynced;

/// A call has at most two records.
const ROOM_LINES: u64 = 2 * RECORD_LINES_MAX;
/// What is known to be durable or noted, until it is looked at again.
const SETTLED_MAX: usize = 1 << 16;

/// The log of names of a cache, and what it knows of names.
#[derive(Debug)]
pub(crate) struct Names<M> {
    backing: Arc<dyn Backing>,
    root: FileId,
    /// What is removed and held at a time: each takes a descriptor.
    graves_max: usize,
    state: Mutex<State<M>>,
    /// One sync at a time.
    syncing: Mutex<()>,
    locks: Locks,
    pub(crate) making: Making,
    settled: Mutex<HashSet<FileId>>,
    /// Something was done below that has no record, and was not synced.
    owes: AtomicBool,
    /// Error number of the last sync, 0 if it succeeded.
    failure: AtomicI32,
}

#[derive(Debug)]
struct State<M> {
    log: Log<M>,
    /// Lines that calls have reserved.
    reserved: u64,
    unsynced: Unsynced,
    /// Files that may exist only by records.
    recent: HashMap<FileId, Recent>,
}

/// What there is to know of a new file.
#[derive(Debug, Default)]
struct Recent {
    /// Its last record with attributes.
    number: u64,
    /// It has taken the place of another file.
    replaces: bool,
}

/// Room for the records of a call, until this is dropped.
#[derive(Debug)]
pub(crate) struct Room<'a, M: CacheMedium>(&'a Names<M>);

impl<M: CacheMedium> Drop for Room<'_, M> {
    fn drop(&mut self) {
        lock(&self.0.state).reserved -= ROOM_LINES;
    }
}

/// A name, and its directory, held.
#[derive(Debug)]
pub(crate) struct At {
    pub(crate) parent: Arc<dyn BackingNode>,
    pub(crate) place: Place,
}

/// What a call did, for its record.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) record: Record,
    /// Directories in which names changed, and files with other attributes.
    pub(crate) changed: Vec<(FileId, Arc<dyn BackingNode>)>,
    /// What lost a name.
    pub(crate) grave: Option<Arc<dyn BackingNode>>,
}

impl<M: CacheMedium> Names<M> {
    pub(crate) fn new(
        range: M,
        seed: Seed,
        backing: Arc<dyn Backing>,
        root: FileId,
        graves_max: usize,
    ) -> Names<M> {
        let unsynced = Unsynced::default();
        let state = State { log: Log::new(range, seed), reserved: 0, unsynced, recent: HashMap::new() };
        Names {
            backing,
            root,
            graves_max,
            state: Mutex::new(state),
            syncing: Mutex::new(()),
            locks: Locks::default(),
            making: Making::default(),
            settled: Mutex::new(HashSet::new()),
            owes: AtomicBool::new(false),
            failure: AtomicI32::new(0),
        }
    }

    /// The lock of one file: who holds it opens the file, or takes its last name.
    pub(crate) fn hold_file(&self, id: FileId) -> MutexGuard<'_, ()> {
        self.locks.hold_file(id)
    }

    pub(crate) fn hold(&self, wanted: &Wanted<'_>) -> HeldNames<'_> {
        self.locks.hold(wanted)
    }

    fn holds_graves(&self) -> bool {
        lock(&self.state).unsynced.graves() > 0
    }

    /// Whether the file may exist only by records.
    pub(crate) fn is_recent(&self, id: FileId) -> bool {
        lock(&self.state).recent.contains_key(&id)
    }

    /// Whether the bytes of the file may wait for its name: it is new, and nothing was given up for it. A
    /// directory that has lost its region would have an empty file in place of an older one.
    pub(crate) fn may_wait(&self, id: FileId) -> bool {
        lock(&self.state).recent.get(&id).is_some_and(|recent| !recent.replaces)
    }

    /// Waits until what was found below is durable, or has a record.
    ///
    /// # Errors
    /// It is neither, and cannot be synced.
    pub(crate) fn settle(&self, id: FileId) -> Result<(), Error> {
        if self.owes.load(Ordering::Acquire) {
            self.sync()?;
        }
        if id == self.root || lock(&self.settled).contains(&id) || self.is_recent(id) {
            return Ok(());
        }
        self.making.wait_for_earlier();
        // It was being made, and that has failed half way.
        if self.owes.load(Ordering::Acquire) {
            self.sync()?;
        }
        self.note_settled(id);
        Ok(())
    }

    fn note_settled(&self, id: FileId) {
        let mut settled = lock(&self.settled);
        if settled.len() >= SETTLED_MAX {
            settled.clear();
        }
        settled.insert(id);
    }

    pub(crate) fn node(
        &self,
        path: &Path,
        follows: bool,
    ) -> Result<(Arc<dyn BackingNode>, Attributes), Error> {
        let fail = Error::backing("say what a file is");
        let node = self.backing.node(path, follows).map_err(&fail)?;
        let attributes = node.attributes().map_err(&fail)?;
        Ok((node, attributes))
    }

    pub(crate) fn at(&self, path: &Path) -> Result<At, Error> {
        let invalid = || Error::backing("use a name")(std::io::ErrorKind::InvalidInput.into());
        let name = path.file_name().ok_or_else(invalid)?.to_owned();
        let fail = Error::backing("say what a directory is");
        let parent = self.backing.node(path.parent().unwrap_or(Path::new("")), true).map_err(&fail)?;
        let id = parent.id().map_err(&fail)?;
        self.settle(id)?;
        Ok(At { parent, place: Place { parent: id, name } })
    }

    /// Waits for room for the records of a call.
    ///
    /// # Errors
    /// There is none, and the directory cannot be synced; nothing was changed.
    pub(crate) fn reserve(&self) -> Result<Room<'_, M>, Error> {
        loop {
            if self.owes.load(Ordering::Acquire) {
                self.sync()?;
            }
            {
                let mut state = lock(&self.state);
                let has_room = state.log.free_lines() >= state.reserved + ROOM_LINES;
                if has_room && state.unsynced.graves() < self.graves_max {
                    state.reserved += ROOM_LINES;
                    return Ok(Room(self));
                }
                if state.log.used_lines() == 0 {
                    // All of it is reserved by others.
                    drop(state);
                    fastness_sync::thread::yield_now();
                    continue;
                }
            }
            self.sync()?;
        }
    }

    /// Notes what was done; without a record, if it is too long for one, by a sync.
    ///
    /// Persistence: what was done is durable on return.
    ///
    /// # Errors
    /// It may be lost, unless a later call succeeds.
    pub(crate) fn note(&self, room: &Room<'_, M>, done: Done) -> Result<(), Error> {
        let made = done.record.attributes.as_ref().map(|attributes| attributes.id);
        let encoded = done.record.encode();
        let mut state = lock(&room.0.state);
        let tail = state.log.tail();
        for (id, node) in done.changed {
            state.unsynced.change(id, node);
        }
        // Something has the name of what lost it.
        for id in done.record.names.iter().filter(|_| done.grave.is_some()).filter_map(|name| name.after) {
            state.recent.entry(id).and_modify(|recent| recent.replaces = true);
        }
        state.unsynced.bury(tail, done.grave);
        let Some((bytes, lines)) = encoded else {
            drop(state);
            return self.sync_debt();
        };
        let number = state.log.append(bytes, lines)?;
        if let Some(id) = made {
            state.recent.entry(id).or_default().number = number;
        }
        Ok(())
    }

    /// Notes what is about to be done.
    ///
    /// Persistence: durable on return.
    pub(crate) fn announce(&self, room: &Room<'_, M>, record: &Record) -> Result<(), Error> {
        let announced = Record { is_announced: true, ..record.clone() };
        let Some((bytes, lines)) = announced.encode() else { return Ok(()) };
        lock(&room.0.state).log.append(bytes, lines).map(drop)
    }

    /// Makes durable what was done and has no record.
    pub(crate) fn sync_debt(&self) -> Result<(), Error> {
        self.owes.store(true, Ordering::Release);
        self.sync()
    }

    /// Records that the directory has not confirmed, and the error number of the last sync that failed.
    pub(crate) fn status(&self) -> (u64, Option<i32>) {
        let records = lock(&self.state).unsynced.records();
        (records, Some(self.failure.load(Ordering::Relaxed)).filter(|errno| *errno != 0))
    }

    /// What a crash has left in the log, and whether an earlier recovery has made the directory so.
    ///
    /// # Errors
    /// [`Error::Names`]: it is damaged; [`Error::Read`].
    pub(crate) fn recover(&self) -> Result<(Vec<Noted>, bool), Error> {
        lock(&self.state).log.recover()
    }

    /// Notes which file a recovery has made in place of one.
    pub(crate) fn substitute(&self, noted: &Noted, id: FileId) -> Result<(), Error> {
        lock(&self.state).log.substitute(noted, id)
    }

    /// Notes that the directory is as the records say.
    ///
    /// Persistence: durable on return.
    pub(crate) fn set_replayed(&self) -> Result<(), Error> {
        lock(&self.state).log.set_replayed()
    }

    /// All records are free: the directory has everything.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        let tail = state.log.tail();
        state.log.trim(tail)
    }
}

/// Directories by what they are.
type Nodes = BTreeMap<FileId, Arc<dyn BackingNode>>;
