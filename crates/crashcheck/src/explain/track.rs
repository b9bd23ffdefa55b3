//! Stores on their way to PM, as a trace has them: what no flush has covered, what no fence has completed.

use std::collections::{BTreeMap, BTreeSet};

use crate::generate::{Layout, Place};

pub(super) const LINE_BYTES: u64 = 64;

/// Number, instruction and thread of an event.
pub(super) type At = (u64, Option<u64>, u32);

/// A store into a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Store {
    pub(super) event: u64,
    /// Its bytes, as a mask.
    bytes: u64,
    pub(super) pc: Option<u64>,
    /// The thread whose fence it waits for, once it is flushed or if it is non-temporal.
    thread: u32,
}

/// A line that is not durable.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Stores that no flush covers.
    pub(super) unflushed: Vec<Store>,
    /// Stores that a flush covers, or non-temporal ones, without a fence.
    pub(super) unfenced: Vec<Store>,
}

/// The lines that are not durable, by number in the image.
#[derive(Debug)]
pub(super) struct Track {
    layout: Layout,
    pub(super) lines: BTreeMap<u64, Line>,
    /// By thread: lines with something that its next fence completes.
    armed: BTreeMap<u32, BTreeSet<u64>>,
}

impl Track {
    pub(super) fn new(layout: Layout) -> Track {
        Track { layout, lines: BTreeMap::new(), armed: BTreeMap::new() }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where a range is in the image.
    pub(super) fn offset(&self, address: u64, len: usize) -> Option<u64> {
        match self.layout.place(address, len) {
            Place::Inside(offset) => Some(offset),
            Place::Outside | Place::Crossing => None,
        }
    }

    /// Returns whether it overwrites something that was not durable yet.
    pub(super) fn store(&mut self, address: u64, len: usize, is_nt: bool, (event, pc, thread): At) -> bool {
        let Some(offset) = self.offset(address, len) else { return false };
        let end = offset + len as u64;
        let mut at = offset;
        let mut overwrites = false;
        while at < end {
            let line = at / LINE_BYTES;
            let line_end = end.min((line + 1) * LINE_BYTES);
            let bytes = bytes_mask(at % LINE_BYTES, line_end - at);
            let found = self.lines.entry(line).or_default();
            overwrites |= found.unflushed.iter().chain(&found.unfenced).any(|store| store.bytes & bytes != 0);
            let list = if is_nt { &mut found.unfenced } else { &mut found.unflushed };
            list.push(Store { event, bytes, pc, thread });
            if is_nt {
                self.armed.entry(thread).or_default().insert(line);
            }
            at = line_end;
        }
        overwrites
    }

    /// Returns whether there was something to flush.
    pub(super) fn flush(&mut self, line: u64, thread: u32) -> bool {
        match self.lines.get_mut(&line) {
            Some(found) if !found.unflushed.is_empty() => {
                found.unfenced.extend(found.unflushed.drain(..).map(|store| Store { thread, ..store }));
                self.armed.entry(thread).or_default().insert(line);
                true
            }
            _ => false,
        }
    }

    pub(super) fn flush_all(&mut self, thread: u32) {
        let lines: Vec<u64> = self.lines.keys().copied().collect();
        for line in lines {
            self.flush(line, thread);
        }
    }

    /// Returns whether there was something to complete.
    pub(super) fn fence(&mut self, thread: u32) -> bool {
        let armed = self.armed.remove(&thread).unwrap_or_default();
        for line in &armed {
            if let Some(found) = self.lines.get_mut(line) {
                found.unfenced.retain(|store| store.thread != thread);
                if found.unflushed.is_empty() && found.unfenced.is_empty() {
                    self.lines.remove(line);
                }
            }
        }
        !armed.is_empty()
    }
}

/// Bits for `len` bytes of a line from `start` on.
fn bytes_mask(start: u64, len: u64) -> u64 {
    (u64::MAX >> (LINE_BYTES - len)) << start
}
