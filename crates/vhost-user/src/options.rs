//! How a disk is served.

use crate::poll::Polling;

/// How a disk is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Queues that a virtual machine may use, each with a thread here: 1 to 64.
    pub queues: u16,
    /// How long these threads look for requests before they sleep.
    pub polling: Polling,
}

impl Default for Options {
    fn default() -> Options {
        Options { queues: 4, polling: Polling::default() }
    }
}
