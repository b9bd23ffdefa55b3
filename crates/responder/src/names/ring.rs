//! Reads a log of names: its beginning, and the records up to its end.
//!
//! Shape: two lines that say where the records begin, then the ring. Each of the two: the number of the
//! first line (8), 1 if a recovery has made the directory as the records say (8), else 0, 44 bytes of zero,
//! CRC-32C of the cache's id and that. The higher of those that are whole counts, with the same number the
//! one with 1; they are written by turns.

use fastness_pmem::Medium;

use crate::backing::FileId;
use crate::error::Error;
use crate::tag::{LINE, Seed};

use super::record::{Record, Substitute};

/// Lines in front of the ring.
const HEADS: u64 = 2;

/// A record that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) number: u64,
    pub(crate) record: Record,
    /// What an earlier recovery has made in place of the file that the record's attributes are of.
    pub(crate) substitute: Option<FileId>,
}

/// What a log holds.
#[derive(Debug)]
pub(crate) struct Found {
    /// Which of the two lines says where the head is.
    pub(crate) current: usize,
    /// The directory is as the records say.
    pub(crate) is_replayed: bool,
    /// The first line that counts, and the one after the last.
    pub(crate) head: u64,
    pub(crate) tail: u64,
    /// In order.
    pub(crate) records: Vec<Noted>,
}

/// Where a log is.
#[derive(Debug)]
pub(crate) struct Ring<'a, M> {
    pub(crate) medium: &'a M,
    /// Offset in the medium.
    pub(crate) start: usize,
    pub(crate) len_bytes: usize,
    pub(crate) seed: Seed,
}

pub(super) fn head_line(head: u64, is_replayed: bool, seed: Seed) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..8].copy_from_slice(&head.to_le_bytes());
    line[8] = is_replayed.into();
    let sum = seed.sum(&line[..60]);
    line[60..].copy_from_slice(&sum.to_le_bytes());
    line
}

impl<M: Medium> Ring<'_, M> {
    /// Lines that there are.
    pub(super) fn lines(&self) -> u64 {
        (self.len_bytes / LINE) as u64 - HEADS
    }

    /// Where a line is, in the medium.
    pub(super) fn offset(&self, number: u64) -> usize {
        self.start + (HEADS + number % self.lines()) as usize * LINE
    }

    fn read_lines(&self, number: u64, count: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; count as usize * LINE];
        for (at, line) in bytes.chunks_exact_mut(LINE).enumerate() {
            self.medium.read(self.offset(number + at as u64), line)?;
        }
        Ok(bytes)
    }

    fn read_line(&self, number: u64) -> Result<[u8; LINE], Error> {
        let mut line = [0; LINE];
        self.medium.read(self.offset(number), &mut line)?;
        Ok(line)
    }

    /// The record that begins with that line and has at most `free` of them, and how many it has.
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

    fn damaged(&self, offset: usize) -> Error {
        Error::Names { region_offset: self.medium.region_offset() + offset as u64 }
    }

    /// Which line says where the head is, where that is, and whether the records are replayed.
    fn head(&self) -> Result<(usize, u64, bool), Error> {
        let mut heads = [[0; LINE]; HEADS as usize];
        self.medium.read(self.start, heads.as_flattened_mut())?;
        let head_of = |line: &[u8; LINE]| {
            let head = u64::from_le_bytes(line[..8].try_into().expect("eight bytes"));
            let is_replayed = line[8] == 1;
            (*line == head_line(head, is_replayed, self.seed)).then_some((head, is_replayed))
        };
        let found = heads.iter().map(head_of).enumerate().max_by_key(|(_, head)| *head);
        let (current, head) = found.expect("two lines");
        let head = head.filter(|(head, _)| *head <= u64::MAX / 2);
        let (head, is_replayed) = head.ok_or_else(|| self.damaged(self.start))?;
        Ok((current, head, is_replayed))
    }

    /// What is in the log.
    ///
    /// # Errors
    /// [`Error::Names`]: something in it is damaged.
    pub(crate) fn look(&self) -> Result<Found, Error> {
        let (current, head, is_replayed) = self.head()?;
        let (mut tail, end, mut records) = (head, head + self.lines(), Vec::new());
        while tail < end
            && let Some((record, lines)) = self.record_at(tail, end - tail)?
        {
            let number = tail;
            tail += lines;
            let substitute = match record.has_substitute() {
                true => Substitute::decode(&self.read_line(tail - 1)?, number, self.seed),
                false => None,
            };
            records.push(Noted { number, record, substitute });
        }
        // A crash leaves nothing after the end: each record is durable before the next one begins.
        for number in tail + 1..end {
            if self.record_at(number, end - number)?.is_some() {
                return Err(self.damaged(self.offset(tail)));
            }
        }
        Ok(Found { current, is_replayed, head, tail, records })
    }
}
