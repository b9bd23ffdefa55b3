//! A connection's socket: bytes as they are, or through TLS once it has been agreed upon.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::ConnectionError;
use crate::stream::{Received, Stream, remaining};
use crate::tls::{Channel, Tls};

/// Concurrency: one thread receives, one at a time sends ([`crate::output`]), any thread may shut it down.
pub(crate) struct Socket {
    stream: Stream,
    /// Set once, in the handshake. Without it each call is one system call, and nothing is copied.
    channel: OnceLock<Channel>,
}

impl Socket {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { stream: Stream::new(socket), channel: OnceLock::new() }
    }

    /// Does the TLS handshake; afterwards everything goes through TLS.
    pub(crate) fn start_tls(&self, tls: &Tls, deadline: Instant) -> Result<(), ConnectionError> {
        let channel = Channel::accept(tls, &self.stream, deadline)?;
        assert!(self.channel.set(channel).is_ok(), "TLS inside TLS");
        Ok(())
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.channel.get().is_some()
    }

    /// Whether the client has shown a certificate, which then was good.
    pub(crate) fn is_certified(&self) -> bool {
        self.channel.get().is_some_and(Channel::is_certified)
    }

    pub(crate) fn receive(&self, to: &mut [u8]) -> Result<Received, ConnectionError> {
        match self.channel.get() {
            None => match self.stream.receive(to) {
                Ok(0) => Ok(Received::End),
                Ok(bytes) => Ok(Received::Bytes(bytes)),
                Err(Errno::AGAIN) => Ok(Received::Nothing),
                Err(errno) => Err(errno.into()),
            },
            Some(channel) => channel.receive(&self.stream, to),
        }
    }

    /// Sends some of `from`; `EAGAIN` if it would block and must not, or if the timeout has passed. What
    /// comes after an `EAGAIN` is the same bytes again.
    pub(crate) fn send(&self, from: &[IoSlice<'_>], may_wait: bool) -> Result<usize, Errno> {
        match self.channel.get() {
            None => self.stream.send(from, may_wait),
            Some(channel) => channel.send(&self.stream, from, may_wait),
        }
    }

    /// Sends all of `bytes` until `deadline`.
    pub(crate) fn send_all(&self, mut bytes: &[u8], deadline: Instant) -> Result<(), ConnectionError> {
        while !bytes.is_empty() {
            self.set_send_timeout(remaining(deadline, "take the server's options")?)?;
            match self.send(&[IoSlice::new(bytes)], true) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn set_receive_timeout(&self, timeout: Duration) -> Result<(), Errno> {
        self.stream.set_receive_timeout(timeout)
    }

    pub(crate) fn set_send_timeout(&self, timeout: Duration) -> Result<(), Errno> {
        self.stream.set_send_timeout(timeout)
    }

    /// Tells the client that nothing follows, so that it can tell this end from one that somebody else made.
    /// Only after everything was sent.
    pub(crate) fn finish(&self) {
        if let Some(channel) = self.channel.get() {
            channel.finish(&self.stream);
        }
    }

    /// Data that has arrived can still be received, followed by end of input.
    pub(crate) fn close_input(&self) {
        self.stream.close_input();
    }

    /// Wakes and fails every thread that uses the socket.
    pub(crate) fn close(&self) {
        self.stream.close();
    }
}
