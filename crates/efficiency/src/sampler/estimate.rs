//! Bytes from samples: the sum of size x period, for each thread and region.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decode::{BEFORE_BYTES, Decoded, Decoder, INSTRUCTION_BYTES_MAX};
use super::maps::{LiveProcesses, Mapped};
use super::record::{IpIs, Record, Sample};
use crate::accounting::{RegionName, Source, Written};

/// An address in no known mapping makes the mappings be read again, but not more often than this.
const AGAIN: Duration = Duration::from_millis(500);
/// Instructions remembered of a process.
const CODES_MAX: usize = 1 << 16;
/// Processes that are remembered.
const SPACES_MAX: usize = 1 << 12;

/// Where mappings and code of processes come from.
pub trait Processes {
    /// The regions that a process has mapped, in the order of addresses.
    fn regions(&mut self, pid: u32) -> Vec<Mapped>;
    /// Reads a process's memory; how many bytes could be read.
    fn code(&mut self, pid: u32, address: u64, into: &mut [u8]) -> usize;
}

impl Processes for LiveProcesses {
    fn regions(&mut self, pid: u32) -> Vec<Mapped> {
        self.regions_of(pid)
    }

    fn code(&mut self, pid: u32, address: u64, into: &mut [u8]) -> usize {
        LiveProcesses::code_of(pid, address, into)
    }
}

/// What became of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct Tally {
    /// Stores to a region.
    pub stores: u64,
    /// Those of them that were non-temporal.
    pub non_temporal: u64,
    /// Stores to a region whose size the instruction does not say; they are in no sum.
    pub unsized_stores: u64,
    /// Instructions that flush a line of a region; they are in no sum.
    pub flushes: u64,
    /// Samples in a region whose instruction could not be read, or stores nothing.
    pub undecoded: u64,
    /// Samples of other memory, of loads, of the kernel.
    pub elsewhere: u64,
    /// Records that the kernel had no room for.
    pub lost: u64,
    /// How often the kernel has stopped the event for a while.
    pub throttled: u64,
}

/// What is known of a process.
struct Space {
    regions: Vec<Mapped>,
    read_at: Instant,
    codes: HashMap<u64, Decoded>,
}

/// Adds samples up.
pub struct Estimator<P> {
    processes: P,
    decoder: Decoder,
    spaces: HashMap<u32, Space>,
    sums: BTreeMap<(u32, u32, Arc<RegionName>), u64>,
    tally: Tally,
}

impl<P: Processes> Estimator<P> {
    /// Nothing has been written yet.
    pub fn new(processes: P) -> Estimator<P> {
        Estimator {
            processes,
            decoder: Decoder::default(),
            spaces: HashMap::new(),
            sums: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// Where mappings come from.
    pub fn processes(&mut self) -> &mut P {
        &mut self.processes
    }

    /// What became of the records.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Counts a record.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Sample(sample) => self.sample(&sample),
            Record::NotAStore => self.tally.elsewhere += 1,
            Record::Lost(records) => self.tally.lost = self.tally.lost.saturating_add(records),
            Record::Throttled => self.tally.throttled += 1,
        }
    }

    /// What each thread has written to each region, as far as it was sampled.
    pub fn written(&self) -> Vec<Written> {
        let of = |((pid, thread, region), bytes): (&(u32, u32, Arc<RegionName>), &u64)| Written {
            pid: *pid,
            thread: Some(*thread),
            region: region.clone(),
            bytes: *bytes,
            writes: None,
            source: Source::Sampled,
        };
        self.sums.iter().map(of).collect()
    }

    /// Forgets processes that `lives` denies; what they have written stays.
    pub fn forget_ended(&mut self, lives: impl Fn(u32) -> bool) {
        self.spaces.retain(|pid, _| lives(*pid));
    }

    fn sample(&mut self, sample: &Sample) {
        let Some(region) = self.region(sample) else {
            self.tally.elsewhere += 1;
            return;
        };
        match self.decoded(sample) {
            Decoded::Store { bytes, is_non_temporal } => {
                self.tally.stores += 1;
                self.tally.non_temporal += u64::from(is_non_temporal);
                let more = u64::from(bytes).saturating_mul(sample.period);
                let sum = self.sums.entry((sample.pid, sample.thread, region)).or_default();
                *sum = sum.saturating_add(more);
            }
            Decoded::Unsized => self.tally.unsized_stores += 1,
            Decoded::Flush => self.tally.flushes += 1,
            Decoded::NoStore => self.tally.undecoded += 1,
        }
    }

    fn region(&mut self, sample: &Sample) -> Option<Arc<RegionName>> {
        let known = self.spaces.get(&sample.pid);
        let found = known.and_then(|space| space.find(sample.address));
        if found.is_some() || known.is_some_and(|space| space.read_at.elapsed() < AGAIN) {
            return found;
        }
        if self.spaces.len() >= SPACES_MAX {
            self.spaces.clear();
        }
        // The process may be another program by now: its instructions are read again, too.
        let regions = self.processes.regions(sample.pid);
        let space = Space { regions, read_at: Instant::now(), codes: HashMap::new() };
        let found = space.find(sample.address);
        self.spaces.insert(sample.pid, space);
        found
    }

    fn decoded(&mut self, sample: &Sample) -> Decoded {
        let Some(space) = self.spaces.get_mut(&sample.pid) else { return Decoded::NoStore };
        if let Some(known) = space.codes.get(&sample.ip) {
            return *known;
        }
        let decoded = match sample.ip_is {
            IpIs::Exact => {
                let mut code = [0; INSTRUCTION_BYTES_MAX];
                let len = self.processes.code(sample.pid, sample.ip, &mut code);
                self.decoder.at(&code[..len], sample.ip)
            }
            IpIs::Next => {
                let mut code = [0; BEFORE_BYTES];
                let from = sample.ip.saturating_sub(BEFORE_BYTES as u64);
                let is_whole = self.processes.code(sample.pid, from, &mut code) == BEFORE_BYTES;
                if is_whole { self.decoder.before(&code, sample.ip) } else { Decoded::NoStore }
            }
        };
        if space.codes.len() >= CODES_MAX {
            space.codes.clear();
        }
        space.codes.insert(sample.ip, decoded);
        decoded
    }
}

impl Space {
    fn find(&self, address: u64) -> Option<Arc<RegionName>> {
        let after = self.regions.partition_point(|mapped| mapped.start <= address);
        let mapped = self.regions.get(after.checked_sub(1)?)?;
        (address < mapped.end).then(|| mapped.region.clone())
    }
}

#[cfg(test)]
mod tests;
