//! Counters of a mount: for each operation how often, how long, how many failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use crate::wire::{self, OPCODES};

/// Counters of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationStats {
    /// Its name in the protocol.
    pub operation: &'static str,
    /// How often.
    pub count: u64,
    /// How many of these were errors other than "no such file", "no such attribute" and "not implemented".
    pub errors: u64,
    /// Time that they took together.
    pub total: Duration,
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    errors: AtomicU64,
    total_ns: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Counters(Box<[Counter]>);

impl Default for Counters {
    fn default() -> Counters {
        Counters((0..OPCODES).map(|_| Counter::default()).collect())
    }
}

impl Counters {
    pub(crate) fn add(&self, opcode: u32, took: Duration, error: Option<Errno>) {
        let Some(counter) = self.0.get(opcode as usize) else { return };
        counter.count.fetch_add(1, Ordering::Relaxed);
        counter.total_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        let is_usual = |error| matches!(error, Errno::NOENT | Errno::NODATA | Errno::NOSYS);
        if error.is_some_and(|error| !is_usual(error)) {
            counter.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Of the operations that there were.
    pub(crate) fn snapshot(&self) -> Vec<OperationStats> {
        let of = |(opcode, counter): (usize, &Counter)| OperationStats {
            operation: wire::name_of(opcode as u32),
            count: counter.count.load(Ordering::Relaxed),
            errors: counter.errors.load(Ordering::Relaxed),
            total: Duration::from_nanos(counter.total_ns.load(Ordering::Relaxed)),
        };
        self.0.iter().enumerate().map(of).filter(|stats| stats.count > 0).collect()
    }
}
