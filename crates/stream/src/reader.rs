//! Reading a stream that nobody vouches for.

use std::io::{self, Read};

use crate::error::{Result, StreamError};
use crate::record::{
    BEGIN, BEGIN_BYTES, Begin, DATA, DATA_BYTES_MAX, END, HOLE, Head, MAGIC, NAME_BYTES_MAX, PREAMBLE_BYTES,
    RECORD_BYTES, VERSION, first_seed, number, preamble, sum,
};

/// Part of a volume.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Bytes at an offset.
    Data(u64, &'a [u8]),
    /// A range that reads as zeroes: offset, length.
    Hole(u64, u64),
}

/// Reads one stream. Reads nothing behind its last record.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    begin: Begin,
    number: u64,
    sum: u64,
    /// Where the next range may begin.
    next: u64,
    data_bytes: u64,
    payload: Vec<u8>,
    is_at_end: bool,
}

impl<R: Read> Reader<R> {
    /// Reads preamble and first record.
    ///
    /// # Errors
    /// [`StreamError`]; nothing of a refused stream may be used.
    pub fn begin(input: R) -> Result<Reader<R>> {
        let begin =
            Begin { to: 0, from: None, name: String::new(), size_bytes: 0, block_bytes: 0, resumes_at: 0 };
        let mut reader = Reader {
            input,
            begin,
            number: 0,
            sum: first_seed(),
            next: 0,
            data_bytes: 0,
            payload: Vec::new(),
            is_at_end: false,
        };
        let mut bytes = [0; PREAMBLE_BYTES];
        reader.fill(&mut bytes)?;
        let version = u32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
        if bytes[..8] != MAGIC {
            return Err(StreamError::NoStream);
        }
        if version != VERSION {
            return Err(StreamError::OtherVersion { found: version });
        }
        if bytes != preamble() {
            return Err(reader.invalid("the preamble has more than a version"));
        }
        let head = reader.record()?;
        reader.begin = reader.decode_begin(head)?;
        reader.next = reader.begin.resumes_at;
        reader.number = 1;
        Ok(reader)
    }

    /// What the stream says of itself.
    pub fn about(&self) -> &Begin {
        &self.begin
    }

    fn invalid(&self, what: &'static str) -> StreamError {
        StreamError::Invalid { record: self.number, what }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.input.read_exact(bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(StreamError::Truncated { record: self.number })
            }
            result => Ok(result?),
        }
    }

    /// Reads a record whose sum is right; its payload is in `payload` then.
    fn record(&mut self) -> Result<Head> {
        let mut bytes = [0; RECORD_BYTES];
        self.fill(&mut bytes)?;
        let (head, found) = bytes.split_at(RECORD_BYTES - 8);
        let head_bytes: &[u8; RECORD_BYTES - 8] = head.try_into().expect("32 bytes");
        let head = Head::decode(head_bytes).ok_or(StreamError::Damaged { record: self.number })?;
        // Before the sum can be looked at: so much memory is taken at most.
        if head.payload_bytes as usize > DATA_BYTES_MAX {
            return Err(StreamError::Damaged { record: self.number });
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(head.payload_bytes as usize, 0);
        let filled = self.fill(&mut payload);
        self.payload = payload;
        filled?;
        let expected = sum(self.sum, head_bytes, &self.payload);
        if number(found) != expected || head.number != self.number {
            return Err(StreamError::Damaged { record: self.number });
        }
        self.sum = expected;
        Ok(head)
    }

    fn decode_begin(&self, head: Head) -> Result<Begin> {
        let payload = &self.payload[..];
        if head.kind != BEGIN || payload.len() < BEGIN_BYTES {
            return Err(self.invalid("it is no first record"));
        }
        let (fixed, name) = payload.split_at(BEGIN_BYTES);
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
        let name = name.ok_or_else(|| self.invalid("the name is no text, or too long"))?;
        let begin = Begin {
            to: number(&fixed[8..16]),
            from: Some(number(&fixed[16..24])).filter(|from| *from != 0),
            name: name.to_owned(),
            size_bytes: head.len,
            block_bytes: u32::from_le_bytes(fixed[..4].try_into().expect("4 bytes")),
            resumes_at: head.offset,
        };
        if begin.to == 0 || Some(begin.to) == begin.from || fixed[4..8] != [0; 4] {
            return Err(self.invalid("its snapshots cannot be these"));
        }
        if begin.resumes_at > begin.size_bytes {
            return Err(self.invalid("it goes on behind the end of the volume"));
        }
        Ok(begin)
    }

    /// The next part; `None` at the end of a whole stream, and from then on.
    ///
    /// # Errors
    /// [`StreamError`]: parts that were handed out before are as they were written, but not all of them.
    #[allow(clippy::should_implement_trait, reason = "a part borrows the reader")]
    pub fn next(&mut self) -> Result<Option<Part<'_>>> {
        if self.is_at_end {
            return Ok(None);
        }
        let head = self.record()?;
        let is_empty = self.payload.is_empty();
        match head.kind {
            DATA if self.payload.len() as u64 != head.len => {
                return Err(self.invalid("its data is not as long as its range"));
            }
            DATA => {}
            HOLE if is_empty => {}
            END if !is_empty || head.offset != 0 => return Err(self.invalid("the last record has contents")),
            END if head.len != self.data_bytes => {
                return Err(self.invalid("the last record counts other data"));
            }
            END => {
                self.is_at_end = true;
                return Ok(None);
            }
            _ => return Err(self.invalid("no record of this kind can be here")),
        }
        let end = head.offset.checked_add(head.len).filter(|end| *end <= self.begin.size_bytes);
        let Some(end) = end else { return Err(self.invalid("its range is beyond the volume")) };
        if head.len == 0 || head.offset < self.next {
            return Err(self.invalid("its range is empty, or before that of the record before"));
        }
        self.next = end;
        self.number += 1;
        self.data_bytes += self.payload.len() as u64;
        Ok(Some(match head.kind {
            DATA => Part::Data(head.offset, &self.payload),
            _ => Part::Hole(head.offset, head.len),
        }))
    }
}
