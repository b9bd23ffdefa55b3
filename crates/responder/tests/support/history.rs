//! Histories on recorded PM in front of a directory, and the oracle: after a crash at any moment, each file
//! has what was acknowledged, and at most one more call, completely or not at all.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fastness_pm_model::{Budget, Config, RecordStyle, Recorder, Summary, Trace, explore};
use fastness_responder::*;
use fastness_testkit::Rng;

use super::{Pm, Power, content, options, recorder};

pub const CHUNK: u64 = 64;

/// Names and contents.
pub type Tree = BTreeMap<String, Vec<u8>>;

/// From one mark of the trace to the next.
#[derive(Clone)]
pub struct Moment {
    /// What the directory is like, with what it may lose.
    pub backing: MemoryBacking,
    /// The trees that a crash may leave.
    pub allowed: Vec<Tree>,
}

/// A call of a program.
#[derive(Debug, Clone)]
pub enum Step {
    Create(&'static str),
    Write(&'static str, u64, Vec<u8>),
    Truncate(&'static str, u64),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Flush,
    /// The process ends, and another one takes the cache up.
    Reopen,
}

impl Step {
    pub fn write(name: &'static str, offset: u64, byte: u8, len: usize) -> Step {
        Step::Write(name, offset, vec![byte; len])
    }

    /// What it makes of a tree.
    pub fn apply(&self, tree: &mut Tree) {
        match self {
            Step::Create(name) => drop(tree.insert((*name).to_owned(), Vec::new())),
            Step::Write(name, offset, data) => {
                let content = tree.entry((*name).to_owned()).or_default();
                let end = *offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[*offset as usize..end].copy_from_slice(data);
            }
            Step::Truncate(name, size) => tree.get_mut(*name).unwrap().resize(*size as usize, 0),
            Step::Unlink(name) => drop(tree.remove(*name)),
            Step::Rename(from, to) => {
                let content = tree.remove(*from).unwrap();
                tree.insert((*to).to_owned(), content);
            }
            Step::Flush | Step::Reopen => {}
        }
    }
}

/// What happened: the trace, with a mark for each moment.
pub struct History {
    pub trace: Trace,
    pub moments: Vec<Moment>,
    /// Number of operations when each step began and when it had returned.
    pub steps: Vec<(usize, usize)>,
}

impl History {
    /// See [`first_violation`].
    pub fn first_violation(&self, variant: Variant) -> (Option<String>, Summary) {
        first_violation(&self.trace, &self.moments, variant)
    }
}

/// Collects moments while calls are made.
struct Moments {
    recorder: Recorder,
    moments: Arc<Mutex<Vec<Moment>>>,
    backing: MemoryBacking,
}

impl Moments {
    fn new(recorder: &Recorder, backing: &MemoryBacking, allowed: Vec<Tree>) -> Moments {
        let moments = Arc::new(Mutex::new(Vec::new()));
        let all = Moments { recorder: recorder.clone(), moments, backing: backing.clone() };
        all.begin(allowed);
        let (recorder, moments, below) = (recorder.clone(), all.moments.clone(), backing.clone());
        backing.set_hook(move |call| {
            if call != Call::Read {
                let mut moments = moments.lock().unwrap();
                let last = moments.last_mut().unwrap();
                last.backing = below.copied();
                let next = last.clone();
                recorder.mark(moments.len() as u64);
                moments.push(next);
            }
            Verdict::Do
        });
        all
    }

    /// From here on a crash may leave these.
    fn begin(&self, allowed: Vec<Tree>) {
        let mut moments = self.moments.lock().unwrap();
        if let Some(last) = moments.last_mut() {
            last.backing = self.backing.copied();
        }
        self.recorder.mark(moments.len() as u64);
        moments.push(Moment { backing: self.backing.copied(), allowed });
    }

    fn end(self) -> Vec<Moment> {
        let mut moments = std::mem::take(&mut *self.moments.lock().unwrap());
        moments.last_mut().unwrap().backing = self.backing.copied();
        self.backing.set_hook(|_| Verdict::Do);
        moments
    }
}

/// How stores are made and recorded.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    pub style: RecordStyle,
    pub store_bytes: usize,
    /// Non-temporal stores to one line are not ordered.
    pub strict_nt: bool,
}

pub const NT: Variant = Variant { style: RecordStyle::NonTemporal, store_bytes: 8, strict_nt: false };

pub fn open(recorder: &Recorder, backing: &MemoryBacking) -> Result<(Cache<Pm>, Recovered), Error> {
    let region = Pm::whole(recorder, &Arc::new(Power::default()));
    Cache::open(region, Arc::new(backing.clone()), &options(CHUNK))
}

/// A created cache with files of no bytes, without its trace.
pub fn created(slots: usize, names: &[&str], variant: Variant) -> (Recorder, MemoryBacking) {
    let (region, backing) = (recorder(slots, CHUNK as usize), MemoryBacking::default());
    let power = Arc::new(Power::default());
    drop(Cache::create(Pm::whole(&region, &power), Arc::new(backing.clone()), &options(CHUNK)).unwrap());
    names.iter().for_each(|name| backing.put(name, b""));
    (Recorder::with_store_bytes(region.image(), variant.style, variant.store_bytes), backing)
}

pub fn run(slots: usize, names: &[&'static str], steps: &[Step], variant: Variant) -> History {
    let (recorder, backing) = created(slots, names, variant);
    run_on(&recorder, &backing, steps)
}

/// As [`run`], on what is there.
pub fn run_on(recorder: &Recorder, backing: &MemoryBacking, steps: &[Step]) -> History {
    let mut cache = Some(open(recorder, backing).unwrap().0);
    let mut tree = tree(cache.as_ref().unwrap(), backing).unwrap();
    // As long as the tests run.
    let names: Vec<&'static str> = tree.keys().map(|name| &*name.clone().leak()).collect();
    let mut handles = open_all(cache.as_ref().unwrap(), &names);
    let moments = Moments::new(recorder, backing, vec![tree.clone()]);
    let mut ends = Vec::new();
    for step in steps {
        let before = tree.clone();
        step.apply(&mut tree);
        moments.begin(vec![before, tree.clone()]);
        let start = recorder.op_count();
        match step {
            Step::Write(name, offset, data) => {
                cache.as_ref().unwrap().write(&handles[name], *offset, data).unwrap();
            }
            Step::Create(name) => {
                let handle = cache.as_ref().unwrap().open_file(Path::new(name), Some(0o600), 0).unwrap();
                handles.insert(name, handle);
            }
            Step::Truncate(name, size) => cache.as_ref().unwrap().truncate(&handles[name], *size).unwrap(),
            Step::Unlink(name) => {
                let cache = cache.as_ref().unwrap();
                cache.close(handles.remove(name).unwrap()).unwrap();
                cache.unlink(Path::new(name)).unwrap();
            }
            Step::Rename(from, to) => {
                let cache = cache.as_ref().unwrap();
                if let Some(replaced) = handles.remove(to) {
                    cache.close(replaced).unwrap();
                }
                cache.rename(Path::new(from), Path::new(to)).unwrap();
                let handle = handles.remove(from).unwrap();
                handles.insert(to, handle);
            }
            Step::Flush => cache.as_ref().unwrap().flush().unwrap(),
            Step::Reopen => {
                drop(cache.take());
                cache = Some(open(recorder, backing).unwrap().0);
                let names: Vec<&'static str> = handles.keys().copied().collect();
                handles = open_all(cache.as_ref().unwrap(), &names);
            }
        }
        ends.push((start, recorder.op_count()));
        moments.begin(vec![tree.clone()]);
    }
    drop(cache);
    History { trace: recorder.trace(), moments: moments.end(), steps: ends }
}

fn open_all(cache: &Cache<Pm>, names: &[&'static str]) -> BTreeMap<&'static str, Handle> {
    let open = |name: &&'static str| (*name, cache.open_file(Path::new(name), None, 0).unwrap());
    names.iter().map(open).collect()
}

/// Everything, as programs read it through the cache.
pub fn tree(cache: &Cache<Pm>, backing: &MemoryBacking) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    for name in backing.contents().keys() {
        let handle = cache.open_file(name, None, 0)?;
        tree.insert(name.to_str().unwrap().to_owned(), content(cache, &handle)?);
        cache.close(handle)?;
    }
    Ok(tree)
}

fn below(backing: &MemoryBacking) -> Tree {
    let name = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    backing.contents().into_iter().map(|(path, content)| (name(path), content)).collect()
}

/// Checks what one crash left in PM and in the directory.
pub fn check(image: &[u8], backing: &MemoryBacking, allowed: &[Tree]) -> Result<(), String> {
    let text = |error: Error| format!("{error}");
    let recorder = Recorder::new(image.to_vec(), RecordStyle::NonTemporal);
    let (cache, recovered) = open(&recorder, backing).map_err(text)?;
    if recovered.orphaned_chunks > 0 {
        return Err(format!("orphans: {recovered:?}"));
    }
    let found = tree(&cache, backing).map_err(text)?;
    if !allowed.contains(&found) {
        return Err(format!("found {found:x?}, allowed {allowed:x?}"));
    }
    cache.flush().map_err(text)?;
    drop(cache);
    // The directory alone, after it has lost what it may lose; and the region beside it.
    let backing = backing.crashed(|| false);
    if below(&backing) != found {
        return Err(format!("after the flush the directory has {:x?}, not {found:x?}", below(&backing)));
    }
    let (cache, recovered) = open(&recorder, &backing).map_err(text)?;
    let again = tree(&cache, &backing).map_err(text)?;
    if again != found || recovered.dirty_chunks > 0 {
        return Err(format!("the second recovery found {again:x?}: {recovered:?}"));
    }
    Ok(())
}

/// Checks a crash with each of several ways in which the directory may lose what was not synced.
pub fn check_all(image: &[u8], moment: &Moment) -> Result<(), String> {
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

pub const BUDGET: Budget = Budget { exhaustive_limit: 3000, samples: 300, seed: 1 };

/// The first violation, and what was explored. Before the first mark nothing is checked.
pub fn first_violation(trace: &Trace, moments: &[Moment], variant: Variant) -> (Option<String>, Summary) {
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

/// A recovery after a crash in `moment`: what it has seen is what is allowed from then on.
pub fn run_recovery(recorder: &Recorder, backing: &MemoryBacking, moment: &Moment) -> History {
    let moments = Moments::new(recorder, backing, moment.allowed.clone());
    let (cache, _) = open(recorder, backing).unwrap();
    moments.begin(vec![tree(&cache, backing).unwrap()]);
    drop(cache);
    History { trace: recorder.trace(), moments: moments.end(), steps: Vec::new() }
}

/// Explores a recovery from an image: every crash inside it.
pub fn violation_in_recovery(image: &[u8], moment: &Moment, variant: Variant) -> (Option<String>, Summary) {
    let recorder = Recorder::with_store_bytes(image.to_vec(), variant.style, variant.store_bytes);
    let backing = moment.backing.crashed(|| false);
    run_recovery(&recorder, &backing, moment).first_violation(variant)
}
