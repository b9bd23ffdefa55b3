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
        let line = head_line(0, false, seed);
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

    /// What is in the log, in order, and whether the directory is as it says.
    ///
    /// # Errors
    /// [`Error::Names`]: something in it is damaged.
    pub(crate) fn recover(&mut self) -> Result<(Vec<Noted>, bool), Error> {
        // PERSIST: what a process that died left in the CPU's caches; the recovery acts on what it reads, so
        // a power cut must not take it away. Excludes names that were made again, and no record of them.
        self.range.write_back(0, self.range.len_bytes());
        self.range.fence()?;
        let found = self.ring().look()?;
        (self.current, self.head, self.tail) = (found.current, found.head, found.tail);
        Ok((found.records, found.is_replayed))
    }

    /// Notes that the directory is as the records say.
    ///
    /// Persistence: durable on return; a crash inside leaves it noted or not.
    pub(crate) fn set_replayed(&mut self) -> Result<(), Error> {
        self.set_head(self.head, true)
    }

    fn set_head(&mut self, head: u64, is_replayed: bool) -> Result<(), Error> {
        let next = self.current ^ 1;
        self.range.copy(next * LINE, &head_line(head, is_replayed, self.seed), LINE, &mut NoSum);
        // PERSIST: where the records begin is durable before any is overwritten. Excludes a log that begins
        // with a part of one. And that they are replayed, before files get what is newer than they know.
        // Excludes that the next recovery makes their times older again.
        self.range.fence()?;
        (self.current, self.head) = (next, head);
        Ok(())
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
        if to <= self.head { Ok(()) } else { self.set_head(to, false) }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use fastness_pm_model::{Budget, Config, RecordStyle, Recorder, RecordingRange, explore};
    use fastness_pmem::Medium;

    use super::*;
    use crate::backing::{Attributes, CacheId};
    use crate::geometry::LOG_BYTES_MIN;
    use crate::names::record::Record;

    impl CacheMedium for RecordingRange {
        fn divide(self, offset: usize) -> (RecordingRange, RecordingRange) {
            self.split(offset)
        }
    }

    fn log(recorder: &Recorder) -> Log<RecordingRange> {
        Log::new(recorder.range(0, LOG_BYTES_MIN as usize), Seed::new(CacheId([9; 16])))
    }

    /// 24 lines of the 62 that there are.
    fn long() -> (Vec<u8>, u64) {
        let attributes = Attributes { target: vec![b'x'; 1300], ..Attributes::default() };
        let (bytes, lines) = Record { attributes: Some(attributes), ..Record::default() }.encode().unwrap();
        assert!(lines > 20 && bytes.len() as u64 == (lines - 1) * LINE as u64, "{lines}");
        (bytes, lines)
    }

    /// A record that reaches into what was freed just now.
    #[test]
    fn what_is_overwritten_is_free_before() {
        let recorder = Recorder::new(vec![0; LOG_BYTES_MIN as usize], RecordStyle::NonTemporal);
        let (mut range, seed) = (recorder.range(0, LOG_BYTES_MIN as usize), Seed::new(CacheId([9; 16])));
        Log::format(&mut range, 0, seed);
        range.fence().unwrap();
        drop(range);
        let mut full = log(&recorder);
        let (bytes, lines) = long();
        full.append(bytes.clone(), lines).unwrap();
        full.append(bytes.clone(), lines).unwrap();
        assert!(full.free_lines() < lines);
        for round in [1, 2] {
            recorder.mark(2 * round - 2);
            full.trim(round * lines).unwrap();
            recorder.mark(2 * round - 1);
            full.append(bytes.clone(), lines).unwrap();
        }
        let budget = Budget { exhaustive_limit: 3000, samples: 300, seed: 1 };
        let summary = explore(&recorder.trace(), &Config::default(), budget, &mut |point| {
            let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
            let found = log(&Recorder::new(point.image.to_vec(), RecordStyle::NonTemporal)).recover();
            let numbers: Vec<u64> = found.unwrap().0.iter().map(|noted| noted.number / lines).collect();
            let first = mark.div_ceil(2);
            let allowed = match mark % 2 {
                0 => [vec![first, first + 1], vec![first + 1]],
                _ => [vec![first], vec![first, first + 1]],
            };
            assert!(allowed.contains(&numbers), "{numbers:?} of {allowed:?}");
            ControlFlow::Continue(())
        });
        assert!(summary.unwrap().images > 20);
    }
}
