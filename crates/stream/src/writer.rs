//! Writing a stream.

use std::io::Write;

use crate::error::{Result, StreamError};
use crate::record::{
    BEGIN, BEGIN_BYTES, Begin, DATA, DATA_BYTES_MAX, END, HOLE, Head, NAME_BYTES_MAX, first_seed, preamble,
    sum,
};

/// Writes one stream. Nothing is buffered here.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    number: u64,
    sum: u64,
    data_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Writes preamble and first record.
    ///
    /// # Errors
    /// [`StreamError::Io`]; [`StreamError::Invalid`] for a name that is too long.
    pub fn begin(output: W, begin: &Begin) -> Result<Writer<W>> {
        if begin.name.len() > NAME_BYTES_MAX {
            return Err(StreamError::Invalid { record: 0, what: "the name is too long" });
        }
        let mut writer = Writer { output, number: 0, sum: first_seed(), data_bytes: 0 };
        writer.output.write_all(&preamble())?;
        let mut payload = Vec::with_capacity(BEGIN_BYTES + begin.name.len());
        payload.extend(begin.block_bytes.to_le_bytes());
        payload.extend([0; 4]);
        payload.extend(begin.to.to_le_bytes());
        payload.extend(begin.from.unwrap_or(0).to_le_bytes());
        payload.extend(begin.name.as_bytes());
        writer.put(BEGIN, begin.resumes_at, begin.size_bytes, &payload)?;
        Ok(writer)
    }

    fn put(&mut self, kind: u8, offset: u64, len: u64, payload: &[u8]) -> Result<()> {
        let head = Head { kind, payload_bytes: payload.len() as u32, number: self.number, offset, len };
        let bytes = head.encode();
        self.sum = sum(self.sum, &bytes, payload);
        self.output.write_all(&bytes)?;
        self.output.write_all(&self.sum.to_le_bytes())?;
        self.output.write_all(payload)?;
        self.number += 1;
        Ok(())
    }

    /// Bytes at an offset, after all ranges before: in records of [`DATA_BYTES_MAX`].
    ///
    /// # Errors
    /// [`StreamError::Io`]; [`StreamError::Invalid`], with nothing written, for a range that no volume has.
    pub fn data(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(StreamError::Invalid { record: self.number, what: "its range is beyond any volume" });
        }
        let mut at = offset;
        for part in data.chunks(DATA_BYTES_MAX) {
            self.put(DATA, at, part.len() as u64, part)?;
            at += part.len() as u64;
        }
        self.data_bytes += data.len() as u64;
        Ok(())
    }

    /// A range that reads as zeroes and takes no space.
    ///
    /// # Errors
    /// [`StreamError::Io`].
    pub fn hole(&mut self, offset: u64, len: u64) -> Result<()> {
        self.put(HOLE, offset, len, &[])
    }

    /// The last record; flushes the output.
    ///
    /// # Errors
    /// [`StreamError::Io`].
    pub fn end(mut self) -> Result<()> {
        self.put(END, 0, self.data_bytes, &[])?;
        Ok(self.output.flush()?)
    }
}
