//! A file system that is open: creating, opening, and how every operation is carried out.
//!
//! 1. Find out which inodes it changes, lock these, and check that it is still so (`locks`).
//! 2. Make an edit (`edit`): whatever is to be refused is refused here.
//! 3. One transaction makes the change, and keeps its records, in the order of the locks.
//! 4. For a write with `sync=always`, or to a file that was opened with `O_SYNC`, a commit. For other
//!    changes the caller asks for it ([`FileSystem::commit_if_always`]).

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fastness_store::record::Time;
use fastness_store::{
    Counts, Dataset, DatasetKind, FrontEnd, Object, OpenDataset, Operation, OperationCounters, PoolError,
    Property, Records, RowChange, Store, SyncMode, Tx, Txg,
};
use fastness_sync::Mutex;
use quick_cache::sync::Cache;

use crate::edit::Edit;
use crate::error::{FsError, Result};
use crate::ino::Ino;
use crate::inode::{Inode, mode};
use crate::late::{Known, Late};
use crate::locks::Locks;
use crate::tables::{INODES, Tables, super_row};

/// Objects of files that are kept open.
const OBJECTS_MAX: usize = 4096;

/// Where the times of files come from.
pub type Clock = fn() -> Time;

/// The time of the machine.
pub fn now() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(_) => Time::default(),
    }
}

/// Settings of a new file system.
#[derive(Debug, Clone, Default)]
pub struct FileSystemOptions {
    /// The dataset's own values.
    pub properties: Vec<(Property, u64)>,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Seed of the hash that orders entries, for simulations; otherwise random, so that names that
    /// collide cannot be chosen.
    pub seed: Option<u64>,
}

/// An open file system.
///
/// Persistence: a change is durable when a [`sync_file`](Self::sync_file) that covers it has returned, and in
/// any case with its txg. A crash leaves each change whole or not at all; of changes that were not synced, a
/// later one never without an earlier one of the same file or directory. Concurrency: any number of threads.
#[derive(Debug)]
pub struct FileSystem {
    pub(crate) open: OpenDataset,
    pub(crate) tables: Tables,
    pub(crate) locks: Locks,
    /// Held while something moves from one directory to another.
    pub(crate) moving: Mutex<()>,
    pub(crate) late: Late,
    pub(crate) objects: Cache<Ino, Arc<Object>>,
    pub(crate) clock: Clock,
    /// Of the files that are created: the txg that was durable at the opening. A crash may lose files with
    /// their numbers, which then come again, but the next import has made a newer txg durable.
    pub(crate) generation: u64,
    pub(crate) live: OperationCounters,
}

impl FrontEnd for FileSystem {
    type Error = FsError;
    type Kept = LateTimes;

    fn open(dataset: OpenDataset) -> Result<FileSystem> {
        FileSystem::with_clock(dataset, now)
    }

    fn keep(&self) -> LateTimes {
        LateTimes(self.late.all_late())
    }

    fn take_over(&self, LateTimes(kept): LateTimes) {
        for (ino, known) in kept {
            // Its row is from another import, whose txgs and records count no more.
            self.late.set(ino, Known { stored: Txg(0), logged: None, ..known });
        }
    }
}

/// Times that no row has yet, on their way to the next import.
#[derive(Debug, Default)]
pub struct LateTimes(Vec<(Ino, Known)>);

fn root(options: &FileSystemOptions, now: Time) -> Inode {
    Inode {
        mode: mode::DIRECTORY | 0o755,
        links: 2,
        uid: options.uid,
        gid: options.gid,
        block_bytes: 0,
        rdev: 0,
        generation: 1,
        entries: 0,
        parent: Ino::ROOT,
        is_temporary: false,
        is_bare: false,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    }
}

impl FileSystem {
    /// Creates an empty file system below an existing dataset.
    ///
    /// Persistence: durable on return. A crash during the call leaves the whole file system or none.
    ///
    /// # Errors
    /// Those of [`Store::create_dataset`].
    pub fn create(store: &Store, name: &str, options: &FileSystemOptions) -> Result<FileSystem> {
        let random =
            || getrandom::u64().map_err(|_| FsError::NotSupported("the system has no random numbers"));
        let seed = options.seed.map_or_else(random, Ok)?;
        let fill = |tx: &Tx, dataset: &Dataset| {
            let ino = Ino(dataset.allot_object().0);
            assert_eq!(ino, Ino::ROOT, "the first number of a new dataset");
            let (table, key, value) = super_row(seed);
            let row = root(options, now()).encode();
            let changes = [
                RowChange { table, key: &key, value: Some(&value) },
                RowChange { table: INODES, key: &ino.key(), value: Some(&row) },
            ];
            dataset.change_rows(tx, &changes, false)
        };
        let (open, ()) = store.create_dataset(name, DatasetKind::Filesystem, &options.properties, fill)?;
        FileSystem::with_clock(open, now)
    }

    /// Opens a file system; the handle belongs to the current import of the pool, see [`Store::attach`].
    ///
    /// # Errors
    /// [`FsError::NotAFileSystem`], [`FsError::OtherVersion`], those of opening the dataset.
    pub fn open(store: &Store, name: &str) -> Result<FileSystem> {
        <FileSystem as FrontEnd>::open(store.dataset(name)?)
    }

    /// Opens one whose times come from a clock of the caller, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_clock(open: OpenDataset, clock: Clock) -> Result<FileSystem> {
        // A snapshot is a file system that refuses changes.
        let of = open.dataset().snapshot_of().unwrap_or(open.dataset().kind());
        if of != DatasetKind::Filesystem {
            return Err(FsError::NotAFileSystem { name: open.dataset().name() });
        }
        let tables = Tables::open(open.dataset())?;
        let (locks, late, objects) = (Locks::default(), Late::default(), Cache::new(OBJECTS_MAX));
        let moving = Mutex::default();
        let live = OperationCounters::default();
        let generation = open.synced_txg().0;
        Ok(FileSystem { open, tables, locks, moving, late, objects, clock, generation, live })
    }

    /// Its dataset.
    pub fn dataset(&self) -> &Dataset {
        self.open.dataset()
    }

    /// Counters of one operation since this handle was opened.
    pub fn stats(&self, operation: Operation) -> Counts {
        self.live.of(operation)
    }

    pub(crate) fn count<T>(
        &self,
        operation: Operation,
        bytes: u64,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let timer = self.live.start(operation);
        let result = act();
        self.live.end(operation, timer, bytes, result.is_err());
        result
    }

    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    /// An edit of this file system.
    pub(crate) fn edit(&self) -> Edit<'_> {
        Edit::new(&self.tables, Some(&self.late))
    }

    /// An inode with its newest times.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode> {
        self.edit().inode(ino)
    }

    /// Makes an edit's changes, and keeps its records. The caller has locked what it changes.
    pub(crate) fn carry_out(&self, edit: &Edit<'_>, record: impl FnOnce(Records<'_>)) -> Result<()> {
        let apply = |tx: &Tx| edit.apply(tx).map(|()| tx.txg());
        let txg = self.open.transact(apply, |records, _| record(records))?;
        edit.changed().for_each(|(ino, inode)| self.late.stored(*ino, inode, txg));
        Ok(())
    }

    /// Makes the changes that have just been made durable, if the property `sync` says that all are. To be
    /// called after each change of names and attributes; it is a step of its own, so that it can be tried
    /// again where the change itself must not be: when the pool was suspended in between.
    ///
    /// Persistence: on return, with `sync=always`.
    ///
    /// # Errors
    /// Those of a commit; nothing is then known to be durable.
    pub fn commit_if_always(&self) -> Result<()> {
        match self.dataset().sync_mode() {
            SyncMode::Always => Ok(self.open.commit(None)?),
            _ => Ok(()),
        }
    }

    /// The object with a file's bytes; `None`: nothing was ever written.
    pub(crate) fn object(&self, ino: Ino) -> Result<Option<Arc<Object>>> {
        if let Some(object) = self.objects.get(&ino) {
            return Ok(Some(object));
        }
        let inode = self.inode(ino)?;
        if inode.block_bytes == 0 {
            return Ok(None);
        }
        match self.dataset().object(ino.object()) {
            Ok(object) => {
                let object = Arc::new(object);
                self.objects.insert(ino, object.clone());
                Ok(Some(object))
            }
            Err(PoolError::NoObject { .. }) => {
                Err(FsError::Damaged { ino, what: "the object with its bytes is gone" })
            }
            Err(error) => Err(error.into()),
        }
    }
}
