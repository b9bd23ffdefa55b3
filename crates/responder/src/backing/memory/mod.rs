//! A directory in memory for tests: what was not synced may be lost, and each call can be made to fail.

mod calls;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_sync::{Mutex, lock};

use super::{Attributes, FileId, Mark, Stat};
use calls::MemoryNode;
use tree::{Change, Place, ROOT, Tree};

/// What is asked of the store, as its hook sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Of bytes.
    Read,
    /// Of bytes.
    Write {
        /// How many.
        len: usize,
        /// Bytes that the file gets longer by.
        grows: u64,
    },
    /// To another length.
    Truncate,
    /// Of a file.
    Sync,
    /// A change of names or attributes, or of what the directory belongs to.
    Names,
    /// Of names.
    SyncNames,
}

/// What the hook makes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Do,
    /// Nothing is done; the error number is the answer.
    Refuse(i32),
    /// It is done, and the error number is the answer.
    DoAndRefuse(i32),
    /// Of a write, so many bytes are; none: the answer is ENOSPC. Anything else is done.
    DoSome(usize),
}

type Hook = dyn Fn(Call) -> Verdict + Send + Sync;
type After = dyn Fn(Call) + Send + Sync;

/// A change of bytes that no sync has made durable.
#[derive(Debug, Clone)]
enum Edit {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

impl Edit {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Edit::Write(offset, data) => {
                let end = *offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[*offset as usize..end].copy_from_slice(data);
            }
            Edit::Truncate(size) => content.resize(*size as usize, 0),
        }
    }
}

/// The bytes of a file.
#[derive(Debug, Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Edit>,
    modified_ns: u64,
    changed_ns: u64,
}

/// Everything by serial numbers: those of inodes are given out again.
#[derive(Debug, Clone)]
struct State {
    now: Tree,
    durable: Tree,
    pending: Vec<Change>,
    contents: BTreeMap<u64, Content>,
    /// What is open or held, and how often.
    held: BTreeMap<u64, u64>,
    mark: Option<Mark>,
    last_serial: u64,
    /// When writes are made; 0: they set no times.
    time_ns: u64,
    /// What files are born at now, how many were since, and how many are in a tick of the clock.
    birth: u64,
    born: u64,
    born_in_a_tick: u64,
}

/// A directory in memory. Names and attributes are durable once they, or the directory with them, are synced;
/// bytes once their file is.
///
/// Concurrency: clones are handles of the same directory. The hooks are called without a lock, so they may
/// wait.
#[derive(Clone)]
pub struct MemoryBacking {
    state: Arc<Mutex<State>>,
    hook: Arc<Mutex<Arc<Hook>>>,
    after: Arc<Mutex<Arc<After>>>,
}

impl fmt::Debug for MemoryBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBacking").finish_non_exhaustive()
    }
}

impl Default for MemoryBacking {
    fn default() -> Self {
        let (now, durable, pending) = (Tree::new(), Tree::new(), Vec::new());
        let (contents, held) = (BTreeMap::new(), BTreeMap::new());
        let (last_serial, birth, born, born_in_a_tick) = (ROOT, 2, 0, 1);
        MemoryBacking::of(State {
            now,
            durable,
            pending,
            contents,
            held,
            mark: None,
            last_serial,
            time_ns: 0,
            birth,
            born,
            born_in_a_tick,
        })
    }
}

impl MemoryBacking {
    fn of(state: State) -> MemoryBacking {
        let (hook, after): (Arc<Hook>, Arc<After>) = (Arc::new(|_| Verdict::Do), Arc::new(|_| {}));
        let (hook, after) = (Arc::new(Mutex::new(hook)), Arc::new(Mutex::new(after)));
        MemoryBacking { state: Arc::new(Mutex::new(state)), hook, after }
    }

    /// Asks `hook` about each call from now on.
    pub fn set_hook(&self, hook: impl Fn(Call) -> Verdict + Send + Sync + 'static) {
        *lock(&self.hook) = Arc::new(hook);
    }

    /// Calls `after` from now on after each call that was done, before its answer arrives.
    pub fn set_after(&self, after: impl Fn(Call) + Send + Sync + 'static) {
        *lock(&self.after) = Arc::new(after);
    }

    /// So many files that are made after each other are born at the same time.
    pub fn set_births_in_a_tick(&self, count: u64) {
        lock(&self.state).born_in_a_tick = count.max(1);
    }

    /// From now on writes and truncations are made at that time, which files get, in ns since 1970, and
    /// changes of times a ns later each.
    pub fn set_time(&self, time_ns: u64) {
        lock(&self.state).time_ns = time_ns;
    }

    /// A directory that is as this one, and goes its own way; without the hooks.
    #[must_use]
    pub fn copied(&self) -> MemoryBacking {
        MemoryBacking::of(lock(&self.state).clone())
    }

    /// What a crash leaves: of the changes that were not synced, those for which `survives` says so; writes
    /// are asked about in pieces of 64 bytes. A change of names or attributes is lost with those that it
    /// rests on: earlier ones of the same name, and of the same file. Files without names are gone.
    #[must_use]
    pub fn crashed(&self, mut survives: impl FnMut() -> bool) -> MemoryBacking {
        let mut state = lock(&self.state).clone();
        state.durable.crash(&std::mem::take(&mut state.pending), &state.now, &mut survives);
        state.held.clear();
        state.durable.remove_unnamed(|_| false);
        state.now = state.durable.clone();
        let now = &state.now;
        state.contents.retain(|serial, _| now.has_serial(*serial));
        for content in state.contents.values_mut() {
            content.now = std::mem::take(&mut content.durable);
            for edit in std::mem::take(&mut content.pending) {
                let Edit::Write(offset, data) = &edit else {
                    if survives() {
                        edit.apply(&mut content.now);
                    }
                    continue;
                };
                for (at, piece) in data.chunks(64).enumerate().filter(|_| survives()) {
                    Edit::Write(offset + at as u64 * 64, piece.to_vec()).apply(&mut content.now);
                }
            }
            content.durable = content.now.clone();
        }
        // Time has passed.
        (state.birth, state.born) = (state.birth + 1, 0);
        MemoryBacking::of(state)
    }

    /// The contents of all files by their paths, as a program without the cache reads them.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = lock(&self.state);
        let mut all = BTreeMap::new();
        state.visit(ROOT, &PathBuf::new(), &mut |path, _, serial| {
            if let Some(content) = state.contents.get(&serial) {
                all.insert(path.to_owned(), content.now.clone());
            }
        });
        all
    }

    /// Everything that has a name, by its path.
    pub fn attributes(&self) -> BTreeMap<PathBuf, Attributes> {
        let state = lock(&self.state);
        let mut all = BTreeMap::new();
        state.visit(ROOT, &PathBuf::new(), &mut |path, _, serial| {
            let modified_ns = state.contents.get(&serial).map_or(0, |content| content.modified_ns);
            all.insert(path.to_owned(), Attributes { modified_ns, ..state.now.attributes(serial) });
        });
        all
    }

    /// A file as someone makes it past the cache, or replaces its bytes, durably.
    pub fn put(&self, path: &str, content: &[u8]) {
        let mut state = lock(&self.state);
        let serial = match state.now.serial(Path::new(path)) {
            Ok(serial) => serial,
            Err(_) => state.make(Path::new(path), 0o100_600).expect("its directory is there"),
        };
        state.sync_all();
        let (now, durable) = (content.to_vec(), content.to_vec());
        state.contents.insert(serial, Content { now, durable, ..Content::default() });
    }

    /// What the hook makes of a call.
    fn verdict(&self, call: Call) -> Verdict {
        let hook = Arc::clone(&lock(&self.hook));
        hook(call)
    }

    /// Makes a call, as the hook has it.
    fn call<T>(&self, call: Call, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.call_as(self.verdict(call), call, act)
    }

    fn call_as<T>(
        &self,
        verdict: Verdict,
        call: Call,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        match verdict {
            Verdict::Do | Verdict::DoSome(_) => {
                let done = act(&mut lock(&self.state));
                let after = Arc::clone(&lock(&self.after));
                after(call);
                done
            }
            Verdict::Refuse(errno) => failed(errno),
            Verdict::DoAndRefuse(errno) => {
                act(&mut lock(&self.state))?;
                failed(errno)
            }
        }
    }

    fn hold(&self, state: &mut State, serial: u64) -> Arc<MemoryNode> {
        *state.held.entry(serial).or_default() += 1;
        Arc::new(MemoryNode { backing: self.clone(), serial })
    }
}

impl State {
    /// Makes a change of names.
    fn change(&mut self, change: Change, refused: io::ErrorKind) -> io::Result<()> {
        if !self.now.apply(&change) {
            return Err(refused.into());
        }
        self.pending.push(change);
        self.forget_unnamed();
        Ok(())
    }

    fn forget_unnamed(&mut self) {
        let held = &self.held;
        // What a crash may bring back keeps its bytes.
        self.now.remove_unnamed(|serial| held.get(&serial).is_some_and(|count| *count > 0));
    }

    /// Makes a file or directory; numbers of inodes that are free are given out again.
    fn make(&mut self, path: &Path, mode: u32) -> io::Result<u64> {
        let at = self.now.place(path)?;
        let inode = (2..).find(|inode| !self.now.has_inode(*inode)).expect("a free number");
        self.born += 1;
        if self.born >= self.born_in_a_tick {
            (self.birth, self.born) = (self.birth + 1, 0);
        }
        self.last_serial += 1;
        let serial = self.last_serial;
        let id = FileId { inode, generation: self.birth };
        let attributes = Attributes { id, mode, ..Attributes::default() };
        self.contents.remove(&serial);
        if !attributes.is_directory() {
            self.contents.insert(serial, Content::default());
        }
        self.change(Change::Make { at, serial, attributes }, io::ErrorKind::AlreadyExists)?;
        Ok(serial)
    }

    fn stat(&self, serial: u64) -> Stat {
        let Attributes { id, links, .. } = self.now.attributes(serial);
        let content = self.contents.get(&serial);
        let (size, modified_ns, changed_ns) =
            content.map_or((0, 0, 0), |found| (found.now.len() as u64, found.modified_ns, found.changed_ns));
        Stat { id, size, links, modified_ns, changed_ns }
    }

    fn named(&self, path: &Path) -> io::Result<(Place, u64)> {
        let at = self.now.place(path)?;
        let serial = self.now.at(&at).ok_or(io::ErrorKind::NotFound)?;
        Ok((at, serial))
    }

    fn visit(&self, parent: u64, path: &Path, see: &mut dyn FnMut(&Path, u64, u64)) {
        for (name, serial) in self.now.children(parent) {
            let path = path.join(name);
            see(&path, parent, serial);
            self.visit(serial, &path, see);
        }
    }

    fn sync_all(&mut self) {
        self.pending.clear();
        self.durable = self.now.clone();
        let held = &self.held;
        self.contents.retain(|serial, _| {
            self.now.has_serial(*serial) || held.get(serial).is_some_and(|count| *count > 0)
        });
    }

    fn sync_of(&mut self, serial: u64) {
        let (durable, rest) = self.now.split(std::mem::take(&mut self.pending), serial);
        for change in &durable {
            let done = self.durable.apply(change);
            debug_assert!(done, "what it rests on is durable, too: {change:?}");
        }
        self.durable.remove_unnamed(|_| false);
        self.pending = rest;
    }
}
