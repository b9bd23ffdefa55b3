//! The machine: applies operations and knows what is certain and what is pending.

use std::collections::BTreeMap;

use crate::config::{Config, Persistence};
use crate::line::{LINE, Line, Pending, Time};
use crate::memory::Memory;
use crate::op::{FenceKind, FlushKind, Op};
use crate::states::Context;

/// An operation that the machine cannot perform; it has not changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The operation reaches beyond the end of PM.
    #[error("{len_bytes} bytes at {addr:#x} are outside of the {image_bytes} bytes of PM")]
    OutOfRange {
        /// First byte of the operation.
        addr: u64,
        /// Its length.
        len_bytes: u64,
        /// Size of PM.
        image_bytes: u64,
    },
    /// A `movdir64b` needs 64 bytes at a 64-byte boundary.
    #[error("a 64-byte atomic store of {len_bytes} bytes at {addr:#x}")]
    NotAtomic64 {
        /// First byte of the operation.
        addr: u64,
        /// Its length.
        len_bytes: u64,
    },
}

/// Processors and their PM, between two operations of a program.
///
/// Of which processor an operation is, its `cpu`, matters for fences only (R13). The rules (R1 to R13) stand
/// in the crate documentation. Performance: an operation costs what it touches; a fence, what was flushed or
/// stored past the caches since the last one, and not what has been left in them.
#[derive(Debug, Clone)]
pub struct Machine<M = Vec<u8>> {
    config: Config,
    /// What is certain to survive.
    image: M,
    /// Lines with pending stores, by line number.
    lines: BTreeMap<u64, Line>,
    /// For each processor the lines of which its next fence completes something; some may be here without
    /// need, and some twice.
    armed: BTreeMap<u32, Vec<u64>>,
    /// Lines with a `clflush` (R5); some may be here without need, and some twice.
    ordered: Vec<u64>,
    time: Time,
    fence: Time,
}

impl<M: Memory> Machine<M> {
    /// A machine whose PM holds `image`, with nothing pending.
    pub fn new(image: M, config: Config) -> Self {
        Self {
            config,
            image,
            lines: BTreeMap::new(),
            armed: BTreeMap::new(),
            ordered: Vec::new(),
            time: 0,
            fence: 0,
        }
    }

    /// The configuration given to [`Machine::new`].
    pub fn config(&self) -> Config {
        self.config
    }

    /// Performs one operation, of processor 0.
    ///
    /// # Errors
    /// [`ModelError`] if the operation does not fit PM; nothing has changed.
    pub fn apply(&mut self, op: &Op) -> Result<(), ModelError> {
        self.apply_on(0, op)
    }

    /// Performs one operation of a processor.
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn apply_on(&mut self, cpu: u32, op: &Op) -> Result<(), ModelError> {
        match op {
            Op::Store { addr, data, nt, atomic64 } => self.store(cpu, *addr, data, *nt, *atomic64),
            Op::Rmw { addr, data } => self.rmw(cpu, *addr, data),
            Op::Flush { kind, addr } => self.flush(cpu, *kind, *addr),
            Op::Fence(kind) => {
                self.fence(cpu, *kind);
                Ok(())
            }
            Op::Mark(_) => Ok(()),
        }
    }

    /// A store ([`Op::Store`]).
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn store(
        &mut self,
        cpu: u32,
        addr: u64,
        data: &[u8],
        nt: bool,
        atomic64: bool,
    ) -> Result<(), ModelError> {
        let len_bytes = data.len() as u64;
        if atomic64 && (data.len() != LINE || !addr.is_multiple_of(LINE as u64)) {
            return Err(ModelError::NotAtomic64 { addr, len_bytes });
        }
        self.check(addr, len_bytes)?;
        self.time += 1;
        self.add_store(cpu, addr, data, nt, atomic64);
        Ok(())
    }

    /// A LOCKed operation on PM ([`Op::Rmw`]).
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn rmw(&mut self, cpu: u32, addr: u64, data: &[u8]) -> Result<(), ModelError> {
        self.check(addr, data.len() as u64)?;
        self.time += 1;
        self.complete(cpu);
        self.add_store(cpu, addr, data, false, false);
        if self.config.persistence == Persistence::Eadr {
            self.complete(cpu);
        }
        Ok(())
    }

    /// A flush of the line of `addr` ([`Op::Flush`]).
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn flush(&mut self, cpu: u32, kind: FlushKind, addr: u64) -> Result<(), ModelError> {
        self.check(addr, 1)?;
        self.time += 1;
        let number = addr / LINE as u64;
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        if kind == FlushKind::Clflush && !self.config.has_global_order() {
            line.flush_ordered(cpu, self.time);
            self.ordered.push(number);
        } else {
            line.flush(cpu);
        }
        self.armed.entry(cpu).or_default().push(number);
        Ok(())
    }

    /// Flushes every line (`wbinvd`), as weakly as `clwb` (R4).
    pub fn flush_all(&mut self, cpu: u32) {
        self.time += 1;
        for line in self.lines.values_mut() {
            line.flush(cpu);
        }
        self.armed.entry(cpu).or_default().extend(self.lines.keys());
    }

    /// A fence ([`Op::Fence`]).
    pub fn fence(&mut self, cpu: u32, kind: FenceKind) {
        self.time += 1;
        if kind != FenceKind::Lfence {
            self.complete(cpu);
        }
    }

    fn check(&self, addr: u64, len_bytes: u64) -> Result<(), ModelError> {
        let image_bytes = self.image.len_bytes();
        match addr.checked_add(len_bytes) {
            Some(end) if end <= image_bytes => Ok(()),
            _ => Err(ModelError::OutOfRange { addr, len_bytes, image_bytes }),
        }
    }

    fn add_store(&mut self, cpu: u32, addr: u64, data: &[u8], nt: bool, atomic: bool) {
        let (mut addr, mut data) = (addr, data);
        while !data.is_empty() {
            let start = (addr % LINE as u64) as usize;
            let (part, rest) = data.split_at(data.len().min(LINE - start));
            let pending = Pending::new(cpu, self.time, nt, atomic, start, part);
            let number = addr / LINE as u64;
            self.lines.entry(number).or_default().stores.push(pending);
            if nt {
                let armed = self.armed.entry(cpu).or_default();
                if armed.last() != Some(&number) {
                    armed.push(number);
                }
            }
            addr += part.len() as u64;
            data = rest;
        }
    }

    /// What a fence does (R4, R6, R9, R13).
    fn complete(&mut self, cpu: u32) {
        self.fence = self.time;
        let armed = self.armed.get_mut(&cpu).map(std::mem::take).unwrap_or_default();
        let numbers = match self.config.persistence {
            Persistence::Adr => armed,
            Persistence::Eadr => self.lines.keys().copied().collect(),
        };
        let persistence = self.config.persistence;
        let mut newest = 0;
        for number in numbers {
            self.complete_some(number, &mut newest, |line, _| line.completed_by_fence(cpu, persistence));
        }
        // What a `clflush` of another processor covers is before the cached stores that are certain now.
        for number in std::mem::take(&mut self.ordered) {
            self.complete_some(number, &mut newest, Line::flushed_before);
            if self.lines.get(&number).is_some_and(Line::has_ordered_flush) {
                self.ordered.push(number);
            }
        }
    }

    /// Completes the stores of a line that `count` says, where the newest cached store that is certain has
    /// this time.
    fn complete_some(&mut self, number: u64, newest: &mut Time, count: impl Fn(&Line, Time) -> usize) {
        // It may have been completed under another mention.
        let Some(mut line) = self.lines.remove(&number) else { return };
        let count = count(&line, *newest);
        if count > 0 {
            *newest = line.stores[..count]
                .iter()
                .filter(|store| !store.nt)
                .fold(*newest, |time, store| time.max(store.time));
            self.complete_line(number, &mut line, count);
        }
        if !line.stores.is_empty() {
            self.lines.insert(number, line);
        }
    }

    fn complete_line(&mut self, number: u64, line: &mut Line, count: usize) {
        let mut bytes = self.image.line(number);
        line.complete(count, &mut bytes);
        self.image.put_line(number, &bytes);
    }

    /// Whether `op` of processor 0 can make images impossible that are possible now. Only fences can.
    pub(crate) fn can_shrink(&self, op: &Op) -> bool {
        match op {
            Op::Rmw { .. } => self.rmw_can_shrink(0),
            op => op.is_fence() && self.fence_can_shrink(0),
        }
    }

    /// Whether a fence of a processor now could make images impossible that are possible.
    pub fn fence_can_shrink(&self, cpu: u32) -> bool {
        let completes_some = |line: &Line| line.completed_by_fence(cpu, self.config.persistence) > 0;
        let is_armed = |number| self.lines.get(number).is_some_and(completes_some);
        self.config.has_global_order() && !self.lines.is_empty()
            || self.armed.get(&cpu).is_some_and(|armed| armed.iter().any(is_armed))
    }

    /// As [`fence_can_shrink`](Self::fence_can_shrink), of a LOCKed operation on PM.
    pub fn rmw_can_shrink(&self, cpu: u32) -> bool {
        // With persistent caches it completes its own store too (R10).
        self.config.persistence == Persistence::Eadr || self.fence_can_shrink(cpu)
    }

    /// The minimal image: only what is certain to survive.
    pub fn persistent(&self) -> &M {
        &self.image
    }

    /// To say what PM holds before the first operation on it; for lines with pending stores it says nothing
    /// of use.
    pub fn persistent_mut(&mut self) -> &mut M {
        &mut self.image
    }

    /// What loads would see: every store applied. It is always an allowed image.
    pub fn volatile(&self) -> M {
        let mut image = self.image.clone();
        for (&number, line) in &self.lines {
            let mut bytes = self.image.line(number);
            line.stores.iter().for_each(|store| store.apply(&mut bytes));
            image.put_line(number, &bytes);
        }
        image
    }

    /// Whether a non-temporal store has not been completed yet.
    pub fn has_pending_nt(&self) -> bool {
        self.lines.values().any(|line| line.stores.iter().any(|store| store.nt))
    }

    /// The lines with pending stores, ascending: number, how many they are, and how many of them, the first,
    /// a flush covers.
    pub fn pending(&self) -> impl Iterator<Item = (u64, usize, usize)> {
        self.lines.iter().map(|(&number, line)| (number, line.stores.len(), line.flushed()))
    }

    /// Whether what a line holds after a crash can depend on another line (a `clflush`, or persistent
    /// caches). Otherwise any states of the lines go together.
    pub fn has_order_across_lines(&self) -> bool {
        self.context().is_ordered
    }

    /// Number of lines with pending stores.
    pub fn pending_lines(&self) -> usize {
        self.lines.len()
    }

    /// At least as large as the number of allowed images, saturating; cheap.
    pub fn count_upper_bound(&self) -> u128 {
        self.lines.values().fold(1, |product, line| product.saturating_mul(self.line_upper_bound(line)))
    }

    /// The same for one line.
    pub(crate) fn line_upper_bound(&self, line: &Line) -> u128 {
        // No pending store; and one more state for a line that R11 leaves out.
        let mut sum = 1 + u128::from(self.config.has_line_subsets());
        let mut at = 0;
        while at < line.stores.len() {
            let end = line.group_end(at, self.config);
            let pieces: usize = line.stores[at..end].iter().map(|store| store.pieces().count()).sum();
            let subsets = u32::try_from(pieces).ok().and_then(|shift| 1_u128.checked_shl(shift));
            sum = sum.saturating_add(subsets.unwrap_or(u128::MAX) - 1);
            at = end;
        }
        sum
    }

    /// Lines with pending stores, ascending.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u64, &Line)> {
        self.lines.iter().map(|(&number, line)| (number, line))
    }

    /// What the states of the lines depend on.
    pub(crate) fn context(&self) -> Context {
        let is_ordered = self.config.has_global_order() || self.lines.values().any(Line::has_ordered_flush);
        Context { config: self.config, is_ordered, fence: self.fence }
    }
}

impl Machine {
    /// [`Machine::persistent`], as bytes.
    pub fn persistent_image(&self) -> &[u8] {
        &self.image
    }

    /// [`Machine::volatile`], as bytes.
    pub fn volatile_image(&self) -> Vec<u8> {
        self.volatile()
    }
}
