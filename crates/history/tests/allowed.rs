//! A device that takes every liberty that it may: requests take effect sector by sector at any
//! moment while they are under way, a flush makes durable no more than it must, and a crash takes away what
//! it can. None of that is a finding.

use std::ops::Range;

use fastness_history::stamp::{Place, fill, read};
use fastness_history::{Clock, End, History, Operation, SECTOR_BYTES, What, WriteId};
use fastness_testkit::Rng;

const SECTORS: u32 = 24;
const SEED: u32 = 5;

/// What happened to a sector, in the order in which it did.
#[derive(Clone)]
struct Sector {
    /// Contents, and the index of the operation that left them.
    effects: Vec<(Vec<u8>, Option<usize>)>,
    /// Of these, the last that is durable.
    durable: usize,
}

struct Device {
    rng: Rng,
    clock: Clock,
    sectors: Vec<Sector>,
    operations: Vec<Operation>,
    /// Under way: the operation, and the sectors where it has not taken effect.
    under_way: Vec<(usize, Vec<u32>)>,
    next: u32,
}

impl Device {
    fn place(sector: u32) -> Place {
        Place { seed: SEED, volume: 0, sector }
    }

    fn range(&mut self) -> Range<u32> {
        let first = self.rng.index(SECTORS as usize) as u32;
        first..(first + 1 + self.rng.index(8) as u32).min(SECTORS)
    }

    fn call(&mut self) {
        let what = match self.rng.index(10) {
            0..5 => What::Write,
            5 => What::Zeroes,
            6 => What::Trim,
            7 => What::Flush,
            _ => What::Read(Vec::new()),
        };
        let sectors = if what == What::Flush { 0..0 } else { self.range() };
        let is_change = matches!(what, What::Write | What::Zeroes | What::Trim);
        let is_sync = is_change && self.rng.index(4) == 0;
        let what = match what {
            What::Read(_) => {
                What::Read(sectors.clone().map(|_| Ok(fastness_history::Content::Zeroes)).collect())
            }
            what => what,
        };
        let id = WriteId { connection: 1, number: self.next };
        self.next += 1;
        let call = self.clock.tick();
        self.under_way.push((self.operations.len(), sectors.clone().collect()));
        self.operations.push(Operation { id, what, sectors, is_sync, call, end: End::Open });
    }

    /// A request that is under way takes effect on a sector, or has its reply.
    fn go_on(&mut self) {
        let at = self.rng.index(self.under_way.len());
        let (index, open) = &mut self.under_way[at];
        let index = *index;
        if open.is_empty() {
            self.under_way.swap_remove(at);
            return self.reply(index);
        }
        let sector = open.swap_remove(self.rng.index(open.len()));
        let operation = &mut self.operations[index];
        let effects = &mut self.sectors[sector as usize].effects;
        match &mut operation.what {
            What::Read(contents) => {
                let bytes = &effects.last().unwrap().0;
                contents[(sector - operation.sectors.start) as usize] = read(bytes, Device::place(sector));
            }
            what => {
                let mut bytes = vec![0; SECTOR_BYTES];
                if *what == What::Write {
                    fill(&mut bytes, operation.id, Device::place(sector));
                }
                effects.push((bytes, Some(index)));
            }
        }
    }

    fn reply(&mut self, index: usize) {
        let (call, is_sync) = (self.operations[index].call, self.operations[index].is_sync);
        let is_flush = self.operations[index].what == What::Flush;
        for sector in &mut self.sectors {
            let is_covered = |of: &Option<usize>| match of {
                Some(of) if is_flush => {
                    matches!(self.operations[*of].end, End::Acknowledged(reply) if reply < call)
                }
                of => is_sync && *of == Some(index),
            };
            if let Some(last) = sector.effects.iter().rposition(|(_, of)| is_covered(of)) {
                sector.durable = sector.durable.max(last);
            }
        }
        let now = self.clock.tick();
        // Now and then it fails, although it was done: for its caller, it may have been done.
        let is_change = !is_flush && !matches!(self.operations[index].what, What::Read(_));
        let fails = is_change && self.rng.index(10) == 0;
        self.operations[index].end = if fails { End::Over(now) } else { End::Acknowledged(now) };
    }

    /// What is left of all sectors.
    fn crash(&mut self) -> Vec<u8> {
        self.under_way.clear();
        let mut left = Vec::new();
        for sector in &mut self.sectors {
            let kept = sector.durable + self.rng.index(sector.effects.len() - sector.durable);
            let bytes = sector.effects[kept].0.clone();
            left.extend_from_slice(&bytes);
            *sector = Sector { effects: vec![(bytes, None)], durable: 0 };
        }
        left
    }
}

fn live(seed: u64) {
    let sector = Sector { effects: vec![(vec![0; SECTOR_BYTES], None)], durable: 0 };
    let mut device = Device {
        rng: Rng(seed),
        clock: Clock::default(),
        sectors: vec![sector; SECTORS as usize],
        operations: Vec::new(),
        under_way: Vec::new(),
        next: 0,
    };
    let mut history = History::new(SEED, 0, u64::from(SECTORS) * SECTOR_BYTES as u64);
    for round in 0..6 {
        let depth = 1 + device.rng.index(6);
        for _ in 0..device.rng.index(400) {
            if device.under_way.len() < depth && device.rng.index(3) == 0 {
                device.call();
            } else if !device.under_way.is_empty() {
                device.go_on();
            }
        }
        let left = device.crash();
        // A read without a reply says nothing.
        let is_told = |operation: &Operation| {
            !matches!((&operation.what, operation.end), (What::Read(_), End::Open | End::Over(_)))
        };
        let told = std::mem::take(&mut device.operations).into_iter().filter(is_told);
        let mut findings = history.add(told.collect());
        history.restart();
        findings.extend(history.look(0, &left));
        let text: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "seed {seed}, round {round}:\n{}", text.join("\n"));
    }
}

#[test]
fn what_is_allowed_is_no_finding() {
    (0..1500).for_each(live);
}
