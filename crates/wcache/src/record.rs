//! What an entry of the log says: the first 64 bytes of its body; the data follow.
//!
//! Shape, little endian: offset on the origin (8 bytes), length (8), what (1), then zeroes. The checksum of
//! the entry's body covers it.

use crate::error::Error;

/// Bytes of a record's head: one line, so that the data need not be copied together with it.
pub(crate) const RECORD_BYTES: usize = 64;

/// What is done to a range of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It has the data of the entry.
    Data,
    /// It reads as zeroes.
    Zeroes,
    /// It reads as zeroes, and need not be stored.
    Discard,
}

/// A change of a range of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) what: What,
    /// First byte on the origin.
    pub(crate) offset: u64,
    /// Bytes on the origin.
    pub(crate) len: u64,
}

impl Record {
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16] = match self.what {
            What::Data => 1,
            What::Zeroes => 2,
            What::Discard => 3,
        };
        bytes
    }

    /// Reads the record in front of `body`; the bytes are not trusted. `region_offset` is the entry's.
    ///
    /// # Errors
    /// [`Error::Record`].
    pub(crate) fn decode(body: &[u8], origin_bytes: u64, region_offset: u64) -> Result<Record, Error> {
        let wrong = || Error::Record { region_offset };
        let (head, data) = body.split_at_checked(RECORD_BYTES).ok_or_else(wrong)?;
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (offset, len) = (word(0), word(8));
        let what = match head[16] {
            1 => What::Data,
            2 => What::Zeroes,
            3 => What::Discard,
            _ => return Err(wrong()),
        };
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= origin_bytes);
        let is_whole = (offset | len).is_multiple_of(crate::block::SECTOR_BYTES) && len > 0;
        let has_data = data.len() as u64 == if what == What::Data { len } else { 0 };
        match is_inside && is_whole && has_data && head[17..].iter().all(|byte| *byte == 0) {
            true => Ok(Record { what, offset, len }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        let record = Record { what: What::Data, offset: 512, len: 1024 };
        let mut body = record.encode().to_vec();
        assert_eq!(body[..24], [0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        body.resize(RECORD_BYTES + 1024, 7);
        assert_eq!(Record::decode(&body, 1536, 0).unwrap(), record);
        assert!(Record::decode(&body, 1024, 0).is_err(), "outside of the origin");
        assert!(Record::decode(&body[..RECORD_BYTES + 512], 1536, 0).is_err(), "data missing");
        assert!(Record::decode(&body[..60], 1536, 0).is_err());
        for (at, byte) in [(0, 1), (7, 0xff), (8, 1), (16, 0), (16, 4), (17, 1), (63, 1)] {
            let mut wrong = body.clone();
            wrong[at] = byte;
            assert!(Record::decode(&wrong, 1536, 0).is_err(), "byte {at}");
        }
        for what in [What::Zeroes, What::Discard] {
            let record = Record { what, ..record };
            assert_eq!(Record::decode(&record.encode(), 1536, 0).unwrap(), record);
            assert!(Record::decode(&body, 1536, 0).is_ok_and(|found| found != record));
        }
        let empty = Record { len: 0, what: What::Zeroes, ..record };
        assert!(Record::decode(&empty.encode(), 1536, 0).is_err());
    }
}
