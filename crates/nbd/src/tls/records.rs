//! Bytes that arrived, and which of them are whole records.
//!
//! The library gets whole records only. So it is known whether a client has stopped in the middle of one,
//! which looks like a client that has nothing to say otherwise.

/// Header of a record: type, version, length.
const HEADER_BYTES: usize = 5;
/// Longest record: 16 KiB and what encryption adds. Source: RFC 8446, 5.2.
const BODY_BYTES_MAX: usize = (16 << 10) + 256;
/// A few of the longest.
const BUFFER_BYTES: usize = 4 * (HEADER_BYTES + BODY_BYTES_MAX);
/// Types of records that there are. Source: RFC 8446, B.1.
const KINDS: std::ops::RangeInclusive<u8> = 20..=24;

pub(super) struct Records {
    buffer: Box<[u8]>,
    start: usize,
    /// End of the last whole record.
    whole: usize,
    end: usize,
}

impl Records {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), start: 0, whole: 0, end: 0 }
    }

    /// Whether the last record has arrived in part only.
    pub(super) fn is_in_record(&self) -> bool {
        self.whole < self.end
    }

    /// What is whole and was not taken.
    pub(super) fn whole(&self) -> &[u8] {
        &self.buffer[self.start..self.whole]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.whole - self.start, "took what is not there");
        self.start += bytes;
    }

    /// Room for more; only once all that is whole was taken.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.whole, self.end) = (0, self.whole - self.start, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// So many bytes were put into the room.
    pub(super) fn received(&mut self, bytes: usize) {
        self.end += bytes;
        while let Some(header) = self.buffer[self.whole..self.end].first_chunk::<HEADER_BYTES>() {
            let body_bytes = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if !KINDS.contains(&header[0]) || body_bytes > BODY_BYTES_MAX {
                // No record at all: the library says so.
                self.whole = self.end;
            } else if self.whole + HEADER_BYTES + body_bytes <= self.end {
                self.whole += HEADER_BYTES + body_bytes;
            } else {
                break;
            }
        }
    }
}
