//! A pjournal: which chunks a write is changing in place.
//!
//! Source: PMAL, in the dissertation's chapter III, section 3.2.4. There it names the kernel's structures of
//! the page cache, and belongs to an open file; here it names slots, and to a write that is being made.
//!
//! Shape: 64 bytes, one cache line, little endian:
//! ```text
//! offset size field
//!      0    8 pj_commit: 1 while the chunks are changed, otherwise 0
//!      8    8 slot of the first chunk; the others follow it
//!     16    2 number of chunks
//!     18    2 for each chunk, which one of its slot it is in
//!     20   40 zero
//!     60    4 CRC-32C of the cache's id and bytes 8 to 59
//! ```

use fastness_pmem::NoSum;

use crate::error::Error;
use crate::medium::CacheMedium;
use crate::tag::{LINE, Seed};

/// The chunks that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changed {
    /// Of the first.
    pub(crate) slot: u64,
    pub(crate) chunks: u16,
    /// A bit for each chunk: which one of its slot.
    pub(crate) places: u16,
}

impl Changed {
    fn encode(self, seed: Seed) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[8..16].copy_from_slice(&self.slot.to_le_bytes());
        line[16..18].copy_from_slice(&self.chunks.to_le_bytes());
        line[18..20].copy_from_slice(&self.places.to_le_bytes());
        let sum = seed.sum(&line[8..60]);
        line[60..].copy_from_slice(&sum.to_le_bytes());
        line
    }

    fn decode(line: &[u8; LINE], seed: Seed) -> Option<Changed> {
        let half = |at: usize| u16::from_le_bytes([line[at], line[at + 1]]);
        let is_whole = seed.sum(&line[8..60]).to_le_bytes() == line[60..] && line[20..60] == [0; 40];
        let slot = u64::from_le_bytes(line[8..16].try_into().expect("eight bytes"));
        is_whole.then(|| Changed { slot, chunks: half(16), places: half(18) })
    }
}

/// One of the journals.
#[derive(Debug)]
pub(crate) struct Journal<M> {
    range: M,
    seed: Seed,
}

impl<M: CacheMedium> Journal<M> {
    pub(crate) fn new(range: M, seed: Seed) -> Journal<M> {
        Journal { range, seed }
    }

    pub(crate) fn damaged(&self) -> Error {
        Error::Operation { region_offset: self.range.region_offset() }
    }

    /// Notes what is about to be changed.
    ///
    /// Persistence: durable on return; from then on a crash gives these chunks up.
    pub(crate) fn begin(&mut self, changed: Changed) -> Result<(), Error> {
        let mut line = changed.encode(self.seed);
        self.range.copy(0, &line, LINE, &mut NoSum);
        // PERSIST: which chunks they are is durable before pj_commit is set. Excludes that others are given
        // up.
        self.range.fence()?;
        line[0] = 1;
        self.range.copy(0, &line, LINE, &mut NoSum);
        // PERSIST: pj_commit is set before anything is changed in place. Excludes a chunk that is changed in
        // part, and counts.
        Ok(self.range.fence()?)
    }

    /// Notes that all of it has been changed: the write has committed.
    ///
    /// Persistence: durable on return.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        let mut line = [0; LINE];
        self.range.read(0, &mut line)?;
        line[0] = 0;
        self.range.copy(0, &line, LINE, &mut NoSum);
        // PERSIST: pj_commit is cleared before the write is acknowledged, and before the backing store gets
        // it. Excludes that acknowledged bytes are given up.
        Ok(self.range.fence()?)
    }

    /// Forgets a change that is damaged.
    ///
    /// Persistence: durable on return.
    pub(crate) fn forget(&mut self) -> Result<(), Error> {
        self.range.copy(0, &[0; LINE], LINE, &mut NoSum);
        // PERSIST: it is gone before anything else is recovered. Excludes damage that the next recovery finds
        // again, after what this one has changed.
        Ok(self.range.fence()?)
    }

    /// What a crash has interrupted.
    pub(crate) fn interrupted(&mut self) -> Result<Option<Changed>, Error> {
        // PERSIST: what a process that died left in the CPU's caches; a later power cut must not take it away
        // while the chunks are given up. Excludes a change that this recovery has seen, and the next has not.
        self.range.write_back(0, LINE);
        self.range.fence()?;
        let mut line = [0; LINE];
        self.range.read(0, &mut line)?;
        match u64::from_le_bytes(line[..8].try_into().expect("eight bytes")) {
            0 => Ok(None),
            1 => Changed::decode(&line, self.seed).map(Some).ok_or_else(|| self.damaged()),
            _ => Err(self.damaged()),
        }
    }
}
