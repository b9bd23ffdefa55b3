//! What a client may use.

use std::time::Duration;

/// Limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time.
    pub connections_max: usize,
    /// Longest head of a request.
    pub head_bytes_max: usize,
    /// From the first byte of a head to its last.
    pub head_time: Duration,
    /// From an answer, or the connection, to the first byte of the next request.
    pub idle_time: Duration,
    /// Until the client has received an answer.
    pub answer_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 32,
            head_bytes_max: 8 << 10,
            head_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(30),
            answer_time: Duration::from_secs(10),
        }
    }
}
