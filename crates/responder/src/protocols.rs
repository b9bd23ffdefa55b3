//! The protocols of a region, behind one face.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::backing::{BackingFile, FileId};
use crate::board::Board;
use crate::chunks::{ChunkStore, DirtyFiles};
use crate::error::Error;
use crate::file::File;
use crate::log::LogStore;
use crate::medium::CacheMedium;
use crate::protocol::Protocol;
use crate::stats::Status;

/// How the writes of a cache become durable.
#[derive(Debug)]
pub(crate) enum Protocols<M: CacheMedium> {
    /// FR and MeLo@V.
    Chunks(Box<ChunkStore<M>>),
    /// Log.
    Log(Box<LogStore<M>>),
}

impl<M: CacheMedium> Protocols<M> {
    /// The chunks, if the protocol has some.
    pub(crate) fn chunks(&self) -> Option<&ChunkStore<M>> {
        match self {
            Protocols::Chunks(chunks) => Some(chunks),
            Protocols::Log(_) => None,
        }
    }

    /// What other processes share of it.
    pub(crate) fn board(&self) -> Option<&Arc<Board>> {
        self.chunks().and_then(|chunks| chunks.board.as_ref())
    }

    /// The time, by the cache's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Protocols::Chunks(chunks) => chunks.now_ns(),
            Protocols::Log(log) => log.now_ns(),
        }
    }

    /// Looks at what a crash has left, and puts in order what needs no directory.
    /// With consent (`drops_damaged`) without what is damaged.
    pub(crate) fn recover(&self, drops_damaged: bool) -> Result<DirtyFiles, Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.recover(drops_damaged),
            Protocols::Log(log) => log.recover_log(drops_damaged),
        }
    }

    /// Carries out what has to be before anything else is completed, on files that are there, and not on
    /// those that are gone for good; says how much that was. What is left is in PM, or kept otherwise.
    pub(crate) fn replay(
        &self,
        there: &BTreeMap<FileId, Arc<dyn BackingFile>>,
        gone: &BTreeSet<FileId>,
        dirty: &mut DirtyFiles,
    ) -> Result<u64, Error> {
        match self {
            Protocols::Chunks(_) => Ok(0),
            Protocols::Log(log) => {
                let count = log.replay(there, gone)?;
                dirty.files.retain(|file, _| !there.contains_key(file));
                Ok(count)
            }
        }
    }

    /// Gives up all chunks of a file that has no name any more.
    pub(crate) fn give_up_all(&self, key: u64) -> Result<(), Error> {
        self.chunks().map_or(Ok(()), |chunks| chunks.give_up_all(key))
    }

    /// A file that was not in the directory is there again.
    pub(crate) fn adopt(&self, id: FileId, file: &Arc<dyn BackingFile>) -> Result<(), Error> {
        match self {
            Protocols::Chunks(_) => Ok(()),
            Protocols::Log(log) => log.adopt_orphan(id, file),
        }
    }

    /// Gives the backing store what only PM has of a file that has lost its last name.
    pub(crate) fn leave(&self, file: &File, size: u64) -> Result<(), Error> {
        self.chunks().map_or(Ok(()), |chunks| chunks.leave(file, size))
    }

    pub(crate) fn orphaned_chunks(&self, status: &Status) -> Result<u64, Error> {
        self.chunks().map_or(Ok(status.orphaned_chunks), ChunkStore::orphaned_chunks)
    }
}

impl<M: CacheMedium> Protocol for Protocols<M> {
    fn write(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<usize, Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.write(file, offset, data, size),
            Protocols::Log(log) => log.write(file, offset, data, size),
        }
    }

    fn write_synced(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<usize, Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.write_synced(file, offset, data, size),
            Protocols::Log(log) => Protocol::write_synced(&**log, file, offset, data, size),
        }
    }

    fn sync(&self, file: &File, size: u64) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.sync(file, size),
            Protocols::Log(log) => log.sync(file, size),
        }
    }

    fn sync_below(&self, file: &File) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.sync_below(file),
            Protocols::Log(log) => log.sync_below(file),
        }
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.read(file, offset, buffer),
            Protocols::Log(log) => log.read(file, offset, buffer),
        }
    }

    fn prepare_cut(&self) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.prepare_cut(),
            Protocols::Log(log) => log.prepare_cut(),
        }
    }

    fn cut(&self, file: &File, size: u64, before: u64) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.cut(file, size, before),
            Protocols::Log(log) => log.cut(file, size, before),
        }
    }

    fn last_dirty_bytes(&self, file: &File, size: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.last_dirty_bytes(file, size),
            Protocols::Log(log) => log.last_dirty_bytes(file, size),
        }
    }

    fn flush(&self, file: Option<&File>) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.flush(file),
            Protocols::Log(log) => log.flush(file),
        }
    }

    fn tend(&self, may_wait: &dyn Fn(&File) -> bool) -> Result<bool, Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.tend(may_wait),
            Protocols::Log(log) => log.tend(may_wait),
        }
    }

    fn release(&self, file: &File, size: u64) -> Result<bool, Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.release(file, size),
            Protocols::Log(log) => log.release(file, size),
        }
    }

    fn fill(&self, status: &mut Status) -> Result<(), Error> {
        match self {
            Protocols::Chunks(chunks) => chunks.fill(status),
            Protocols::Log(log) => log.fill(status),
        }
    }
}
