//! A need-copy write as records: its data is read back from the object, piece by piece, when it is committed.

use crate::error::LogCause;
use crate::kind::ReadBack;
use crate::pool::FileEnd;
use crate::record::{Head, Record, Truncate, WRITE_HEAD_BYTES, encode_write_around};

/// Data of one record: other threads may have to wait for this much.
const PIECE_BYTES: u64 = 64 << 10;
/// Records end at multiples of the first of these that they have room for: a crash between two of them leaves
/// no sector, and if possible no page, that is half old and half new.
const BORDERS: [u64; 2] = [4096, 512];

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
        let len = self.next_bytes();
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

    fn next_bytes(&self) -> usize {
        if self.left_bytes <= self.piece_bytes {
            return self.left_bytes as usize;
        }
        let room = |border| self.piece_bytes.checked_sub((self.offset + self.piece_bytes) % border);
        BORDERS.into_iter().filter_map(room).find(|room| *room > 0).unwrap_or(self.piece_bytes) as usize
    }

    /// What is left: first byte, and how many.
    pub(crate) fn rest(&self) -> (u64, u64) {
        (self.offset, self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_write_end_at_borders_of_sectors_and_pages() {
        // The room for a record, and where it can end.
        for (record_bytes_max, border) in
            [(1 << 20, 4096), (32 << 10, 4096), (4100, 512), (1000, 512), (200, 1)]
        {
            for begin in [0, 1, 511, 4095, 70_000] {
                let mut buffer = Vec::new();
                let mut pieces = Pieces::new(&mut buffer, record_bytes_max, begin, 200_001).unwrap();
                while pieces.left_bytes > 0 {
                    let len = pieces.next_bytes() as u64;
                    assert!((1..=pieces.piece_bytes).contains(&len));
                    (pieces.offset, pieces.left_bytes) = (pieces.offset + len, pieces.left_bytes - len);
                    assert!(pieces.left_bytes == 0 || pieces.offset.is_multiple_of(border));
                }
            }
        }
    }
}
