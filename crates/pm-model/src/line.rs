//! One cache line with the stores that a crash may still lose.

use crate::config::{Config, Persistence};

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Contents of a line.
pub(crate) type LineBytes = [u8; LINE];

/// Time of an operation; 0 is before all operations.
pub(crate) type Time = u64;

/// Later than every operation: no limit.
pub(crate) const NEVER: Time = Time::MAX;

/// The part of a store that falls into one line.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) cpu: u32,
    pub(crate) time: Time,
    pub(crate) nt: bool,
    atomic: bool,
    start: u8,
    len: u8,
    data: LineBytes,
}

impl Pending {
    /// A store of `bytes` at offset `start` of the line.
    pub(crate) fn new(cpu: u32, time: Time, nt: bool, atomic: bool, start: usize, bytes: &[u8]) -> Self {
        assert!(start + bytes.len() <= LINE, "part of a store outside of its line");
        let mut data = [0; LINE];
        data[start..start + bytes.len()].copy_from_slice(bytes);
        Self { cpu, time, nt, atomic, start: start as u8, len: bytes.len() as u8, data }
    }

    fn end(&self) -> usize {
        usize::from(self.start) + usize::from(self.len)
    }

    /// Writes the whole store into `line`.
    pub(crate) fn apply(&self, line: &mut LineBytes) {
        let (start, end) = (usize::from(self.start), self.end());
        line[start..end].copy_from_slice(&self.data[start..end]);
    }

    /// The pieces that persist whole (R1), as byte ranges of the line.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let unit = if self.atomic { LINE } else { 8 };
        let mut at = usize::from(self.start);
        std::iter::from_fn(move || {
            let start = at;
            at = self.end().min((start / unit + 1) * unit);
            (start < self.end()).then_some((start, at))
        })
    }

    /// Writes the piece `start..end` into `line`.
    pub(crate) fn apply_piece(&self, (start, end): (usize, usize), line: &mut LineBytes) {
        line[start..end].copy_from_slice(&self.data[start..end]);
    }

    /// Whether the piece would change `line`.
    pub(crate) fn piece_changes(&self, (start, end): (usize, usize), line: &LineBytes) -> bool {
        line[start..end] != self.data[start..end]
    }
}

/// A `clflush` that no fence has completed yet.
#[derive(Debug, Clone)]
struct OrderedFlush {
    covers: usize,
    time: Time,
}

/// A flush that no fence of its processor has completed yet.
#[derive(Debug, Clone)]
struct Flush {
    cpu: u32,
    covers: usize,
}

/// The pending stores of one line in program order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) stores: Vec<Pending>,
    /// The last of each processor.
    flushes: Vec<Flush>,
    /// Ascending in both fields.
    ordered_flushes: Vec<OrderedFlush>,
}

impl Line {
    /// Notes a flush; it covers the stores so far (R4), but what others have in their write-combining buffers
    /// (R13). How many these are.
    pub(crate) fn flush(&mut self, cpu: u32) -> usize {
        let last = self.stores.iter().rposition(|store| !store.nt || store.cpu == cpu);
        let covers = last.map_or(0, |index| index + 1);
        match self.flushes.iter_mut().find(|flush| flush.cpu == cpu) {
            Some(flush) => flush.covers = covers,
            None => self.flushes.push(Flush { cpu, covers }),
        }
        covers
    }

    /// Notes a `clflush` (R5).
    pub(crate) fn flush_ordered(&mut self, cpu: u32, time: Time) {
        let covers = self.flush(cpu);
        if self.ordered_flushes.last().map_or(0, |last| last.covers) < covers {
            self.ordered_flushes.push(OrderedFlush { covers, time });
        }
    }

    /// Number of leading stores that a flush covers.
    pub(crate) fn flushed(&self) -> usize {
        self.flushes.iter().map(|flush| flush.covers).max().unwrap_or(0)
    }

    /// Whether a `clflush` limits the order of other lines' stores.
    pub(crate) fn has_ordered_flush(&self) -> bool {
        !self.ordered_flushes.is_empty()
    }

    /// How many leading stores the next fence of a processor completes (R4, R6, R9, R13).
    pub(crate) fn completed_by_fence(&self, cpu: u32, persistence: Persistence) -> usize {
        let is_eadr = persistence == Persistence::Eadr;
        let last = self.stores.iter().rposition(|store| if store.nt { store.cpu == cpu } else { is_eadr });
        let flush = self.flushes.iter().find(|flush| flush.cpu == cpu && !is_eadr);
        last.map_or(0, |index| index + 1).max(flush.map_or(0, |flush| flush.covers))
    }

    /// How many leading stores an ordered flush before `time` covers (R5).
    pub(crate) fn flushed_before(&self, time: Time) -> usize {
        let flush = self.ordered_flushes.iter().rfind(|flush| flush.time < time);
        flush.map_or(0, |flush| flush.covers)
    }

    /// Moves the first `count` stores into `bytes`, and forgets the flushes that cover no others.
    pub(crate) fn complete(&mut self, count: usize, bytes: &mut LineBytes) {
        for store in self.stores.drain(..count) {
            store.apply(bytes);
        }
        let left = |covers: &mut usize| {
            *covers = covers.saturating_sub(count);
            *covers > 0
        };
        self.flushes.retain_mut(|flush| left(&mut flush.covers));
        self.ordered_flushes.retain_mut(|flush| left(&mut flush.covers));
    }

    /// For each store: the time after which no cached store may persist while a piece of this one is
    /// missing (R5, R9, R11); [`NEVER`] if there is no such limit.
    pub(crate) fn limits(&self, config: Config) -> Vec<Time> {
        let limit = |(index, store): (usize, &Pending)| {
            if config.has_global_order() {
                return if store.nt { NEVER } else { store.time };
            }
            let flush = self.ordered_flushes.iter().find(|flush| flush.covers > index);
            flush.map_or(NEVER, |flush| flush.time)
        };
        self.stores.iter().enumerate().map(limit).collect()
    }

    /// End of the group that starts at store `start`: stores of a group are not ordered with each other.
    pub(crate) fn group_end(&self, start: usize, config: Config) -> usize {
        if !config.strict_nt || !self.stores[start].nt {
            return start + 1;
        }
        let cpu = self.stores[start].cpu;
        let run = self.stores[start..].iter().take_while(|store| store.nt && store.cpu == cpu).count();
        start + run
    }

    /// How many leading stores every image has that has this line at all (R11): those up to the last
    /// cached store before the fence at `fence`.
    pub(crate) fn forced_prefix(&self, fence: Time) -> usize {
        let last = self.stores.iter().rposition(|store| !store.nt && store.time < fence);
        last.map_or(0, |index| index + 1)
    }
}
