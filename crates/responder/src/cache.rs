//! The cache: files opened through it, and what is in PM for them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fastness_pmem::NoSum;
use fastness_sync::atomic::{AtomicBool, Ordering};
use fastness_sync::{Mutex, lock};

use crate::backing::{Backing, BackingFile, CacheId, FileId, Stat};
use crate::board::Board;
use crate::chunks::{ChunkStore, Found};
use crate::error::Error;
use crate::file::{File, FileTable};
use crate::geometry::{Geometry, INTENTS_OFFSET, TAGS_OFFSET};
use crate::intent::Intents;
use crate::key::Keys;
use crate::medium::CacheMedium;
use crate::names::{Log, Names};
use crate::operation::log_bytes;
use crate::options::Options;
use crate::protocol::Protocol;
use crate::stats::Status;
use crate::superblock::{BLOCK_BYTES, Superblock, operation_logs};
use crate::tag::{LINE, Seed};

/// Files that stay open below the cache although nothing has them open above it.
const IDLE_FILES_MAX: usize = 1024;

/// A file that is open; [`Cache::close`] closes it.
#[derive(Debug)]
#[must_use = "a file that is not closed stays open"]
pub struct Handle {
    pub(crate) file: Arc<File>,
}

/// Durable writes in PM in front of a directory.
///
/// Persistence: a write is durable when it returns, and so is every change of names and lengths. After a
/// crash the cache has all of them, and at most one call that had not returned, completely or not at all;
/// the directory alone has them after [`flush`](Self::flush).
/// Concurrency: any number of threads of one process. A write is atomic for readers up to 256 chunks.
#[derive(Debug)]
pub struct Cache<M> {
    pub(crate) protocol: ChunkStore<M>,
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) files: Arc<FileTable>,
    pub(crate) intents: Mutex<Intents<M>>,
    pub(crate) keys: Mutex<Keys>,
    /// Files that were not in the directory when the cache was opened, and have chunks.
    pub(crate) orphans: Mutex<BTreeMap<FileId, Found>>,
    pub(crate) names: Arc<Names<M>>,
    /// What the backing store has of a file without a name may not be all that was written to it.
    pub(crate) has_lost: AtomicBool,
    pub(crate) superblock: Superblock,
}

impl<M: CacheMedium> Cache<M> {
    /// Makes an empty cache of `region`, for a directory that has none.
    ///
    /// Persistence: durable on return. A crash inside leaves a region that holds no cache, and perhaps a
    /// directory that names one; the next creation has to be told to overwrite that.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Exists`] if the region holds a cache, [`Error::WrongDirectory`] if the directory
    /// has one.
    pub fn create(region: M, backing: Arc<dyn Backing>, options: &Options) -> Result<Cache<M>, Error> {
        let logs = operation_logs(options.protocol);
        let region_bytes = region.len_bytes() as u64;
        let geometry = Geometry::new(region_bytes, options.chunk_bytes, logs, options.names_bytes)?;
        if !options.overwrite && Superblock::is_there(&region)? {
            return Err(Error::Exists);
        }
        if !options.overwrite && backing.cache().map_err(Error::backing("say which cache it has"))?.is_some()
        {
            return Err(Error::WrongDirectory("the directory belongs to another region"));
        }
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| Error::backing("give random numbers")(std::io::Error::other(error)))?;
        let directory = backing.directory().map_err(Error::backing("say which directory it is"))?;
        let (protocol, path) = (options.protocol, backing.path().unwrap_or_default());
        let superblock = Superblock { protocol, cache: CacheId(id), geometry, directory, path };
        let mut region = region;
        for offset in [0, BLOCK_BYTES] {
            region.copy(offset, &[], BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: no superblock is there before the first tag goes. Excludes an earlier cache that lacks
        // some.
        region.fence()?;
        region.copy(INTENTS_OFFSET, &[], TAGS_OFFSET - INTENTS_OFFSET, &mut NoSum);
        region.copy(TAGS_OFFSET, &[], geometry.tags_bytes(), &mut NoSum);
        for log in 0..geometry.operation_logs {
            let offset = geometry.logs_offset() + log as u64 * log_bytes(geometry.chunk_bytes);
            region.copy(offset as usize, &[], LINE, &mut NoSum);
        }
        Log::format(&mut region, geometry.names_offset(), Seed::new(superblock.cache));
        // PERSIST: all tags, intents and logs are empty before a superblock says that there is a cache.
        // Excludes a cache with tags that were something else.
        region.fence()?;
        backing.set_cache(Some(superblock.cache)).map_err(Error::backing("note its cache"))?;
        let bytes = superblock.encode();
        for offset in [0, BLOCK_BYTES] {
            region.copy(offset, &bytes, BLOCK_BYTES, &mut NoSum);
        }
        // PERSIST: the superblock is durable before any write is acknowledged. Excludes acknowledged data in
        // a region that holds no cache.
        region.fence()?;
        Cache::assemble(region, backing, superblock, options)
    }

    /// The cache without a recovery.
    pub(crate) fn assemble(
        region: M,
        backing: Arc<dyn Backing>,
        superblock: Superblock,
        options: &Options,
    ) -> Result<Cache<M>, Error> {
        let Superblock { geometry, cache, .. } = &superblock;
        let (geometry, cache) = (*geometry, *cache);
        let (front, rest) = region.divide(TAGS_OFFSET);
        let (rest, last) = rest.divide(geometry.names_offset() - TAGS_OFFSET);
        let range = last.divide(geometry.names_bytes as usize).0;
        let root = superblock.directory.id;
        let names = Arc::new(Names::new(range, Seed::new(cache), Arc::clone(&backing), root));
        let files = Arc::new(FileTable::default());
        let board = match options.is_shared && geometry.operation_logs == 0 {
            true => Some(Board::create(geometry.groups()).map_err(Error::backing("give shared memory"))?),
            false => None,
        };
        let files_there = Some(Arc::clone(&files));
        let protocol =
            ChunkStore::new(geometry, cache, rest, files_there, options.clock, board.map(Arc::new));
        let intents = Mutex::new(Intents::new(front, cache));
        let keys = Mutex::new(Keys::default());
        let orphans = Mutex::new(BTreeMap::new());
        let has_lost = AtomicBool::new(false);
        Ok(Cache { protocol, backing, files, intents, keys, orphans, names, has_lost, superblock })
    }

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
        let removal = state.removal.take();
        drop(state);
        match removal {
            Some(intent) => self.forget(&handle.file, Some(intent)),
            None if self.files.len() > IDLE_FILES_MAX => self.release(&handle.file),
            None => Ok(()),
        }
    }

    /// Gives up a file that nothing has open, so that not every file that was ever open stays open below.
    fn release(&self, file: &File) -> Result<(), Error> {
        let _held = self.names.hold_file(file.id);
        if lock(&file.state).opens > 0 || self.files.by_id(file.id).is_none() {
            return Ok(());
        }
        let size = file.size.hold()?;
        self.finish_truncation(file)?;
        self.protocol.flush(Some(file))?;
        let flush = lock(&file.flush);
        self.protocol.cut(file, 0, *size)?;
        drop(flush);
        self.files.remove(file);
        Ok(())
    }

    /// Writes all of `data` at `offset`. A part of it that is longer than 256 chunks, or than the region has
    /// slots, can be found without what follows it after a crash.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// [`Error`]; a prefix of `data` may have been written.
    pub fn write(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<(), Error> {
        let file = &handle.file;
        let end = Self::end_of(offset, data.len())?;
        let inside = file.size.share()?;
        if end <= *inside && !file.is_unfinished.load(Ordering::Relaxed) {
            return self.write_at(file, offset, data, *inside).map(|_| ());
        }
        drop(inside);
        let mut size = file.size.hold()?;
        self.finish_truncation(file)?;
        self.extend(file, offset, data, &mut size)
    }

    /// Writes all of `data` at the end of the file, whichever that is; returns where it was put.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn append(&self, handle: &Handle, data: &[u8]) -> Result<u64, Error> {
        let mut size = handle.file.size.hold()?;
        self.finish_truncation(&handle.file)?;
        let offset = *size;
        Self::end_of(offset, data.len())?;
        self.extend(&handle.file, offset, data, &mut size)?;
        Ok(offset)
    }

    fn end_of(offset: u64, len: usize) -> Result<u64, Error> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= i64::MAX as u64);
        let too_large =
            || Error::backing("hold a file of that length")(std::io::ErrorKind::InvalidInput.into());
        end.ok_or_else(too_large)
    }

    /// Writes where the file may get longer.
    fn extend(&self, file: &File, offset: u64, data: &[u8], size: &mut u64) -> Result<(), Error> {
        let before = *size;
        file.check_fits(before, offset + data.len() as u64)?;
        let mut done = 0;
        let mut result = Ok(());
        while done < data.len() && result.is_ok() {
            match self.protocol.write(file, offset + done as u64, &data[done..], *size) {
                Ok(more) => {
                    done += more;
                    *size = (*size).max(offset + done as u64);
                }
                Err(error) => result = Err(error),
            }
        }
        self.resized(file, before, *size);
        result
    }

    fn write_at(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < data.len() {
            done += self.protocol.write(file, offset + done as u64, &data[done..], size)?;
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
        let stat = handle.file.backing.stat().map_err(Error::backing("say what a file is"))?;
        Self::with_cached(stat, &handle.file)
    }

    /// As [`stat`](Self::stat), of a name.
    ///
    /// # Errors
    /// Of the backing store.
    pub fn stat_path(&self, path: &Path) -> Result<Stat, Error> {
        let stat = self.backing.stat(path).map_err(Error::backing("say what a file is"))?;
        match self.files.by_id(stat.id) {
            Some(file) => Self::with_cached(stat, &file),
            None => Ok(stat),
        }
    }

    pub(crate) fn with_cached(stat: Stat, file: &File) -> Result<Stat, Error> {
        let modified_ns = stat.modified_ns.max(file.modified_ns().load(Ordering::Relaxed));
        Ok(Stat { size: *file.size.share()?, modified_ns, ..stat })
    }

    /// Writes everything to the directory that it does not have yet; also what a flusher calls.
    ///
    /// Persistence: on success the directory alone has every acknowledged write to files that are in it.
    ///
    /// # Errors
    /// The first; all files were tried. What was not written stays in PM, and is tried again by the next
    /// flush.
    pub fn flush(&self) -> Result<(), Error> {
        let (flushed, synced) = (self.flush_files(), self.names.sync());
        flushed.and(synced)
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
        status.orphaned_chunks = self.protocol.orphaned_chunks()?;
        let failed = |file: &Arc<File>| file.failure().map(|errno| (file.id.inode, errno));
        let files = self.files.all();
        status.failures = files.iter().filter_map(failed).collect();
        let now_ns = self.protocol.now_ns();
        let flushing = |file: &Arc<File>| file.flushing_ns(now_ns).map(|ns| (file.id.inode, ns));
        status.flushing = files.iter().filter_map(flushing).collect();
        let (unsynced, failure) = self.names.status();
        status.unsynced_names = unsynced;
        status.failures.extend(failure.map(|errno| (self.superblock.directory.id.inode, errno)));
        Ok(status)
    }
}
