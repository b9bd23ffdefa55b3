//! What a server serves: the interface to the layers below.

/// A disk.
///
/// Requests are checked before they reach it: within [`Disk::size_bytes`], whole sectors of 512 bytes, no
/// changes of a read-only disk. Concurrency: called by many threads at once, even for overlapping ranges.
pub trait Disk: Send + Sync {
    /// Size in bytes; bytes after the last whole sector are not served.
    fn size_bytes(&self) -> u64;

    /// Requests of multiples of this size are cheapest, in bytes: a power of two from 512 on.
    fn block_bytes(&self) -> u32;

    /// Whether changes are refused.
    fn is_read_only(&self) -> bool;

    /// What guests see as its serial number; the first 20 bytes count.
    fn serial(&self) -> String;

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// On an error the contents of `buffer` are not used.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError>;

    /// Writes. Persistence: with `is_durable`, durable on return; without, after a [`Disk::flush`] that
    /// begins later.
    ///
    /// # Errors
    /// On an error the range may hold old data, new data, or a mixture.
    fn write(&self, offset: u64, data: &[u8], is_durable: bool) -> Result<(), DiskError>;

    /// Makes every change that returned before the call durable.
    ///
    /// # Errors
    /// Nothing is promised about these changes then.
    fn flush(&self) -> Result<(), DiskError>;

    /// The contents of the range are no longer needed; it reads as zeroes, durably so on return if
    /// `is_durable`.
    ///
    /// # Errors
    /// On an error the range may hold anything that it held, or zeroes.
    fn discard(&self, offset: u64, length: u64, is_durable: bool) -> Result<(), DiskError>;

    /// Makes the range read as zeroes; durable on return if `is_durable`.
    ///
    /// # Errors
    /// As [`Disk::write`].
    fn write_zeroes(&self, offset: u64, length: u64, is_durable: bool) -> Result<(), DiskError>;
}

/// Why a disk did not carry out a request: what a guest can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// It failed.
    #[error("input/output error")]
    Io,
    /// It cannot do that.
    #[error("not supported")]
    Unsupported,
}
