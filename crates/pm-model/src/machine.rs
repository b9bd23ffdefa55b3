//! The machine: applies operations and knows what is certain and what is pending.

use std::collections::BTreeMap;

use crate::config::{Config, Persistence};
use crate::line::{LINE, Line, LineBytes, Pending, Time};
use crate::op::{FenceKind, FlushKind, Op};
use crate::states::{Context, line_states};

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

/// A processor with PM behind it, between two operations of a program.
///
/// The rules (R1 to R12) stand in the crate documentation.
#[derive(Debug, Clone)]
pub struct Machine {
    config: Config,
    /// What is certain to survive.
    image: Vec<u8>,
    /// Lines with pending stores, by line number.
    lines: BTreeMap<u64, Line>,
    time: Time,
    fence: Time,
}

impl Machine {
    /// A machine whose PM holds `image`, with nothing pending.
    pub fn new(image: Vec<u8>, config: Config) -> Self {
        Self { config, image, lines: BTreeMap::new(), time: 0, fence: 0 }
    }

    /// The configuration given to [`Machine::new`].
    pub fn config(&self) -> Config {
        self.config
    }

    /// Performs one operation.
    ///
    /// # Errors
    /// [`ModelError`] if the operation does not fit PM; nothing has changed.
    pub fn apply(&mut self, op: &Op) -> Result<(), ModelError> {
        self.check(op)?;
        self.time += 1;
        match op {
            Op::Store { addr, data, nt, atomic64 } => self.store(*addr, data, *nt, *atomic64),
            Op::Rmw { addr, data } => {
                self.fence();
                self.store(*addr, data, false, false);
                if self.config.persistence == Persistence::Eadr {
                    self.fence();
                }
            }
            Op::Flush { kind, addr } => self.flush(*kind, *addr),
            Op::Fence(FenceKind::Sfence | FenceKind::Mfence) => self.fence(),
            Op::Fence(FenceKind::Lfence) | Op::Mark(_) => {}
        }
        Ok(())
    }

    fn check(&self, op: &Op) -> Result<(), ModelError> {
        let (addr, len_bytes) = match op {
            Op::Store { addr, data, atomic64, .. } => {
                let len_bytes = data.len() as u64;
                if *atomic64 && (data.len() != LINE || addr % LINE as u64 != 0) {
                    return Err(ModelError::NotAtomic64 { addr: *addr, len_bytes });
                }
                (*addr, len_bytes)
            }
            Op::Rmw { addr, data } => (*addr, data.len() as u64),
            Op::Flush { addr, .. } => (*addr, 1),
            Op::Fence(_) | Op::Mark(_) => return Ok(()),
        };
        let image_bytes = self.image.len() as u64;
        match addr.checked_add(len_bytes) {
            Some(end) if end <= image_bytes => Ok(()),
            _ => Err(ModelError::OutOfRange { addr, len_bytes, image_bytes }),
        }
    }

    fn store(&mut self, addr: u64, data: &[u8], nt: bool, atomic: bool) {
        let (mut addr, mut data) = (addr, data);
        while !data.is_empty() {
            let start = (addr % LINE as u64) as usize;
            let (part, rest) = data.split_at(data.len().min(LINE - start));
            let pending = Pending::new(self.time, nt, atomic, start, part);
            self.lines.entry(addr / LINE as u64).or_default().stores.push(pending);
            addr += part.len() as u64;
            data = rest;
        }
    }

    fn flush(&mut self, kind: FlushKind, addr: u64) {
        let Some(line) = self.lines.get_mut(&(addr / LINE as u64)) else { return };
        if kind == FlushKind::Clflush && !self.config.has_global_order() {
            line.flush_ordered(self.time);
        } else {
            line.flush();
        }
    }

    fn fence(&mut self) {
        self.fence = self.time;
        let Self { image, lines, config, .. } = self;
        lines.retain(|&number, line| {
            let count = match config.persistence {
                Persistence::Eadr => line.stores.len(),
                Persistence::Adr => line.completed_by_fence(),
            };
            let mut bytes = line_of(image, number);
            line.complete(count, &mut bytes);
            put_line(image, number, &bytes);
            !line.stores.is_empty()
        });
    }

    /// Whether `op` can make images impossible that are possible now. Only fences can.
    pub(crate) fn can_shrink(&self, op: &Op) -> bool {
        if matches!(op, Op::Rmw { .. }) && self.config.persistence == Persistence::Eadr {
            // It completes its own store too (R10).
            return true;
        }
        op.is_fence()
            && (self.config.has_global_order() && !self.lines.is_empty()
                || self.lines.values().any(|line| line.completed_by_fence() > 0))
    }

    /// The minimal image: only what is certain to survive.
    pub fn persistent_image(&self) -> &[u8] {
        &self.image
    }

    /// What loads would see: every store applied. It is always an allowed image.
    pub fn volatile_image(&self) -> Vec<u8> {
        let mut image = self.image.clone();
        for (&number, line) in &self.lines {
            let mut bytes = line_of(&image, number);
            line.stores.iter().for_each(|store| store.apply(&mut bytes));
            put_line(&mut image, number, &bytes);
        }
        image
    }

    /// Whether exactly one image is possible.
    pub fn is_quiescent(&self) -> bool {
        self.lines.iter().all(|(&number, line)| {
            let bytes = line_of(&self.image, number);
            if self.config.has_line_subsets() {
                // Stores that come only together (R11) can cancel each other out.
                return line_states(line, &bytes, self.context(), 1).is_ok_and(|states| states.len() == 1);
            }
            line.stores.iter().all(|store| !store.pieces().any(|piece| store.piece_changes(piece, &bytes)))
        })
    }

    /// Number of lines with pending stores.
    pub fn pending_lines(&self) -> usize {
        self.lines.len()
    }

    /// At least as large as the number of allowed images, saturating; cheap.
    pub fn count_upper_bound(&self) -> u128 {
        self.lines.values().fold(1, |product, line| product.saturating_mul(self.line_upper_bound(line)))
    }

    fn line_upper_bound(&self, line: &Line) -> u128 {
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

/// Byte range of a line in an image of `len` bytes; the last line may be short.
fn range_of(number: u64, len: usize) -> std::ops::Range<usize> {
    let start = number as usize * LINE;
    start..(start + LINE).min(len)
}

/// Contents of a line, filled up with zeroes behind the end of the image.
pub(crate) fn line_of(image: &[u8], number: u64) -> LineBytes {
    let range = range_of(number, image.len());
    let mut bytes = [0; LINE];
    bytes[..range.len()].copy_from_slice(&image[range]);
    bytes
}

/// Writes a line into an image.
pub(crate) fn put_line(image: &mut [u8], number: u64, bytes: &LineBytes) {
    let range = range_of(number, image.len());
    let len = range.len();
    image[range].copy_from_slice(&bytes[..len]);
}
