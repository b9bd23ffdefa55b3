//! The trait that all layers above use.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::error::BlockError;
use crate::info::DeviceInfo;
use crate::stats::StatsSnapshot;

/// One transfer of a batch.
#[derive(Debug)]
pub enum Request<'a> {
    /// As [`BlockDevice::read_at`].
    Read {
        /// First byte on the device.
        offset: u64,
        /// Where the bytes go.
        buf: &'a mut [u8],
    },
    /// As [`BlockDevice::write_at`], or [`BlockDevice::write_fua`].
    Write {
        /// First byte on the device.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
        /// Whether the write must be durable when the batch returns.
        fua: bool,
    },
}

/// Bytes in blocks, with caches that lose them until they are flushed.
///
/// Units: offsets and lengths are bytes and multiples of [`DeviceInfo::logical_block_bytes`]; a length of 0
/// is allowed and does nothing. Buffers may have any alignment; those aligned to
/// [`DeviceInfo::memory_align_bytes`] are not copied.
///
/// Persistence: what [`write_at`](Self::write_at), [`write_zeroes`](Self::write_zeroes) and
/// [`discard`](Self::discard) changed is visible to reads on return, and durable once a
/// [`flush`](Self::flush) that began after their return has succeeded. Until then a crash leaves each
/// 512-byte sector with its old or any of its new contents, in any order. **A failed flush or FUA write
/// poisons the device**: what was not durable may be lost without another error, so every later operation
/// except reading fails with [`Cause::Poisoned`](crate::Cause::Poisoned), through every handle, until all
/// handles are dropped and the device is opened again.
///
/// Concurrency: any number of threads. Concurrent overlapping operations, one of them a write, are a caller
/// bug: the bytes are then any mixture of sectors.
///
/// # Errors
/// [`BlockError`] with operation, exact offset and cause; see its documentation for the state afterwards.
pub trait BlockDevice: Send + Sync {
    /// Properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError>;

    /// Writes `data` from `offset` on; durable after the next flush.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError>;

    /// Writes `data` from `offset` on; durable on return. Says nothing about other writes.
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError>;

    /// Makes every write durable that had returned when the call began.
    fn flush(&self) -> Result<(), BlockError>;

    /// Tells the device that the range is no longer needed: its contents are then undefined (zeroes, if
    /// [`DeviceInfo::discard_zeroes`]). Does nothing if [`DeviceInfo::can_discard`] is false.
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError>;

    /// Makes the range read as zeroes; durable after the next flush.
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError>;

    /// Counters since the device was opened.
    fn stats(&self) -> StatsSnapshot;

    /// Whether an earlier flush or FUA write has failed.
    fn is_poisoned(&self) -> bool;

    /// Fills `parts` in order from `offset` on; only their total length must be whole blocks.
    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<(), BlockError> {
        let mut joined = vec![0; parts.iter().map(|part| part.len()).sum()];
        self.read_at(offset, &mut joined)?;
        let mut rest = &joined[..];
        for part in parts {
            let (head, tail) = rest.split_at(part.len());
            part.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    /// Writes `parts` in order from `offset` on; only their total length must be whole blocks.
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), BlockError> {
        let joined: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.write_at(offset, &joined)
    }

    /// Runs all requests, many at a time if the device can, and returns when all have completed. Results are
    /// in the order of the requests, each as if it had been made alone.
    ///
    /// The requests of a batch are unordered, and one that fails does not stop the others. A batch cannot
    /// contain a flush, because a flush covers only what completed before it: run the batch, then flush.
    fn run_batch(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        requests
            .iter_mut()
            .map(|request| match request {
                Request::Read { offset, buf } => self.read_at(*offset, buf),
                Request::Write { offset, data, fua: false } => self.write_at(*offset, data),
                Request::Write { offset, data, fua: true } => self.write_fua(*offset, data),
            })
            .collect()
    }

    /// Announces a named step, `<operation>_after_<step>`. Only a fault-injecting wrapper acts on it.
    fn crash_point(&self, _name: &'static str) {}

    /// Length in bytes: that of [`info`](Self::info), or more since [`take_growth`](Self::take_growth).
    fn len_bytes(&self) -> u64 {
        self.info().len_bytes
    }

    /// Looks how long the device is now, and accepts requests up to there from then on; returns the length. A
    /// device that has shrunk, or cannot tell, keeps its length.
    fn take_growth(&self) -> Result<u64, BlockError> {
        Ok(self.len_bytes())
    }

    /// Unit of offsets and lengths.
    fn logical_block_bytes(&self) -> u32 {
        self.info().logical_block_bytes
    }

    /// Unit that the medium writes without a read-modify-write.
    fn physical_block_bytes(&self) -> u32 {
        self.info().physical_block_bytes
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        self.info().is_read_only
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn info(&self) -> &DeviceInfo {
                (**self).info()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
                (**self).read_at(offset, buf)
            }
            fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
                (**self).write_at(offset, data)
            }
            fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
                (**self).write_fua(offset, data)
            }
            fn flush(&self) -> Result<(), BlockError> {
                (**self).flush()
            }
            fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
                (**self).discard(offset, len_bytes)
            }
            fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
                (**self).write_zeroes(offset, len_bytes)
            }
            fn stats(&self) -> StatsSnapshot {
                (**self).stats()
            }
            fn is_poisoned(&self) -> bool {
                (**self).is_poisoned()
            }
            fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<(), BlockError> {
                (**self).read_vectored_at(offset, parts)
            }
            fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), BlockError> {
                (**self).write_vectored_at(offset, parts)
            }
            fn run_batch(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
                (**self).run_batch(requests)
            }
            fn crash_point(&self, name: &'static str) {
                (**self).crash_point(name);
            }
            fn len_bytes(&self) -> u64 {
                (**self).len_bytes()
            }
            fn take_growth(&self) -> Result<u64, BlockError> {
                (**self).take_growth()
            }
        }
    )*};
}

forward!(&D, Box<D>, Arc<D>);
