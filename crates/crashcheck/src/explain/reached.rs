//! What a trace reached, for fuzzing: which stores were pending where something was expected to be durable.
//!
//! Motivation: a program whose flush is missing for some lengths only runs no other block of code for that;
//! what is different is a store that is still without a flush at the fence.

use std::collections::BTreeSet;
use std::io::Read;

use fastness_crashcheck_fuzz::Features;
use fastness_crashcheck_fuzz::features::mix;
use fastness_crashcheck_trace::{Event, FenceKind, FlushKind, Hypercall, Kind, Reader, hypercall};

use super::track::{At, LINE_BYTES, Track};
use crate::Result;
use crate::generate::Layout;

/// Most lines that are looked at where all of them are expected to be durable.
const LINES_MAX: usize = 4096;

/// What a store lacks.
const FLUSH: u64 = 1;
const FENCE: u64 = 2;

/// Where all is expected to be durable, by what it is.
const CHECKPOINT: u64 = 1;
const ANSWER: u64 = 2;
const END: u64 = 3;
const AT_FENCE: u64 = 4;

/// Adds the pending stores of the rest of a trace. `place` names an instruction, the same in each run.
///
/// At a fence, and before a LOCKed operation, these are stores to the lines that were stored to or flushed
/// since the one before; at a checkpoint, a line of the log of operations and the end all, of at most 4096
/// lines. Each is a feature, by its instruction, that of the fence, and what it lacked; so are all of them
/// together, and how many lines lack something.
///
/// # Errors
/// Those of the trace.
pub fn pending_features(
    reader: &mut Reader<impl Read>,
    place: &dyn Fn(u64) -> u64,
    features: &mut Features,
) -> Result<()> {
    let track = Track::new(Layout::of(reader.header())?);
    let mut reached = Reached { track, recent: BTreeSet::new(), place, features };
    loop {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        reached.event(&event, number);
    }
    reached.all(END);
    Ok(())
}

struct Reached<'a> {
    track: Track,
    /// Lines stored to or flushed since the last fence of any thread.
    recent: BTreeSet<u64>,
    place: &'a dyn Fn(u64) -> u64,
    features: &'a mut Features,
}

impl Reached<'_> {
    fn event(&mut self, event: &Event<'_>, number: u64) {
        let thread = event.origin.thread;
        let at = (number, event.origin.pc, thread);
        match event.kind {
            Kind::Store { address, data, is_non_temporal, .. } => {
                self.store(address, data.len(), is_non_temporal, at);
            }
            Kind::Rmw { address, data } => {
                self.fence(at);
                self.store(address, data.len(), false, at);
            }
            Kind::Flush { kind: FlushKind::Wbinvd, .. } => self.track.flush_all(thread),
            Kind::Flush { address, .. } => {
                if let Some(offset) = self.track.offset(address, 1) {
                    self.track.flush(offset / LINE_BYTES, thread);
                    self.recent.insert(offset / LINE_BYTES);
                }
            }
            Kind::Fence(FenceKind::Lfence) => {}
            Kind::Fence(_) => self.fence(at),
            Kind::Hypercall(Hypercall::Checkpoint(_)) => self.all(CHECKPOINT),
            Kind::Hypercall(Hypercall::Other { action: hypercall::OPERATION_ACTION, .. }) => self.all(ANSWER),
            _ => {}
        }
    }

    fn store(&mut self, address: u64, len: usize, is_nt: bool, at: At) {
        self.track.store(address, len, is_nt, at);
        if let Some(offset) = self.track.offset(address, len.max(1)) {
            self.recent.extend(offset / LINE_BYTES..=(offset + len.max(1) as u64 - 1) / LINE_BYTES);
        }
    }

    fn fence(&mut self, (_, pc, thread): At) {
        let point = mix(&[AT_FENCE, pc.map_or(0, self.place)]);
        let lines: Vec<u64> = std::mem::take(&mut self.recent).into_iter().collect();
        self.note(point, &lines);
        self.track.fence(thread);
    }

    fn all(&mut self, point: u64) {
        let lines: Vec<u64> = self.track.lines.keys().copied().take(LINES_MAX).collect();
        self.note(point, &lines);
    }

    fn note(&mut self, point: u64, lines: &[u64]) {
        let mut stores = BTreeSet::new();
        let (mut unflushed, mut unfenced) = (0_u64, 0_u64);
        for line in lines.iter().filter_map(|line| self.track.lines.get(line)) {
            unflushed += u64::from(!line.unflushed.is_empty());
            unfenced += u64::from(!line.unfenced.is_empty());
            let kinds = [(FLUSH, &line.unflushed), (FENCE, &line.unfenced)];
            for (lacks, stores_of) in kinds {
                stores.extend(stores_of.iter().map(|store| mix(&[store.pc.map_or(0, self.place), lacks])));
            }
        }
        for store in &stores {
            self.features.add_pending(&[point, *store]);
        }
        // Lines by powers of two: one more of many is nothing new.
        let lines = [unflushed, unfenced].map(|lines| u64::from(u64::BITS - lines.leading_zeros()));
        self.features.add_pending(&[point, lines[0], lines[1]]);
        let all: Vec<u64> = stores.into_iter().collect();
        self.features.add_pending(&[point, mix(&all), u64::MAX, u64::MAX]);
    }
}
