//! A connected stream socket, Unix or TCP, with the few calls that a server needs.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use crate::error::ConnectionError;

/// Concurrency: one thread receives, one at a time sends ([`crate::output`]), any thread may shut it down.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        // Small replies must not wait for acknowledgements; fails on a Unix socket, which does not delay them
        // anyway.
        let _ = set_tcp_nodelay(&socket, true);
        Self(socket)
    }

    /// Zero bytes: the client has closed. `EAGAIN`: the timeout has passed.
    pub(crate) fn receive(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let (_, bytes) = retry_on_intr(|| recv(&self.0, &mut *to, RecvFlags::empty()))?;
        Ok(bytes)
    }

    /// Sends some of `from`; `EAGAIN` if it would block and must not, or if the timeout has passed.
    pub(crate) fn send(&self, from: &[IoSlice<'_>], may_wait: bool) -> Result<usize, Errno> {
        let wait = if may_wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
        retry_on_intr(|| {
            sendmsg(&self.0, from, &mut SendAncillaryBuffer::default(), wait | SendFlags::NOSIGNAL)
        })
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
        set_socket_timeout(&self.0, Timeout::Recv, Some(clamp(timeout)))
    }

    pub(crate) fn set_send_timeout(&self, timeout: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.0, Timeout::Send, Some(clamp(timeout)))
    }

    /// Data that has arrived can still be received, followed by end of input.
    pub(crate) fn close_input(&self) {
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Wakes and fails every thread that uses the socket.
    pub(crate) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
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
