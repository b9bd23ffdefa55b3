//! Bounds on the resources that clients can make a server use.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::error::BindError;
use crate::wire::PAYLOAD_BYTES_MAX;

/// Bounds of a server. Everything that a client can make grow is bounded here.
///
/// Memory for payloads is at most `server_bytes_max + connections_max * FLOOR_BYTES`, plus a fixed amount for
/// each connection.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Concurrent connections; one more is closed at once.
    pub connections_max: usize,
    /// Requests of a connection that are read but not yet answered.
    pub requests_max: usize,
    /// Payload bytes of a connection in memory, in either direction.
    pub connection_bytes_max: u64,
    /// Payload bytes of all connections in memory.
    pub server_bytes_max: u64,
    /// Threads that execute requests when the reader does not do it itself.
    pub workers: usize,
    /// From accept to transmission, however much the client sends meanwhile.
    pub handshake_timeout: Duration,
    /// From the first byte of a request to its last.
    pub request_timeout: Duration,
    /// How long a client may take no byte of its replies.
    pub write_timeout: Duration,
    /// How long a client may send no request; `None` keeps idle clients: a mounted disk can be one.
    pub idle_timeout: Option<Duration>,
    /// How long a shutdown waits for requests in flight before it cuts connections.
    pub shutdown_grace: Duration,
}

/// Payload bytes that each connection may hold on top of [`Limits::server_bytes_max`], so that greedy
/// connections cannot keep small requests of others waiting.
pub const FLOOR_BYTES: u64 = 256 << 10;

impl Default for Limits {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(4, NonZeroUsize::get);
        Self {
            connections_max: 64,
            requests_max: 128,
            connection_bytes_max: 64 << 20,
            server_bytes_max: 256 << 20,
            workers: (2 * cores).clamp(4, 16),
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: None,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), BindError> {
        let payload = u64::from(PAYLOAD_BYTES_MAX);
        let least = [
            ("connections_max", self.connections_max as u64, 1),
            ("requests_max", self.requests_max as u64, 1),
            ("connection_bytes_max", self.connection_bytes_max, payload),
            ("server_bytes_max", self.server_bytes_max, payload),
            ("workers", self.workers as u64, 1),
            ("handshake_timeout", nanos(self.handshake_timeout), 1),
            ("request_timeout", nanos(self.request_timeout), 1),
            ("write_timeout", nanos(self.write_timeout), 1),
            ("idle_timeout", nanos(self.idle_timeout.unwrap_or(Duration::MAX)), 1),
        ];
        for (name, value, minimum) in least {
            if value < minimum {
                return Err(BindError::Limit { name, value, minimum });
            }
        }
        Ok(())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
