//! A byte-level machine with a store buffer, caches, write-combining buffers and evictions at any time.
//!
//! The search runs through every schedule. An issued operation waits until it is performed:
//! cached stores and `clflush` leave the store buffer in program order; non-temporal stores and weak
//! flushes wait only for earlier stores to their own line. Nothing here knows of prefixes or labels.
//!
//! A cached store to a line with bytes in a write-combining buffer: with eADR the buffer drains first, or
//! the line could survive without it (R2). Without eADR the line takes the bytes along, and the buffer
//! has to drain before the line is written back; and a line that a non-temporal store drives out of the
//! cache is on its way to memory ahead of that store's bytes, not there yet. A machine that drained at
//! once would order stores to one line before later cached stores to other lines, which R3 and R6 do
//! not promise.

use std::collections::HashSet;

use fastness_pm_model::{Config, FenceKind, FlushKind, Op, Persistence, Rules};

use super::Images;

const LINE: usize = 64;

/// What one issued operation still has to do to one line.
#[derive(Debug, Clone)]
enum Work {
    Cached(Vec<u8>),
    NonTemporal(Vec<u8>),
    WeakFlush,
    OrderedFlush,
}

#[derive(Debug, Clone)]
struct Micro {
    op: usize,
    addr: usize,
    work: Work,
}

impl Micro {
    fn line(&self) -> usize {
        self.addr / LINE
    }

    fn is_in_store_buffer(&self) -> bool {
        matches!(self.work, Work::Cached(_) | Work::OrderedFlush)
    }

    fn is_store(&self) -> bool {
        matches!(self.work, Work::Cached(_) | Work::NonTemporal(_))
    }

    fn must_wait_for(&self, earlier: &Self) -> bool {
        let same_line = self.line() == earlier.line();
        match self.work {
            Work::Cached(_) | Work::OrderedFlush => {
                earlier.is_in_store_buffer() || same_line && earlier.is_store()
            }
            Work::NonTemporal(_) | Work::WeakFlush => same_line && earlier.is_store(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Combining {
    what: Outgoing,
    written: bool,
}

/// Bytes on their way to memory, in the order of their line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Outgoing {
    /// The bytes of a non-temporal piece.
    Piece(usize),
    /// A whole line that left the cache.
    Line(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    issued: usize,
    performed: u64,
    memory: Vec<u8>,
    cache: Vec<Option<Vec<u8>>>,
    combining: Vec<Vec<Combining>>,
}

struct Search<'a> {
    ops: &'a [Op],
    micros: Vec<Micro>,
    config: Config,
}

/// All images after a crash at the end of `ops`, starting from zeroes; by R1 to R10.
pub(crate) fn crash_images(size: usize, ops: &[Op], config: Config) -> Images {
    assert_eq!(config.rules, Rules::Arch);
    let search = Search { ops, micros: micros(ops, config), config };
    assert!(search.micros.len() <= 64);
    let lines = size / LINE;
    let start = State {
        issued: 0,
        performed: 0,
        memory: vec![0; size],
        cache: vec![None; lines],
        combining: vec![Vec::new(); lines],
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    let mut images = Images::new();
    while let Some(state) = open.pop() {
        if state.issued == ops.len() {
            images.insert(search.crash(&state));
        }
        search.steps(&state, &mut |next| {
            if !seen.contains(&next) {
                seen.insert(next.clone());
                open.push(next);
            }
        });
    }
    images
}

fn micros(ops: &[Op], config: Config) -> Vec<Micro> {
    let mut micros = Vec::new();
    for (op, what) in ops.iter().enumerate() {
        match what {
            Op::Store { addr, data, nt: false, atomic64 } => {
                push_store(&mut micros, op, *addr, data, *atomic64, Work::Cached);
            }
            Op::Store { addr, data, nt: true, atomic64 } => {
                push_store(&mut micros, op, *addr, data, *atomic64, Work::NonTemporal);
            }
            // The bytes are in the cache at once, but can leave it in pieces; see `locked_store`.
            Op::Rmw { addr, data } if config.persistence == Persistence::Adr => {
                push_store(&mut micros, op, *addr, data, false, Work::Cached);
            }
            // R9: with persistent caches a flush promises nothing, not even about write-combining buffers.
            Op::Flush { .. } if config.persistence == Persistence::Eadr => {}
            Op::Flush { kind, addr } => {
                let work = match kind {
                    FlushKind::Clflush => Work::OrderedFlush,
                    FlushKind::Clwb | FlushKind::Clflushopt => Work::WeakFlush,
                };
                micros.push(Micro { op, addr: *addr as usize, work });
            }
            Op::Rmw { .. } | Op::Fence(_) | Op::Mark(_) => {}
        }
    }
    micros
}

fn push_store(
    micros: &mut Vec<Micro>,
    op: usize,
    addr: u64,
    data: &[u8],
    atomic64: bool,
    work: fn(Vec<u8>) -> Work,
) {
    let unit = if atomic64 { LINE } else { 8 };
    let mut at = 0;
    while at < data.len() {
        let addr = addr as usize + at;
        let len = (unit - addr % unit).min(data.len() - at);
        micros.push(Micro { op, addr, work: work(data[at..at + len].to_vec()) });
        at += len;
    }
}

impl Search<'_> {
    fn crash(&self, state: &State) -> Vec<u8> {
        let mut image = state.memory.clone();
        if self.config.persistence == Persistence::Eadr {
            for (line, bytes) in state.cache.iter().enumerate() {
                if let Some(bytes) = bytes {
                    image[line * LINE..(line + 1) * LINE].copy_from_slice(bytes);
                }
            }
        }
        image
    }

    fn steps(&self, state: &State, reach: &mut dyn FnMut(State)) {
        if let Some(op) = self.ops.get(state.issued) {
            let waits = is_draining(op) && !self.is_drained(state);
            if !waits {
                let mut next = state.clone();
                next.issued += 1;
                if let (Op::Rmw { addr, data }, Persistence::Eadr) = (op, self.config.persistence) {
                    self.locked_store(&mut next, *addr as usize, data);
                }
                reach(next);
            }
        }
        for index in 0..self.micros.len() {
            if self.is_ready(state, index) {
                let mut next = state.clone();
                self.perform(&mut next, index);
                reach(next);
            }
        }
        for line in 0..state.cache.len() {
            if state.cache[line].is_some() {
                let mut next = state.clone();
                self.evict(&mut next, line);
                reach(next);
            }
            self.combining_steps(state, line, reach);
        }
    }

    fn combining_steps(&self, state: &State, line: usize, reach: &mut dyn FnMut(State)) {
        if state.combining[line].is_empty() {
            return;
        }
        for slot in 0..state.combining[line].len() {
            if self.may_be_written(&state.combining[line], slot) {
                let mut next = state.clone();
                self.write_combined(&mut next, line, slot);
                if next.combining[line].iter().all(|entry| entry.written) {
                    next.combining[line].clear();
                }
                reach(next);
            }
        }
    }

    /// In order, except that non-temporal pieces may overtake each other if they are unordered.
    fn may_be_written(&self, queue: &[Combining], slot: usize) -> bool {
        let is_piece = |entry: &Combining| matches!(entry.what, Outgoing::Piece(_));
        let may_overtake = self.config.strict_nt && is_piece(&queue[slot]);
        !queue[slot].written
            && queue[..slot].iter().all(|earlier| earlier.written || may_overtake && is_piece(earlier))
    }

    fn is_drained(&self, state: &State) -> bool {
        let issued = self.micros.iter().enumerate().filter(|(_, micro)| micro.op < state.issued);
        issued.into_iter().all(|(index, _)| state.performed >> index & 1 == 1)
            && state.combining.iter().all(Vec::is_empty)
    }

    fn is_ready(&self, state: &State, index: usize) -> bool {
        let micro = &self.micros[index];
        micro.op < state.issued
            && state.performed >> index & 1 == 0
            && self.micros[..index].iter().enumerate().all(|(at, earlier)| {
                state.performed >> at & 1 == 1 || earlier.op == micro.op || !micro.must_wait_for(earlier)
            })
    }

    fn perform(&self, state: &mut State, index: usize) {
        state.performed |= 1 << index;
        let micro = &self.micros[index];
        let line = micro.line();
        match &micro.work {
            Work::Cached(bytes) => {
                if self.config.persistence == Persistence::Eadr {
                    self.drain_combining(state, line);
                }
                self.write_cache(state, micro.addr, bytes);
            }
            Work::NonTemporal(_) => {
                if self.config.persistence == Persistence::Eadr {
                    self.evict(state, line);
                } else if let Some(bytes) = state.cache[line].take() {
                    state.combining[line].push(Combining { what: Outgoing::Line(bytes), written: false });
                }
                state.combining[line].push(Combining { what: Outgoing::Piece(index), written: false });
            }
            Work::WeakFlush | Work::OrderedFlush => {
                self.drain_combining(state, line);
                self.evict(state, line);
            }
        }
    }

    /// With persistent caches: visible, and so persistent, at once and whole.
    fn locked_store(&self, state: &mut State, addr: usize, data: &[u8]) {
        for (at, byte) in data.iter().enumerate() {
            // A locked operation may span lines, but is visible at once.
            self.write_cache(state, addr + at, &[*byte]);
        }
    }

    fn drain_combining(&self, state: &mut State, line: usize) {
        for slot in 0..state.combining[line].len() {
            if !state.combining[line][slot].written {
                self.write_combined(state, line, slot);
            }
        }
        state.combining[line].clear();
    }

    /// Writes one entry to memory, except for bytes that a younger entry has already written.
    fn write_combined(&self, state: &mut State, line: usize, slot: usize) {
        state.combining[line][slot].written = true;
        let younger: Vec<_> =
            state.combining[line][slot + 1..].iter().filter(|entry| entry.written).collect();
        let covers = |addr: usize| {
            younger.iter().any(|entry| {
                let (start, bytes) = self.outgoing(&entry.what, line);
                (start..start + bytes.len()).contains(&addr)
            })
        };
        let (start, bytes) = self.outgoing(&state.combining[line][slot].what, line);
        let writes: Vec<_> =
            (start..).zip(bytes.iter().copied()).filter(|(addr, _)| !covers(*addr)).collect();
        for (addr, byte) in writes {
            state.memory[addr] = byte;
        }
    }

    fn outgoing<'a>(&'a self, what: &'a Outgoing, line: usize) -> (usize, &'a [u8]) {
        match what {
            Outgoing::Line(bytes) => (line * LINE, bytes),
            Outgoing::Piece(index) => match &self.micros[*index].work {
                Work::NonTemporal(bytes) => (self.micros[*index].addr, bytes),
                other => unreachable!("{other:?} in a write-combining buffer"),
            },
        }
    }

    fn write_cache(&self, state: &mut State, addr: usize, bytes: &[u8]) {
        let line = addr / LINE;
        if state.cache[line].is_none() {
            let mut drained = state.clone();
            self.drain_combining(&mut drained, line);
            state.cache[line] = Some(drained.memory[line * LINE..(line + 1) * LINE].to_vec());
        }
        if let Some(cached) = &mut state.cache[line] {
            cached[addr % LINE..addr % LINE + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn evict(&self, state: &mut State, line: usize) {
        if let Some(bytes) = state.cache[line].take() {
            self.drain_combining(state, line);
            state.memory[line * LINE..(line + 1) * LINE].copy_from_slice(&bytes);
        }
    }
}

/// Whether `op` waits for everything before it.
fn is_draining(op: &Op) -> bool {
    matches!(op, Op::Fence(FenceKind::Sfence | FenceKind::Mfence) | Op::Rmw { .. })
}
