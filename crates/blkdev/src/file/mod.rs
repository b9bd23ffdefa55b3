//! Regular files and block devices.
//!
//! Design: [`FileDevice`] checks and counts requests and tracks poison; single requests are one system call
//! each (`psync`), batches go through io_uring if the kernel has it (`uring`). With direct I/O, buffers that
//! are not aligned go through a small pool (`bounce`).
//!
//! Durability: on a page-cached file a write is in kernel memory until `flush` (`fdatasync`), and a FUA write
//! (`RWF_DSYNC`) is a write plus an `fdatasync` of its range. With `O_DIRECT` the data bypasses the page
//! cache but may be in a volatile cache of the disk, and a file's new extents are in the journal of its file
//! system: both need the same flush. Opening queries the cache of a block device for
//! [`DeviceInfo::write_cache`]; no flush is ever skipped because of it.

mod bounce;
mod open;
mod probe;
mod psync;
mod raw;
mod sys;
#[cfg(test)]
mod tests;
mod uring;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use open::{Direct, EngineChoice, OpenOptions};

use crate::aligned::is_aligned;
use crate::check::len64;
use crate::device::{BlockDevice, Request};
use crate::error::{BlockError, Cause, Operation};
use crate::file::bounce::{BOUNCE_BYTES, BouncePool};
use crate::file::psync::Stopped;
use crate::file::raw::RawIo;
use crate::file::uring::Rings;
use crate::health::Health;
use crate::info::DeviceInfo;
use crate::stats::{Stats, StatsSnapshot};

/// Zeroes written at a time if the medium cannot zero a range itself.
const ZEROES_BYTES: usize = 256 << 10;

/// A regular file or a block device as a [`BlockDevice`].
///
/// Created by [`OpenOptions`]. Handles of one device in this process share the poison; dropping a handle
/// unlocks the device and makes nothing durable.
#[derive(Debug)]
pub struct FileDevice {
    info: DeviceInfo,
    /// Length; it may grow.
    len_bytes: AtomicU64,
    // Before `raw`: a ring must not outlive the descriptor that it registered.
    rings: Option<Rings>,
    raw: Box<dyn RawIo>,
    health: Arc<Health>,
    bounce: BouncePool,
    stats: Stats,
}

impl FileDevice {
    pub(crate) fn new(
        info: DeviceInfo,
        raw: Box<dyn RawIo>,
        rings: Option<Rings>,
        health: Arc<Health>,
    ) -> FileDevice {
        let bounce = BouncePool::new(info.memory_align_bytes);
        let len_bytes = AtomicU64::new(info.len_bytes);
        FileDevice { info, len_bytes, rings, raw, health, bounce, stats: Stats::default() }
    }

    /// Granule of short transfers; see `psync`.
    fn granule_bytes(&self) -> usize {
        if self.info.is_direct { self.info.logical_block_bytes as usize } else { 1 }
    }

    /// Checks, runs and counts one operation; `act` reports how far it got.
    fn run(
        &self,
        operation: Operation,
        offset: u64,
        len_bytes: u64,
        act: impl FnOnce() -> Result<(), Stopped>,
    ) -> Result<(), BlockError> {
        self.admit(operation, offset, len_bytes)?;
        let since = Instant::now();
        let outcome = act();
        self.stats.note(operation, len_bytes, since, outcome.is_err());
        outcome.map_err(|Stopped { done, cause }| {
            let done = len64(done);
            self.info.error(operation, offset + done, len_bytes - done, cause)
        })
    }

    fn admit(&self, operation: Operation, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.info.check_within(self.len_bytes(), operation, offset, len_bytes)?;
        if operation != Operation::Read && self.health.is_poisoned() {
            return Err(self.info.error(operation, offset, len_bytes, Cause::Poisoned));
        }
        Ok(())
    }

    /// Runs a call that may consume a write-back error from the kernel; any failure poisons the device.
    fn synced(&self, operation: Operation, act: impl FnOnce() -> Result<(), Stopped>) -> Result<(), Stopped> {
        let poisoned = |_| Stopped { done: 0, cause: Cause::Poisoned };
        let guard = self.health.enter().map_err(poisoned)?;
        if let Err(stopped) = act() {
            self.health.poison();
            return Err(stopped);
        }
        drop(guard);
        if self.must_settle(operation) { self.health.settle().map_err(poisoned) } else { Ok(()) }
    }

    /// Whether another syncer can have consumed an error that concerns this operation's bytes. A direct FUA
    /// write gets its own result from the disk; everything else goes through write-back.
    fn must_settle(&self, operation: Operation) -> bool {
        operation == Operation::Flush || !self.info.is_direct
    }

    fn read_any(&self, offset: u64, buf: &mut [u8]) -> Result<(), Stopped> {
        let (raw, granule) = (&*self.raw, self.granule_bytes());
        if is_aligned(buf, self.info.memory_align_bytes) {
            return psync::read(raw, granule, offset, buf);
        }
        self.bounce.with(|bounce| {
            for (index, part) in buf.chunks_mut(BOUNCE_BYTES).enumerate() {
                let before = index * BOUNCE_BYTES;
                let bounced = &mut bounce[..part.len()];
                psync::read(raw, granule, offset + len64(before), bounced)
                    .map_err(|stopped| Stopped { done: before + stopped.done, ..stopped })?;
                part.copy_from_slice(bounced);
            }
            Ok(())
        })
    }

    fn write_any(&self, offset: u64, data: &[u8], dsync: bool) -> Result<(), Stopped> {
        let (raw, granule) = (&*self.raw, self.granule_bytes());
        if is_aligned(data, self.info.memory_align_bytes) {
            return psync::write(raw, granule, offset, data, dsync);
        }
        self.bounce.with(|bounce| {
            for (index, part) in data.chunks(BOUNCE_BYTES).enumerate() {
                let before = index * BOUNCE_BYTES;
                bounce[..part.len()].copy_from_slice(part);
                psync::write(raw, granule, offset + len64(before), &bounce[..part.len()], dsync)
                    .map_err(|stopped| Stopped { done: before + stopped.done, ..stopped })?;
            }
            Ok(())
        })
    }

    /// Whether a part of a vectored request can go to the kernel without a copy.
    fn fits(&self, part: &[u8]) -> bool {
        part.len().is_multiple_of(self.granule_bytes()) && is_aligned(part, self.info.memory_align_bytes)
    }

    fn zero_by_writing(&self, offset: u64, len_bytes: u64) -> Result<(), Stopped> {
        let zeroes = crate::AlignedBuf::zeroed(ZEROES_BYTES, self.info.memory_align_bytes);
        let mut done = 0;
        while done < len_bytes {
            let step = usize::try_from(len_bytes - done).map_or(ZEROES_BYTES, |rest| rest.min(ZEROES_BYTES));
            let before = usize::try_from(done).expect("64-bit Linux");
            psync::write(&*self.raw, self.granule_bytes(), offset + done, &zeroes[..step], false)
                .map_err(|stopped| Stopped { done: before + stopped.done, ..stopped })?;
            done += len64(step);
        }
        Ok(())
    }
}

/// Whether the error of a hint or shortcut only means that the medium does not support it.
fn is_unsupported(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY | libc::EINVAL))
}

impl BlockDevice for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.run(Operation::Read, offset, len64(buf.len()), || self.read_any(offset, buf))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::Write, offset, len64(data.len()), || self.write_any(offset, data, false))
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.run(Operation::WriteFua, offset, len64(data.len()), || {
            self.synced(Operation::WriteFua, || self.write_any(offset, data, true))
        })
    }

    fn flush(&self) -> Result<(), BlockError> {
        if self.info.is_read_only {
            return Ok(());
        }
        let sync = || self.raw.sync().map_err(|error| Stopped { done: 0, cause: Cause::from_io(error) });
        self.run(Operation::Flush, 0, 0, || self.synced(Operation::Flush, sync))
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::Discard, offset, len_bytes, || {
            if !self.info.can_discard || len_bytes == 0 {
                return Ok(());
            }
            match self.raw.discard(offset, len_bytes) {
                Ok(()) => Ok(()),
                // Only a hint: if the device refuses it after all, no harm is done.
                Err(error) if is_unsupported(&error) => Ok(()),
                Err(error) => Err(Stopped { done: 0, cause: Cause::from_io(error) }),
            }
        })
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::WriteZeroes, offset, len_bytes, || {
            if len_bytes == 0 {
                return Ok(());
            }
            match self.raw.zero(offset, len_bytes) {
                Ok(()) => Ok(()),
                Err(error) if is_unsupported(&error) => self.zero_by_writing(offset, len_bytes),
                Err(error) => Err(Stopped { done: 0, cause: Cause::from_io(error) }),
            }
        })
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn take_growth(&self) -> Result<u64, BlockError> {
        let found = self.raw.len_bytes();
        let found = found.map_err(|error| self.info.error(Operation::Read, 0, 0, Cause::from_io(error)))?;
        let whole = found - found % u64::from(self.info.logical_block_bytes);
        Ok(self.len_bytes.fetch_max(whole, Ordering::Relaxed).max(whole))
    }

    fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<(), BlockError> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.run(Operation::Read, offset, len64(len), || {
            if parts.iter().all(|part| self.fits(part)) {
                return psync::read_vectored(&*self.raw, self.granule_bytes(), offset, parts);
            }
            let mut joined = crate::AlignedBuf::zeroed(len, self.info.memory_align_bytes);
            self.read_any(offset, &mut joined)?;
            let mut rest = &joined[..];
            for part in parts {
                let (head, tail) = rest.split_at(part.len());
                part.copy_from_slice(head);
                rest = tail;
            }
            Ok(())
        })
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), BlockError> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.run(Operation::Write, offset, len64(len), || {
            if parts.iter().all(|part| self.fits(part)) {
                return psync::write_vectored(&*self.raw, self.granule_bytes(), offset, parts);
            }
            let mut joined = crate::AlignedBuf::zeroed(len, self.info.memory_align_bytes);
            let mut at = 0;
            for part in parts {
                joined[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            self.write_any(offset, &joined, false)
        })
    }

    fn run_batch(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        match &self.rings {
            Some(rings) if requests.len() > 1 => self.run_batch_in_ring(rings, requests),
            _ => self.run_batch_one_by_one(requests),
        }
    }

    fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    fn is_poisoned(&self) -> bool {
        self.health.is_poisoned()
    }
}

impl FileDevice {
    fn run_batch_one_by_one(&self, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        requests
            .iter_mut()
            .map(|request| match request {
                Request::Read { offset, buf } => self.read_at(*offset, buf),
                Request::Write { offset, data, fua: false } => self.write_at(*offset, data),
                Request::Write { offset, data, fua: true } => self.write_fua(*offset, data),
            })
            .collect()
    }

    /// All requests in flight at once; poison as in [`synced`](Self::synced), once for the batch.
    fn run_batch_in_ring(&self, rings: &Rings, requests: &mut [Request<'_>]) -> Vec<Result<(), BlockError>> {
        let since = Instant::now();
        let has_fua = requests.iter().any(|request| matches!(request, Request::Write { fua: true, .. }));
        // A failed `enter` means poison, and then `admit` refuses every write.
        let guard = if has_fua { self.health.enter().ok() } else { None };
        let mut results: Vec<_> = requests.iter().map(|request| self.admit_request(request)).collect();
        let align_bytes = self.info.memory_align_bytes;
        let admitted: Vec<_> =
            requests.iter_mut().zip(&mut results).filter(|(_, result)| result.is_ok()).collect();
        let (requests, slots): (Vec<_>, Vec<_>) = admitted.into_iter().unzip();
        let described: Vec<_> = requests.iter().map(|request| describe(request)).collect();
        let note = |index: usize, is_ok: bool| {
            let (operation, _, len_bytes) = described[index];
            if !is_ok && operation == Operation::WriteFua {
                self.health.poison();
            }
            self.stats.note(operation, len_bytes, since, !is_ok);
        };
        let outcomes = rings.run(requests, self.granule_bytes(), align_bytes, note);
        drop(guard);
        let settled =
            if has_fua && self.must_settle(Operation::WriteFua) { self.health.settle() } else { Ok(()) };
        for ((slot, outcome), &(operation, offset, len_bytes)) in
            slots.into_iter().zip(outcomes).zip(&described)
        {
            let stopped = match outcome {
                Err(stopped) => stopped,
                Ok(()) if operation == Operation::WriteFua && settled.is_err() => {
                    Stopped { done: 0, cause: Cause::Poisoned }
                }
                Ok(()) => continue,
            };
            let done = len64(stopped.done);
            *slot = Err(self.info.error(operation, offset + done, len_bytes - done, stopped.cause));
        }
        results
    }

    fn admit_request(&self, request: &Request<'_>) -> Result<(), BlockError> {
        let (operation, offset, len_bytes) = describe(request);
        self.admit(operation, offset, len_bytes)
    }
}

/// Operation, offset and length of a request.
fn describe(request: &Request<'_>) -> (Operation, u64, u64) {
    match request {
        Request::Read { offset, buf } => (Operation::Read, *offset, len64(buf.len())),
        Request::Write { offset, data, fua: false } => (Operation::Write, *offset, len64(data.len())),
        Request::Write { offset, data, fua: true } => (Operation::WriteFua, *offset, len64(data.len())),
    }
}
