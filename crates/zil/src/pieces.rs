//! A need-copy write as records: its data is read back from the object, piece by piece, when it is committed.

use crate::error::LogCause;
use crate::kind::ReadBack;
use crate::record::{Head, Record, WRITE_HEAD_BYTES, Zeroes, encode_write_around};

/// Data of one record: other threads may have to wait for this much.
const PIECE_BYTES: u64 = 64 << 10;

/// What is left of a need-copy write.
pub(crate) struct Pieces<'a> {
    buffer: &'a mut Vec<u8>,
    piece_bytes: u64,
    offset: u64,
    left_bytes: u64,
}

impl<'a> Pieces<'a> {
    /// `buffer` is reused for each record, of up to `record_bytes_max` bytes.
    pub(crate) fn new(
        buffer: &'a mut Vec<u8>,
        record_bytes_max: usize,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Self, LogCause> {
        let room = record_bytes_max.saturating_sub(WRITE_HEAD_BYTES) as u64 & !7;
        let piece_bytes = PIECE_BYTES.min(room);
        if piece_bytes == 0 {
            return Err(LogCause::TooLarge);
        }
        Ok(Self { buffer, piece_bytes, offset, left_bytes: len_bytes })
    }

    /// Reads back the next piece as a record; `None` after the last one, or if the object is gone.
    ///
    /// If the object ends within the write, it was cut since, and the record of that may be left out of the
    /// log: then the rest becomes zeroes. Otherwise a replay would leave there what the write has overwritten.
    ///
    /// # Errors
    /// [`LogCause::ReadBack`]; the same piece is then still next.
    pub(crate) fn next(&mut self, head: Head, source: &dyn ReadBack) -> Result<Option<&[u8]>, LogCause> {
        let len = self.left_bytes.min(self.piece_bytes) as usize;
        if len == 0 {
            return Ok(None);
        }
        let needed = (WRITE_HEAD_BYTES + len).next_multiple_of(8);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        let data = &mut self.buffer[WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len];
        let found = source.read_back(head.object, self.offset, data).map_err(|_| LogCause::ReadBack)?;
        let Some(found) = found.map(|found| found.min(len)) else {
            self.left_bytes = 0;
            return Ok(None);
        };
        let (passed, encoded) = match found {
            0 => {
                let zeroes = Zeroes { offset: self.offset, len_bytes: self.left_bytes, is_discard: false };
                let record = Record::Zeroes(zeroes).to_bytes(head);
                self.buffer[..record.len()].copy_from_slice(&record);
                (self.left_bytes, record.len())
            }
            _ => (found as u64, encode_write_around(head, self.offset, found, self.buffer)),
        };
        self.offset = self.offset.saturating_add(passed);
        self.left_bytes -= passed;
        Ok(Some(&self.buffer[..encoded]))
    }

    /// What is left: first byte, and how many.
    pub(crate) fn rest(&self) -> (u64, u64) {
        (self.offset, self.left_bytes)
    }
}
