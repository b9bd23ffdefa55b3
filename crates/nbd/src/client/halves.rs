//! The two directions of a connection: several requests can be in flight while one thread sends and another
//! receives.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::{Chunk, ClientError, Request, Result};
use crate::wire::{
    EXTENDED_REPLY_MAGIC, HeaderMode, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
    u16_at, u32_at, u64_at,
};

/// Longest reply that is accepted.
const REPLY_BYTES_MAX: u64 = 64 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// The direction to the server.
pub struct Sender {
    pub(super) stream: Arc<UnixStream>,
    pub(super) mode: HeaderMode,
    next_cookie: u64,
}

/// The direction from the server.
pub struct Receiver {
    stream: Arc<UnixStream>,
    pub(super) mode: HeaderMode,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Both directions of any stream socket.
pub(super) fn halves(stream: UnixStream) -> (Sender, Receiver) {
    let (stream, mode) = (Arc::new(stream), HeaderMode::default());
    let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
    let receiver = Receiver { stream: stream.clone(), mode, buffer, start: 0, end: 0 };
    (Sender { stream, mode, next_cookie: 1 }, receiver)
}

impl Sender {
    /// Sends a request without waiting for its reply; returns its cookie. Cookies count up from 1.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, request: &Request<'_>) -> Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut header = Vec::with_capacity(32);
        let &Request { kind, flags, offset, length, payload } = request;
        RequestHeader { flags, kind, cookie, offset, length }.encode(self.mode, &mut header);
        let mut sent = (&*self.stream).write_vectored(&[IoSlice::new(&header), IoSlice::new(payload)])?;
        if sent < header.len() {
            (&*self.stream).write_all(&header[sent..])?;
            sent = header.len();
        }
        (&*self.stream).write_all(&payload[sent - header.len()..])?;
        Ok(cookie)
    }

    /// Ends the connection in both directions, whatever is in flight.
    pub fn hang_up(&self) {
        // A connection that has already ended is not an error.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next message. Without structured replies the caller must say how much data the reply to a read
    /// contains.
    ///
    /// # Errors
    /// The connection failed, or the server broke a rule.
    pub fn receive_chunk(&mut self, simple_bytes: impl FnOnce(u64) -> u64) -> Result<Chunk> {
        let magic = u32_at(self.fill(4)?, 0);
        match (magic, self.mode) {
            (SIMPLE_REPLY_MAGIC, HeaderMode::Simple | HeaderMode::Structured) => {
                let head = self.receive(16)?;
                let (error, cookie) = (u32_at(&head, 4), u64_at(&head, 8));
                let bytes =
                    if error == 0 && self.mode == HeaderMode::Simple { simple_bytes(cookie) } else { 0 };
                let payload = self.receive(bytes)?;
                Ok(Chunk { cookie, is_done: true, kind: None, error, payload })
            }
            (STRUCTURED_REPLY_MAGIC, HeaderMode::Structured) => {
                let head = self.receive(20)?;
                self.chunk(&head, u64::from(u32_at(&head, 16)))
            }
            (EXTENDED_REPLY_MAGIC, HeaderMode::Extended) => {
                let head = self.receive(32)?;
                self.chunk(&head, u64_at(&head, 24))
            }
            _ => Err(ClientError::Broken("wrong magic of a reply")),
        }
    }

    fn chunk(&mut self, head: &[u8], length: u64) -> Result<Chunk> {
        let payload = self.receive(length)?;
        let (flags, kind, cookie) = (u16_at(head, 4), u16_at(head, 6), u64_at(head, 8));
        let error = if kind & chunk::ERR == 0 {
            0
        } else if payload.len() >= 6 && u32_at(&payload, 0) != 0 {
            u32_at(&payload, 0)
        } else {
            return Err(ClientError::Broken("malformed error"));
        };
        Ok(Chunk { cookie, is_done: flags & chunk::DONE != 0, kind: Some(kind), error, payload })
    }

    fn fill(&mut self, bytes: usize) -> Result<&[u8]> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < bytes {
            match (&*self.stream).read(&mut self.buffer[self.end..])? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                received => self.end += received,
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    pub(super) fn receive(&mut self, bytes: u64) -> Result<Vec<u8>> {
        if bytes > REPLY_BYTES_MAX {
            return Err(ClientError::Broken("reply too long"));
        }
        let bytes = bytes as usize;
        if bytes <= self.buffer.len() {
            let data = self.fill(bytes)?[..bytes].to_vec();
            self.start += bytes;
            return Ok(data);
        }
        let mut data = self.buffer[self.start..self.end].to_vec();
        (self.start, self.end) = (0, 0);
        let buffered = data.len();
        data.resize(bytes, 0);
        (&*self.stream).read_exact(&mut data[buffered..])?;
        Ok(data)
    }
}
