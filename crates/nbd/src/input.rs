//! Input from a client, buffered so that a small request costs one system call.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::ConnectionError;
use crate::socket::Socket;
use crate::stream::{Received, remaining};

/// Large enough for a request of 128 KiB and what follows it.
const BUFFER_BYTES: usize = (128 + 16) << 10;

pub(crate) struct Input {
    socket: Arc<Socket>,
    buffer: Box<[u8]>,
    /// Start of the bytes that were received but not consumed.
    start: usize,
    end: usize,
    patience: Patience,
}

/// How long to wait for a client.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// An overall deadline, whatever arrives.
    Until(Instant),
    /// A time for each request, from its first byte; the socket's timeout is at most as long.
    PerRequest(Duration),
}

/// The outcome of waiting for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The bytes are in the buffer.
    Ready,
    /// The client closed the connection between messages.
    Closed,
    /// No byte arrived within the socket's timeout; only with [`Patience::PerRequest`].
    Idle,
}

impl Input {
    pub(crate) fn new(socket: Arc<Socket>, patience: Patience) -> Self {
        Self { socket, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), start: 0, end: 0, patience }
    }

    pub(crate) fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Longest message that [`Input::fill`] can be asked for.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn buffered(&self) -> usize {
        self.end - self.start
    }

    /// The next `bytes`, which must be buffered.
    pub(crate) fn peek(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.start..self.end][..bytes]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.buffered(), "consumed what is not there");
        self.start += bytes;
    }

    /// Waits for a message of `bytes` to be buffered.
    pub(crate) fn fill(&mut self, bytes: usize) -> Result<Filled, ConnectionError> {
        let mut began = None;
        while self.buffered() < bytes {
            self.make_room(bytes);
            match self.receive_at_end()? {
                Received::End if self.buffered() == 0 => return Ok(Filled::Closed),
                Received::End => return Err(cut_off()),
                Received::Bytes(received) => self.end += received,
                Received::Unfinished => {}
                Received::Nothing => match self.patience {
                    Patience::Until(deadline) => drop(remaining(deadline, "agree on options")?),
                    Patience::PerRequest(_) if self.buffered() == 0 => return Ok(Filled::Idle),
                    Patience::PerRequest(_) => return Err(too_slow()),
                },
            }
            if self.buffered() < bytes {
                self.check_pace(&mut began)?;
            }
        }
        Ok(Filled::Ready)
    }

    /// Like [`Input::fill`], but in mid-message, where end of input is an error.
    pub(crate) fn fill_rest(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        match self.fill(bytes)? {
            Filled::Ready => Ok(()),
            Filled::Closed => Err(cut_off()),
            Filled::Idle => Err(too_slow()),
        }
    }

    /// Takes `to.len()` bytes; those not yet buffered are received straight into `to`.
    pub(crate) fn take(&mut self, to: &mut [u8]) -> Result<(), ConnectionError> {
        let mut done = self.buffered().min(to.len());
        to[..done].copy_from_slice(self.peek(done));
        self.consume(done);
        let mut began = None;
        while done < to.len() {
            match self.receive(&mut to[done..])? {
                Received::End => return Err(cut_off()),
                Received::Bytes(received) => done += received,
                Received::Unfinished => {}
                Received::Nothing => return Err(too_slow()),
            }
            self.check_pace(&mut began)?;
        }
        Ok(())
    }

    /// Drops `bytes`.
    pub(crate) fn skip(&mut self, mut bytes: u64) -> Result<(), ConnectionError> {
        let mut began = None;
        while bytes > 0 {
            if self.buffered() == 0 {
                self.fill_rest(1)?;
                self.check_pace(&mut began)?;
            }
            let now = bytes.min(self.buffered() as u64);
            self.consume(now as usize);
            bytes -= now;
        }
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) {
        assert!(bytes <= self.buffer.len(), "a message of {bytes} bytes never fits");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    fn receive_at_end(&mut self) -> Result<Received, ConnectionError> {
        self.arm()?;
        self.socket.receive(&mut self.buffer[self.end..])
    }

    fn receive(&self, to: &mut [u8]) -> Result<Received, ConnectionError> {
        self.arm()?;
        self.socket.receive(to)
    }

    fn arm(&self) -> Result<(), ConnectionError> {
        if let Patience::Until(deadline) = self.patience {
            self.socket.set_receive_timeout(remaining(deadline, "agree on options")?)?;
        }
        Ok(())
    }

    /// A client that keeps sending slowly gets no more time than one that stops.
    fn check_pace(&self, began: &mut Option<Instant>) -> Result<(), ConnectionError> {
        let began = *began.get_or_insert_with(Instant::now);
        match self.patience {
            Patience::PerRequest(longest) if began.elapsed() > longest => Err(too_slow()),
            Patience::PerRequest(_) | Patience::Until(_) => Ok(()),
        }
    }
}

fn cut_off() -> ConnectionError {
    ConnectionError::Lost(io::ErrorKind::UnexpectedEof.into())
}

fn too_slow() -> ConnectionError {
    ConnectionError::TimedOut { what: "finish a message" }
}
