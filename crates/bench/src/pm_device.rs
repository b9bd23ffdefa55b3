//! Persistent memory as a block device: kind lwb is measured on it in memory, as in the source.
//!
//! Design: a write copies with non-temporal stores and fences before it returns, on the thread that copied: a
//! fence completes only the stores of its own thread, so a flush by another thread could not do it. Every
//! write is therefore durable on return, with or without FUA, and a flush only has to report whether that
//! held.
//!
//! The memory is divided into parts with a lock each, so that writes to different parts run in parallel.
//!
//! Crash cases: before a write has returned, any of its 8-byte words may be new. So a sector can be torn,
//! which a [`BlockDevice`] otherwise leaves entirely old or new: a user of this device must recognise its
//! blocks by a checksum over the whole block, as labels, uberblocks and log-write blocks do. A failed fence
//! poisons the device.
//!
//! What survives a power cut depends on the region: see [`RegionInfo`](fastness_pmem::RegionInfo).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastness_blkdev::{
    BlockDevice, BlockError, Cause, DeviceInfo, DeviceKind, Operation, Stats, StatsSnapshot, WriteCache,
};
use fastness_pmem::{Medium, NoSum, PersistError, PmRange};
use fastness_sync::{Mutex, MutexGuard, lock};

/// Parts that a range is divided into.
const PARTS: usize = 32;
/// The length of a part is a multiple of this.
const PART_ALIGN_BYTES: usize = 4096;
/// Zeroes that are written at a time.
const ZEROES: [u8; 4096] = [0; 4096];

/// A block device on persistent memory.
#[derive(Debug)]
pub struct PmDevice<M = PmRange> {
    info: DeviceInfo,
    /// First byte of each part, and the part.
    parts: Vec<(u64, Mutex<M>)>,
    is_poisoned: AtomicBool,
    stats: Stats,
}

impl PmDevice<PmRange> {
    /// A device on the whole units of 4096 bytes of `range`.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(name: &str, range: PmRange) -> PmDevice<PmRange> {
        let len = range.len_bytes() / PART_ALIGN_BYTES * PART_ALIGN_BYTES;
        let part = len.div_ceil(PARTS).next_multiple_of(PART_ALIGN_BYTES);
        let split = |range: PmRange, mid| range.split_at(mid).expect("a multiple of 64 inside of the range");
        let mut rest = split(range, len).0;
        let mut parts = Vec::new();
        while rest.len_bytes() > part {
            let (low, high) = split(rest, part);
            parts.push(low);
            rest = high;
        }
        parts.push(rest);
        PmDevice::of_parts(name, parts)
    }
}

impl<M: Medium> PmDevice<M> {
    /// A device on several media, one after the other.
    ///
    /// # Panics
    /// If one is empty, or its length is not a multiple of 512 bytes.
    pub fn of_parts(name: &str, media: Vec<M>) -> PmDevice<M> {
        let (mut parts, mut len_bytes) = (Vec::new(), 0);
        for medium in media {
            let part_bytes = medium.len_bytes() as u64;
            assert!(part_bytes > 0 && part_bytes.is_multiple_of(512), "a part of {part_bytes} bytes");
            parts.push((len_bytes, Mutex::new(medium)));
            len_bytes += part_bytes;
        }
        assert!(len_bytes > 0, "a device has a part");
        let info =
            DeviceInfo::of_memory(name, len_bytes, DeviceKind::PersistentMemory, WriteCache::WriteThrough);
        PmDevice { info, parts, is_poisoned: AtomicBool::new(false), stats: Stats::default() }
    }

    fn error(&self, operation: Operation, offset: u64, len_bytes: u64, cause: Cause) -> BlockError {
        self.info.error(operation, offset, len_bytes, cause)
    }

    fn part(&self, index: usize) -> MutexGuard<'_, M> {
        // A panic in a copy leaves only bytes that were not acknowledged.
        lock(&self.parts[index].1)
    }

    /// Runs `act` on each part of a range: medium, offset in it, range of the buffer.
    fn each<E>(
        &self,
        offset: u64,
        len: usize,
        mut act: impl FnMut(&mut M, usize, std::ops::Range<usize>) -> Result<(), E>,
    ) -> Result<(), (u64, E)> {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let index = self.parts.partition_point(|(start, _)| *start <= at) - 1;
            let within = (at - self.parts[index].0) as usize;
            let mut medium = self.part(index);
            let part = (medium.len_bytes() - within).min(len - done);
            act(&mut medium, within, done..done + part).map_err(|error| (at, error))?;
            done += part;
        }
        Ok(())
    }

    fn run(
        &self,
        operation: Operation,
        offset: u64,
        len: u64,
        act: impl FnOnce() -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        self.info.check(operation, offset, len)?;
        if operation != Operation::Read && self.is_poisoned() {
            return Err(self.error(operation, offset, len, Cause::Poisoned));
        }
        let since = Instant::now();
        let result = act();
        self.stats.note(operation, len, since, result.is_err());
        result
    }

    /// Copies to each part what `source` has for it, durably.
    fn change<'a>(
        &self,
        operation: Operation,
        offset: u64,
        len: usize,
        source: impl Fn(std::ops::Range<usize>) -> &'a [u8],
    ) -> Result<(), BlockError> {
        self.run(operation, offset, len as u64, || {
            let copied = self.each(offset, len, |medium, at, range| {
                let mut done = 0;
                while done < range.len() {
                    let data = source(range.start + done..range.end);
                    medium.copy(at + done, data, data.len(), &mut NoSum);
                    done += data.len();
                }
                // PERSIST: the write is durable when it returns, and whoever flushes after it relies on that:
                // a log block is then acknowledged, and a crash must not find older bytes. On this thread,
                // which copied.
                medium.fence()
            });
            copied.map_err(|(at, PersistError { source, .. })| {
                self.is_poisoned.store(true, Ordering::SeqCst);
                self.error(operation, at, offset + len as u64 - at, Cause::from_io(source))
            })
        })
    }
}

impl<M: Medium> BlockDevice for PmDevice<M> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        let len = buf.len();
        self.run(Operation::Read, offset, len as u64, || {
            let read = self.each(offset, len, |medium, at, range| medium.read(at, &mut buf[range]));
            read.map_err(|(at, error)| {
                // The error's message has the place in the region.
                let cause = Cause::Media(io::Error::other(error));
                self.error(Operation::Read, at, offset + len as u64 - at, cause)
            })
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(Operation::Write, offset, data.len(), |range| &data[range])
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.change(Operation::WriteFua, offset, data.len(), |range| &data[range])
    }

    fn flush(&self) -> Result<(), BlockError> {
        // Every write that returned successfully has made itself durable; one that did not has poisoned the
        // device.
        self.run(Operation::Flush, 0, 0, || Ok(()))
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.run(Operation::Discard, offset, len_bytes, || Ok(()))
    }

    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.info.check(Operation::WriteZeroes, offset, len_bytes)?;
        let len = usize::try_from(len_bytes).expect("inside of the memory");
        self.change(Operation::WriteZeroes, offset, len, |range| &ZEROES[..range.len().min(ZEROES.len())])
    }

    fn stats(&self) -> StatsSnapshot {
        self.stats.snapshot()
    }

    fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::SeqCst)
    }
}
