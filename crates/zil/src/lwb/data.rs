//! The data of writes that a commit reads back: where it goes, and the records that describe it.
//!
//! Motivation: what goes into the log is written twice, there and in the pool when its txg syncs. For a large
//! write it is cheaper to write the data where the txg will have it, and only its address into the log,
//! although that takes two flushes in a row. `docs/adr/2026-11-22-indirect-records.md` has the measurement,
//! and why replay is right.
//!
//! Order: everything that a run of entries can store is stored and flushed in one call, before the first
//! record of the run is appended. So the data of every record in the chain is durable, and data that cannot
//! be read at claim was lost by the medium.
//!
//! What is not stored (parts of blocks, blocks that have changed since, no space) is read back into the log
//! as usual; the records of a write follow each other in the order of its bytes, whichever form they have.

use fastness_lwb::{Lsn, RECORD_BYTES_MAX};

use crate::error::LogCause;
use crate::graph::{Job, RUN_BYTES};
use crate::kind::{Payload, ReadBack};
use crate::pieces::Pieces;
use crate::pool::{StoreRange, StoredData};
use crate::record::{Head, Record, Write, WriteData};

/// Limit for the bytes of a run with data to store: all of them share a flush.
const STORED_RUN_BYTES: u64 = 4 << 20;

/// How much one thread takes at a time.
pub(super) fn run_bytes(source: &dyn ReadBack) -> u64 {
    if source.store_bytes_min().is_some() { STORED_RUN_BYTES } else { RUN_BYTES }
}

/// Stores what a run must read back, if it is enough to be worth it; returns what was stored of each entry.
///
/// # Errors
/// [`LogCause::Failed`]: the flush failed. Nothing written since the last flush may be appended.
pub(super) fn stored_of(run: &[Job], source: &dyn ReadBack) -> Result<Vec<Vec<StoredData>>, LogCause> {
    let mut ranges = Vec::new();
    let mut bytes = 0;
    for (index, job) in run.iter().enumerate() {
        if let Payload::NeedCopy { offset, len_bytes } = job.payload {
            ranges.push((index, StoreRange { object: job.object, offset, len_bytes }));
            bytes += len_bytes;
        }
    }
    let mut stored = vec![Vec::new(); run.len()];
    if ranges.is_empty() || source.store_bytes_min().is_none_or(|least| bytes < least) {
        return Ok(stored);
    }
    let (indices, ranges): (Vec<usize>, Vec<StoreRange>) = ranges.into_iter().unzip();
    let found = source.store(&ranges).map_err(|_| LogCause::Failed)?;
    for (index, found) in indices.into_iter().zip(found) {
        stored[index] = found;
    }
    Ok(stored)
}

/// A write that is read back: the part that is not appended yet.
pub(super) struct Data<'a> {
    pub(super) head: Head,
    pub(super) offset: &'a mut u64,
    pub(super) len_bytes: &'a mut u64,
    pub(super) source: &'a dyn ReadBack,
    pub(super) buffer: &'a mut Vec<u8>,
}

impl Data<'_> {
    /// Appends its records, in the order of its bytes; returns the number of the last one, 0 if it has none.
    ///
    /// # Errors
    /// As [`Pieces::next`]; the write then holds what is left.
    pub(super) fn append(
        &mut self,
        stored: &[StoredData],
        append: &mut dyn FnMut(&[u8]) -> Lsn,
    ) -> Result<Lsn, LogCause> {
        let mut last = Lsn(0);
        for stored in stored {
            last = last.max(self.append_pieces(stored.offset - *self.offset, append)?);
            let (len_bytes, address) = (stored.len_bytes, &stored.address[..]);
            let data = WriteData::Indirect { len_bytes, address };
            let record = Record::Write(Write { offset: stored.offset, data });
            last = last.max(append(&record.to_bytes(self.head)));
            self.pass(len_bytes);
        }
        Ok(last.max(self.append_pieces(*self.len_bytes, append)?))
    }

    /// Reads back and appends the next bytes.
    fn append_pieces(
        &mut self,
        len_bytes: u64,
        append: &mut dyn FnMut(&[u8]) -> Lsn,
    ) -> Result<Lsn, LogCause> {
        let start = *self.offset;
        let mut last = Lsn(0);
        let mut pieces = Pieces::new(self.buffer, RECORD_BYTES_MAX, start, len_bytes)?;
        loop {
            match pieces.next(self.head, self.source) {
                Ok(Some(record)) => last = append(record),
                Ok(None) => break,
                Err(cause) => {
                    let (rest, _) = pieces.rest();
                    self.pass(rest - start);
                    return Err(cause);
                }
            }
        }
        self.pass(len_bytes);
        Ok(last)
    }

    fn pass(&mut self, len_bytes: u64) {
        *self.offset += len_bytes;
        *self.len_bytes -= len_bytes;
    }
}
