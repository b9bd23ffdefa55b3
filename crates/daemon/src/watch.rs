//! What a node says while it runs: people in front of its terminal see clients hang, and should know why.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::node::{Ending, Node};

/// How often it looks whether the pool is suspended.
const LOOK: Duration = Duration::from_millis(500);

impl Node {
    /// Waits for the end; notes meanwhile when the pool is suspended.
    pub(crate) fn watch(&self, endings: &Receiver<Ending>) -> Ending {
        let mut was_suspended = false;
        loop {
            match endings.recv_timeout(LOOK) {
                Ok(ending) => return ending,
                Err(RecvTimeoutError::Disconnected) => return Ending::Signal,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_suspended = self.pool().is_suspended();
            if is_suspended && !was_suspended {
                let advice = self.status().advice.unwrap_or_default();
                self.journal.note(format!("pool {} is suspended: {advice}", self.name()));
            }
            was_suspended = is_suspended;
        }
    }
}
