//! Random histories against a model: changes in up to three open txgs, commits of any object, writes past the
//! commit list, txg syncs, suspends, crashes (at any time, also between claim, replay and what follows),
//! imports.
//!
//! After each import and replay: what was acknowledged is there; of the records that touch one object, a
//! prefix in the order in which they were assigned (replay refuses what cannot happen); and nothing that
//! never happened.

#[macro_use]
mod support;

use fastness_zil::*;
use proptest::prelude::*;
use support::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The object of a volume, only written past the commit list.
const VOLUME: u64 = 50;
const VOLUME_BYTES: usize = 96;

#[derive(Debug, Clone)]
enum Step {
    Create(usize),
    Remove(usize),
    Write { name: usize, at: usize, len: usize },
    WriteWithoutCopy { name: usize, at: usize, len: usize },
    Truncate { name: usize, len: usize },
    Commit(usize),
    CommitAll,
    VolumeWrite { at: usize, len: usize },
    Flush,
    OpenTxg,
    Sync,
    Suspend,
    Idle,
    Crash { partial: Option<u64>, again: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    prop_oneof![
        6 => name.clone().prop_map(Step::Create),
        2 => name.clone().prop_map(Step::Remove),
        12 => (name.clone(), 0..40usize, 1..120usize).prop_map(|(name, at, len)| Step::Write { name, at, len }),
        6 => (name.clone(), 0..40usize, 1..120usize)
            .prop_map(|(name, at, len)| Step::WriteWithoutCopy { name, at, len }),
        2 => (name.clone(), 0..60usize).prop_map(|(name, len)| Step::Truncate { name, len }),
        8 => name.prop_map(Step::Commit),
        2 => Just(Step::CommitAll),
        8 => (0..VOLUME_BYTES - 40, 1..40usize).prop_map(|(at, len)| Step::VolumeWrite { at, len }),
        3 => Just(Step::Flush),
        4 => Just(Step::OpenTxg),
        4 => Just(Step::Sync),
        1 => Just(Step::Suspend),
        4 => Just(Step::Idle),
        2 => (prop::option::of(1..4u64), any::<bool>())
            .prop_map(|(partial, again)| Step::Crash { partial, again }),
    ]
}

/// A change since the last crash, in the order of assignment.
struct Done {
    op: Op,
    is_durable: bool,
}

struct Sim<R: Rig> {
    rig: R,
    world: World<R::Logs>,
    /// State behind the last crash, and what happened since.
    base: Contents,
    done: Vec<Done>,
    next_object: u64,
    next_byte: u8,
}

fn objects_of(op: &Op) -> Vec<u64> {
    match op {
        Op::Create(_, object) | Op::Remove(_, object) | Op::Rename(_, _, object) => vec![ROOT.0, *object],
        Op::Write(object, ..) | Op::Truncate(object, _) | Op::Zeroes(object, ..) => vec![*object],
    }
}

fn is_sync(op: &Op) -> bool {
    matches!(op, Op::Create(..) | Op::Remove(..) | Op::Rename(..))
}

impl<R: Rig> Sim<R> {
    fn new() -> Self {
        let rig = R::tight();
        let base = Contents::volume(VOLUME, VOLUME_BYTES);
        let world = rig.world(base.clone());
        Self { rig, world, base, done: Vec::new(), next_object: 100, next_byte: 1 }
    }

    fn byte(&mut self) -> u8 {
        self.next_byte = self.next_byte.wrapping_add(1).max(1);
        self.next_byte
    }

    fn object(&self, name: usize) -> Option<u64> {
        self.world.pool.contents(DATASET).names.get(NAMES[name]).copied()
    }

    fn change(&mut self, op: Op) {
        self.world.change(&op);
        self.done.push(Done { op, is_durable: false });
    }

    /// A commit has returned: what it covers, and what that depends on, is acknowledged.
    fn committed(&mut self, object: u64) {
        let mut needed = std::collections::HashSet::from([object]);
        for done in self.done.iter_mut().rev() {
            let objects = objects_of(&done.op);
            let is_log_list = !objects.contains(&VOLUME);
            if is_log_list
                && (object == 0 || is_sync(&done.op) || objects.iter().any(|object| needed.contains(object)))
            {
                needed.extend(objects);
                done.is_durable = true;
            }
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Create(name) if self.object(name).is_none() => {
                self.next_object += 1;
                self.change(Op::Create(NAMES[name], self.next_object));
            }
            Step::Remove(name) => {
                if let Some(object) = self.object(name) {
                    self.change(Op::Remove(NAMES[name], object));
                    self.world.zil.forget(ObjectId(object));
                }
            }
            Step::Write { name, at, len } => {
                if let Some(object) = self.object(name) {
                    let data = vec![self.byte(); len];
                    self.change(Op::Write(object, at, data));
                }
            }
            Step::WriteWithoutCopy { name, at, len } => {
                if let Some(object) = self.object(name) {
                    let data = vec![self.byte(); len];
                    self.world.change_without_copy(object, at, &data);
                    self.done.push(Done { op: Op::Write(object, at, data), is_durable: false });
                }
            }
            Step::Truncate { name, len } => {
                if let Some(object) = self.object(name) {
                    self.change(Op::Truncate(object, len));
                }
            }
            Step::Commit(name) => {
                let object = self.object(name).unwrap_or(u64::MAX);
                self.world.zil.commit(ObjectId(object)).unwrap();
                self.committed(object);
            }
            Step::CommitAll => {
                self.world.zil.commit(ObjectId::NONE).unwrap();
                self.committed(0);
            }
            Step::VolumeWrite { at, len } => {
                let data = vec![self.byte(); len];
                let (_, is_logged) = self.world.volume_write(VOLUME, at, &data);
                let is_durable = is_logged && self.world.zil.kind().writes_alone();
                self.done.push(Done { op: Op::Write(VOLUME, at, data), is_durable });
            }
            Step::Flush => {
                self.world.zil.flush().unwrap();
                let of_volume = |done: &&mut Done| objects_of(&done.op) == [VOLUME];
                self.done.iter_mut().filter(of_volume).for_each(|done| done.is_durable = true);
            }
            Step::OpenTxg => self.world.pool.open_next(),
            Step::Sync => self.world.pool.sync(),
            Step::Suspend => {
                self.world.zil.kind().suspend(&self.world.pool).unwrap();
                self.world.zil.kind().resume(&self.world.pool).unwrap();
            }
            Step::Idle => {
                self.world.zil.kind().witness();
            }
            Step::Crash { partial, again } => self.crash(partial, again),
            Step::Create(_) => {}
        }
    }

    fn import(&mut self) {
        self.rig = self.rig.crashed();
        self.world = self.rig.import(self.world.pool.disk()).unwrap();
    }

    fn crash(&mut self, partial: Option<u64>, again: bool) {
        self.import();
        if again {
            self.import();
        }
        if let Some(refuses) = partial {
            // A replay that stops, whose part becomes durable or not, and another crash.
            let mut apply = Apply { refuses: Some(refuses), ..Apply::new(&self.world.pool, DATASET) };
            let _ = self.world.zil.kind().replay(&self.world.pool, &mut apply);
            if again {
                self.world.pool.sync();
            }
            self.import();
        }
        self.world.replay().unwrap();
        self.check();
        self.world.pool.sync();
        self.base = self.world.pool.contents(DATASET);
        self.done.clear();
    }

    /// The state is explained by all that is durable and, of the objects' other changes, a prefix for each.
    fn check(&self) {
        let found = self.world.pool.contents(DATASET);
        // What was synced or committed beyond what had to be shows in the state; greedily take the longest
        // prefixes that explain it, object by object: contents first, as names and contents are made by one
        // list.
        let sync_ops: Vec<usize> = (0..self.done.len()).filter(|&i| is_sync(&self.done[i].op)).collect();
        let must = sync_ops.iter().rposition(|&i| self.done[i].is_durable).map_or(0, |last| last + 1);
        let explains = (must..=sync_ops.len()).any(|names| self.is_explained(&found, &sync_ops[..names]));
        assert!(
            explains,
            "{found:?}\nis not explained by {:?}",
            self.done.iter().map(|d| (&d.op, d.is_durable)).collect::<Vec<_>>()
        );
    }

    fn is_explained(&self, found: &Contents, names: &[usize]) -> bool {
        let mut contents = self.base.clone();
        for &name in names {
            // Contents are judged below; here only which objects there are.
            if contents.apply(&self.done[name].op).is_err() {
                return false;
            }
        }
        if contents.names != found.names || !contents.objects.keys().eq(found.objects.keys()) {
            return false;
        }
        found.objects.iter().all(|(object, bytes)| {
            let ops: Vec<&Done> = self
                .done
                .iter()
                .filter(|done| !is_sync(&done.op) && objects_of(&done.op)[0] == *object)
                .collect();
            let start = self.base.objects.get(object).cloned().unwrap_or_default();
            if *object == VOLUME {
                volume_is_explained(&start, &ops, bytes)
            } else {
                prefix_explains(&start, &ops, bytes)
            }
        })
    }
}

fn prefix_explains(start: &[u8], ops: &[&Done], found: &[u8]) -> bool {
    let must = ops.iter().rposition(|done| done.is_durable).map_or(0, |last| last + 1);
    let of = |count: usize| {
        let mut contents = Contents { objects: [(0, start.to_vec())].into(), ..Contents::default() };
        for done in &ops[..count] {
            let op = match &done.op {
                Op::Write(_, at, data) => Op::Write(0, *at, data.clone()),
                Op::Truncate(_, len) => Op::Truncate(0, *len),
                other => panic!("{other:?}"),
            };
            contents.apply(&op).unwrap();
        }
        contents.objects.remove(&0).unwrap()
    };
    (must..=ops.len()).any(|count| of(count) == found)
}

/// What is durable in its order; of the rest any part, and so each byte is of a write that may be its last.
fn volume_is_explained(start: &[u8], ops: &[&Done], found: &[u8]) -> bool {
    (0..start.len()).all(|at| {
        let covers = |done: &&&Done| matches!(&done.op, Op::Write(_, from, data) if (*from..from + data.len()).contains(&at));
        let byte = |done: &Done| if let Op::Write(_, _, data) = &done.op { data[0] } else { 0 };
        let writers: Vec<&&Done> = ops.iter().filter(covers).collect();
        let from = writers.iter().rposition(|done| done.is_durable);
        let allowed = writers[from.unwrap_or(0)..].iter().any(|done| byte(done) == found[at]);
        allowed || (from.is_none() && found[at] == start[at])
    })
}

fn histories_with_crashes_lose_nothing_that_was_acknowledged<R: Rig>() {
    let config = ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..120))| {
        let mut sim = Sim::<R>::new();
        steps.iter().for_each(|step| sim.run(step));
        sim.crash(None, false);
        let refusal = sim.world.zil.kind().refusal();
        // The block log may find no room for a new chain beside those that are not free yet.
        prop_assert!(matches!(refusal, None | Some(LogCause::NoRoom)), "{:?}", refusal);
    });
}

on_each_kind! { histories_with_crashes_lose_nothing_that_was_acknowledged }
