//! The background: real syncs, and trimming the log after them.

use std::time::{Duration, Instant};

use fastness_pmlog::Turn;
use fastness_sync::atomic::Ordering;
use fastness_sync::{lock, now, read, write};

use crate::error::{Error, LogError};
use crate::file::File;
use crate::medium::CacheMedium;

use super::{LogStore, OpenLog, Stage};

/// Files that are found to be synced: each takes a descriptor. Of more, everything is synced.
const FOUND_MAX: usize = 8;
/// The log is trimmed when so much of it is in use, in 1024ths.
const DUE_PER_1024: u32 = 256;
/// The log is trimmed when records have been in it for so long. Syncs of the same bytes in the meantime cost
/// the disk one write.
const DUE_AFTER: Duration = Duration::from_secs(1);
/// Free chunks with which there is room.
const ROOM_CHUNKS: usize = 2;

/// What a trim has to go on with.
#[derive(Debug)]
pub(super) struct Trimming {
    /// The last turn that has ended, if its files are not all synced.
    ended: Option<Turn>,
    /// Since when there are records, as far as it was looked.
    since: Option<Instant>,
}

impl Trimming {
    pub(super) fn new() -> Trimming {
        Trimming { ended: None, since: None }
    }
}

impl<M: CacheMedium> LogStore<M> {
    fn has_records(&self) -> bool {
        self.untrimmed.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn with_log<T>(&self, look: impl FnOnce(&OpenLog<M>) -> T) -> Result<T, Error> {
        match &*read(&self.stage) {
            Stage::Open(log) => Ok(look(log)),
            _ => Err(LogError::NotOpen.into()),
        }
    }

    /// Trims the log if that is due, and says whether it was. For a thread that does so time after time.
    ///
    /// # Errors
    /// Those of the syncs; the records stay.
    pub(crate) fn tend_log(&self) -> Result<bool, Error> {
        if !self.has_records() {
            return Ok(false);
        }
        let used = self.with_log(|log| log.used_per_1024())?;
        let mut trimming = lock(&self.trimming);
        let since = *trimming.since.get_or_insert_with(now);
        if used < DUE_PER_1024 && now().duration_since(since) < DUE_AFTER {
            return Ok(false);
        }
        self.trim_holding(&mut trimming).map(|()| true)
    }

    /// Trims the log if it is full.
    ///
    /// # Errors
    /// As [`tend_log`](Self::tend_log).
    pub(super) fn make_room(&self) -> Result<(), Error> {
        let mut trimming = lock(&self.trimming);
        // Another thread may have made some meanwhile.
        match self.with_log(|log| log.free_chunks() >= ROOM_CHUNKS)? {
            true => Ok(()),
            false => self.trim_holding(&mut trimming),
        }
    }

    /// Makes room for a record that makes others obsolete, before locks of a file are taken.
    pub(crate) fn prepare_log(&self) -> Result<(), Error> {
        match self.with_log(|log| log.free_chunks() > 0)? {
            true => Ok(()),
            false => self.make_room(),
        }
    }

    /// Gives the backing store everything, and empties the log.
    ///
    /// # Errors
    /// The first; all files were tried.
    pub(crate) fn flush_all(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for file in self.files.all() {
            if lock(&file.logged.state).is_unsafe() {
                result = result.and(self.sync_for_real(&file, true));
            }
        }
        let mut trimming = lock(&self.trimming);
        result.and(self.sync_given_up()).and(self.trim_holding(&mut trimming))?;
        // A trim that had failed may have left no turn to begin: then the last one goes on until now.
        if self.has_records() { self.trim_holding(&mut trimming) } else { Ok(()) }
    }

    /// Notes that a file is forgotten which has bytes that no sync covers.
    pub(crate) fn give_up(&self, file: &File) {
        if lock(&file.logged.state).is_unsafe() && !Self::is_removed(file) {
            lock(&self.given_up).insert(file.id);
        }
    }

    fn sync_given_up(&self) -> Result<(), Error> {
        let mut given_up = lock(&self.given_up);
        if given_up.is_empty() {
            return Ok(());
        }
        if given_up.len() > FOUND_MAX {
            self.backing.sync_all().map_err(Error::backing("sync files"))?;
            given_up.clear();
            return Ok(());
        }
        let found = self.backing.find(&given_up).map_err(Error::backing("find files that are not synced"))?;
        for file in found.values() {
            file.sync().map_err(Error::backing("sync a file"))?;
        }
        given_up.clear();
        Ok(())
    }

    /// Syncs every file that has records of turns that have ended, and discards these.
    fn trim_holding(&self, trimming: &mut Trimming) -> Result<(), Error> {
        let Some(ended) = self.end_turn(trimming)? else { return Ok(()) };
        trimming.ended = Some(ended);
        let mut result = Ok(());
        let files = self.files.all();
        for file in files.iter().filter(|file| lock(&file.logged.state).has_records_until(ended)) {
            result = result.and(self.sync_for_real(file, true));
        }
        result?;
        match &mut *write(&self.stage) {
            Stage::Open(log) => log.trim_turns(ended).map_err(LogError::from)?,
            _ => return Err(LogError::NotOpen.into()),
        }
        self.untrimmed[1].store(0, Ordering::Relaxed);
        files.iter().for_each(|file| lock(&file.logged.state).trimmed(ended));
        (trimming.ended, trimming.since) = (None, None);
        self.counts.trims.fetch_add(1, Ordering::Relaxed);
        // Beside appends. A chunk that does not hold what was written to it is not used again.
        self.with_log(|log| log.empty_trimmed())?.map_err(LogError::from)?;
        Ok(())
    }

    /// Ends the turn if it has records; the last one that has ended and is not trimmed.
    fn end_turn(&self, trimming: &Trimming) -> Result<Option<Turn>, Error> {
        let mut stage = write(&self.stage);
        let Stage::Open(log) = &mut *stage else { return Err(LogError::NotOpen.into()) };
        if self.untrimmed[0].load(Ordering::Relaxed) == 0 {
            return Ok(trimming.ended);
        }
        let Some(ended) = log.next_turn() else { return Ok(trimming.ended) };
        // No append is under way: each holds the log.
        let moved = self.untrimmed[0].swap(0, Ordering::Relaxed);
        self.untrimmed[1].fetch_add(moved, Ordering::Relaxed);
        Ok(Some(ended))
    }
}
