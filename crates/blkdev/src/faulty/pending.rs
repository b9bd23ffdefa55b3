//! What is acknowledged but not durable, and the states of it that a crash may leave.
//!
//! Model: between two flushes a device may write each tear unit (a sector) of each write to the medium or
//! not, in any order. A unit therefore ends as its durable contents or as any version written since,
//! independently of all other units, and the allowed states are the product of these choices. A FUA write
//! makes its bytes durable and leaves other choices open.

use std::collections::{BTreeMap, BTreeSet};

use crate::faulty::rng::Rng;
use crate::mem::MemImage;

/// One version of a unit.
#[derive(Debug, Clone)]
struct Version {
    write: u64,
    bytes: Box<[u8]>,
}

#[derive(Debug, Clone)]
struct Unit {
    durable: Box<[u8]>,
    versions: Vec<Version>,
}

impl Unit {
    /// What the unit may hold after a crash, without duplicates, the durable contents first.
    fn choices(&self) -> Vec<&[u8]> {
        let mut choices: Vec<&[u8]> = vec![&self.durable];
        for version in &self.versions {
            if !choices.contains(&&*version.bytes) {
                choices.push(&version.bytes);
            }
        }
        choices
    }

    fn newest(&self) -> &[u8] {
        self.versions.last().map_or(&self.durable, |version| &version.bytes)
    }
}

/// Writes that a crash may lose.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    tear_bytes: u64,
    units: BTreeMap<u64, Unit>,
    next_write: u64,
}

/// Which states to enumerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashScope {
    /// All states that the model allows, each once: every tear unit on its own.
    Units,
    /// Each write whole or not at all, later ones over earlier ones: fewer, 2^writes, and some of them equal.
    Writes,
}

/// What an enumeration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerated {
    /// Number of states shown.
    pub states: u64,
    /// Whether these are all; otherwise they are a sample, drawn with the seeds from 0 on.
    pub is_complete: bool,
}

impl Pending {
    pub(crate) fn new(tear_bytes: u64) -> Pending {
        Pending { tear_bytes, units: BTreeMap::new(), next_write: 0 }
    }

    /// Notes that everything written so far is durable.
    pub(crate) fn clear(&mut self) {
        self.units.clear();
    }

    pub(crate) fn tear_bytes(&self) -> u64 {
        self.tear_bytes
    }

    pub(crate) fn len_units(&self) -> usize {
        self.units.len()
    }

    /// Notes a change from `old` to `new` at `offset`; both start and end at unit borders (or the device's
    /// end).
    pub(crate) fn record(&mut self, offset: u64, old: &[u8], new: &[u8]) {
        let (write, tear) = (self.next_write, self.tear_bytes);
        self.next_write += 1;
        let step = usize::try_from(tear).expect("a power of two of 32 bits");
        for (index, (old, new)) in (offset / tear..).zip(old.chunks(step).zip(new.chunks(step))) {
            let unit =
                self.units.entry(index).or_insert_with(|| Unit { durable: old.into(), versions: Vec::new() });
            if unit.newest() != new {
                unit.versions.push(Version { write, bytes: new.into() });
            }
            if unit.versions.is_empty() {
                self.units.remove(&index);
            }
        }
    }

    /// Notes that `data` at `offset` is durable, whatever the rest of the units is.
    pub(crate) fn settle(&mut self, offset: u64, data: &[u8]) {
        let (tear, end) = (self.tear_bytes, offset + data.len() as u64);
        for index in offset / tear..end.div_ceil(tear) {
            let start = index * tear;
            let from = usize::try_from(start.max(offset) - offset).expect("inside of the data");
            let within = usize::try_from(start.max(offset) - start).expect("inside of a unit");
            let Some(unit) = self.units.get_mut(&index) else { continue };
            let len = (unit.durable.len() - within).min(data.len() - from);
            let part = &data[from..from + len];
            unit.durable[within..within + len].copy_from_slice(part);
            for version in &mut unit.versions {
                version.bytes[within..within + len].copy_from_slice(part);
            }
            if unit.choices().len() == 1 {
                self.units.remove(&index);
            }
        }
    }

    /// One allowed state, as changes to the newest contents: (offset, bytes). The seed also chooses how
    /// extreme it is.
    pub(crate) fn crash(&self, seed: u64) -> Vec<(u64, &[u8])> {
        let mut rng = Rng::of(seed, 0xc4a5, 0);
        match rng.below(6) {
            0 => self.pick(|unit| &unit.durable),
            1 => self.pick(Unit::newest),
            2 => self.whole_writes(&mut rng),
            3 => self.prefix(&mut rng),
            4 => self.all_but_one(&mut rng),
            _ => self.pick(|unit| {
                let choices = unit.choices();
                choices[rng.below(choices.len())]
            }),
        }
    }

    /// Calls `show` with allowed states until all or `limit` were shown.
    pub(crate) fn for_each(
        &self,
        scope: CrashScope,
        limit: u64,
        newest: &MemImage,
        show: &mut dyn FnMut(&MemImage),
    ) -> Enumerated {
        match scope {
            CrashScope::Units => self.for_each_choice(limit, newest, show),
            CrashScope::Writes => self.for_each_subset(limit, newest, show),
        }
    }

    fn pick<'a>(&'a self, mut choose: impl FnMut(&'a Unit) -> &'a [u8]) -> Vec<(u64, &'a [u8])> {
        self.units.iter().map(|(index, unit)| (index * self.tear_bytes, choose(unit))).collect()
    }

    fn writes(&self) -> Vec<u64> {
        let all = self.units.values().flat_map(|unit| &unit.versions).map(|version| version.write);
        all.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Each write whole or not at all, in a random order.
    fn whole_writes(&self, rng: &mut Rng) -> Vec<(u64, &[u8])> {
        let mut writes = self.writes();
        rng.shuffle(&mut writes);
        let applied: BTreeMap<u64, usize> =
            writes.into_iter().enumerate().filter(|_| rng.coin()).map(|(at, write)| (write, at)).collect();
        self.pick(|unit| {
            let last =
                unit.versions.iter().filter_map(|version| Some((applied.get(&version.write)?, version)));
            last.max_by_key(|(at, _)| **at).map_or(&*unit.durable, |(_, version)| &version.bytes)
        })
    }

    /// All writes before some write, and any units of that one.
    fn prefix(&self, rng: &mut Rng) -> Vec<(u64, &[u8])> {
        let writes = self.writes();
        let Some(&cut) = writes.get(rng.below(writes.len().max(1))) else { return Vec::new() };
        self.pick(|unit| {
            let mut applied = unit
                .versions
                .iter()
                .filter(|version| version.write < cut || version.write == cut && rng.coin());
            applied.next_back().map_or(&*unit.durable, |version| &version.bytes)
        })
    }

    /// All units except one: the state that careless recovery is least prepared for.
    fn all_but_one(&self, rng: &mut Rng) -> Vec<(u64, &[u8])> {
        let lost = rng.below(self.units.len().max(1));
        let mut at = 0;
        self.pick(|unit| {
            at += 1;
            if at == lost + 1 { &unit.durable } else { unit.newest() }
        })
    }

    fn for_each_choice(&self, limit: u64, newest: &MemImage, show: &mut dyn FnMut(&MemImage)) -> Enumerated {
        let choices: Vec<(u64, Vec<&[u8]>)> =
            self.units.iter().map(|(index, unit)| (index * self.tear_bytes, unit.choices())).collect();
        let total = choices.iter().try_fold(1u64, |total, (_, some)| total.checked_mul(some.len() as u64));
        if total.is_none_or(|total| total > limit) {
            return self.sample(limit, newest, show);
        }
        let mut image = newest.clone();
        for (offset, some) in &choices {
            image.write(*offset, some[0]);
        }
        let mut digits = vec![0; choices.len()];
        let mut states = 0;
        loop {
            show(&image);
            states += 1;
            // Count up in a number system in which each unit is a digit.
            let mut position = 0;
            loop {
                let Some((offset, some)) = choices.get(position) else {
                    return Enumerated { states, is_complete: true };
                };
                digits[position] = (digits[position] + 1) % some.len();
                image.write(*offset, some[digits[position]]);
                if digits[position] != 0 {
                    break;
                }
                position += 1;
            }
        }
    }

    fn for_each_subset(&self, limit: u64, newest: &MemImage, show: &mut dyn FnMut(&MemImage)) -> Enumerated {
        let writes = self.writes();
        if writes.len() >= 63 || 1u64 << writes.len() > limit {
            return self.sample(limit, newest, show);
        }
        for subset in 0..1u64 << writes.len() {
            let is_applied = |write: u64| {
                let bit = writes.binary_search(&write).expect("every write is listed");
                subset >> bit & 1 == 1
            };
            let mut image = newest.clone();
            for (offset, bytes) in self.pick(|unit| {
                let applied = unit.versions.iter().rfind(|version| is_applied(version.write));
                applied.map_or(&*unit.durable, |version| &version.bytes)
            }) {
                image.write(offset, bytes);
            }
            show(&image);
        }
        Enumerated { states: 1 << writes.len(), is_complete: true }
    }

    fn sample(&self, limit: u64, newest: &MemImage, show: &mut dyn FnMut(&MemImage)) -> Enumerated {
        for seed in 0..limit {
            let mut image = newest.clone();
            for (offset, bytes) in self.crash(seed) {
                image.write(offset, bytes);
            }
            show(&image);
        }
        Enumerated { states: limit, is_complete: false }
    }
}
