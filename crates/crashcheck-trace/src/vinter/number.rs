//! Numbers in bincode 2's standard form.

use std::io::{self, Read};

use crate::bytes::read_full;

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=250 => out.push(value as u8),
        251..=0xffff => {
            out.push(251);
            out.extend((value as u16).to_le_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(252);
            out.extend((value as u32).to_le_bytes());
        }
        _ => {
            out.push(253);
            out.extend(value.to_le_bytes());
        }
    }
}

/// Appends a length and the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What was wrong with what was read.
#[derive(Debug)]
pub(super) enum Fault {
    Io(io::Error),
    CutOff,
    Wrong(String),
}

/// Decompressed bytes, counted.
pub(super) struct Source<R> {
    pub(super) inner: R,
    pub(super) offset: u64,
}

impl<R: Read> Source<R> {
    /// Fills the buffer; `false` if there is nothing left at all.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, Fault> {
        let filled = read_full(&mut self.inner, buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::CutOff,
            // What the decompression does not understand.
            io::ErrorKind::Other => Fault::Wrong(error.to_string()),
            _ => Fault::Io(error),
        })?;
        self.offset += filled as u64;
        match filled {
            0 => Ok(buffer.is_empty()),
            _ if filled < buffer.len() => Err(Fault::CutOff),
            _ => Ok(true),
        }
    }

    fn exactly<const LEN: usize>(&mut self) -> Result<[u8; LEN], Fault> {
        let mut buffer = [0; LEN];
        if self.fill(&mut buffer)? { Ok(buffer) } else { Err(Fault::CutOff) }
    }

    /// The next number; `None` if there is nothing left.
    pub(super) fn number_or_end(&mut self) -> Result<Option<u64>, Fault> {
        let mut first = [0];
        if !self.fill(&mut first)? {
            return Ok(None);
        }
        let (value, least) = match first[0] {
            value @ 0..=250 => (value.into(), 0),
            251 => (u16::from_le_bytes(self.exactly()?).into(), 251),
            252 => (u32::from_le_bytes(self.exactly()?).into(), 0x1_0000),
            253 => (u64::from_le_bytes(self.exactly()?), 0x1_0000_0000),
            other => return Err(Fault::Wrong(format!("a number that begins with {other}"))),
        };
        if value < least {
            return Err(Fault::Wrong(format!("{value} in more bytes than it needs")));
        }
        Ok(Some(value))
    }

    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        self.number_or_end()?.ok_or(Fault::CutOff)
    }

    pub(super) fn flag(&mut self, what: &str) -> Result<bool, Fault> {
        match self.exactly::<1>()?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault::Wrong(format!("{what} is {other}"))),
        }
    }

    /// A length of at most `max`.
    pub(super) fn len(&mut self, max: usize, what: &str) -> Result<usize, Fault> {
        let len = self.number()?;
        let fits = usize::try_from(len).ok().filter(|len| *len <= max);
        fits.ok_or_else(|| Fault::Wrong(format!("{what} of {len}, the longest is {max}")))
    }

    pub(super) fn bytes(&mut self, max: usize, what: &str, into: &mut Vec<u8>) -> Result<(), Fault> {
        let len = self.len(max, what)?;
        into.resize(len, 0);
        if len > 0 && !self.fill(into)? { Err(Fault::CutOff) } else { Ok(()) }
    }

    pub(super) fn text(&mut self, max: usize, what: &str) -> Result<String, Fault> {
        let mut bytes = Vec::new();
        self.bytes(max, what, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| Fault::Wrong(format!("{what} is not UTF-8")))
    }
}
