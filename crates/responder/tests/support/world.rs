//! A cache in front of a directory, both of which lose their power together, and a model of what is in them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fastness_pm_model::{Config, FlushKind, Machine, RecordStyle, Recorder};
use fastness_responder::*;
use fastness_testkit::Rng;

use super::history::{Tree, tree};
use super::{Pm, Power, options, recorder};

/// Names, and contents of files; a file that has lost its names stays for who has it open.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub names: BTreeMap<String, usize>,
    pub contents: Vec<Vec<u8>>,
}

impl Model {
    pub fn create(&mut self, name: &str) -> usize {
        self.contents.push(Vec::new());
        self.names.insert(name.to_owned(), self.contents.len() - 1);
        self.contents.len() - 1
    }

    pub fn write(&mut self, file: usize, offset: usize, data: &[u8]) {
        let content = &mut self.contents[file];
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(data);
    }

    pub fn tree(&self) -> Tree {
        self.names.iter().map(|(name, file)| (name.clone(), self.contents[*file].clone())).collect()
    }
}

/// How the directory fails, until told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failing {
    /// Error number, and one in how many calls.
    pub syncs: Option<(i32, u64)>,
    pub writes: Option<(i32, u64)>,
    pub names: Option<(i32, u64)>,
    /// No file gets longer.
    pub is_full: bool,
}

/// The media, and what decides about them.
pub struct Media {
    pub recorder: Recorder,
    pub backing: MemoryBacking,
    pub power: Arc<Power>,
    pub failing: Arc<Mutex<Failing>>,
    pub chunk_bytes: u64,
    style: RecordStyle,
}

impl Media {
    pub fn new(slots: usize, chunk_bytes: u64, rng: &mut Rng) -> Media {
        let style = rng.pick(&[RecordStyle::NonTemporal, RecordStyle::StoreFlush(FlushKind::Clwb)]);
        let image = recorder(slots, chunk_bytes as usize).image();
        let media = Media {
            recorder: Recorder::new(image, style),
            backing: MemoryBacking::default(),
            power: Arc::default(),
            failing: Arc::default(),
            chunk_bytes,
            style,
        };
        media.connect(rng.next());
        media
    }

    /// Puts the directory on the power supply.
    fn connect(&self, seed: u64) {
        let (power, failing) = (self.power.clone(), self.failing.clone());
        let rng = Mutex::new(Rng(seed));
        self.backing.set_hook(move |call| {
            let mut rng = rng.lock().unwrap();
            let refuse = |rng: &mut Rng, errno| {
                if rng.one_in(3) { Verdict::DoAndRefuse(errno) } else { Verdict::Refuse(errno) }
            };
            let was_off = power.is_off();
            if call == Call::Read {
                return if was_off { Verdict::Refuse(5) } else { Verdict::Do };
            }
            if !power.event() {
                return if was_off { Verdict::Refuse(5) } else { refuse(&mut rng, 5) };
            }
            let failing = *failing.lock().unwrap();
            let fault = match call {
                // Now and then there is a little room.
                Call::Write { len, grows } if failing.is_full && grows > 0 => {
                    let room = if rng.one_in(3) { rng.index(200) } else { 0 };
                    return Verdict::DoSome(len.saturating_sub(grows as usize) + room);
                }
                Call::Write { .. } | Call::Truncate => failing.writes,
                Call::Sync => failing.syncs,
                _ => failing.names,
            };
            match fault {
                Some((errno, nth)) if rng.one_in(nth) => refuse(&mut rng, errno),
                _ => Verdict::Do,
            }
        });
    }

    pub fn create(&self) -> Cache<Pm> {
        let region = Pm::whole(&self.recorder, &self.power);
        Cache::create(region, Arc::new(self.backing.clone()), &options(self.chunk_bytes)).unwrap()
    }

    pub fn open(&self) -> Result<(Cache<Pm>, Recovered), Error> {
        let region = Pm::whole(&self.recorder, &self.power);
        Cache::open(region, Arc::new(self.backing.clone()), &options(self.chunk_bytes))
    }

    /// What the power cut leaves; the power is back.
    pub fn crash(&mut self, rng: &mut Rng) {
        let trace = self.recorder.trace();
        let mut machine = Machine::new(trace.initial, Config::default());
        trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
        let (nth, mut seen, mut image) = (1 + rng.index(6), 0, machine.persistent_image().to_vec());
        machine.sample_crash_images(rng.next(), nth, &mut |found| {
            seen += 1;
            if seen == nth {
                image = found.to_vec();
            }
            ControlFlow::Continue(())
        });
        self.recorder = Recorder::new(image, self.style);
        let (all, odds) = (rng.one_in(4), 1 + rng.below(3));
        self.backing = self.backing.crashed(|| all || !rng.one_in(1 + odds));
        self.power.turn_on();
        *self.failing.lock().unwrap() = Failing::default();
        self.connect(rng.next());
    }

    /// A crash, and recoveries until one of them ends, one in `one_in` of which is cut off within `events`;
    /// what the cache then has, and how many crashes that were.
    pub fn recover(&mut self, rng: &mut Rng, one_in: u64, events: u64) -> (Cache<Pm>, Recovered, Tree, u64) {
        let mut crashes = 0;
        loop {
            crashes += 1;
            self.crash(rng);
            if rng.one_in(one_in) {
                self.power.cut_in(1 + rng.below(events));
            }
            match self.open() {
                Ok((cache, recovered)) if !self.power.is_off() => {
                    self.power.turn_on();
                    assert_eq!(recovered.orphaned_chunks, 0, "{recovered:?}");
                    let found = tree(&cache, &self.backing).unwrap();
                    return (cache, recovered, found, crashes);
                }
                result => assert!(self.power.is_off(), "{result:?}"),
            }
        }
    }

    /// Looks at something while the directory does not fail.
    pub fn quietly<T>(&self, look: impl FnOnce() -> T) -> T {
        let failing = std::mem::take(&mut *self.failing.lock().unwrap());
        let seen = look();
        *self.failing.lock().unwrap() = failing;
        seen
    }
}

/// Runs a simulation with each seed of `FASTNESS_RESPONDER_SEEDS=FROM..TO`, or else with the first `count`;
/// how many seeds those were.
pub fn simulate(count: u64, mut run: impl FnMut(u64)) -> u64 {
    let seeds = match std::env::var("FASTNESS_RESPONDER_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("FASTNESS_RESPONDER_SEEDS=FROM..TO");
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => 0..count,
    };
    for seed in seeds.clone() {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            let text = fastness_base::panic_text(&*panic);
            panic!("FASTNESS_RESPONDER_SEEDS={seed}..{}: {text}", seed + 1);
        }
    }
    seeds.end - seeds.start
}

/// Where an atomic part of a write ends.
pub fn ends_of_parts(offset: usize, len: usize, chunk_bytes: usize, slots: usize) -> Vec<usize> {
    let most = slots.min(if super::is_in_place() { 16 } else { 256 });
    let mut ends = Vec::new();
    let mut here = offset;
    while here < offset + len {
        here = ((here / chunk_bytes + most) * chunk_bytes).min(offset + len);
        ends.push(here - offset);
    }
    ends
}

pub fn path(name: &str) -> &Path {
    Path::new(name)
}
