//! Writes, and what makes them durable.

use std::ops::Range;

use fastness_pmlog::AppendError;
use fastness_prb::HEADER_BYTES;
use fastness_sync::atomic::Ordering;
use fastness_sync::{MutexGuard, lock, read};

use crate::error::{Error, LogError};
use crate::file::File;
use crate::medium::CacheMedium;
use crate::ranges::Ranges;

use super::record::{Record, What, record_bytes};
use super::{LogStore, OpenLog, Stage};

/// Ranges that are noted of a file; a write to more of them makes the next sync a real one.
const RANGES_MAX: usize = 4096;
/// Chunks that records of data leave free: for those that make others obsolete.
const RESERVED_CHUNKS: usize = 1;
/// A sync that finds the log full makes room so often.
const ATTEMPTS: usize = 3;

/// What became of a record.
enum Appended {
    Done,
    Full,
}

impl<M: CacheMedium> LogStore<M> {
    /// Writes to the page cache as much as there is room for. Nothing is durable.
    pub(crate) fn write_file(&self, file: &File, offset: u64, data: &[u8]) -> Result<usize, Error> {
        let (written, is_many) = {
            let _writing = read(&file.logged.writing);
            let written = file.backing.write_some(offset, data);
            // After the bytes are there: a sync that comes between has not been promised them, and the next
            // one reads them. A write that fails may have been made in part.
            let len = *written.as_ref().unwrap_or(&data.len());
            let mut state = lock(&file.logged.state);
            state.written(offset..offset + len as u64);
            (written, state.unsynced.count() > RANGES_MAX)
        };
        if is_many {
            self.note_less(file);
        }
        written.map_err(Error::backing("write to a file"))
    }

    /// The file has more ranges than are noted.
    fn note_less(&self, file: &File) {
        let is_live = {
            let mut state = lock(&file.logged.state);
            if !state.is_live() && state.unsynced.count() > RANGES_MAX {
                state.untrack();
            }
            state.is_live()
        };
        if is_live && self.sync_for_real(file, true).is_ok() {
            // If the log has no room, the ranges are noted on.
            let _ = self.settle(file, file_number(file));
        }
    }

    /// Writes as much as there is room for, and makes that durable: a record from the bytes of the caller.
    /// `size` is the length of the file before.
    ///
    /// Persistence: durable on return.
    pub(crate) fn write_durably(
        &self,
        file: &File,
        offset: u64,
        data: &[u8],
        size: u64,
    ) -> Result<usize, Error> {
        let range = offset..offset + data.len() as u64;
        let done;
        {
            // Whoever is second in the page cache is second in the log.
            let _flush = lock(&file.flush);
            let _writing = read(&file.logged.writing);
            let is_possible = {
                let mut state = lock(&file.logged.state);
                // Before the bytes are there: what another write notes from now on may be newer.
                state.unsynced.remove(&range);
                state.takes_records() && self.fits(&only(range.clone())) && !Self::is_removed(file)
            };
            let written = file.backing.write_some(offset, data).map_err(Error::backing("write to a file"));
            done = *written.as_ref().unwrap_or(&0);
            let made = offset..offset + done as u64;
            let appended = match &written {
                Ok(_) if is_possible => {
                    self.append(file, &only(made.clone()), &data[..done], size.max(made.end))
                }
                _ => Ok(Appended::Full),
            };
            match appended {
                Ok(Appended::Done) => {
                    // Of these bytes, what was unsynced before is.
                    lock(&file.logged.state).written(made.end..range.end);
                    return Ok(done);
                }
                failed => {
                    lock(&file.logged.state).written(range);
                    written.and(failed)?;
                }
            }
        }
        self.sync_file(file, size.max(offset + done as u64))?;
        Ok(done)
    }

    /// Makes durable what was written: by a record, or by a real sync.
    ///
    /// Persistence: all that was written before the call is durable on return.
    ///
    /// # Errors
    /// Nothing may be durable of what was written since the last success.
    pub(crate) fn sync_file(&self, file: &File, size: u64) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let held = lock(&file.flush);
            if Self::is_removed(file) {
                return Ok(());
            }
            let (ranges, taken) = {
                let mut state = lock(&file.logged.state);
                if std::mem::take(&mut state.has_lost) {
                    return Err(Error::backing("sync a file earlier")(rustix::io::Errno::IO.into()));
                }
                if state.is_synced() {
                    return Ok(());
                }
                let ranges = state.newer_than_records().gathered(size);
                if state.needs_real_sync() || !self.fits(&ranges) {
                    break;
                }
                // What is written from now on is noted again.
                (ranges, std::mem::take(&mut state.unsynced))
            };
            let logged = self.log_ranges(file, &ranges, size);
            if let Ok(Appended::Done) = logged {
                return Ok(());
            }
            lock(&file.logged.state).unsynced.add_all(&taken);
            logged?;
            drop(held);
            self.counts.full.fetch_add(1, Ordering::Relaxed);
            self.make_room()?;
        }
        let covers = file_number(file);
        self.sync_for_real(file, false)?;
        self.settle(file, covers)
    }

    /// Whether the bytes of these ranges are one record, which is one entry of the log.
    fn fits(&self, ranges: &Ranges) -> bool {
        record_bytes(ranges) <= self.geometry.chunk_bytes - HEADER_BYTES as u64
    }

    /// The caller holds `flush` of the file.
    fn log_ranges(&self, file: &File, ranges: &Ranges, size: u64) -> Result<Appended, Error> {
        let mut data = vec![0; ranges.bytes() as usize];
        let mut rest = &mut data[..];
        for range in ranges.iter() {
            let part;
            (part, rest) = rest.split_at_mut((range.end - range.start) as usize);
            read_whole(file, &range, part)?;
        }
        self.append(file, ranges, &data, size)
    }

    /// Appends a record of data. The caller holds `flush` of the file.
    ///
    /// Persistence: durable on return.
    fn append(&self, file: &File, ranges: &Ranges, data: &[u8], size: u64) -> Result<Appended, Error> {
        let stat = file.backing.stat().map_err(Error::backing("say what a file is"))?;
        let stage = read(&self.stage);
        let Stage::Open(log) = &*stage else { return Err(LogError::NotOpen.into()) };
        if log.free_chunks() < RESERVED_CHUNKS {
            return Ok(Appended::Full);
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let what = What::Data { size, modified_ns: stat.modified_ns, ranges: ranges.iter().collect() };
        let appended = self.append_to(log, &Record { file: file.id, number, what }, data)?;
        if let Appended::Done = appended {
            // While the log is held: whoever begins the next turn sees that this one has a record of the
            // file.
            lock(&file.logged.state).recorded(number, log.turn(), ranges);
        }
        Ok(appended)
    }

    fn append_to(&self, log: &OpenLog<M>, record: &Record, data: &[u8]) -> Result<Appended, Error> {
        let front = record.encode();
        match log.append_parts([&front, data]) {
            Ok(_) => {}
            Err(AppendError::Full { .. }) => return Ok(Appended::Full),
            Err(error) => return Err(LogError::from(error).into()),
        }
        self.untrimmed[0].fetch_add(1, Ordering::Relaxed);
        self.counts.records.fetch_add(1, Ordering::Relaxed);
        self.counts.record_bytes.fetch_add((front.len() + data.len()) as u64, Ordering::Relaxed);
        Ok(Appended::Done)
    }

    /// Notes that the records of the file up to `covers` do not count: the backing store has it as it is, or
    /// it is gone. If the log is full, room is made; the caller holds no lock of a file but `size`.
    ///
    /// Persistence: durable on return.
    pub(crate) fn settle(&self, file: &File, covers: u64) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            match self.try_settle(file, covers)? {
                Appended::Done => return Ok(()),
                Appended::Full => self.make_room()?,
            }
        }
        Err(LogError::Full.into())
    }

    /// As [`settle`](Self::settle), of all records of the file; the caller holds `flush`.
    ///
    /// # Errors
    /// The log may be full: then it has to be trimmed first.
    pub(crate) fn settle_all(&self, file: &File) -> Result<(), Error> {
        match self.try_settle(file, file_number(file))? {
            Appended::Done => Ok(()),
            Appended::Full => Err(LogError::Full.into()),
        }
    }

    fn try_settle(&self, file: &File, covers: u64) -> Result<Appended, Error> {
        if !lock(&file.logged.state).is_live() {
            return Ok(Appended::Done);
        }
        let stage = read(&self.stage);
        let Stage::Open(log) = &*stage else { return Err(LogError::NotOpen.into()) };
        let settled = Record { file: file.id, number: covers, what: What::Settled };
        let appended = self.append_to(log, &settled, &[])?;
        if let Appended::Done = appended {
            lock(&file.logged.state).settled(covers);
        }
        Ok(appended)
    }

    /// A real sync of a file. `is_alone`: no program waits for it, so one that fails is told to the next.
    ///
    /// Persistence: what was written before the call is durable in the backing store.
    ///
    /// # Errors
    /// What was not synced before is noted again; the records stay.
    pub(crate) fn sync_for_real(&self, file: &File, is_alone: bool) -> Result<(), Error> {
        let held = lock(&file.flush);
        self.sync_holding(file, Some(held), is_alone)
    }

    /// As [`sync_for_real`](Self::sync_for_real); the caller holds `flush` of the file, and `held` is that
    /// lock if it can be let go while the backing store syncs.
    pub(crate) fn sync_holding(
        &self,
        file: &File,
        held: Option<MutexGuard<'_, ()>>,
        is_alone: bool,
    ) -> Result<(), Error> {
        let _real = lock(&file.logged.real);
        if lock(&file.logged.state).needs_rewrite {
            let written = self.write_again(file);
            self.noted(file, written)?;
        }
        lock(&file.logged.state).begin_real_sync();
        drop(held);
        self.counts.real_syncs.fetch_add(1, Ordering::Relaxed);
        file.flushing_since_ns.store(self.now_ns().max(1), Ordering::Relaxed);
        let synced = file.backing.sync().map_err(Error::backing("sync a file"));
        file.flushing_since_ns.store(0, Ordering::Relaxed);
        {
            let mut state = lock(&file.logged.state);
            match synced.is_ok() {
                true => state.end_real_sync(),
                false => state.fail_real_sync(is_alone),
            }
        }
        self.noted(file, synced)
    }

    /// Keeps an error for the status.
    fn noted(&self, file: &File, result: Result<(), Error>) -> Result<(), Error> {
        let errno = result.as_ref().err().map_or(0, Error::errno);
        file.failure.store(errno, Ordering::Relaxed);
        if result.is_err() {
            self.files.note_trouble();
        }
        result
    }
}

fn only(range: Range<u64>) -> Ranges {
    let mut ranges = Ranges::default();
    ranges.add(range);
    ranges
}

/// Number of the last record of a file.
fn file_number(file: &File) -> u64 {
    lock(&file.logged.state).last_record
}

/// Reads what the file must have; a file that is shorter was cut past the cache, and has zeroes there for us.
pub(super) fn read_whole(file: &File, range: &Range<u64>, part: &mut [u8]) -> Result<(), Error> {
    let len = file.backing.read_at(range.start, part).map_err(Error::backing("read a file"))?;
    part[len..].fill(0);
    Ok(())
}
