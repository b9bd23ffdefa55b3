//! The log of names in PM: a ring of records.
//!
//! Lines are counted since the log was made: line `n` is in place `n mod` the lines that there are, so a
//! record of an earlier round is told by its number. Records follow each other without a gap, each durable
//! before the next begins: the first that is not whole is the end.
//!
//! Shape: two lines that say where the records begin, then the ring. Each of the two: the number of the
//! first line (8), 52 bytes of zero, CRC-32C of the cache's id and that. The higher of those that are whole
//! counts; they are written by turns.

use fastness_pmem::NoSum;

use crate::backing::FileId;
use crate::error::Error;
use crate::medium::CacheMedium;
use crate::tag::{LINE, Seed};

use super::record::{Record, Substitute, seal};

/// Lines in front of the ring.
const HEADS: u64 = 2;
/// Bytes of a log at least.
pub(crate) const LOG_BYTES_MIN: u64 = 4096;

/// A record that a recovery has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) number: u64,
    pub(crate) record: Record,
    /// What an earlier recovery has made in place of the file that the record's attributes are of.
    pub(crate) substitute: Option<FileId>,
}

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

fn head_line(head: u64, seed: Seed) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..8].copy_from_slice(&head.to_le_bytes());
    let sum = seed.sum(&line[..60]);
    line[60..].copy_from_slice(&sum.to_le_bytes());
    line
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

    fn ring_lines(&self) -> u64 {
        (self.range.len_bytes() / LINE) as u64 - HEADS
    }

    fn offset(&self, number: u64) -> usize {
        (HEADS + number % self.ring_lines()) as usize * LINE
    }

    /// Lines that are free.
    pub(crate) fn free_lines(&self) -> u64 {
        self.ring_lines() - (self.tail - self.head)
    }

    pub(crate) fn used_lines(&self) -> u64 {
        self.tail - self.head
    }

    /// The number of the next record: earlier ones are there.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    fn read_lines(&self, number: u64, count: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; count as usize * LINE];
        for (at, line) in bytes.chunks_exact_mut(LINE).enumerate() {
            self.range.read(self.offset(number + at as u64), line)?;
        }
        Ok(bytes)
    }

    fn read_line(&self, number: u64) -> Result<[u8; LINE], Error> {
        let mut line = [0; LINE];
        self.range.read(self.offset(number), &mut line)?;
        Ok(line)
    }

    fn record_at(&self, number: u64, free: u64) -> Result<Option<(Record, u64)>, Error> {
        let lines = Record::lines_of(&self.read_line(number)?, number);
        let Some(lines) = lines.filter(|lines| *lines <= free) else { return Ok(None) };
        let record = Record::decode(&self.read_lines(number, lines)?, self.seed);
        let whole = record.map(|record| {
            let lines = lines + u64::from(record.has_substitute());
            (record, lines)
        });
        Ok(whole.filter(|(_, lines)| *lines <= free))
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
        let damaged = Error::Names { region_offset: self.range.region_offset() };
        let mut heads = [[0; LINE]; HEADS as usize];
        self.range.read(0, heads.as_flattened_mut())?;
        let head_of = |line: &[u8; LINE]| {
            let head = u64::from_le_bytes(line[..8].try_into().expect("eight bytes"));
            (*line == head_line(head, self.seed)).then_some(head)
        };
        let found = heads.iter().map(head_of).enumerate().max_by_key(|(_, head)| *head);
        let (current, Some(head)) = found.expect("two lines") else { return Err(damaged) };
        if head > u64::MAX / 2 {
            return Err(damaged);
        }
        (self.current, self.head, self.tail) = (current, head, head);
        let mut all = Vec::new();
        while self.free_lines() > 0
            && let Some((record, lines)) = self.record_at(self.tail, self.free_lines())?
        {
            let number = self.tail;
            self.tail += lines;
            let substitute = match record.has_substitute() {
                true => Substitute::decode(&self.read_line(self.tail - 1)?, number, self.seed),
                false => None,
            };
            all.push(Noted { number, record, substitute });
        }
        // A crash leaves nothing after the end: each record is durable before the next one begins.
        for number in self.tail + 1..self.head + self.ring_lines() {
            if self.record_at(number, self.head + self.ring_lines() - number)?.is_some() {
                let region_offset = self.range.region_offset() + self.offset(self.tail) as u64;
                return Err(Error::Names { region_offset });
            }
        }
        Ok(all)
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
