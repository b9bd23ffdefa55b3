//! A need-copy write as records: its data is read back from the object, piece by piece, when it is committed.

use crate::error::LogCause;
use crate::kind::ReadBack;
use crate::pool::FileEnd;
use crate::record::{Head, Record, Truncate, WRITE_HEAD_BYTES, encode_write_around};

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

    /// Reads back the next piece as a record; `None` after the last one.
    ///
    /// If the object ends within the write, it was cut since, and the record of that may be left out of the
    /// log: then the last record cuts it. Otherwise a replay would leave there what the write replaced.
    ///
    /// If the object is gone, nothing that comes after the write may be in the log without it: a name that
    /// the file had, and that the record of its removal takes away, would be there without the bytes.
    ///
    /// If it is a volume that has been made smaller, the write is durable with its txg, which has all of it.
    /// Its end would be lost if a crash left the volume as large as it was.
    ///
    /// # Errors
    /// [`LogCause::ReadBack`], [`LogCause::Gone`]; the same piece is then still next.
    pub(crate) fn next(&mut self, head: Head, source: &dyn ReadBack) -> Result<Option<&[u8]>, LogCause> {
        let len = self.left_bytes.min(self.piece_bytes) as usize;
        if len == 0 {
            return Ok(None);
        }
        let needed = (WRITE_HEAD_BYTES + len).next_multiple_of(8);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        loop {
            let data = &mut self.buffer[WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len];
            let found = source.read_back(head.object, self.offset, data).map_err(|_| LogCause::ReadBack)?;
            if found > 0 {
                let found = found.min(len);
                let encoded = encode_write_around(head, self.offset, found, self.buffer);
                self.offset = self.offset.saturating_add(found as u64);
                self.left_bytes -= found as u64;
                return Ok(Some(&self.buffer[..encoded]));
            }
            match source.file_end(head.object).map_err(|_| LogCause::ReadBack)? {
                // It has grown again.
                FileEnd::At(end) if end > self.offset => {}
                FileEnd::At(end) => {
                    self.left_bytes = 0;
                    let cut = Record::Truncate(Truncate { offset: end, len_bytes: u64::MAX }).to_bytes(head);
                    self.buffer[..cut.len()].copy_from_slice(&cut);
                    return Ok(Some(&self.buffer[..cut.len()]));
                }
                FileEnd::Gone | FileEnd::OfVolume => return Err(LogCause::Gone),
                FileEnd::NoDataset => {
                    self.left_bytes = 0;
                    return Ok(None);
                }
            }
        }
    }

    /// What is left: first byte, and how many.
    pub(crate) fn rest(&self) -> (u64, u64) {
        (self.offset, self.left_bytes)
    }
}
