//! Failures that a recording range can be told to have.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A failure to inject into a [`RecordingRange`](crate::RecordingRange). Offsets are bytes from the start of
/// the range.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The fence after `after` more successful ones fails: its `msync` returned `EIO`. No fence is recorded,
    /// and all ranges of the recorder refuse fences until [`Recorder::reopen`](crate::Recorder::reopen).
    FailFence {
        /// How many fences succeed before; 0 fails the next one.
        after: u64,
    },
    /// The bytes are poisoned: reading any of them reports the first. A copy over the whole of a poisoned
    /// line cures the line.
    Poison(Range<usize>),
    /// The file behind the mapping ends here: reading beyond reports the first byte missing. It does not
    /// heal.
    Truncate {
        /// First offset that cannot be read.
        end: usize,
    },
    /// The region goes away when so many copies were made to the ranges that share the number: of the last of
    /// them the first half of the lines is stored, and nothing after it. Fences of these ranges fail from
    /// then on (those of others do not), and they cannot be read.
    GoesAway {
        /// Copies that are left.
        after: Arc<AtomicU64>,
    },
}

/// The faults of one range.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    fences_until_failure: Option<u64>,
    /// Poisoned parts, none of them empty.
    poisoned: Vec<Range<usize>>,
    readable_end: Option<usize>,
    gone: Option<Arc<AtomicU64>>,
}

impl Faults {
    /// Adds a fault.
    pub(crate) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::FailFence { after } => self.fences_until_failure = Some(after),
            Fault::Poison(range) => self.poisoned.extend((!range.is_empty()).then_some(range)),
            Fault::Truncate { end } => {
                self.readable_end = Some(self.readable_end.map_or(end, |have| have.min(end)));
            }
            Fault::GoesAway { after } => self.gone = Some(after),
        }
    }

    /// Whether the region went away.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// Counts a copy of so many lines; how many of them are stored.
    pub(crate) fn lines_stored(&self, lines: usize) -> usize {
        let Some(left) = &self.gone else { return lines };
        let count = |left: u64| left.checked_sub(1);
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Err(_) => 0,
            Ok(1) => lines / 2,
            Ok(_) => lines,
        }
    }

    /// Counts a fence; true if it has to fail.
    pub(crate) fn fence_fails(&mut self) -> bool {
        match &mut self.fences_until_failure {
            None => false,
            Some(0) => {
                self.fences_until_failure = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Cures the poison in `written`, a range of whole lines.
    pub(crate) fn overwrite(&mut self, written: &Range<usize>) {
        let before = |part: &Range<usize>| part.start..part.end.min(written.start);
        let after = |part: &Range<usize>| part.start.max(written.end)..part.end;
        let parts = self.poisoned.iter().flat_map(|part| [before(part), after(part)]);
        self.poisoned = parts.filter(|part| !part.is_empty()).collect();
    }

    /// The first offset in `wanted` that cannot be read.
    pub(crate) fn first_unreadable(&self, wanted: &Range<usize>) -> Option<usize> {
        let hits = self.poisoned.iter().filter(|part| part.start < wanted.end && wanted.start < part.end);
        let poison = hits.map(|part| part.start.max(wanted.start)).min();
        let end = self.readable_end.filter(|&end| end < wanted.end).map(|end| end.max(wanted.start));
        poison.into_iter().chain(end).min()
    }

    /// Divides the faults at offset `at`; the answer belongs to the upper part. A failing fence stays
    /// with the lower part.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let upper = self.poisoned.iter().map(|part| part.start.max(at) - at..part.end.max(at) - at);
        let upper = upper.filter(|part| !part.is_empty()).collect();
        let lower = self.poisoned.iter().map(|part| part.start..part.end.min(at));
        self.poisoned = lower.filter(|part| !part.is_empty()).collect();
        let readable_end = self.readable_end.map(|end| end.saturating_sub(at));
        Self { fences_until_failure: None, poisoned: upper, readable_end, gone: self.gone.clone() }
    }
}
