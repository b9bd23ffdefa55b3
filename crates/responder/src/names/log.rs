//! The log of names in PM: a ring of records.
//!
//! Lines are counted since the log was made: line `n` is in place `n mod` the lines that there are, so a
//! record of an earlier round is told by its number. Records follow each other without a gap, each durable
//! before the next begins: the first that is not whole is the end.

use fastness_pmem::NoSum;

use crate::backing::FileId;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::tag::{LINE, Seed};

use super::record::{Substitute, seal};
use super::ring::{Noted, Ring, head_line};

/// Bytes of a log at least.
pub(crate) const LOG_BYTES_MIN: u64 = 4096;

/// The log.
#[derive(Debug)]
pub(crate) struct Log<M> {
    range: M,
    seed: Seed,
    /// The first line that counts, and the one after the last.
    head: u64,
    tail: u64,
    /// Which of the two lines says where the head is.
    current: usize,
}

impl<M: CacheMedium> Log<M> {
    pub(crate) fn new(range: M, seed: Seed) -> Log<M> {
        Log { range, seed, head: 0, tail: 0, current: 0 }
    }

    /// Empties the log of a new cache.
    ///
    /// Persistence: the caller fences.
    pub(crate) fn format(range: &mut M, offset: usize, seed: Seed) {
        let line = head_line(0, seed);
        range.copy(offset, &line, LINE, &mut NoSum);
        range.copy(offset + LINE, &line, LINE, &mut NoSum);
    }

    fn ring(&self) -> Ring<'_, M> {
        Ring { medium: &self.range, start: 0, len_bytes: self.range.len_bytes(), seed: self.seed }
    }

    fn offset(&self, number: u64) -> usize {
        self.ring().offset(number)
    }

    /// Lines that are free.
    pub(crate) fn free_lines(&self) -> u64 {
        self.ring().lines() - (self.tail - self.head)
    }

    pub(crate) fn used_lines(&self) -> u64 {
        self.tail - self.head
    }

    /// The number of the next record: earlier ones are there.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// What is in the log, in order.
    ///
    /// # Errors
    /// [`Error::Names`]: something in it is damaged.
    pub(crate) fn recover(&mut self) -> Result<Vec<Noted>, Error> {
        // PERSIST: what a process that died left in the CPU's caches; the recovery acts on what it reads, so
        // a power cut must not take it away. Excludes names that were made again, and no record of them.
        self.range.write_back(0, self.range.len_bytes());
        self.range.fence()?;
        let found = self.ring().look()?;
        (self.current, self.head, self.tail) = (found.current, found.head, found.tail);
        Ok(found.records)
    }

    /// Adds a record of so many lines, for which there is room; returns its number.
    ///
    /// Persistence: durable on return. A crash inside leaves it or none.
    pub(crate) fn append(&mut self, mut bytes: Vec<u8>, lines: u64) -> Result<u64, Error> {
        assert!(lines <= self.free_lines(), "room was reserved");
        let number = self.tail;
        seal(&mut bytes, number, self.seed);
        for (at, line) in bytes.chunks_exact(LINE).enumerate() {
            let offset = self.offset(number + at as u64);
            self.range.copy(offset, line, LINE, &mut NoSum);
        }
        // PERSIST: the record is durable before the call that it is of returns, and before the next record
        // begins. Excludes a name that is gone although it was acknowledged, and a gap between records.
        self.range.fence()?;
        self.tail = number + lines;
        Ok(number)
    }

    /// Notes which file was made in place of the one that was lost.
    ///
    /// Persistence: durable on return. A crash inside may leave no substitute.
    pub(crate) fn substitute(&mut self, noted: &Noted, id: FileId) -> Result<(), Error> {
        let (_, lines) = noted.record.encode().ok_or(Error::Names { region_offset: 0 })?;
        let offset = self.offset(noted.number + lines - 1);
        self.range.copy(offset, &Substitute::encode(noted.number, id, self.seed), LINE, &mut NoSum);
        // PERSIST: it is known before the file leaves its first place and gets data. Excludes that an
        // interrupted recovery makes it once more, beside the one that has the data.
        Ok(self.range.fence()?)
    }

    /// Frees the records in front of line `to`.
    ///
    /// Persistence: durable on return; a crash inside leaves them or not.
    pub(crate) fn trim(&mut self, to: u64) -> Result<(), Error> {
        if to <= self.head {
            return Ok(());
        }
        let next = self.current ^ 1;
        self.range.copy(next * LINE, &head_line(to, self.seed), LINE, &mut NoSum);
        // PERSIST: where the records begin is durable before any is overwritten. Excludes a log that begins
        // with a part of one.
        self.range.fence()?;
        (self.current, self.head) = (next, to);
        Ok(())
    }
}
