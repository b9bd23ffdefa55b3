//! A directory in memory for tests: what was not synced may be lost, and each call can be made to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastness_sync::{Mutex, lock};

use super::{Backing, BackingFile, CacheId, DirectoryId, FileId, Stat};

/// What is asked of the store, as its hook sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Of bytes.
    Read,
    /// Of so many bytes that make the file so much longer.
    Write {
        /// Bytes that the file gets longer by.
        grows: u64,
    },
    /// To another length.
    Truncate,
    /// Of a file.
    Sync,
    /// A change of names, or of what the directory belongs to.
    Names,
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
}

type Hook = dyn Fn(Call) -> Verdict + Send + Sync;
type After = dyn Fn(Call) + Send + Sync;

/// A change that no sync has made durable.
#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write(offset, data) => {
                let end = *offset as usize + data.len();
                content.resize(content.len().max(end), 0);
                content[*offset as usize..end].copy_from_slice(data);
            }
            Change::Truncate(size) => content.resize(*size as usize, 0),
        }
    }
}

#[derive(Debug, Clone)]
struct Node {
    generation: u64,
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    links: u64,
    modified_ns: u64,
}

#[derive(Debug, Clone, Default)]
struct State {
    nodes: BTreeMap<u64, Node>,
    names: BTreeMap<PathBuf, u64>,
    cache: Option<CacheId>,
    births: u64,
}

/// A directory in memory. Names are durable at once; bytes once they are synced.
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
        MemoryBacking::of(State::default())
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

    /// A directory that is as this one, and goes its own way; without the hooks.
    #[must_use]
    pub fn copied(&self) -> MemoryBacking {
        MemoryBacking::of(lock(&self.state).clone())
    }

    /// What a crash leaves: of the changes that were not synced, those for which `survives` says so; writes
    /// are asked about in pieces of 64 bytes. Files without names are gone.
    #[must_use]
    pub fn crashed(&self, mut survives: impl FnMut() -> bool) -> MemoryBacking {
        let mut state = lock(&self.state).clone();
        state.nodes.retain(|_, node| node.links > 0);
        for node in state.nodes.values_mut() {
            node.now = std::mem::take(&mut node.durable);
            for change in std::mem::take(&mut node.pending) {
                let Change::Write(offset, data) = &change else {
                    if survives() {
                        change.apply(&mut node.now);
                    }
                    continue;
                };
                for (at, piece) in data.chunks(64).enumerate().filter(|_| survives()) {
                    Change::Write(offset + at as u64 * 64, piece.to_vec()).apply(&mut node.now);
                }
            }
            node.durable = node.now.clone();
        }
        MemoryBacking::of(state)
    }

    /// The contents of all files by their names, as a program without the cache reads them.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = lock(&self.state);
        let content = |inode: &u64| state.nodes[inode].now.clone();
        state.names.iter().map(|(path, inode)| (path.clone(), content(inode))).collect()
    }

    /// A file as someone makes it past the cache.
    pub fn put(&self, path: &str, content: &[u8]) {
        let mut state = lock(&self.state);
        let inode = state.create(Path::new(path));
        let node = state.nodes.get_mut(&inode).expect("just made");
        (node.now, node.durable) = (content.to_vec(), content.to_vec());
    }

    /// Makes a call, as the hook has it.
    fn call<T>(&self, call: Call, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let hook = Arc::clone(&lock(&self.hook));
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        match hook(call) {
            Verdict::Do => {
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

    fn file(&self, inode: u64) -> Arc<dyn BackingFile> {
        Arc::new(MemoryFile { backing: self.clone(), inode })
    }
}

impl State {
    /// Makes a file; numbers of inodes that are free are given out again.
    fn create(&mut self, path: &Path) -> u64 {
        self.births += 1;
        let inode = (2..).find(|inode| !self.nodes.contains_key(inode)).expect("a free number");
        let (now, durable, pending) = (Vec::new(), Vec::new(), Vec::new());
        let node = Node { generation: self.births, now, durable, pending, links: 1, modified_ns: 0 };
        self.nodes.insert(inode, node);
        self.names.insert(path.to_owned(), inode);
        inode
    }

    fn inode(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn stat(&self, inode: u64) -> Stat {
        let node = &self.nodes[&inode];
        let id = FileId { inode, generation: node.generation };
        Stat { id, size: node.now.len() as u64, links: node.links, modified_ns: node.modified_ns }
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        self.nodes.get_mut(&inode).expect("names lead to files").links -= 1;
        Ok(())
    }
}

impl Backing for MemoryBacking {
    fn directory(&self) -> io::Result<DirectoryId> {
        Ok(DirectoryId { device: 1, id: FileId { inode: 1, generation: 1 } })
    }

    fn cache(&self) -> io::Result<Option<CacheId>> {
        self.call(Call::Read, |state| Ok(state.cache))
    }

    fn set_cache(&self, cache: Option<CacheId>) -> io::Result<()> {
        self.call(Call::Names, |state| {
            state.cache = cache;
            Ok(())
        })
    }

    fn open(&self, path: &Path, create: Option<u32>) -> io::Result<(Arc<dyn BackingFile>, bool)> {
        let found = lock(&self.state).inode(path);
        let (inode, created) = match found {
            Ok(inode) => (inode, false),
            Err(error) if create.is_none() => return Err(error),
            Err(_) => (self.call(Call::Names, |state| Ok(state.create(path)))?, true),
        };
        Ok((self.file(inode), created))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = lock(&self.state);
        Ok(state.stat(state.inode(path)?))
    }

    fn find(&self, files: &BTreeSet<FileId>) -> io::Result<BTreeMap<FileId, Arc<dyn BackingFile>>> {
        self.call(Call::Read, |state| {
            let named: BTreeSet<u64> = state.names.values().copied().collect();
            let found = named.into_iter().map(|inode| state.stat(inode).id);
            Ok(found.filter(|id| files.contains(id)).map(|id| (id, self.file(id.inode))).collect())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Names, |state| state.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let inode = state.inode(from)?;
            if state.names.get(to) == Some(&inode) {
                return Ok(());
            }
            if state.names.contains_key(to) {
                state.remove(to)?;
            }
            state.names.remove(from);
            state.names.insert(to.to_owned(), inode);
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Names, |state| {
            let inode = state.inode(from)?;
            if state.names.contains_key(to) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.names.insert(to.to_owned(), inode);
            state.nodes.get_mut(&inode).expect("names lead to files").links += 1;
            Ok(())
        })
    }
}

#[derive(Debug)]
struct MemoryFile {
    backing: MemoryBacking,
    inode: u64,
}

impl MemoryFile {
    fn change(&self, call: Call, change: Change) -> io::Result<()> {
        self.backing.call(call, |state| {
            let node = state.nodes.get_mut(&self.inode).expect("open files stay");
            change.apply(&mut node.now);
            node.pending.push(change);
            Ok(())
        })
    }
}

impl BackingFile for MemoryFile {
    fn stat(&self) -> io::Result<Stat> {
        Ok(lock(&self.backing.state).stat(self.inode))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.backing.call(Call::Read, |state| {
            let content = &state.nodes[&self.inode].now;
            let start = content.len().min(offset as usize);
            let len = buffer.len().min(content.len() - start);
            buffer[..len].copy_from_slice(&content[start..start + len]);
            Ok(len)
        })
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let size = self.stat()?.size;
        let grows = (offset + data.len() as u64).saturating_sub(size);
        self.change(Call::Write { grows }, Change::Write(offset, data.to_vec()))
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.change(Call::Truncate, Change::Truncate(size))
    }

    fn set_modified(&self, modified_ns: u64) -> io::Result<()> {
        let mut state = lock(&self.backing.state);
        state.nodes.get_mut(&self.inode).expect("open files stay").modified_ns = modified_ns;
        Ok(())
    }

    /// A sync that fails forgets what was written, as page caches do: the next one says that all is well, and
    /// does not make it durable. What has to be durable must be written again.
    fn sync(&self) -> io::Result<()> {
        let synced = self.backing.call(Call::Sync, |state| {
            let node = state.nodes.get_mut(&self.inode).expect("open files stay");
            for change in node.pending.drain(..) {
                change.apply(&mut node.durable);
            }
            Ok(())
        });
        if synced.is_err() {
            let mut state = lock(&self.backing.state);
            let node = state.nodes.get_mut(&self.inode).expect("open files stay");
            node.pending.retain(|change| matches!(change, Change::Truncate(_)));
        }
        synced
    }
}
