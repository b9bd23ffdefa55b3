//! The cache: files opened through it, and what is in PM for them.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use fastness_sync::atomic::{AtomicBool, Ordering};
use fastness_sync::{Mutex, lock};

use crate::backing::{Backing, BackingFile, FileId, Stat};
use crate::chunks::Found;
use crate::error::Error;
use crate::file::{File, FileTable};
use crate::intent::Intents;
use crate::key::Keys;
use crate::medium::CacheMedium;
use crate::names::Names;
use crate::protocol::Protocol;
use crate::protocols::Protocols;
use crate::stats::Status;
use crate::superblock::Superblock;

/// A file that is open; [`Cache::close`] closes it.
#[derive(Debug)]
#[must_use = "a file that is not closed stays open"]
pub struct Handle {
    pub(crate) file: Arc<File>,
}

/// Durable writes in PM in front of a directory.
///
/// Persistence: a write is durable when it returns, and so is every change of names and lengths. After a
/// crash the cache has all of them, and at most one call that had not returned, completely or not at all; the
/// directory alone has them after [`flush`](Self::flush). *With the protocol Log*
/// ([`crate::ProtocolKind::Log`]) a write is durable after [`sync`](Self::sync), or when
/// [`write_synced`](Self::write_synced) has made it; until then a crash may take any part of it.
/// Concurrency: any number of threads of one process. A write is atomic for readers up to 256 chunks; with
/// the protocol Log, as far as the backing store does that.
#[derive(Debug)]
pub struct Cache<M: CacheMedium> {
    pub(crate) protocol: Protocols<M>,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) files: Arc<FileTable>,
    pub(crate) intents: Mutex<Intents<M>>,
    pub(crate) keys: Mutex<Keys>,
    /// Files that were not in the directory when the cache was opened, and have chunks.
    pub(crate) orphans: Mutex<BTreeMap<FileId, Found>>,
    pub(crate) names: Arc<Names<M>>,
    /// Files without names that a flush was under way of: the flusher forgets them.
    pub(crate) departed: Mutex<Vec<Arc<File>>>,
    /// What the backing store has of a file without a name may not be all that was written to it.
    pub(crate) has_lost: AtomicBool,
    pub(crate) superblock: Superblock,
    /// Files that stay open below the cache although nothing has them open above it.
    pub(crate) files_max: usize,
}

impl<M: CacheMedium> Cache<M> {
    /// Opens a file below the directory. With `create`, a file that is not there is made with that mode,
    /// durably. `tenant` says whose files it resembles in length.
    ///
    /// # Errors
    /// [`Error`], of the backing store most of all; `ESTALE` if `path` leads through a descriptor to a file
    /// that has lost its last name, and the directory could not be given its bytes then.
    pub fn open_file(&self, path: &Path, create: Option<u32>, tenant: u32) -> Result<Handle, Error> {
        let backing = match self.backing.open(path, None) {
            Err(error) if create.is_some() && error.kind() == ErrorKind::NotFound => {
                self.make(path, || self.backing.open(path, create))?
            }
            opened => opened.map_err(Error::backing("open a file"))?.0,
        };
        self.open_found(backing, tenant)
    }

    /// Opens a file that was found below, and may have lost its name since.
    fn open_found(&self, backing: Arc<dyn BackingFile>, tenant: u32) -> Result<Handle, Error> {
        let stat = || backing.stat().map_err(Error::backing("say what a file is"));
        let id = stat()?.id;
        if self.files.by_id(id).is_none() {
            // Nothing is written to a file whose name has no record yet.
            self.names.settle(id)?;
        }
        // It loses no name meanwhile.
        let _held = self.names.hold_file(id);
        let stat = stat()?;
        let file = self.files.open(id, || {
            let geometry = self.superblock.geometry;
            let chunks = stat.size.div_ceil(geometry.chunk_bytes);
            if let Some(orphan) = self.take_orphan(id)? {
                self.protocol.adopt(id, &backing)?;
                let stat = backing.stat().map_err(Error::backing("say what a file is"))?;
                let (size, modified_ns) =
                    (stat.size.max(orphan.end), stat.modified_ns.max(orphan.modified_ns));
                return Ok(self.new_file(id, orphan.key, tenant, backing, (size, modified_ns)));
            }
            let key = lock(&self.keys).give(tenant, chunks, geometry.slots)?;
            let file = self.new_file(id, key, tenant, backing, (stat.size, stat.modified_ns));
            lock(&file.state).removal = self.removal_of(&stat)?;
            Ok::<_, Error>(file)
        })?;
        Ok(Handle { file })
    }

    /// Closes a file. If it has no name any more and nothing else has it open, it is gone.
    ///
    /// # Errors
    /// [`Error`]; the file is closed nevertheless.
    pub fn close(&self, handle: Handle) -> Result<(), Error> {
        if lock(&handle.file.state).removal.is_some() {
            // If it cannot, the removal tells.
            let _ = self.protocol.prepare_cut();
        }
        let mut state = lock(&handle.file.state);
        state.opens -= 1;
        if state.opens > 0 {
            return Ok(());
        }
        handle.file.is_ordinary.store(false, Ordering::Relaxed);
        if let Some(shared) = handle.file.size.shared() {
            // Nothing has it open: nothing uses a lease of it.
            shared.set_leased(false);
        }
        let is_removed = state.removal.is_some();
        drop(state);
        match is_removed {
            true => self.forget_unused(&handle.file),
            false if self.are_many(&handle.file) => self.release(&handle.file),
            false => Ok(()),
        }
    }

    /// Whether a file that nothing has open any more has to go. What the flusher will flush soon can stay.
    fn are_many(&self, file: &File) -> bool {
        let len = self.files.len();
        // New ones are released once they are flushed.
        len > self.files_max && (len > 4 * self.files_max || !self.names.is_recent(file.id))
    }

    /// Gives up a file that nothing has open, so that not every file that was ever open stays open below.
    fn release(&self, file: &File) -> Result<(), Error> {
        let _held = self.names.hold_file(file.id);
        if lock(&file.state).opens > 0 || self.files.by_id(file.id).is_none() {
            return Ok(());
        }
        let size = file.size.hold()?;
        self.finish_truncation(file)?;
        if self.protocol.release(file, *size)? {
            self.files.remove(file);
        }
        Ok(())
    }

    /// Tells the Stride Table.
    pub(crate) fn resized(&self, file: &File, before: u64, now: u64) {
        let chunks = |size: u64| size.div_ceil(self.superblock.geometry.chunk_bytes);
        if chunks(before) != chunks(now) {
            lock(&self.keys).resized(file.tenant, chunks(before), Some(chunks(now)));
        }
    }

    /// Reads from `offset` on, up to the end of the file; returns how many bytes.
    ///
    /// # Errors
    /// [`Error`]; what is in `buffer` then counts for nothing.
    pub fn read(&self, handle: &Handle, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let size = handle.file.size.share()?;
        let len = buffer.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        self.protocol.read(&handle.file, offset, &mut buffer[..len])?;
        Ok(len)
    }

    /// What there is to know about an open file; length and time are those of the last write.
    ///
    /// # Errors
    /// Of the backing store.
    pub fn stat(&self, handle: &Handle) -> Result<Stat, Error> {
        Self::with_cached(&handle.file, || handle.file.backing.stat())
    }

    /// As [`stat`](Self::stat), of a name.
    ///
    /// # Errors
    /// Of the backing store.
    pub fn stat_path(&self, path: &Path) -> Result<Stat, Error> {
        let stat = self.backing.stat(path).map_err(Error::backing("say what a file is"))?;
        match self.files.by_id(stat.id) {
            Some(file) => Self::with_cached(&file, || file.backing.stat()),
            None => Ok(stat),
        }
    }

    pub(crate) fn with_cached(file: &File, ask: impl FnOnce() -> io::Result<Stat>) -> Result<Stat, Error> {
        let stat = file.current(ask)?;
        Ok(Stat { size: *file.size.share()?, ..stat })
    }

    /// A program has changed attributes or names of a file.
    pub(crate) fn changed(&self, id: FileId) {
        if let Some(file) = self.files.by_id(id) {
            file.times.changed(self.protocol.now_ns());
        }
    }

    /// Writes everything to the directory that it does not have yet.
    ///
    /// Persistence: on success the directory alone has every acknowledged write to files that are in it.
    ///
    /// # Errors
    /// The first; all files were tried. What was not written stays in PM, and is tried again by the next
    /// flush.
    pub fn flush(&self) -> Result<(), Error> {
        self.forget_departed()?;
        let flushed = self.see_to_trouble()?.and(self.protocol.flush(None));
        flushed.and(self.names.sync())
    }

    /// Does what a flusher does time after time: a flush, or with the protocol Log, what is due. Names are
    /// synced once there is a reason to. Small files that are so new that the directory may lack their names
    /// stay in PM until then: many are gone before.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn tend(&self) -> Result<(), Error> {
        self.forget_departed()?;
        let trouble = self.see_to_trouble()?;
        // First: what is not new any more is flushed at once.
        let synced = self.names.sync_if_due();
        let tended = self.protocol.tend(&|file| self.names.may_wait(file.id));
        if tended? {
            self.release_idle()?;
        }
        trouble.and(synced)
    }

    /// Gives up files that nothing has open, if they are many.
    fn release_idle(&self) -> Result<(), Error> {
        let excess = self.files.len().saturating_sub(self.files_max);
        if excess == 0 {
            return Ok(());
        }
        let mut idle = self.files.all();
        idle.retain(|file| lock(&file.state).opens == 0 && !self.names.is_recent(file.id));
        idle.iter().take(excess).try_for_each(|file| self.release(file))
    }

    /// Completes truncations, and flushes files whose last flush failed; the first of their errors.
    fn see_to_trouble(&self) -> Result<Result<(), Error>, Error> {
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
        Ok(result)
    }

    /// As [`flush`](Self::flush), of one file.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_file(&self, handle: &Handle) -> Result<(), Error> {
        self.protocol.flush(Some(&handle.file))
    }

    /// What the cache is like now.
    ///
    /// # Errors
    /// PM cannot be read.
    pub fn status(&self) -> Result<Status, Error> {
        let mut status = Status::default();
        self.protocol.fill(&mut status)?;
        status.orphaned_chunks = self.protocol.orphaned_chunks(&status)?;
        let failed = |file: &Arc<File>| file.failure().map(|errno| (file.id, errno));
        let files = self.files.all();
        status.failures = files.iter().filter_map(failed).collect();
        let place = |file: &Arc<File>| file.unreadable_at.load(Ordering::Relaxed);
        let unreadable = files.iter().map(|file| (file.id, place(file)));
        status.unreadable = unreadable.filter(|(_, place)| *place != 0).collect();
        let now_ns = self.protocol.now_ns();
        let flushing = |file: &Arc<File>| file.flushing_ns(now_ns).map(|ns| (file.id, ns));
        status.flushing = files.iter().filter_map(flushing).collect();
        let (unsynced, failure) = self.names.status();
        status.unsynced_names = unsynced;
        status.failures.extend(failure.map(|errno| (self.superblock.directory.id, errno)));
        Ok(status)
    }
}
