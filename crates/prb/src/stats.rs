//! Statistics that are cheap enough to stay on.
//!
//! Each commit slot has its own counters in its own cache lines. Only the slot's holder changes them, so an
//! update is a plain load and store; any thread may read them at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// One entry in this many is timed, so that reading the clock costs next to nothing.
const TIMED_ONE_IN: u64 = 64;

/// Counters of one commit slot.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SlotStats {
    entries: AtomicU64,
    body_bytes: AtomicU64,
    padding_bytes: AtomicU64,
    written_bytes: AtomicU64,
    timed_entries: AtomicU64,
    timed_ns: AtomicU64,
}

fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl SlotStats {
    /// True if the next entry of this slot should be timed.
    #[inline]
    pub(crate) fn times_next(&self) -> bool {
        self.entries.load(Ordering::Relaxed).is_multiple_of(TIMED_ONE_IN)
    }

    #[inline]
    pub(crate) fn entry(&self, body_bytes: usize, padding_bytes: usize, written_bytes: usize) {
        bump(&self.entries, 1);
        bump(&self.body_bytes, body_bytes as u64);
        bump(&self.padding_bytes, padding_bytes as u64);
        bump(&self.written_bytes, written_bytes as u64);
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn timed(&self, ns: u64) {
        bump(&self.timed_entries, 1);
        bump(&self.timed_ns, ns);
    }
}

/// What a PRB has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Entries written.
    pub entries: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Zeroes after the bodies, up to the alignment.
    pub padding_bytes: u64,
    /// Bytes written to PM: headers, bodies, padding and follow headers; a mirrored write counts once.
    pub written_bytes: u64,
    /// Entries whose insertion was timed, one in 64.
    pub timed_entries: u64,
    /// Time of those insertions, in ns.
    pub timed_ns: u64,
    /// How often a writer found no free commit slot.
    pub slot_waits: u64,
    /// How often a writer found no free chunk.
    pub chunk_waits: u64,
    /// Chunks collected.
    pub chunks_collected: u64,
    /// Chunks that did not hold what was written to them.
    pub media_faults: u64,
    /// Chunks that one side of a mirror did not hold when they were collected, by side.
    pub side_faults: [u64; fastness_pmem::SIDES_MAX],
    /// Bytes read by the places of entries ([`EntryViews`](crate::EntryViews)), which the owner adds.
    pub read_bytes: u64,
    /// How often each side did not have what was to be read.
    pub read_faults: [u64; fastness_pmem::SIDES_MAX],
}

impl Stats {
    pub(crate) fn add_slot(&mut self, slot: &SlotStats) {
        self.entries += slot.entries.load(Ordering::Relaxed);
        self.body_bytes += slot.body_bytes.load(Ordering::Relaxed);
        self.padding_bytes += slot.padding_bytes.load(Ordering::Relaxed);
        self.written_bytes += slot.written_bytes.load(Ordering::Relaxed);
        self.timed_entries += slot.timed_entries.load(Ordering::Relaxed);
        self.timed_ns += slot.timed_ns.load(Ordering::Relaxed);
    }

    /// Bytes written to PM other than bodies.
    pub fn overhead_bytes(&self) -> u64 {
        self.written_bytes - self.body_bytes
    }

    /// Estimated time that all writers together spent writing to PM, in ns (from the timed sample).
    ///
    /// Source: zil-pmem thesis, 7.3.4 (time in PM, per operation).
    pub fn time_in_pm_ns(&self) -> u64 {
        if self.timed_entries == 0 {
            return 0;
        }
        (u128::from(self.timed_ns) * u128::from(self.entries) / u128::from(self.timed_entries)) as u64
    }
}
