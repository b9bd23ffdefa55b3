//! The protocol Log: every image that a crash can leave of PM, beside what it leaves of the directory.

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fastness_pm_model::{Budget, Config, FlushKind, Machine, RecordStyle, Recorder, Summary, Trace, explore};
use fastness_responder::*;
use fastness_testkit::Rng;
use support::death::Death;
use support::history::{CHUNK, NT, Tree, Variant, created, open, tree};
use support::possible::{Possible, PossibleTree, allows};
use support::set_protocol;

/// Chunks of the log: three records of up to 512 bytes each.
const CHUNKS: usize = 8;
const BUDGET: Budget = Budget { exhaustive_limit: 300, samples: 12, seed: 1 };

const VARIANTS: [Variant; 2] = [
    Variant { store_bytes: 64, strict_nt: true, ..NT },
    Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), store_bytes: 64, ..NT },
];

type Name = &'static str;

#[derive(Debug, Clone)]
enum Step {
    Create(Name),
    Write(Name, usize, u8, usize),
    WriteSynced(Name, usize, u8, usize),
    Sync(Name),
    Truncate(Name, u64),
    Unlink(Name),
    Rename(Name, Name),
    /// Real syncs, and the log is trimmed.
    Flush,
    /// The same, and while the first real sync is under way, another thread writes to a file and syncs that.
    FlushBeside(Name, usize, u8, usize),
    Reopen,
}

use Step::*;

/// From one mark to the next.
#[derive(Clone)]
struct Moment {
    backing: MemoryBacking,
    allowed: Vec<PossibleTree>,
}

struct History {
    trace: Trace,
    moments: Vec<Moment>,
    /// Operations when each step had returned.
    ends: Vec<usize>,
}

/// Marks each moment at which the directory changes.
#[derive(Clone)]
struct Moments {
    recorder: Recorder,
    backing: MemoryBacking,
    all: Arc<Mutex<Vec<Moment>>>,
}

impl Moments {
    fn begin(&self, allowed: Vec<PossibleTree>) {
        let mut all = self.all.lock().unwrap();
        if let Some(last) = all.last_mut() {
            last.backing = self.backing.copied();
        }
        self.recorder.mark(all.len() as u64);
        all.push(Moment { backing: self.backing.copied(), allowed });
    }

    /// The directory is about to change, or to sync.
    fn go_on(&self) {
        let allowed = self.all.lock().unwrap().last().unwrap().allowed.clone();
        self.begin(allowed);
    }

    fn watch(&self) {
        let moments = self.clone();
        self.backing.set_hook(move |call| {
            if call != Call::Read {
                moments.go_on();
            }
            Verdict::Do
        });
    }

    fn end(self) -> Vec<Moment> {
        self.backing.set_hook(|_| Verdict::Do);
        let mut all = std::mem::take(&mut *self.all.lock().unwrap());
        all.last_mut().unwrap().backing = self.backing.copied();
        all
    }
}

fn start(recorder: &Recorder, backing: &MemoryBacking, allowed: Vec<PossibleTree>) -> Moments {
    let moments = Moments {
        recorder: recorder.clone(),
        backing: backing.clone(),
        all: Arc::new(Mutex::new(Vec::new())),
    };
    moments.begin(allowed);
    moments.watch();
    moments
}

fn certain(tree: &Tree) -> PossibleTree {
    tree.iter().map(|(name, content)| (name.clone(), Possible::certain(content))).collect()
}

struct Run {
    recorder: Recorder,
    backing: MemoryBacking,
    cache: Option<Arc<Cache<support::Pm>>>,
    handles: BTreeMap<Name, Handle>,
    now: PossibleTree,
}

impl Run {
    fn cache(&self) -> &Arc<Cache<support::Pm>> {
        self.cache.as_ref().unwrap()
    }

    fn open(&mut self, name: Name, create: bool) {
        let handle = self.cache().open_file(Path::new(name), create.then_some(0o600), 0).unwrap();
        self.handles.insert(name, handle);
    }

    fn file(&mut self, name: Name) -> &mut Possible {
        self.now.entry(name.to_owned()).or_default()
    }

    fn step(&mut self, step: &Step, moments: &Moments) {
        let before = self.now.clone();
        match *step {
            Create(name) => drop(self.file(name)),
            Write(name, at, byte, len) => self.file(name).write(at, &vec![byte; len]),
            WriteSynced(name, at, byte, len) | FlushBeside(name, at, byte, len) => {
                self.file(name).write_synced(at, &vec![byte; len]);
            }
            Sync(name) => self.file(name).sync(),
            Truncate(name, size) => self.file(name).truncate(size as usize),
            Unlink(name) => drop(self.now.remove(name)),
            Rename(from, to) => {
                let moved = self.now.remove(from).unwrap();
                self.now.insert(to.to_owned(), moved);
            }
            Flush => self.now.values_mut().for_each(Possible::sync),
            Reopen => {}
        }
        let mut allowed = vec![before.clone(), self.now.clone()];
        if let WriteSynced(name, at, byte, len) | FlushBeside(name, at, byte, len) = *step {
            // It is in the page cache, and in no record yet.
            let mut unsynced = before;
            unsynced.entry(name.to_owned()).or_default().write(at, &vec![byte; len]);
            allowed.push(unsynced);
        } else if let Truncate(name, size) = *step {
            // It is cut, and what stays of it is not synced yet.
            let mut unsynced = before;
            unsynced.entry(name.to_owned()).or_default().resize(size as usize);
            allowed.push(unsynced);
        }
        moments.begin(allowed);
        match *step {
            Create(name) => self.open(name, true),
            Write(name, at, byte, len) => {
                self.cache().write(&self.handles[name], at as u64, &vec![byte; len]).unwrap();
            }
            WriteSynced(name, at, byte, len) => {
                self.cache().write_synced(&self.handles[name], at as u64, &vec![byte; len]).unwrap();
            }
            Sync(name) => self.cache().sync(&self.handles[name]).unwrap(),
            Truncate(name, size) => self.cache().truncate(&self.handles[name], size).unwrap(),
            Unlink(name) => {
                let handle = self.handles.remove(name).unwrap();
                self.cache().close(handle).unwrap();
                self.cache().unlink(Path::new(name)).unwrap();
            }
            Rename(from, to) => {
                if let Some(replaced) = self.handles.remove(to) {
                    self.cache().close(replaced).unwrap();
                }
                self.cache().rename(Path::new(from), Path::new(to)).unwrap();
                let moved = self.handles.remove(from).unwrap();
                self.handles.insert(to, moved);
            }
            Flush => self.cache().flush().unwrap(),
            FlushBeside(name, at, byte, len) => self.flush_beside(name, at, &vec![byte; len], moments),
            Reopen => {
                self.handles.clear();
                self.cache = None;
                self.cache = Some(Arc::new(open(&self.recorder, &self.backing).unwrap().0));
                let names: Vec<Name> = self.now.keys().map(|name| &*name.clone().leak()).collect();
                names.into_iter().for_each(|name| self.open(name, false));
                // The recovery may have made durable what was not; what is there now is what counts.
                self.now = certain(&tree(self.cache(), &self.backing).unwrap());
            }
        }
        moments.begin(vec![self.now.clone()]);
    }

    fn flush_beside(&self, name: Name, at: usize, data: &[u8], moments: &Moments) {
        let (cache, watch) = (Arc::clone(self.cache()), moments.clone());
        let is_first = Arc::new(Mutex::new(true));
        std::thread::scope(|scope| {
            let handle = &self.handles[name];
            let (send, receive) = std::sync::mpsc::channel::<()>();
            let (done, is_done) = std::sync::mpsc::channel::<()>();
            let gate = Mutex::new((send, is_done));
            self.backing.set_hook(move |call| {
                if call != Call::Read {
                    watch.go_on();
                }
                if call == Call::Sync && std::mem::take(&mut *is_first.lock().unwrap()) {
                    let gate = gate.lock().unwrap();
                    gate.0.send(()).unwrap();
                    gate.1.recv().unwrap();
                }
                Verdict::Do
            });
            let beside = scope.spawn(move || {
                receive.recv().unwrap();
                cache.write_synced(handle, at as u64, data).unwrap();
                done.send(()).unwrap();
            });
            self.cache().flush().unwrap();
            beside.join().unwrap();
        });
        moments.watch();
    }
}

fn run(names: &[Name], steps: &[Step], variant: Variant) -> History {
    set_protocol(ProtocolKind::Log);
    let (recorder, backing) = created(CHUNKS, names, variant);
    run_on(&recorder, &backing, steps)
}

fn run_on(recorder: &Recorder, backing: &MemoryBacking, steps: &[Step]) -> History {
    let cache = Arc::new(open(recorder, backing).unwrap().0);
    let now = certain(&tree(&cache, backing).unwrap());
    let names: Vec<Name> = now.keys().map(|name| &*name.clone().leak()).collect();
    let moments = start(recorder, backing, vec![now.clone()]);
    let (recorder, backing) = (recorder.clone(), backing.clone());
    let mut run = Run { recorder, backing, cache: Some(cache), handles: BTreeMap::new(), now };
    names.into_iter().for_each(|name| run.open(name, false));
    let mut ends = Vec::new();
    for step in steps {
        run.step(step, &moments);
        ends.push(run.recorder.op_count());
    }
    let trace = run.recorder.trace();
    drop(run);
    History { trace, moments: moments.end(), ends }
}

fn below(backing: &MemoryBacking) -> Tree {
    let name = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    backing.contents().into_iter().map(|(path, content)| (name(path), content)).collect()
}

/// Checks what one crash has left.
fn check(image: &[u8], backing: &MemoryBacking, allowed: &[PossibleTree]) -> Result<(), String> {
    let text = |error: Error| format!("{error}: {error:?}");
    let recorder = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
    let (cache, recovered) = open(&recorder, backing).map_err(text)?;
    if recovered.orphaned_chunks > 0 {
        return Err(format!("orphans: {recovered:?}"));
    }
    let found = tree(&cache, backing).map_err(text)?;
    if !allows(allowed, &found) {
        return Err(format!("found {found:x?}, allowed {allowed:x?}"));
    }
    drop(cache);
    // The recovery has made all of it durable; another one finds nothing to do.
    let backing = backing.crashed(|| false);
    if below(&backing) != found {
        return Err(format!("after the recovery the directory has {:x?}, not {found:x?}", below(&backing)));
    }
    let (cache, recovered) = open(&recorder, &backing).map_err(text)?;
    if recovered != Recovered::default() || tree(&cache, &backing).map_err(text)? != found {
        return Err(format!("the second recovery found something else: {recovered:?}"));
    }
    Ok(())
}

fn check_all(image: &[u8], moment: &Moment) -> Result<(), String> {
    for seed in 0..4 {
        let mut rng = Rng(seed);
        let survives = || match seed {
            0 => false,
            1 => true,
            _ => rng.one_in(2),
        };
        check(image, &moment.backing.crashed(survives), &moment.allowed)?;
    }
    Ok(())
}

fn violation(trace: &Trace, moments: &[Moment], variant: Variant) -> (Option<String>, Summary) {
    let mut violation = None;
    let config = Config { strict_nt: variant.strict_nt, ..Config::default() };
    let summary = explore(trace, &config, BUDGET, &mut |point| {
        let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
        match check_all(point.image, &moments[mark as usize]) {
            Ok(()) => ControlFlow::Continue(()),
            Err(found) => {
                violation = Some(format!("at operation {}, moment {mark}: {found}", point.op_index));
                ControlFlow::Break(())
            }
        }
    });
    (violation, summary.unwrap())
}

fn survive(names: &[Name], steps: &[Step]) {
    for variant in VARIANTS {
        let history = run(names, steps, variant);
        let (violation, summary) = violation(&history.trace, &history.moments, variant);
        assert_eq!(violation, None, "{variant:?}");
        assert!(summary.images > 100, "{summary:?}: the history explores next to nothing");
    }
}

/// One range, several, none; and what is overwritten in between.
#[test]
fn syncs_survive_every_crash() {
    survive(
        &["a"],
        &[
            Write("a", 0, 1, 100),
            Sync("a"),
            Write("a", 40, 2, 20),
            Write("a", 200, 3, 50),
            Sync("a"),
            Sync("a"),
            Write("a", 10, 4, 5),
            WriteSynced("a", 45, 5, 10),
            Write("a", 45, 6, 200),
            WriteSynced("a", 300, 7, 8),
        ],
    );
}

/// A sync that no record can hold is real; the records before it do not come back over it.
#[test]
fn real_syncs_survive_every_crash() {
    survive(
        &["a"],
        &[
            WriteSynced("a", 0, 1, 300),
            Write("a", 0, 2, 900),
            Sync("a"),
            WriteSynced("a", 100, 3, 10),
            Write("a", 105, 4, 1),
            Sync("a"),
        ],
    );
}

#[test]
fn trims_survive_every_crash() {
    survive(
        &["a", "b"],
        &[
            WriteSynced("a", 0, 1, 100),
            Write("a", 50, 2, 100),
            WriteSynced("b", 0, 3, 10),
            Flush,
            WriteSynced("a", 20, 4, 10),
            Write("b", 5, 5, 10),
            Sync("b"),
            FlushBeside("b", 7, 6, 100),
            WriteSynced("a", 0, 7, 30),
        ],
    );
}

/// More than the log holds: syncs make room.
#[test]
fn a_full_log_survives_every_crash() {
    let mut steps = Vec::new();
    for round in 0..9 {
        steps.push(Write("a", 64 * round, 10 + round as u8, 400));
        steps.push(Sync("a"));
        if round % 3 == 0 {
            steps.push(WriteSynced("b", 10, 30 + round as u8, 100));
        }
    }
    survive(&["a", "b"], &steps);
}

#[test]
fn truncations_survive_every_crash() {
    survive(
        &["a"],
        &[
            WriteSynced("a", 0, 1, 150),
            Truncate("a", 70),
            Write("a", 140, 2, 4),
            Sync("a"),
            Truncate("a", 0),
            WriteSynced("a", 60, 3, 8),
            Truncate("a", 300),
            Reopen,
            WriteSynced("a", 2, 4, 1),
        ],
    );
}

#[test]
fn removals_survive_every_crash() {
    survive(
        &["a", "b"],
        &[
            WriteSynced("a", 0, 1, 100),
            WriteSynced("b", 0, 2, 30),
            Rename("b", "a"),
            WriteSynced("a", 10, 3, 30),
            Unlink("a"),
            Create("a"),
            WriteSynced("a", 5, 4, 10),
            Create("b"),
            Write("b", 0, 5, 70),
            Flush,
            Unlink("b"),
        ],
    );
}

/// The directory may have lost the files: what was synced goes to those that are made in their place.
#[test]
fn new_files_and_what_was_synced_survive_every_crash() {
    survive(
        &["a"],
        &[
            Create("n"),
            Write("n", 0, 1, 100),
            Sync("n"),
            Write("n", 60, 2, 30),
            Create("m"),
            WriteSynced("m", 5, 3, 20),
            Rename("m", "a"),
            WriteSynced("a", 10, 4, 40),
            Truncate("n", 70),
            WriteSynced("n", 80, 5, 10),
            Unlink("a"),
            Flush,
            WriteSynced("n", 0, 6, 5),
        ],
    );
}

/// A recovery that is interrupted at any moment, and the next one.
#[test]
fn interrupted_recoveries_survive_every_crash() {
    let steps = [
        WriteSynced("a", 0, 1, 100),
        Write("a", 80, 2, 100),
        Sync("a"),
        WriteSynced("b", 5, 3, 20),
        Truncate("a", 50),
        Unlink("b"),
        WriteSynced("a", 10, 4, 90),
    ];
    interrupt_recoveries(&["a", "b"], &steps);
}

/// The same of files that the directory has lost.
#[test]
fn interrupted_recoveries_of_new_files_survive_every_crash() {
    let steps = [
        Create("n"),
        WriteSynced("n", 0, 1, 100),
        Create("m"),
        Write("m", 0, 2, 30),
        Sync("m"),
        Truncate("n", 50),
        Rename("n", "m"),
        WriteSynced("m", 40, 3, 20),
    ];
    interrupt_recoveries(&[], &steps);
}

fn interrupt_recoveries(names: &[Name], steps: &[Step]) {
    for variant in VARIANTS {
        let history = run(names, steps, variant);
        let budget = Budget { exhaustive_limit: 4, samples: 2, seed: 2 };
        let (mut count, mut explored) = (0, 0);
        explore(&history.trace, &Config::default(), budget, &mut |point| {
            let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
            count += 1;
            if count % 2 == 0 {
                let moment = &history.moments[mark as usize];
                let (violation, summary) = violation_in_recovery(point.image, moment, variant);
                assert_eq!(violation, None, "operation {}", point.op_index);
                explored += summary.images;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(explored > 500, "{count} {explored}");
    }
}

fn recovery(recorder: &Recorder, backing: &MemoryBacking, moment: &Moment) -> History {
    let moments = start(recorder, backing, moment.allowed.clone());
    let (cache, _) = open(recorder, backing).unwrap();
    moments.begin(vec![certain(&tree(&cache, backing).unwrap())]);
    drop(cache);
    History { trace: recorder.trace(), moments: moments.end(), ends: Vec::new() }
}

fn violation_in_recovery(image: &[u8], moment: &Moment, variant: Variant) -> (Option<String>, Summary) {
    let recorder = Recorder::with_store_bytes(image.to_vec(), variant.style, variant.store_bytes);
    let backing = moment.backing.crashed(|| false);
    let history = recovery(&recorder, &backing, moment);
    violation(&history.trace, &history.moments, variant)
}

/// The process dies in a sync, another one takes the cache up, and the power fails then.
#[test]
fn what_a_recovery_has_seen_survives_a_later_power_cut() {
    let variant = VARIANTS[1];
    let steps = [WriteSynced("a", 0, 1, 100), Write("a", 50, 2, 100), Sync("a")];
    let history = run(&["a"], &steps, variant);
    for cut in (history.ends[0]..history.ends[2]).step_by(2) {
        let (death, recorder) = Death::at(&history.trace, cut, variant.style, variant.store_bytes);
        let moment = &history.moments[death.mark];
        let next = recovery(&recorder, &moment.backing.crashed(|| true), moment);
        let (violation, _) = violation(&death.and_then(next.trace), &next.moments, variant);
        assert_eq!(violation, None, "cut at {cut}");
    }
}

/// What a thread has stored is durable when its call returns.
#[test]
fn no_call_leaves_stores_pending() {
    let steps = [WriteSynced("a", 0, 1, 100), Write("a", 9, 2, 200), Sync("a"), Truncate("a", 3), Flush];
    let history = run(&["a"], &steps, NT);
    for (step, end) in steps.iter().zip(&history.ends) {
        let mut machine = Machine::new(history.trace.initial.clone(), Config::default());
        history.trace.ops[..*end].iter().for_each(|op| machine.apply(op).unwrap());
        assert_eq!(machine.pending_lines(), 0, "{step:?}");
    }
    assert_eq!(CHUNK, 64);
}
