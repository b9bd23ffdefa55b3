//! Files that the cache knows.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use fastness_sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use fastness_sync::{Mutex, lock};

use crate::backing::{BackingFile, FileId, Stat};
use crate::board::SharedFile;
use crate::error::Error;
use crate::length::Length;
use crate::logged::Logged;
use crate::times::Times;

/// Every backing store holds files of this length; longer ones are asked for.
const FITS_BYTES: u64 = 1 << 31;

/// A file that is open, or has chunks in PM.
///
/// Concurrency: the locks are taken in this order: `size`, `flush`, a group of slots, `state`. No thread that
/// holds `flush` of a file takes `size` of any; `flush` of several is taken in the order of their keys.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) id: FileId,
    pub(crate) key: u64,
    pub(crate) tenant: u32,
    pub(crate) backing: Arc<dyn BackingFile>,
    pub(crate) size: Length,
    /// Held by whoever changes the file in the backing store: no older write arrives after a newer one.
    pub(crate) flush: Mutex<()>,
    modified_ns: AtomicU64,
    /// What is shown of its times.
    pub(crate) times: Times,
    /// Error number of the last flush, 0 if it succeeded.
    pub(crate) failure: AtomicI32,
    /// Region offset of what the last flush could not read, 0 if there was nothing.
    pub(crate) unreadable_at: AtomicU64,
    /// When the flush under way began, by the cache's clock; 0: there is none.
    pub(crate) flushing_since_ns: AtomicU64,
    /// It has a truncation that is not completed; changes while `size` is held alone.
    pub(crate) is_unfinished: AtomicBool,
    /// Somebody reads or writes it without a lease, so there are none until it has been closed.
    pub(crate) is_ordinary: AtomicBool,
    pub(crate) state: Mutex<FileState>,
    /// What the protocol Log knows of it.
    pub(crate) logged: Logged,
}

/// What else there is to know about it.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    pub(crate) opens: u32,
    /// It has no name any more; the number of its intent.
    pub(crate) removal: Option<usize>,
    /// Truncated, but the backing store has not confirmed that.
    pub(crate) truncation: Option<Truncation>,
}

/// A length that is not durable yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Truncation {
    pub(crate) size: u64,
    /// The number of its intent; a file that gets longer needs none.
    pub(crate) intent: Option<usize>,
}

impl File {
    /// Asks the backing store whether the file can get so long: what it can never take must not be
    /// acknowledged.
    ///
    /// # Errors
    /// `EFBIG`, and others of the backing store.
    pub(crate) fn check_fits(&self, len: u64, end: u64) -> Result<(), Error> {
        if end <= len.max(FITS_BYTES) {
            return Ok(());
        }
        self.backing.check_size(end).map_err(Error::backing("hold a file of that length"))
    }

    pub(crate) fn new(
        id: FileId,
        key: u64,
        tenant: u32,
        backing: Arc<dyn BackingFile>,
        (size, modified_ns): (u64, u64),
        shared: Option<SharedFile>,
    ) -> File {
        File {
            id,
            key,
            tenant,
            backing,
            size: Length::new(size, shared),
            flush: Mutex::new(()),
            modified_ns: AtomicU64::new(modified_ns),
            times: Times::default(),
            failure: AtomicI32::new(0),
            unreadable_at: AtomicU64::new(0),
            flushing_since_ns: AtomicU64::new(0),
            is_unfinished: AtomicBool::new(false),
            is_ordinary: AtomicBool::new(false),
            state: Mutex::new(FileState::default()),
            logged: Logged::default(),
        }
    }

    /// Timestamp of the last write, in ns since 1970.
    pub(crate) fn modified_ns(&self) -> &AtomicU64 {
        self.size.shared().map_or(&self.modified_ns, SharedFile::modified_ns)
    }

    /// What there is to show of its times and, `ask` says the rest.
    ///
    /// # Errors
    /// Those of `ask`.
    pub(crate) fn current(&self, ask: impl FnOnce() -> io::Result<Stat>) -> Result<Stat, Error> {
        let written_ns = self.modified_ns().load(Ordering::Relaxed);
        self.times.current(written_ns, ask).map_err(Error::backing("say what a file is"))
    }

    /// Sets the time of modification in the backing store, which has just been written to, to that of the
    /// last write, or truncation, of a program. Who may write to the file of another user may not do that:
    /// then the file has the time of the flush.
    ///
    /// # Errors
    /// Of the backing store.
    pub(crate) fn restore_time(&self) -> Result<(), Error> {
        match self.modified_ns().load(Ordering::Relaxed) {
            0 => Ok(()),
            modified_ns => self.set_time(modified_ns),
        }
    }

    /// As [`restore_time`](Self::restore_time), to another time.
    ///
    /// # Errors
    /// As [`restore_time`](Self::restore_time).
    pub(crate) fn set_time(&self, modified_ns: u64) -> Result<(), Error> {
        match self.backing.set_modified(modified_ns) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            set => set.map_err(Error::backing("set a file's time")),
        }
    }

    /// The backing store has just changed it for a program: its time counts.
    pub(crate) fn take_time(&self) {
        if let Ok(stat) = self.backing.stat() {
            self.modified_ns().fetch_max(stat.modified_ns, Ordering::Relaxed);
        }
    }

    /// Notes what has to be completed, or that it is; returns what was noted before.
    pub(crate) fn set_truncation(&self, truncation: Option<Truncation>) -> Option<Truncation> {
        self.is_unfinished.store(truncation.is_some(), Ordering::Relaxed);
        if let Some(shared) = self.size.shared() {
            shared.set_unfinished(truncation.is_some());
        }
        std::mem::replace(&mut lock(&self.state).truncation, truncation)
    }

    /// For how long a flush has been under way at `now_ns`.
    pub(crate) fn flushing_ns(&self, now_ns: u64) -> Option<u64> {
        let since = self.flushing_since_ns.load(Ordering::Relaxed);
        (since > 0).then(|| now_ns.saturating_sub(since))
    }

    pub(crate) fn failure(&self) -> Option<i32> {
        Some(self.failure.load(Ordering::Relaxed)).filter(|&errno| errno != 0)
    }
}

/// The files by what they are and by their keys.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    maps: Mutex<Maps>,
    /// Some file has a failed flush or an unfinished truncation; otherwise no flush looks through them all.
    has_trouble: AtomicBool,
}

#[derive(Debug, Default)]
struct Maps {
    by_id: HashMap<FileId, Arc<File>>,
    by_key: HashMap<u64, Arc<File>>,
}

impl FileTable {
    pub(crate) fn note_trouble(&self) {
        self.has_trouble.store(true, Ordering::Relaxed);
    }

    /// The files with a failed flush or an unfinished truncation; who deals with them notes what remains.
    pub(crate) fn take_trouble(&self) -> Vec<Arc<File>> {
        if !self.has_trouble.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let mut files = self.all();
        files.retain(|file| file.failure().is_some() || file.is_unfinished.load(Ordering::Relaxed));
        files
    }

    pub(crate) fn by_id(&self, id: FileId) -> Option<Arc<File>> {
        lock(&self.maps).by_id.get(&id).cloned()
    }

    pub(crate) fn by_key(&self, key: u64) -> Option<Arc<File>> {
        lock(&self.maps).by_key.get(&key).cloned()
    }

    /// Opens a file once more; `make` makes it if it is not known.
    pub(crate) fn open<E>(&self, id: FileId, make: impl FnOnce() -> Result<File, E>) -> Result<Arc<File>, E> {
        let mut maps = lock(&self.maps);
        let file = match maps.by_id.get(&id) {
            Some(file) => Arc::clone(file),
            None => maps.add(make()?),
        };
        lock(&file.state).opens += 1;
        Ok(file)
    }

    /// A file that nothing has open yet.
    pub(crate) fn add(&self, file: File) -> Arc<File> {
        lock(&self.maps).add(file)
    }

    /// Forgets a file that nothing has open, and that has no chunks.
    pub(crate) fn remove(&self, file: &File) {
        let mut maps = lock(&self.maps);
        maps.by_id.remove(&file.id);
        maps.by_key.remove(&file.key);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.maps).by_key.len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<File>> {
        let mut files: Vec<_> = lock(&self.maps).by_key.values().cloned().collect();
        files.sort_unstable_by_key(|file| file.key);
        files
    }
}

impl Maps {
    fn add(&mut self, file: File) -> Arc<File> {
        let file = Arc::new(file);
        self.by_id.insert(file.id, Arc::clone(&file));
        self.by_key.insert(file.key, Arc::clone(&file));
        file
    }
}
