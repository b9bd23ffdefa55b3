//! Open files of a cache with a log of names: what their bytes have to do with names.

use std::io;
use std::sync::{Arc, Weak};

use crate::backing::{BackingFile, FileId, Stat};
use crate::medium::CacheMedium;

use super::Names;

/// An open file.
///
/// A chunk is clean once a sync of its file has returned. After a crash that has lost a new file, the bytes
/// below are lost with it: so the sync includes its names. And the space of what was removed is free only
/// once names are synced: a write that finds none tries again after that.
#[derive(Debug)]
pub(super) struct OpenFile<M> {
    pub(super) file: Arc<dyn BackingFile>,
    pub(super) names: Weak<Names<M>>,
    pub(super) id: FileId,
}

impl<M: CacheMedium> BackingFile for OpenFile<M> {
    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn write_some(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        match self.file.write_some(offset, data) {
            Err(error) if self.frees_space(&error) => self.file.write_some(offset, data),
            done => done,
        }
    }

    fn begin_sync(&self, offset: u64, len: u64) {
        self.file.begin_sync(offset, len);
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn check_size(&self, size: u64) -> io::Result<()> {
        self.file.check_size(size)
    }

    fn set_modified(&self, modified_ns: u64) -> io::Result<()> {
        self.file.set_modified(modified_ns)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        // Without a cache nothing counts as flushed.
        let names = self.names.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        match names.is_recent(self.id) {
            true => names.sync().map_err(|error| io::Error::from_raw_os_error(error.errno())),
            false => Ok(()),
        }
    }
}

impl<M: CacheMedium> OpenFile<M> {
    fn frees_space(&self, error: &io::Error) -> bool {
        self.names.upgrade().is_some_and(|names| names.frees_space(error))
    }
}

impl<M: CacheMedium> Names<M> {
    /// A file that was opened.
    pub(crate) fn opened(self: &Arc<Self>, file: Arc<dyn BackingFile>, id: FileId) -> Arc<dyn BackingFile> {
        Arc::new(OpenFile { file, names: Arc::downgrade(self), id })
    }

    /// Whether there was no space, and some is free now.
    pub(crate) fn frees_space(&self, error: &io::Error) -> bool {
        let is_full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind());
        is_full && self.holds_graves() && self.sync().is_ok()
    }
}
