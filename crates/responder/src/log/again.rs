//! Writes again what a failed sync of the backing store may have dropped.
//!
//! The kernel takes pages that it could not write for clean: readers see them as long as they stay in memory,
//! and the next sync succeeds without them. What a record has is written from there; what was written since
//! then, and is no program's loss yet, from the page cache, as soon as possible.

use std::ops::Range;

use fastness_sync::{lock, read, write};

use crate::error::{Error, LogError};
use crate::file::File;
use crate::medium::CacheMedium;
use crate::ranges::Ranges;

use super::record::{Record, What};
use super::sync::read_whole;
use super::{LogStore, Stage};

/// Bytes that are read and written at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl<M: CacheMedium> LogStore<M> {
    /// The caller holds `flush` and `real` of the file.
    pub(super) fn write_again(&self, file: &File) -> Result<(), Error> {
        let _writing = write(&file.logged.writing);
        let stat = file.backing.stat().map_err(Error::backing("say what a file is"))?;
        // A program has written all of it earlier.
        file.times.begin(&*file.backing);
        let written = self.write_all_again(file, stat.size);
        let set = file.set_time(stat.modified_ns);
        file.times.end(&*file.backing, 0);
        written.and(set)
    }

    /// It may just have been cut, under an intent: nothing makes it longer again than `size`.
    fn write_all_again(&self, file: &File, size: u64) -> Result<(), Error> {
        let state = lock(&file.logged.state).clone();
        rewrite_unsynced(file, &state.unsynced, size)?;
        if !state.is_live() {
            return Ok(());
        }
        let mut newer = state.newer_than_records();
        let stage = read(&self.stage);
        let Stage::Open(log) = &*stage else { return Err(LogError::NotOpen.into()) };
        let mut buffer = vec![0; log.record_bytes_max()];
        // The newest first: no byte gets an older value on the way, where readers see it if this fails.
        for live in log.live_records().into_iter().rev() {
            log.read_live(&live, &mut buffer).map_err(LogError::from)?;
            let body = &buffer[..live.body_len_bytes()];
            let (record, data) = Record::decode(body).ok_or(LogError::Record { id: live.id() })?;
            if record.file == file.id && record.number > state.settled {
                rewrite_record(file, &record.what, data, &mut newer, size)?;
            }
        }
        Ok(())
    }
}

fn rewrite_unsynced(file: &File, unsynced: &Ranges, size: u64) -> Result<(), Error> {
    for range in unsynced.iter() {
        let (mut here, end) = (range.start, range.end.min(size));
        while here < end {
            let piece = here..end.min(here + PIECE_BYTES);
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            read_whole(file, &piece, &mut bytes)?;
            leave(file, &piece, &bytes)?;
            here = piece.end;
        }
    }
    Ok(())
}

fn leave(file: &File, range: &Range<u64>, bytes: &[u8]) -> Result<(), Error> {
    file.backing.write_at(range.start, bytes).map_err(Error::backing("write to a file again"))
}

/// What the record has, and no later write or record has changed.
fn rewrite_record(file: &File, what: &What, data: &[u8], newer: &mut Ranges, size: u64) -> Result<(), Error> {
    let What::Data { ranges, .. } = what else { return Ok(()) };
    let mut rest = data;
    for range in ranges {
        let part;
        (part, rest) = rest.split_at((range.end - range.start) as usize);
        for missing in newer.missing(&(range.start..range.end.min(size))) {
            let at = (missing.start - range.start) as usize..(missing.end - range.start) as usize;
            leave(file, &missing, &part[at])?;
        }
        newer.add(range.clone());
    }
    Ok(())
}
