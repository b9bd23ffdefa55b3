//! How writes become durable and consistent in PM: what the protocols have in common.

use crate::error::Error;
use crate::file::File;
use crate::stats::Status;

/// What time it is, in ns since 1970.
pub type Clock = fn() -> u64;

/// A protocol. The cache above it knows names, lengths and intents; it knows chunks.
///
/// Concurrency: the caller holds the `size` of the file: shared, or alone where the length changes.
pub(crate) trait Protocol: Send + Sync {
    /// Writes as much of `data` as it can atomically, at least one byte of it; `size` is the length of the
    /// file before.
    ///
    /// Persistence: what it says was written is durable on return. A crash inside leaves all or nothing of
    /// it.
    fn write(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<usize, Error>;

    /// As [`write`](Self::write), durable with every protocol.
    fn write_synced(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<usize, Error> {
        self.write(file, offset, data, size)
    }

    /// Makes durable what was written to a file of this length, if writes alone do not.
    ///
    /// Persistence: all writes that had returned are durable on return.
    ///
    /// # Errors
    /// What was written since the last success may not be durable.
    fn sync(&self, _: &File, _size: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Syncs the file of the backing store; every sync of a file that has a place in PM goes this way. The
    /// caller holds `size` alone, and `flush`.
    ///
    /// # Errors
    /// Of the backing store.
    fn sync_below(&self, file: &File) -> Result<(), Error> {
        file.backing.sync().map_err(Error::backing("sync a file"))
    }

    /// Fills `buffer`; the file is longer.
    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error>;

    /// Makes room for [`cut`](Self::cut), where that needs some; the caller holds no lock of a file.
    ///
    /// # Errors
    /// Those of a flush.
    fn prepare_cut(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Gives up what is cached of the file from `size` on, with the chunk in which it ends; `before` is the
    /// length until now. The backing store has everything else of that chunk. The caller holds `flush`, too.
    ///
    /// Persistence: durable on return. A crash inside leaves any part of it; it is repeated then.
    fn cut(&self, file: &File, size: u64, before: u64) -> Result<(), Error>;

    /// The bytes in front of `size` that are in the same chunk, and where they begin, if the backing store
    /// does not have them.
    fn last_dirty_bytes(&self, file: &File, size: u64) -> Result<Option<(u64, Vec<u8>)>, Error>;

    /// Writes what is dirty to the backing store: of one file or of all. What it does not take stays dirty.
    ///
    /// # Errors
    /// The first; the others were tried nevertheless.
    fn flush(&self, file: Option<&File>) -> Result<(), Error>;

    /// What is to be done time after time; says whether more files can be released after it. A file that
    /// `may_wait` is flushed later, unless it takes much room.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn tend(&self, may_wait: &dyn Fn(&File) -> bool) -> Result<bool, Error>;

    /// Gives up what there is of a file of this length that nothing has open; `false`: not yet. The caller
    /// holds `size` alone.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn release(&self, file: &File, size: u64) -> Result<bool, Error>;

    /// Says what there is.
    ///
    /// # Errors
    /// [`Error::NotServed`].
    fn fill(&self, status: &mut Status) -> Result<(), Error>;
}
