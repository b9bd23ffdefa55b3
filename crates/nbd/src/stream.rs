//! A connected stream socket, Unix or TCP, with the few calls that a server needs: bytes as they are on the
//! wire.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use crate::error::ConnectionError;

/// Concurrency: one thread receives, one at a time sends, any thread may shut it down.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    /// The end of input is of our making.
    is_input_closed: AtomicBool,
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        // Small replies must not wait for acknowledgements; fails on a Unix socket, which does not delay them
        // anyway.
        let _ = set_tcp_nodelay(&socket, true);
        Self { socket, is_input_closed: AtomicBool::new(false) }
    }

    /// Zero bytes: the client has closed. `EAGAIN`: the timeout has passed.
    pub(crate) fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let (_, bytes) = retry_on_intr(|| recv(&self.socket, &mut *to, RecvFlags::empty()))?;
        Ok(bytes)
    }

    /// Sends some of `from`; `EAGAIN` if it would block and must not, or if the timeout has passed.
    pub(crate) fn send(&self, from: &[IoSlice<'_>], may_wait: bool) -> Result<usize, Errno> {
        let wait = if may_wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
        retry_on_intr(|| {
            sendmsg(&self.socket, from, &mut SendAncillaryBuffer::default(), wait | SendFlags::NOSIGNAL)
        })
    }

    pub(crate) fn set_receive_timeout(&self, timeout: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.socket, Timeout::Recv, Some(clamp(timeout)))
    }

    pub(crate) fn set_send_timeout(&self, timeout: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.socket, Timeout::Send, Some(clamp(timeout)))
    }

    /// Data that has arrived can still be received, followed by end of input.
    pub(crate) fn close_input(&self) {
        self.is_input_closed.store(true, Ordering::SeqCst);
        let _ = shutdown(&self.socket, Shutdown::Read);
    }

    /// Whether [`Stream::close_input`] was called: then the end of input says nothing about the client.
    pub(crate) fn is_input_closed(&self) -> bool {
        self.is_input_closed.load(Ordering::SeqCst)
    }

    /// Wakes and fails every thread that uses the socket.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// What waiting for a client's bytes led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many, at least one.
    Bytes(usize),
    /// Bytes of TLS that are not, or not yet, bytes of the client's.
    Unfinished,
    /// The client has closed.
    End,
    /// Nothing arrived within the socket's timeout.
    Nothing,
}

/// Time until `deadline`, or an error if it has passed.
pub(crate) fn remaining(deadline: Instant, what: &'static str) -> Result<Duration, ConnectionError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ConnectionError::TimedOut { what }) } else { Ok(left) }
}

/// To the kernel zero means "forever", and it does not accept every large number.
fn clamp(timeout: Duration) -> Duration {
    timeout.clamp(Duration::from_millis(1), Duration::from_hours(24))
}
