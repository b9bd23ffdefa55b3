//! The requests of a connection, which follow from the seed.

use std::ops::Range;
use std::time::Duration;

use fastness_history::SECTOR_BYTES;
use fastness_nbd::wire::{command, command_flag};

use crate::plan::Rng;

/// Longest request.
const BYTES_MAX: u64 = 4 << 20;

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Step {
    /// [`command`]
    pub command: u16,
    pub sectors: Range<u32>,
    pub is_fua: bool,
    /// Before it is sent.
    pub pause: Duration,
}

impl Step {
    pub fn flags(&self) -> u16 {
        if self.is_fua { command_flag::FUA } else { 0 }
    }

    pub fn offset(&self) -> u64 {
        u64::from(self.sectors.start) * SECTOR_BYTES as u64
    }

    pub fn len_bytes(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR_BYTES as u64
    }
}

/// What a connection does.
#[derive(Debug, Clone)]
pub struct Program {
    rng: Rng,
    sectors: u64,
    block_sectors: u64,
    /// Requests in flight.
    pub depth: usize,
    /// It breaks off after so many.
    pub steps_max: usize,
    longest: u64,
    flushes: u64,
    fuas: u64,
    /// Where many writes go.
    hot: u64,
    begins_with_flush: bool,
}

impl Program {
    pub fn new(mut rng: Rng, len_bytes: u64, block_bytes: u64) -> Program {
        let sectors = len_bytes / SECTOR_BYTES as u64;
        Program {
            sectors,
            block_sectors: block_bytes / SECTOR_BYTES as u64,
            depth: rng.one_of(&[1, 2, 4, 8, 16]),
            steps_max: if rng.percent(10) { rng.spread(1, 500) as usize } else { usize::MAX },
            longest: rng.one_of(&[4 << 10, 64 << 10, 1 << 20, BYTES_MAX]) / SECTOR_BYTES as u64,
            flushes: rng.one_of(&[0, 3, 10, 30]),
            fuas: rng.one_of(&[0, 5, 20, 80]),
            hot: rng.below(sectors),
            begins_with_flush: rng.percent(40),
            rng,
        }
    }

    /// The next request.
    pub fn step(&mut self) -> Step {
        let rng = &mut self.rng;
        let pause = if rng.percent(2) { rng.time(50, 20_000) } else { Duration::ZERO };
        if std::mem::take(&mut self.begins_with_flush) || rng.percent(self.flushes) {
            return Step { command: command::FLUSH, sectors: 0..0, is_fua: false, pause };
        }
        let command = match rng.below(100) {
            0..65 => command::WRITE,
            65..80 => command::READ,
            80..90 => command::TRIM,
            _ => command::WRITE_ZEROES,
        };
        let mut len = rng.spread(1, self.longest.min(self.sectors));
        let mut first = if rng.percent(50) {
            (self.hot + rng.below(256)) % self.sectors
        } else {
            rng.below(self.sectors)
        };
        if rng.percent(30) {
            // Whole blocks.
            first -= first % self.block_sectors;
            len = len.next_multiple_of(self.block_sectors);
        }
        let end = (first + len).min(self.sectors);
        let is_fua = command != command::READ && rng.percent(self.fuas);
        Step { command, sectors: first as u32..end as u32, is_fua, pause }
    }
}
