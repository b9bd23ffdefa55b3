//! Replies of the transmission phase, as bytes.

use crate::budget::Permit;
use crate::error::Errno;
use crate::export::Extent;
use crate::wire::{
    EXTENDED_REPLY_MAGIC, HeaderMode, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
};

/// Extended header, offset and length of a hole.
const HEAD_BYTES_MAX: usize = 32 + 12;

/// A simple reply, or a chunk.
pub(crate) struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    body: Vec<u8>,
    /// On the last frame of a reply: the request is in flight until this frame is sent.
    pub(crate) permit: Option<Permit>,
}

impl Frame {
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [&self.head[..self.head_bytes], &self.body]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.head_bytes + self.body.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.head[self.head_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.head_bytes += bytes.len();
    }

    fn new(body: Vec<u8>) -> Self {
        Self { head: [0; HEAD_BYTES_MAX], head_bytes: 0, body, permit: None }
    }
}

/// Builds the frames that answer one request.
///
/// Source: `proto.md`, "Simple reply message", "Structured reply chunk message", "Extended reply chunk
/// message".
#[derive(Clone, Copy)]
pub(crate) struct Replier {
    pub(crate) mode: HeaderMode,
    pub(crate) cookie: u64,
    /// As in the request; an extended reply repeats it.
    pub(crate) offset: u64,
}

impl Replier {
    pub(crate) fn new(mode: HeaderMode, request: &RequestHeader) -> Self {
        Self { mode, cookie: request.cookie, offset: request.offset }
    }

    /// Success without a payload.
    pub(crate) fn done(&self) -> Frame {
        match self.mode {
            HeaderMode::Simple | HeaderMode::Structured => self.simple(0, Vec::new()),
            HeaderMode::Extended => self.chunk(chunk::DONE, chunk::NONE, &[], Vec::new()),
        }
    }

    /// Success of a zero-length read: a data chunk must not be empty.
    pub(crate) fn nothing_read(&self) -> Frame {
        match self.mode {
            HeaderMode::Simple => self.simple(0, Vec::new()),
            HeaderMode::Structured | HeaderMode::Extended => {
                self.chunk(chunk::DONE, chunk::NONE, &[], Vec::new())
            }
        }
    }

    /// Failure, with a message if the format has one.
    pub(crate) fn error(&self, errno: Errno, why: &str) -> Frame {
        match self.mode {
            HeaderMode::Simple => self.simple(errno.code(), Vec::new()),
            HeaderMode::Structured | HeaderMode::Extended => {
                let mut head = [0; 6];
                head[..4].copy_from_slice(&errno.code().to_be_bytes());
                head[4..].copy_from_slice(&(why.len() as u16).to_be_bytes());
                self.chunk(chunk::DONE, chunk::ERROR, &head, why.as_bytes().to_vec())
            }
        }
    }

    /// Data that was read; the only frame in simple mode.
    pub(crate) fn data(&self, offset: u64, data: Vec<u8>, is_last: bool) -> Frame {
        match self.mode {
            HeaderMode::Simple => self.simple(0, data),
            HeaderMode::Structured | HeaderMode::Extended => {
                self.chunk(u16::from(is_last), chunk::OFFSET_DATA, &offset.to_be_bytes(), data)
            }
        }
    }

    /// A run of zeroes in a read; not in simple mode.
    pub(crate) fn hole(&self, offset: u64, length: u32, is_last: bool) -> Frame {
        let mut head = [0; 12];
        head[..8].copy_from_slice(&offset.to_be_bytes());
        head[8..].copy_from_slice(&length.to_be_bytes());
        self.chunk(u16::from(is_last), chunk::OFFSET_HOLE, &head, Vec::new())
    }

    /// Extents of one metadata context; not in simple mode.
    pub(crate) fn block_status(&self, context: u32, extents: &[Extent]) -> Frame {
        let mut body = Vec::with_capacity(16 * extents.len());
        if self.mode == HeaderMode::Extended {
            for extent in extents {
                body.extend_from_slice(&extent.length.to_be_bytes());
                body.extend_from_slice(&u64::from(extent.kind.state()).to_be_bytes());
            }
            let mut head = [0; 8];
            head[..4].copy_from_slice(&context.to_be_bytes());
            head[4..].copy_from_slice(&(extents.len() as u32).to_be_bytes());
            self.chunk(chunk::DONE, chunk::BLOCK_STATUS_EXT, &head, body)
        } else {
            for extent in extents {
                let length = u32::try_from(extent.length).expect("extents were cut to a 32-bit request");
                body.extend_from_slice(&length.to_be_bytes());
                body.extend_from_slice(&extent.kind.state().to_be_bytes());
            }
            self.chunk(chunk::DONE, chunk::BLOCK_STATUS, &context.to_be_bytes(), body)
        }
    }

    fn simple(&self, errno: u32, body: Vec<u8>) -> Frame {
        let mut frame = Frame::new(body);
        frame.put(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        frame.put(&errno.to_be_bytes());
        frame.put(&self.cookie.to_be_bytes());
        frame
    }

    fn chunk(&self, flags: u16, kind: u16, fixed: &[u8], body: Vec<u8>) -> Frame {
        let length = (fixed.len() + body.len()) as u64;
        let mut frame = Frame::new(body);
        let is_extended = self.mode == HeaderMode::Extended;
        let magic = if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC };
        frame.put(&magic.to_be_bytes());
        frame.put(&flags.to_be_bytes());
        frame.put(&kind.to_be_bytes());
        frame.put(&self.cookie.to_be_bytes());
        if is_extended {
            frame.put(&self.offset.to_be_bytes());
            frame.put(&length.to_be_bytes());
        } else {
            // At most 32 MiB of data and a few bytes.
            frame.put(&(length as u32).to_be_bytes());
        }
        frame.put(fixed);
        frame
    }
}
