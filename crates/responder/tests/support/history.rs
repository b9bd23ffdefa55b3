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
    /// Names are being synced, and before that nothing has asked for it.
    pub is_after_sync_of_names: bool,
}

/// A call of a program.
#[derive(Debug, Clone)]
pub enum Step {
    Create(&'static str),
    Write(&'static str, u64, Vec<u8>),
    Truncate(&'static str, u64),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Link(&'static str, &'static str),
    MakeDirectory(&'static str),
    RemoveDirectory(&'static str),
    /// Other permissions.
    Permit(&'static str, u32),
    /// Names are synced, one directory after the other if they are few.
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
            Step::Unlink(name) => drop(take(tree, name)),
            Step::Rename(from, to) => {
                let moved = take(tree, from);
                drop(take(tree, to));
                put(tree, to, moved);
            }
            Step::Exchange(one, other) => {
                let (first, second) = (take(tree, one), take(tree, other));
                put(tree, other, first);
                put(tree, one, second);
            }
            Step::Link(from, to) => {
                let linked = take(tree, from);
                put(tree, from, linked.clone());
                put(tree, to, linked);
            }
            Step::MakeDirectory(name) => drop(tree.insert(format!("{name}/"), Vec::new())),
            Step::RemoveDirectory(name) => drop(take(tree, name)),
            Step::Permit(name, mode) => drop(tree.insert(format!("{name}:"), mode.to_le_bytes().to_vec())),
            Step::Flush | Step::Reopen => {}
        }
    }
}

/// Takes a name with everything that it leads to: `name`, `name/...`, and its permissions, `name:`.
fn take(tree: &mut Tree, name: &str) -> Vec<(String, Vec<u8>)> {
    let of_it =
        |path: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || "/:".contains(&rest[..1]));
    let paths: Vec<String> = tree.keys().filter(|path| of_it(path)).cloned().collect();
    paths.into_iter().map(|path| (path[name.len()..].to_owned(), tree.remove(&path).unwrap())).collect()
}

fn put(tree: &mut Tree, name: &str, taken: Vec<(String, Vec<u8>)>) {
    tree.extend(taken.into_iter().map(|(rest, content)| (format!("{name}{rest}"), content)));
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
                let mut next = last.clone();
                next.is_after_sync_of_names = call == Call::SyncNames;
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
        moments.push(Moment { backing: self.backing.copied(), allowed, is_after_sync_of_names: false });
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
                let cache = cache.as_ref().unwrap();
                let open = || cache.open_file(Path::new(name), None, 0).unwrap();
                let handle = handles.remove(name).unwrap_or_else(open);
                assert_eq!(cache.write(&handle, *offset, data).unwrap(), data.len());
                handles.insert(name, handle);
            }
            Step::Create(name) => {
                let handle = cache.as_ref().unwrap().open_file(Path::new(name), Some(0o600), 0).unwrap();
                handles.insert(name, handle);
            }
            Step::Truncate(name, size) => cache.as_ref().unwrap().truncate(&handles[name], *size).unwrap(),
            Step::Unlink(name) => {
                let cache = cache.as_ref().unwrap();
                handles.remove(name).into_iter().for_each(|handle| cache.close(handle).unwrap());
                cache.unlink(Path::new(name)).unwrap();
            }
            Step::Rename(from, to) => {
                let cache = cache.as_ref().unwrap();
                if let Some(replaced) = handles.remove(to) {
                    cache.close(replaced).unwrap();
                }
                cache.rename(Path::new(from), Path::new(to)).unwrap();
                handles.remove(from).into_iter().for_each(|handle| drop(handles.insert(to, handle)));
                rename_below(&mut handles, from, to);
            }
            Step::Exchange(one, other) => {
                let (one, other) = (Path::new(one), Path::new(other));
                cache.as_ref().unwrap().rename_with(one, other, Renaming::Exchange).unwrap();
                // None is open then.
                let cache = cache.as_ref().unwrap();
                std::mem::take(&mut handles).into_values().for_each(|handle| cache.close(handle).unwrap());
            }
            Step::Link(from, to) => cache.as_ref().unwrap().link(Path::new(from), Path::new(to)).unwrap(),
            Step::MakeDirectory(name) => {
                let like = Attributes { mode: 0o040_700, ..Attributes::default() };
                let make = || Ok(((), backing.make(Path::new(name), &like).map(|()| true)?));
                cache.as_ref().unwrap().make(Path::new(name), make).unwrap();
            }
            Step::RemoveDirectory(name) => {
                cache.as_ref().unwrap().remove_directory(Path::new(name)).unwrap();
            }
            Step::Permit(name, mode) => {
                let path = Path::new(name);
                let mut attributes = backing.node(path, true).unwrap().attributes().unwrap();
                attributes.mode = attributes.mode & 0o170_000 | mode;
                backing.set_attributes(path, &attributes).unwrap();
                cache.as_ref().unwrap().settle(path).unwrap();
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

/// Files in a directory that has another name now.
fn rename_below(handles: &mut BTreeMap<&'static str, Handle>, from: &str, to: &str) {
    let below = format!("{from}/");
    let names: Vec<&'static str> = handles.keys().copied().filter(|name| name.starts_with(&below)).collect();
    for name in names {
        let handle = handles.remove(name).unwrap();
        handles.insert(format!("{to}{}", &name[from.len()..]).leak(), handle);
    }
}

/// The files among these names.
fn open_all(cache: &Cache<Pm>, names: &[&'static str]) -> BTreeMap<&'static str, Handle> {
    let open = |name: &&'static str| (*name, cache.open_file(Path::new(name), None, 0).unwrap());
    names.iter().filter(|name| !name.ends_with(['/', ':'])).map(open).collect()
}

/// Names, with a slash those of directories, with a colon permissions that are not the usual ones.
fn tree_of(
    backing: &MemoryBacking,
    mut content: impl FnMut(&Path) -> Result<Vec<u8>, Error>,
) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    for (path, attributes) in backing.attributes() {
        let (name, mode) = (path.to_str().unwrap().to_owned(), attributes.mode & 0o7777);
        if mode != if attributes.is_directory() { 0o700 } else { 0o600 } {
            tree.insert(format!("{name}:"), mode.to_le_bytes().to_vec());
        }
        match attributes.is_directory() {
            true => tree.insert(format!("{name}/"), Vec::new()),
            false => tree.insert(name, content(&path)?),
        };
    }
    Ok(tree)
}

/// Everything, as programs read it through the cache.
pub fn tree(cache: &Cache<Pm>, backing: &MemoryBacking) -> Result<Tree, Error> {
    tree_of(backing, |path| {
        let handle = cache.open_file(path, None, 0)?;
        let found = content(cache, &handle)?;
        cache.close(handle)?;
        Ok(found)
    })
}

pub fn below(backing: &MemoryBacking) -> Tree {
    let contents = backing.contents();
    tree_of(backing, |path| Ok(contents[path].clone())).unwrap()
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

/// Ways in which the directory loses what was not synced: all, nothing, and some of it.
const LOSSES: u64 = 6;

/// Checks a crash with each of several ways in which the directory may lose what was not synced.
pub fn check_all(image: &[u8], moment: &Moment) -> Result<(), String> {
    for seed in 0..LOSSES {
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
