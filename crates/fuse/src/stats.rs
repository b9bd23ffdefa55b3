//! Counters of a mount: for each operation how often, how long, how many failed.

use std::time::Duration;

use fastness_base::{Counter, Counts};
use rustix::io::Errno;

use crate::wire::{self, OPCODES};

/// Counters of one operation.
#[derive(Debug, Clone)]
pub struct OperationStats {
    /// Its name in the protocol.
    pub operation: &'static str,
    /// How often, how long; errors other than "no such file", "no such attribute" and "not implemented".
    pub counts: Counts,
}

#[derive(Debug)]
pub(crate) struct Counters(Box<[Counter]>);

impl Default for Counters {
    fn default() -> Counters {
        Counters((0..OPCODES).map(|_| Counter::default()).collect())
    }
}

impl Counters {
    /// Before the answer: a client that has it finds its request counted.
    pub(crate) fn count(&self, opcode: u32, error: Option<Errno>) {
        let Some(counter) = self.0.get(opcode as usize) else { return };
        counter.add();
        let is_usual = |error| matches!(error, Errno::NOENT | Errno::NODATA | Errno::NOSYS);
        if error.is_some_and(|error| !is_usual(error)) {
            counter.fail();
        }
    }

    /// After the answer, which is part of what a request takes.
    pub(crate) fn took(&self, opcode: u32, took: Duration) {
        let Some(counter) = self.0.get(opcode as usize) else { return };
        counter.took(took);
    }

    /// Of the operations that there were.
    pub(crate) fn snapshot(&self) -> Vec<OperationStats> {
        let of = |(opcode, counter): (usize, &Counter)| OperationStats {
            operation: wire::name_of(opcode as u32),
            counts: counter.counts(),
        };
        self.0.iter().enumerate().map(of).filter(|stats| stats.counts.ops > 0).collect()
    }
}
