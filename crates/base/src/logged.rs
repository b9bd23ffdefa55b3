//! Bytes that are durable in a log, and need not be in memory as well.

use std::fmt;

/// Where a log has a record. It stays there until the record's txg has synced, and whatever was told of that
/// has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPlace {
    /// Number of the log, see [`ReadLogged`].
    pub log: u32,
    /// Byte of the log at which the record begins.
    pub offset: u64,
    /// Part of the record's checksum, so that no other record is taken for it.
    pub sum: u64,
}

/// Reads records of a log that is in use.
///
/// Concurrency: any number of threads, beside writers of other records.
pub trait ReadLogged: fmt::Debug + Send + Sync {
    /// Fills `out` with bytes of a record's body from `within` on, once all of the body is known to be as it
    /// was written.
    ///
    /// # Errors
    /// [`LostInLog`]; `out` is unspecified then.
    fn read(&self, place: LogPlace, within: usize, out: &mut [u8]) -> Result<(), LostInLog>;
}

/// A record is not, or not any more, what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostInLog {
    /// Byte of the log at which the record begins.
    pub offset: u64,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for LostInLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log has lost the record at {:#x}: {}", self.offset, self.why)
    }
}

impl std::error::Error for LostInLog {}
