//! Reading a region while others write to it.

use crate::medium::ReadError;

/// Reads bytes of a region that others own.
///
/// Motivation: what was written to a log stays as it is until the log is emptied, while its chunks belong to
/// whoever writes to them. The reader sees to it that nobody writes to the same bytes meanwhile, and checks
/// what it has read.
/// Concurrency: any number of threads.
pub trait View: Send + Sync {
    /// Copies bytes of the region out.
    ///
    /// # Errors
    /// [`ReadError`] with the region offset of the first unreadable byte.
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError>;
}
