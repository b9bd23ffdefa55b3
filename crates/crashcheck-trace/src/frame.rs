//! Frames: how parts of a trace lie in the file.

use std::io::{Read, Write};

use crate::bytes::read_full;
use crate::error::{Result, TraceError};

pub(crate) const MAGIC: [u8; 8] = *b"FSTRACE\n";
pub(crate) const VERSION: u16 = 1;
/// Bytes of a frame before it is compressed: a reader takes no more for one.
pub(crate) const RAW_BYTES_MAX: usize = 8 << 20;
pub(crate) const HEAD_BYTES: usize = 24;

/// What a frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Header = 0,
    Events = 1,
    /// Nothing; `first` is the number of events.
    End = 2,
}

/// A frame that was read: its kind, the number of its first event, where it begins; its bytes are the
/// caller's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) first: u64,
    pub(crate) offset: u64,
}

/// A file that knows how far it is.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) inner: T,
    pub(crate) offset: u64,
}

impl<W: Write> Counted<W> {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let offset = self.offset;
        self.inner.write_all(bytes).map_err(|source| TraceError::Io { what: "write", offset, source })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes a frame; compressed, if that makes it shorter.
    pub(crate) fn write_frame(&mut self, kind: FrameKind, first: u64, raw: &[u8]) -> Result<()> {
        let packed = lz4_flex::block::compress(raw);
        let is_packed = packed.len() < raw.len();
        let stored = if is_packed { &packed[..] } else { raw };
        let mut head = [0; HEAD_BYTES];
        head[0] = kind as u8;
        head[1] = is_packed.into();
        head[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        head[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head[12..20].copy_from_slice(&first.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..20]), stored);
        head[20..].copy_from_slice(&sum.to_le_bytes());
        self.write(&head)?;
        self.write(stored)
    }
}

impl<R: Read> Counted<R> {
    /// Fills the buffer. `false`: the file ended before its first byte.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], what: &'static str) -> Result<bool> {
        let filled = read_full(&mut self.inner, buffer);
        let filled = filled.map_err(|source| TraceError::Io { what: "read", offset: self.offset, source })?;
        self.offset += filled as u64;
        match filled {
            0 => Ok(buffer.is_empty()),
            _ if filled < buffer.len() => Err(TraceError::CutOff { offset: self.offset, what }),
            _ => Ok(true),
        }
    }

    /// Reads the next frame; its bytes go into `raw`.
    pub(crate) fn read_frame(&mut self, stored: &mut Vec<u8>, raw: &mut Vec<u8>) -> Result<Frame> {
        let offset = self.offset;
        let damaged = |what: String| TraceError::Damaged { offset, what };
        let mut head = [0; HEAD_BYTES];
        if !self.fill(&mut head, "the head of a frame")? {
            return Err(TraceError::CutOff { offset, what: "a frame's place" });
        }
        let number =
            |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize;
        let (stored_len, raw_len) = (number(4), number(8));
        if raw_len > RAW_BYTES_MAX || stored_len > raw_len {
            return Err(damaged(format!("a frame of {stored_len} bytes that are to become {raw_len}")));
        }
        stored.resize(stored_len, 0);
        if stored_len > 0 && !self.fill(stored, "a frame")? {
            return Err(TraceError::CutOff { offset: self.offset, what: "a frame" });
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..20]), stored);
        if sum != number(20) as u32 {
            return Err(damaged("the checksum of a frame does not fit".to_owned()));
        }
        let kind = match head[0] {
            0 => FrameKind::Header,
            1 => FrameKind::Events,
            2 => FrameKind::End,
            kind => return Err(damaged(format!("a frame of kind {kind}"))),
        };
        let first = u64::from_le_bytes(head[12..20].try_into().expect("eight bytes"));
        match (head[1], &head[2..4]) {
            (0, [0, 0]) if stored_len == raw_len => std::mem::swap(stored, raw),
            (1, [0, 0]) => {
                raw.resize(raw_len, 0);
                let unpacked = lz4_flex::block::decompress_into(stored, raw);
                if unpacked.ok() != Some(raw_len) {
                    return Err(damaged("a frame that cannot be decompressed".to_owned()));
                }
            }
            _ => return Err(damaged("the head of a frame contradicts itself".to_owned())),
        }
        Ok(Frame { kind, first, offset })
    }
}
