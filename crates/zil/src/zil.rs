//! The intent log of one dataset.

use std::sync::Arc;

use fastness_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use fastness_sync::{Mutex, lock};

use arc_swap::ArcSwap;

use crate::error::{CommitError, LogCause, NotPersisted};
use crate::itx::Itx;
use crate::itxg::Lists;
use crate::kept::{Kept, KeptFile};
use crate::kind::{Kind, ReadBack};
use crate::pool::{FileEnd, Pool, PoolFailure, StoreRange, StoredData};
use crate::stats::Stats;
use fastness_base::{DatasetId, ObjectId, Txg};

/// How a commit or a flush made things durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// In the log, or there was nothing to do.
    Logged,
    /// By waiting for this txg.
    Synced(Txg),
}

/// The intent log of one dataset.
///
/// The caller decides whether to commit at all (`sync` = standard, always, disabled). A dataset is changed
/// either through [`assign`](Self::assign) and [`commit`](Self::commit), or as a volume (`log_write`,
/// `flush`). Concurrency: any number of threads.
#[derive(Debug)]
pub struct Zil<P, K> {
    pub(crate) dataset: DatasetId,
    pub(crate) pool: Arc<P>,
    /// Changed under the lock of the lists.
    pub(crate) kind: ArcSwap<K>,
    pub(crate) lists: Mutex<Lists>,
    pub(crate) stats: Stats,
    /// Newest txg of a change that is not in the log, and that no caller was told to wait for yet.
    pub(crate) unlogged_txg: AtomicU64,
    /// Newest txg of a volume's record on the commit list; 0 if they have all synced.
    pub(crate) listed_txg: AtomicU64,
    /// Whether volumes may bypass the commit list.
    pub(crate) has_bypass: AtomicBool,
    /// Bytes of files that are gone.
    kept: Mutex<Kept>,
}

/// Reads back from one dataset.
struct Source<'a, P> {
    pool: &'a P,
    dataset: DatasetId,
    kept: &'a Mutex<Kept>,
}

impl<P: Pool> ReadBack for Source<'_, P> {
    fn read_back(&self, object: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, PoolFailure> {
        match self.pool.read_back(self.dataset, object, offset, buffer)? {
            0 => Ok(lock(self.kept).read(object, offset, buffer)),
            len => Ok(len),
        }
    }

    fn file_end(&self, object: ObjectId) -> Result<FileEnd, PoolFailure> {
        match self.pool.file_end(self.dataset, object)? {
            FileEnd::Gone => Ok(lock(self.kept).end(object).map_or(FileEnd::Gone, FileEnd::At)),
            end => Ok(end),
        }
    }

    fn store_bytes_min(&self) -> Option<u64> {
        self.pool.store_bytes_min()
    }

    fn store(&self, ranges: &[StoreRange]) -> Result<Vec<Vec<StoredData>>, PoolFailure> {
        self.pool.store(self.dataset, ranges)
    }
}

impl<P: Pool, K: Kind> Zil<P, K> {
    /// Wraps the log of a dataset. Only one may exist at a time, for as long as the dataset is open or [has
    /// something unsynced](Self::has_unsynced).
    pub fn new(dataset: DatasetId, pool: Arc<P>, kind: Arc<K>) -> Self {
        Self {
            dataset,
            pool,
            kind: ArcSwap::new(kind),
            lists: Mutex::default(),
            stats: Stats::default(),
            unlogged_txg: AtomicU64::new(0),
            listed_txg: AtomicU64::new(0),
            has_bypass: AtomicBool::new(true),
            kept: Mutex::default(),
        }
    }

    /// Sets whether volumes bypass the commit list where the kind allows it, as they do initially. Can be
    /// changed at any time; when off, their records go to the commit list with every kind, which is for
    /// comparison.
    pub fn set_bypass(&self, is_on: bool) {
        self.has_bypass.store(is_on, Ordering::SeqCst);
    }

    /// Sends records to another log from now on, of the same kind or not; returns the previous one.
    ///
    /// Before that, the caller must have, in this order: suspended the previous log, so that everything in it
    /// is in a synced txg and no header names it; stored a header that names `new`, and waited until that is
    /// durable (or `new` takes no records until it is, as the logs of this crate do). After the switch it
    /// drops the previous log, or keeps it suspended.
    ///
    /// Concurrency: any number of threads. A thread that still uses the previous log is refused by it and
    /// waits for a txg. Commits wait for txgs until everything that the previous log took over without
    /// writing it has synced. Why nothing acknowledged is lost: `docs/adr/2026-11-22-kinds-and-switching.md`.
    pub fn switch_kind(&self, new: Arc<K>) -> Arc<K> {
        let mut lists = lock(&self.lists);
        lists.leave_behind();
        self.kind.swap(new)
    }

    /// Keeps the description of a change that a transaction of `txg` has made. Must be called before the
    /// transaction ends, under the lock that orders changes of what it touches.
    pub fn assign(&self, txg: Txg, itx: Itx) {
        self.stats.assigned(itx.class(), itx.len_bytes());
        let synced = lock(&self.lists).assign(txg, itx);
        drop(synced); // Not under the lock: it may be much.
    }

    /// From now on the object's records keep their place: at the first opening with `O_SYNC`.
    pub fn promote(&self, object: ObjectId) {
        lock(&self.lists).promote(object);
    }

    /// The object was deleted with its last link: its records that need not keep their place need not be
    /// written.
    pub fn forget(&self, object: ObjectId) {
        let forgotten = lock(&self.lists).forget(object);
        drop(forgotten);
    }

    /// A file is about to be removed with its bytes, and nothing writes to it any more: what records that
    /// keep their place say of its bytes is read now, for the commits that will need it. To be called before
    /// the transaction that removes it. If that is too much to keep, or cannot be read, such a commit waits
    /// for its txg.
    pub fn keep_bytes(&self, object: ObjectId) {
        let (txg, ranges) = lock(&self.lists).read_back(object, self.pool.synced_txg());
        if ranges.is_empty() {
            return;
        }
        let room_bytes = lock(&self.kept).room_bytes();
        let source = Source { pool: &*self.pool, dataset: self.dataset, kept: &self.kept };
        if let Some(file) = KeptFile::read(&source, object, txg, ranges, room_bytes) {
            lock(&self.kept).add(object, file);
        }
    }

    /// Makes everything durable that was assigned before the call: all records that keep their place, and
    /// those of `object` (of all objects for [`ObjectId::NONE`]). Before it writes anything, waits for the
    /// txg of changes that were [not logged](Self::note_unlogged): later records may depend on them.
    ///
    /// Persistence: durable on return, in the log; or, if the log does not take a record, through its txg,
    /// which costs a wait and is counted. Concurrency: commits run in parallel. A commit returns only when
    /// whatever it needs of what an earlier commit took over is durable, too; it does not wait for the rest
    /// of what that commit writes.
    ///
    /// # Errors
    /// [`CommitError`]; nothing is known to be durable.
    pub fn commit(&self, object: ObjectId) -> Result<Committed, CommitError> {
        self.stats.commit();
        let unlogged = match self.unlogged_txg.load(Ordering::SeqCst) {
            0 => Committed::Logged,
            _ => self.wait_unlogged(None)?,
        };
        let listed = self.commit_lists(object)?;
        Ok(if listed == Committed::Logged { unlogged } else { listed })
    }

    pub(crate) fn commit_lists(&self, object: ObjectId) -> Result<Committed, CommitError> {
        let synced = self.pool.synced_txg();
        let (kind, horizon, behind) = {
            // Entries reach the kind in the order in which they are taken, which is the order of replay. A
            // kind that was replaced gets none.
            let mut lists = lock(&self.lists);
            let kind = self.kind.load_full();
            let horizon = kind.submit(lists.take(object, synced));
            (kind, horizon, lists.is_behind(synced))
        };
        if let Some(txg) = behind {
            return self.wait_instead(NotPersisted { txg, cause: LogCause::Behind });
        }
        let source = Source { pool: &*self.pool, dataset: self.dataset, kept: &self.kept };
        match kind.persist(object, horizon, &source) {
            Ok(persisted) => {
                self.stats.persisted(persisted);
                Ok(Committed::Logged)
            }
            Err(not_persisted) => self.wait_instead(not_persisted),
        }
    }

    /// Waits for the txg of what is not in the log.
    pub(crate) fn wait_instead(&self, not_persisted: NotPersisted) -> Result<Committed, CommitError> {
        self.stats.fallback(not_persisted.cause);
        if not_persisted.cause == LogCause::NotReplayed {
            self.stats.error();
            return Err(CommitError::NotReplayed);
        }
        let waited = if self.pool.is_suspended() && self.pool.synced_txg() < not_persisted.txg {
            // This would wait until the pool is repaired; whether to do that is the caller's choice.
            Err(PoolFailure::new(fastness_base::ErrorKind::Closed, "the pool is suspended"))
        } else {
            self.pool.wait_synced(not_persisted.txg)
        };
        match waited {
            Ok(()) => Ok(Committed::Synced(not_persisted.txg)),
            Err(source) => {
                self.stats.error();
                Err(CommitError::Pool { not_persisted, source })
            }
        }
    }

    /// Forgets what is now durable. The pool's owner calls it after each txg.
    pub fn txg_synced(&self, txg: Txg) {
        let unlogged = self.unlogged_txg.load(Ordering::SeqCst);
        if unlogged > 0 && unlogged <= txg.0 {
            // Nothing has to wait for it, unless there was another one meanwhile.
            let _ = self.unlogged_txg.compare_exchange(unlogged, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        let detached = lock(&self.lists).detach(txg);
        let forgotten = lock(&self.kept).forget_synced(txg);
        drop((detached, forgotten));
        self.kind.load().txg_synced(txg);
    }

    /// Whether the next commit or flush may have something to wait for: records that no commit has taken, or
    /// changes that are in no log, of txgs after `synced`. While it does, the dataset must not get another
    /// intent log, which would know nothing of them.
    pub fn has_unsynced(&self, synced: Txg) -> bool {
        let newest = self.unlogged_txg.load(Ordering::SeqCst).max(self.listed_txg.load(Ordering::SeqCst));
        newest > synced.0 || lock(&self.lists).has_unsynced(synced)
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The dataset.
    pub fn dataset(&self) -> DatasetId {
        self.dataset
    }

    /// Lets `look` inspect its log without keeping a reference beyond the call; costs almost nothing.
    #[inline]
    pub fn with_kind<T>(&self, look: impl FnOnce(&K) -> T) -> T {
        look(&self.kind.load())
    }

    /// Its current log.
    pub fn kind(&self) -> Arc<K> {
        self.kind.load_full()
    }

    /// Number of records in memory that no commit has taken yet.
    pub fn pending_records(&self) -> usize {
        lock(&self.lists).len()
    }
}
