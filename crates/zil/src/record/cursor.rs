//! Reading and writing fields in order; errors report the position.

use super::error::{RecordError, RecordFault};
use super::types::{Attributes, Time};

/// Where an encoder puts its bytes; without a buffer it only counts.
pub(super) struct Out<'a> {
    buffer: Option<&'a mut [u8]>,
    at: usize,
}

impl<'a> Out<'a> {
    pub(super) fn new(buffer: Option<&'a mut [u8]>) -> Self {
        Self { buffer, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The caller has checked the buffer's length by counting first.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if let Some(buffer) = &mut self.buffer {
            buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }

    pub(super) fn u8(&mut self, number: u8) {
        self.bytes(&[number]);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// Zeroes up to a multiple of 8: no earlier contents of the buffer reach the medium.
    pub(super) fn pad(&mut self) {
        let len = self.at.next_multiple_of(8) - self.at;
        self.bytes(&[0; 8][..len]);
    }

    pub(super) fn time(&mut self, time: Time) {
        self.bytes(&time.seconds.to_le_bytes());
        self.u32(time.nanoseconds);
        self.u32(0);
    }

    pub(super) fn attributes(&mut self, attributes: &Attributes) {
        self.u32(attributes.mode);
        self.u32(0);
        self.u64(attributes.uid);
        self.u64(attributes.gid);
        self.u64(attributes.generation);
        self.time(attributes.crtime);
        self.u64(attributes.rdev);
    }
}

/// A decoder's position in a record of exactly these bytes.
pub(super) struct In<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> In<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn bytes(&mut self, len: u64) -> Result<&'a [u8], RecordError> {
        let left = (self.bytes.len() - self.at) as u64;
        if len > left {
            return Err(RecordError::new(self.at, RecordFault::TooShort { missing: len - left }));
        }
        let bytes = &self.bytes[self.at..self.at + len as usize];
        self.at += len as usize;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let bytes = self.bytes(N as u64)?;
        Ok(std::array::from_fn(|i| bytes[i]))
    }

    pub(super) fn u8(&mut self) -> Result<u8, RecordError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn zeroes(&mut self, len: u64) -> Result<(), RecordError> {
        let start = self.at;
        match self.bytes(len)?.iter().position(|&byte| byte != 0) {
            Some(index) => Err(RecordError::new(start + index, RecordFault::Reserved)),
            None => Ok(()),
        }
    }

    /// Padding up to a multiple of 8, which must end the record.
    pub(super) fn end(mut self) -> Result<(), RecordError> {
        self.zeroes((self.at.next_multiple_of(8) - self.at) as u64)?;
        match (self.bytes.len() - self.at) as u64 {
            0 => Ok(()),
            extra => Err(RecordError::new(self.at, RecordFault::TooLong { extra })),
        }
    }

    pub(super) fn refuse<T>(&self, field: &'static str, found: u64, len: usize) -> Result<T, RecordError> {
        Err(RecordError::new(self.at - len, RecordFault::Field { field, found }))
    }

    pub(super) fn time(&mut self) -> Result<Time, RecordError> {
        let seconds = self.u64()? as i64;
        let nanoseconds = self.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return self.refuse("nanoseconds", u64::from(nanoseconds), 4);
        }
        self.zeroes(4)?;
        Ok(Time { seconds, nanoseconds })
    }

    pub(super) fn attributes(&mut self) -> Result<Attributes, RecordError> {
        let mode = self.u32()?;
        self.zeroes(4)?;
        let (uid, gid, generation) = (self.u64()?, self.u64()?, self.u64()?);
        Ok(Attributes { mode, uid, gid, generation, crtime: self.time()?, rdev: self.u64()? })
    }
}
