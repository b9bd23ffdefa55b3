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

    /// Fills `buffer`; the file is longer.
    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error>;

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

    /// Says what there is.
    ///
    /// # Errors
    /// [`Error::NotServed`].
    fn fill(&self, status: &mut Status) -> Result<(), Error>;
}
