//! Files that other processes use directly: what the process that serves the cache does for them.
//!
//! A lease lets a process write and read a file in PM by itself ([`Client`](crate::Client)), as long as
//! nothing uses the file in another way. It ends when something does; the process finds that out at its next
//! call, and goes the ordinary way.

use std::os::fd::{AsFd, BorrowedFd};

use fastness_sync::atomic::Ordering;

use crate::backing::FileId;
use crate::board::SERVER;
use crate::cache::{Cache, Handle};
use crate::chunks::ChunkStore;
use crate::error::Error;
use crate::file::File;
use crate::medium::CacheMedium;

/// What a process needs to know of a file that it may use directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Place in the shared memory.
    pub slot: u32,
    /// Which use of that place.
    pub generation: u32,
    /// Where its chunks are.
    pub key: u64,
    /// Which file it is.
    pub file: FileId,
}

impl<M: CacheMedium> Cache<M> {
    /// The memory that processes share, if the cache was opened for several
    /// ([`Options::shared`](crate::Options::shared)).
    pub fn shared(&self) -> Option<BorrowedFd<'_>> {
        self.protocol.board().map(|board| board.words().as_fd())
    }

    /// Tells the processes that have leases that this one is there. They look after it if it has not been
    /// called for half a second, and end with errors once it has ended.
    pub fn beat(&self) {
        if let Some(board) = self.protocol.board() {
            board.beat();
        }
    }

    /// Lets other processes use an open file directly, unless something uses it in another way.
    ///
    /// # Errors
    /// [`Error`].
    pub fn lease(&self, handle: &Handle) -> Result<Option<Lease>, Error> {
        let file = &handle.file;
        let Some(shared) = file.size.shared() else { return Ok(None) };
        let _size = file.size.hold()?;
        if file.is_ordinary.load(Ordering::Relaxed) || file.is_unfinished.load(Ordering::Relaxed) {
            return Ok(None);
        }
        shared.set_leased(true);
        let slot = shared.slot() as u32;
        Ok(Some(Lease { slot, generation: shared.generation(), key: file.key, file: file.id }))
    }

    /// The file is used without a lease: there are none of it any more, until it was closed. What others have
    /// begun with theirs is done on return.
    ///
    /// # Errors
    /// [`Error`].
    pub fn use_directly(&self, handle: &Handle) -> Result<(), Error> {
        Self::end_leases(&handle.file)
    }

    fn end_leases(file: &File) -> Result<(), Error> {
        let Some(shared) = file.size.shared() else { return Ok(()) };
        if file.is_ordinary.load(Ordering::Acquire) {
            return Ok(());
        }
        let _size = file.size.hold()?;
        shared.set_leased(false);
        file.is_ordinary.store(true, Ordering::Release);
        Ok(())
    }

    /// As [`use_directly`](Self::use_directly), of a file that may be open.
    ///
    /// # Errors
    /// [`Error`].
    pub fn end_leases_of(&self, file: FileId) -> Result<(), Error> {
        self.files.by_id(file).map_or(Ok(()), |file| Self::end_leases(&file))
    }

    /// Whether other processes may be changing the file by themselves.
    pub fn is_leased(&self, file: FileId) -> bool {
        let file = self.files.by_id(file);
        file.is_some_and(|file| file.size.shared().is_some_and(crate::board::SharedFile::is_leased))
    }

    /// What other processes use.
    fn chunks(&self) -> Result<&ChunkStore<M>, Error> {
        self.protocol.chunks().ok_or(Error::NotServed)
    }

    /// Makes room for a write of another process; `false`: it cannot make that write by itself.
    ///
    /// # Errors
    /// [`Error`]: those of a flush.
    pub fn make_room(&self, file: FileId, offset: u64, len: u64) -> Result<bool, Error> {
        match self.files.by_id(file) {
            Some(file) if len > 0 => self.chunks()?.make_room(&file, offset, len),
            _ => Ok(false),
        }
    }

    /// Puts in order what a process was doing when it ended, and lets go of its locks.
    ///
    /// # Errors
    /// [`Error`]: PM cannot be read or written. Its locks are let go all the same.
    pub fn reap(&self, client: u32) -> Result<(), Error> {
        let Some(board) = self.protocol.board().filter(|_| client > SERVER) else { return Ok(()) };
        let chunks = self.chunks()?;
        let (groups, places) = board.inherit(client);
        let mut result = chunks.put_in_order(&groups);
        let mut files = self.files.all();
        files.retain(|file| file.size.shared().is_some_and(|shared| places.contains(&shared.slot())));
        for file in files {
            // A write that it had made, and not acknowledged, may have made the file longer.
            let found = chunks.end_of_dirty(file.key);
            let Some(shared) = file.size.shared() else { continue };
            if let Ok((end, modified_ns)) = found {
                shared.set_size(shared.size().max(end));
                shared.modified_ns().fetch_max(modified_ns, std::sync::atomic::Ordering::Relaxed);
            }
            result = result.and(found.map(|_| ()));
            shared.unlock();
        }
        result
    }
}
