//! The cache: requests, and the log that they go to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_pmem::{Medium, Mirror};
use fastness_prb::{HEADER_BYTES, Hdl, Prb, Txg, Wait, WriteError};
use fastness_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, RwLock, lock, read, wait_for, write};

use crate::block::Order;
use crate::blocks::Blocks;
use crate::error::Error;
use crate::front::Front;
use crate::mirror::MirrorInfo;
use crate::options::{Options, WhenFull};
use crate::record::{RECORD_BYTES, Record, What};
use crate::superblock::Superblock;
use crate::target::Target;
use crate::throttle::Throttle;
use crate::write_back::WriteBack;

/// How long a writer that finds the log full waits before it looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A write cache in persistent memory in front of a block device.
///
/// Units: bytes; offsets and lengths are multiples of the origin's block. Persistence: a change is durable
/// when it returns, as far as the region's durability goes. After a crash each change that had returned is
/// there, and of one that had not, each entry of the log as a whole or not at all: an entry has at most
/// [`entry_data_max`](crate::Geometry::entry_data_max) bytes, from a multiple of that on. Concurrency: any
/// number of threads; of overlapping changes that are made at the same time, each sector has the one that
/// the log has last, now and after a crash.
#[derive(Debug)]
pub struct Cache<M: Medium + Sync> {
    pub(crate) superblock: Superblock,
    /// The sides, if there are two.
    pub(crate) mirror: Option<MirrorInfo>,
    pub(crate) options: Options,
    pub(crate) prb: Arc<Prb<Mirror<M>>>,
    pub(crate) log: RwLock<Log<M>>,
    pub(crate) front: Mutex<Front<M>>,
    pub(crate) blocks: Blocks,
    pub(crate) target: Target,
    pub(crate) throttle: Throttle,
    /// Bytes of entries in the open generation.
    pub(crate) open_bytes: AtomicU64,
    pub(crate) closed: Mutex<Closed>,
    /// A generation was closed, or the cache ends.
    pub(crate) work: Condvar,
    /// There is room in the log.
    pub(crate) room: Condvar,
    pub(crate) write_back: Mutex<WriteBack>,
    pub(crate) has_cleaner: AtomicBool,
    pub(crate) is_ended: AtomicBool,
    pub(crate) is_region_failed: AtomicBool,
    pub(crate) counts: Counts,
}

/// The log, and the generation that entries belong to now.
#[derive(Debug)]
pub(crate) struct Log<M: Medium + Sync> {
    pub(crate) hdl: Hdl<Mirror<M>>,
    pub(crate) txg: u64,
}

/// Generations that the origin is to get.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// Their numbers, and the bytes of their entries; oldest first.
    pub(crate) queue: VecDeque<(u64, u64)>,
    /// Generations up to this one are on the origin.
    pub(crate) synced: u64,
    /// Why the last write-back failed.
    pub(crate) failure: Option<String>,
    /// When the one under way began.
    pub(crate) since: Option<Instant>,
}

/// What became of an entry.
enum Appended {
    Done,
    /// There is no free chunk.
    NoRoom,
    /// It counts, and is not acknowledged before the loss of the other side is recorded.
    DoneOnOneSide,
    /// Nothing was written: first the loss of a side is to be recorded.
    SideLost,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) log_read_bytes: AtomicU64,
    pub(crate) origin_read_bytes: AtomicU64,
    pub(crate) written_back_bytes: AtomicU64,
    pub(crate) written_back_runs: AtomicU64,
    pub(crate) write_backs: AtomicU64,
    pub(crate) failed_write_backs: AtomicU64,
    pub(crate) stops: AtomicU64,
    pub(crate) write_ns_max: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl<M: Medium + Sync> Cache<M> {
    /// Length of the origin in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.target.identity().len_bytes
    }

    /// Unit of offsets and lengths in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.target.identity().block_bytes
    }

    /// Where the origin is now: bytes of a path, or another address.
    pub fn origin_path(&self) -> Vec<u8> {
        self.target.origin().path()
    }

    /// What the region says of the cache.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    fn check(&self, offset: u64, len_bytes: u64) -> Result<(), Error> {
        let block_bytes = self.block_bytes();
        let is_whole = (offset | len_bytes).is_multiple_of(u64::from(block_bytes));
        let is_inside = offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes());
        match is_whole && is_inside {
            true => Ok(()),
            false => Err(Error::Range { offset, len_bytes, block_bytes }),
        }
    }

    /// Fills `buf` from `offset` on, with what was written last.
    ///
    /// # Errors
    /// [`Error`]: of the origin, for what the log does not have; [`Error::Read`] and [`Error::Damaged`] say
    /// where in the region.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.check(offset, buf.len() as u64)?;
        let mut holes = Vec::new();
        self.blocks.read(offset, buf, &mut holes)?;
        let missing: usize = holes.iter().map(|hole| hole.len()).sum();
        if !holes.is_empty() {
            let opened = self.target.get()?;
            for hole in holes {
                opened.device().read_at(offset + hole.start as u64, &mut buf[hole])?;
            }
        }
        add(&self.counts.reads, 1);
        add(&self.counts.origin_read_bytes, missing as u64);
        add(&self.counts.log_read_bytes, (buf.len() - missing) as u64);
        Ok(())
    }

    /// Writes `data` from `offset` on.
    ///
    /// Persistence: durable on return.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Ended`], and those of the region. A part of the data may have been written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(offset, data.len() as u64)?;
        let began = fastness_sync::now();
        let most = self.superblock.geometry.entry_data_max();
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let len = (most - at % most).min(rest.len() as u64);
            let (piece, after) = rest.split_at(len as usize);
            self.log(&Record { what: What::Data, offset: at, len }, piece)?;
            (at, rest) = (at + len, after);
        }
        self.note_change(began, data.len() as u64);
        Ok(())
    }

    /// Counts a request that changed something.
    fn note_change(&self, began: Instant, bytes: u64) {
        add(&self.counts.writes, 1);
        add(&self.counts.written_bytes, bytes);
        let took = fastness_sync::now().saturating_duration_since(began).as_nanos() as u64;
        self.counts.write_ns_max.fetch_max(took, Ordering::Relaxed);
    }

    /// Makes a range read as zeroes; with `is_discard` it need not be stored.
    ///
    /// Persistence: durable on return. It is one entry of the log, however long it is.
    ///
    /// # Errors
    /// As [`write`](Self::write); nothing was changed.
    pub fn write_zeroes(&self, offset: u64, len_bytes: u64, is_discard: bool) -> Result<(), Error> {
        self.check(offset, len_bytes)?;
        let what = if is_discard { What::Discard } else { What::Zeroes };
        if len_bytes > 0 {
            let began = fastness_sync::now();
            self.log(&Record { what, offset, len: len_bytes }, &[])?;
            self.note_change(began, len_bytes);
        }
        Ok(())
    }

    /// Whether what was acknowledged is durable: every change is, unless persistent memory has failed.
    ///
    /// # Errors
    /// [`Error::Ended`] after such a failure.
    pub fn sync(&self) -> Result<(), Error> {
        match self.is_region_failed.load(Ordering::SeqCst) {
            true => Err(Error::Ended),
            false => Ok(()),
        }
    }

    /// Bytes that an entry takes in the log.
    fn entry_bytes(&self, data: usize) -> u64 {
        let body = self.options.prb.alignment.round_up(RECORD_BYTES + data);
        (HEADER_BYTES + body) as u64
    }

    fn log(&self, record: &Record, data: &[u8]) -> Result<(), Error> {
        let bytes = self.entry_bytes(data.len());
        if self.options.is_paced {
            self.throttle.pace(bytes, self.prb.used_per_1024());
        }
        loop {
            match self.append(record, data, bytes)? {
                Appended::Done => return Ok(()),
                Appended::NoRoom => self.wait_for_room()?,
                Appended::DoneOnOneSide => return self.settle_loss(),
                Appended::SideLost => self.settle_loss()?,
            }
        }
    }

    /// Appends an entry and takes it into the index.
    fn append(&self, record: &Record, data: &[u8], bytes: u64) -> Result<Appended, Error> {
        // Until the index has the entry, the generation stays open: it is closed before it is written back.
        let log = read(&self.log);
        if self.is_ended.load(Ordering::SeqCst) {
            return Err(Error::Ended);
        }
        let head = record.encode();
        let (txg, wait) = (Txg(log.txg), Wait::Fail);
        let mut appended = Appended::Done;
        let (id, at) = match log.hdl.place_entry(txg, [&head, data], wait) {
            Ok(placed) => {
                let placed = placed.expect("the open generation is not retired");
                (placed.id, placed.region_offset)
            }
            Err(WriteError::NoFreeChunk) => return Ok(Appended::NoRoom),
            Err(WriteError::SideLost) => return Ok(Appended::SideLost),
            Err(WriteError::OnOneSide { id, region_offset, .. }) => {
                appended = Appended::DoneOnOneSide;
                (id, region_offset)
            }
            Err(error) => return Err(self.note_region(Error::Write(error))),
        };
        let order = Order { txg: log.txg, gsid: id.gsid.0 };
        self.blocks.put(record, order, at + (HEADER_BYTES + RECORD_BYTES) as u64, data);
        let open = self.open_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        drop(log);
        let most = self.superblock.geometry.generation_bytes();
        if open >= most {
            self.close_generation(most);
        }
        Ok(appended)
    }

    /// After an error of persistent memory nothing is acknowledged any more.
    pub(crate) fn note_region(&self, error: Error) -> Error {
        if error.is_of_region() {
            self.is_region_failed.store(true, Ordering::SeqCst);
        }
        error
    }

    /// Closes the open generation if it has at least `least` bytes.
    pub(crate) fn close_generation(&self, least: u64) {
        let mut log = write(&self.log);
        if self.open_bytes.load(Ordering::Relaxed) < least.max(1) {
            return;
        }
        let bytes = self.open_bytes.swap(0, Ordering::Relaxed);
        log.hdl.start_generation().expect("a log in use is in state logging");
        lock(&self.closed).queue.push_back((log.txg, bytes));
        log.txg += 1;
        drop(log);
        self.work.notify_all();
    }

    /// Waits for room in the log, not for long: the caller tries again.
    #[cold]
    fn wait_for_room(&self) -> Result<(), Error> {
        add(&self.counts.stops, 1);
        self.close_generation(1);
        if !self.has_cleaner.load(Ordering::SeqCst) {
            let cleaned = self.tend();
            return match (cleaned, self.options.when_full) {
                (Err(error), _) if error.is_of_region() => Err(error),
                (Err(_), WhenFull::Fail) => Err(Error::Full),
                // Nobody else will do it.
                (Err(_), WhenFull::Wait) => {
                    fastness_sync::sleep(LOOK_AGAIN);
                    Ok(())
                }
                (Ok(_), _) => Ok(()),
            };
        }
        let closed = lock(&self.closed);
        if closed.failure.is_some() && self.options.when_full == WhenFull::Fail {
            return Err(Error::Full);
        }
        if self.is_ended.load(Ordering::SeqCst) {
            return Err(Error::Ended);
        }
        if self.prb.free_chunks() == 0 {
            drop(wait_for(&self.room, closed, LOOK_AGAIN));
        }
        Ok(())
    }
}
