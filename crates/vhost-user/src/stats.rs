//! Counters of what virtual machines asked for.

use std::time::Instant;

use fastness_base::{Counter, Counts};

use crate::request::{Done, Kind};

/// Requests of one kind since the server was made.
#[derive(Debug, Clone)]
pub struct RequestStats {
    /// `read`, `write`, `flush`, `discard`, `write_zeroes`, `get_id` (the serial number) or `unknown`.
    pub request: &'static str,
    /// Requests that were taken; latencies are from then until the answer.
    pub counts: Counts,
}

/// Of one queue: queues share no line of memory with each other.
#[derive(Debug, Default)]
pub(crate) struct Counters([Counter; Kind::ALL.len()]);

impl Counters {
    /// Counts a request that was taken; returns a timer if it is one to be timed: a flush, or one in 16.
    pub(crate) fn start(&self, kind: Kind) -> Option<Instant> {
        self.0[kind as usize].begin(kind == Kind::Flush)
    }

    /// Counts its result; before the answer, so a client that has it finds its request counted.
    pub(crate) fn end(&self, kind: Kind, timer: Option<Instant>, done: &Done) {
        self.0[kind as usize].end(timer, (!done.has_failed).then_some(done.bytes));
    }
}

/// The sums of all queues, for the kinds that there were.
pub(crate) fn sum<'a>(queues: impl Iterator<Item = &'a Counters> + Clone) -> Vec<RequestStats> {
    let of = |kind: &Kind| {
        let mut counts = Counts::default();
        queues.clone().for_each(|queue| counts += queue.0[*kind as usize].counts());
        RequestStats { request: kind.name(), counts }
    };
    Kind::ALL.iter().map(of).filter(|stats| stats.counts.ops > 0).collect()
}
