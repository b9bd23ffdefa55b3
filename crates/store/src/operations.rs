//! Counters of the operations on volumes and files.

use std::time::Instant;

use fastness_base::{Counter, Counts};

/// Operations that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes, including writes of zeroes, that return before they are durable.
    Write,
    /// Writes that are durable when they return: with FUA, to files opened with `O_SYNC`, or under
    /// `sync=always`.
    SyncWrite,
    /// Discards, and holes punched into files.
    Discard,
    /// Flushes, and files made durable.
    Flush,
}

const KINDS: usize = 5;

/// Counters of the operations on a volume or on files.
#[derive(Debug, Default)]
pub struct OperationCounters([Counter; KINDS]);

impl OperationCounters {
    /// Counts the start of an operation. Times one in 16, and every one that a caller waits for.
    #[inline]
    pub fn start(&self, operation: Operation) -> Option<Instant> {
        let is_waited_for = matches!(operation, Operation::Flush | Operation::SyncWrite);
        self.0[operation as usize].begin(is_waited_for)
    }

    /// Counts the operation's result.
    #[inline]
    pub fn end(&self, operation: Operation, timer: Option<Instant>, bytes: u64, failed: bool) {
        self.0[operation as usize].end(timer, (!failed).then_some(bytes));
    }

    /// Counters of one operation, since the volume or file system was opened.
    pub fn of(&self, operation: Operation) -> Counts {
        self.0[operation as usize].counts()
    }
}
