//! The changes of a volume since its last restart, by sector.

use std::collections::BTreeMap;

use crate::finding::{Finding, Past, Story, Why};
use crate::operation::{Operation, Tick, What};
use crate::register::{Effect, Refusal, Register, Seen};
use crate::stamp::{self, Content, Place, SECTOR_BYTES, WriteId};

#[derive(Debug, Clone)]
struct Sector {
    /// What the last look found.
    base: Content,
    /// The restart that showed it.
    shown: u32,
    /// Indices of operations.
    changes: Vec<u32>,
    reads: Vec<u32>,
}

/// What clients did to a volume, and what restarts showed of it.
///
/// Use: [`add`](Self::add) the operations of a time between two restarts,
/// [`make_durable`](Self::make_durable) for each sync of the whole pool, then [`restart`](Self::restart) and
/// [`look`](Self::look) at all sectors, in any portions; again and again. If the server dies during the
/// looks: `restart`, and all of them again.
#[derive(Debug)]
pub struct History {
    seed: u32,
    volume: u8,
    sectors: Vec<Sector>,
    operations: Vec<Operation>,
    /// What was acknowledged before is durable.
    durable_before: Tick,
    restarts: u32,
    /// Sectors that were not looked at since operations were added.
    unseen: usize,
    /// Changes of earlier times.
    past: BTreeMap<WriteId, Past>,
}

impl History {
    /// A volume that was never written.
    ///
    /// # Panics
    /// Caller bug only: `len_bytes` is no multiple of a sector, or more than 2 TiB.
    pub fn new(seed: u32, volume: u8, len_bytes: u64) -> History {
        assert!(len_bytes.is_multiple_of(SECTOR_BYTES as u64), "whole sectors");
        let count = usize::try_from(len_bytes / SECTOR_BYTES as u64).expect("a small volume");
        assert!(u32::try_from(count).is_ok(), "at most 2 TiB");
        let sector = Sector { base: Content::Zeroes, shown: 0, changes: Vec::new(), reads: Vec::new() };
        History {
            seed,
            volume,
            sectors: vec![sector; count],
            operations: Vec::new(),
            durable_before: 0,
            restarts: 0,
            unseen: 0,
            past: BTreeMap::new(),
        }
    }

    /// The seed and the volume, for [`stamp::fill`] and [`stamp::read`].
    pub fn place(&self, sector: u32) -> Place {
        Place { seed: self.seed, volume: self.volume, sector }
    }

    /// Bytes of the volume.
    pub fn len_bytes(&self) -> u64 {
        self.sectors.len() as u64 * SECTOR_BYTES as u64
    }

    /// Takes note of operations, in any order. Returns what reads saw that is from no write.
    ///
    /// # Panics
    /// Caller bug only: after a restart some sectors were looked at, but not all.
    pub fn add(&mut self, operations: Vec<Operation>) -> Vec<Finding> {
        let is_partly_seen = self.unseen > 0 && self.unseen < self.sectors.len();
        assert!(!is_partly_seen, "look at all sectors before new operations");
        self.unseen = self.sectors.len();
        let mut findings = Vec::new();
        for operation in operations {
            let index = self.operations.len() as u32;
            for sector in operation.sectors.clone() {
                let at = (sector - operation.sectors.start) as usize;
                let of = &mut self.sectors[sector as usize];
                match &operation.what {
                    What::Read(contents) => match &contents[at] {
                        Ok(_) => of.reads.push(index),
                        Err(wrong) => findings.push((sector, index, wrong.clone())),
                    },
                    _ => of.changes.push(index),
                }
            }
            self.operations.push(operation);
        }
        let flushes = self.operations.iter().filter(|operation| operation.what == What::Flush);
        let flushed = flushes.filter(|flush| flush.end.is_acknowledged()).map(|flush| flush.call).max();
        self.make_durable(flushed.unwrap_or(0));
        let found = findings
            .into_iter()
            .map(|(sector, read, wrong)| self.finding(sector, Why::Read { read, wrong }, None));
        Finding::together(found)
    }

    /// The whole pool was synced or exported by a call at `called` that has succeeded: what was acknowledged
    /// before is durable.
    pub fn make_durable(&mut self, called: Tick) {
        self.durable_before = self.durable_before.max(called);
    }

    /// The volume was served again after a crash, or after an export.
    pub fn restart(&mut self) {
        self.restarts += 1;
        if !self.operations.is_empty() {
            self.unseen = self.sectors.len();
        }
    }

    /// Judges what a restart has left from sector `first` on, and the reads before; what is there now is what
    /// was there before all changes that come.
    ///
    /// # Panics
    /// Caller bug only: `bytes` are not whole sectors of the volume.
    pub fn look(&mut self, first: u32, bytes: &[u8]) -> Vec<Finding> {
        assert!(bytes.len().is_multiple_of(SECTOR_BYTES), "whole sectors");
        let mut findings = Vec::new();
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let read = stamp::read(bytes, self.place(sector));
            let why = match &read {
                Ok(content) => self.judge(sector, *content),
                Err(wrong) => Some(Why::Left(wrong.clone())),
            };
            findings.extend(why.map(|why| self.finding(sector, why, read.as_ref().ok().copied())));
            let of = &mut self.sectors[sector as usize];
            // After something wrong the rest is judged all the same.
            of.base = read.unwrap_or(of.base);
            of.shown = self.restarts;
            (of.changes, of.reads) = (Vec::new(), Vec::new());
        }
        self.unseen = self.unseen.saturating_sub(bytes.len() / SECTOR_BYTES);
        if self.unseen == 0 {
            self.pass();
        }
        Finding::together(findings)
    }

    /// All sectors were seen: what was done is past.
    fn pass(&mut self) {
        let restart = self.restarts;
        for operation in self.operations.drain(..) {
            if operation.content().is_some() {
                self.past.insert(operation.id, Past { restart, name: operation.name(), end: operation.end });
            }
        }
        self.durable_before = 0;
    }

    fn effect(&self, index: u32) -> Effect {
        let operation = &self.operations[index as usize];
        let is_certain = operation.end.is_acknowledged();
        Effect {
            content: operation.content().expect("a change"),
            call: operation.call,
            end: operation.end.tick(),
            is_certain,
            is_durable: is_certain && (operation.is_sync || operation.end.tick() < self.durable_before),
        }
    }

    fn seen(&self, sector: u32, index: u32) -> Seen {
        let operation = &self.operations[index as usize];
        let What::Read(contents) = &operation.what else { unreachable!("kept among the reads") };
        let content = &contents[(sector - operation.sectors.start) as usize];
        Seen {
            content: *content.as_ref().expect("kept among the reads"),
            call: operation.call,
            reply: operation.end.tick(),
        }
    }

    /// Why a sector cannot have what it has, or reads not what they had.
    fn judge(&self, sector: u32, content: Content) -> Option<Why> {
        let of = &self.sectors[sector as usize];
        if of.changes.is_empty() && of.reads.is_empty() {
            return (content != of.base).then_some(Why::Changed { base: of.base, shown: of.shown });
        }
        let changes = of.changes.iter().map(|index| self.effect(*index));
        let effects: Vec<_> = std::iter::once(Effect::base(of.base)).chain(changes).collect();
        let reads: Vec<_> = of.reads.iter().map(|index| self.seen(sector, *index)).collect();
        let change = |at: usize| at.checked_sub(1).map(|at| of.changes[at]);
        let why = |refusal, read: Option<usize>| match (refusal, read) {
            (Refusal::NoChange | Refusal::NoPlace, Some(read)) => {
                Why::ReadNothing { read: of.reads[read], content: reads[read].content }
            }
            (Refusal::NoChange | Refusal::NoPlace, None) => Why::Nothing,
            (Refusal::Lost { seen, durable }, _) => {
                Why::Lost { seen: change(seen), durable: change(durable) }
            }
            (Refusal::NoOrder { one, other }, _) => Why::NoOrder { one: change(one), other: change(other) },
        };
        match Register::of(&effects, &reads) {
            Err((read, refusal)) => Some(why(refusal, read)),
            Ok(register) => register.allows(content).err().map(|refusal| why(refusal, None)),
        }
    }

    fn finding(&self, sector: u32, why: Why, seen: Option<Content>) -> Finding {
        let of = &self.sectors[sector as usize];
        let story = Story {
            sector,
            base: (of.base, of.shown),
            operations: &self.operations,
            durable_before: self.durable_before,
            past: &self.past,
        };
        Finding::new((self.volume, self.restarts), seen, why, &story)
    }
}

#[cfg(test)]
mod tests;
