//! A pool with logs of some kind, and one dataset in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastness_lwb::Space;
use fastness_pmem::Medium;
use fastness_prb::Config;
use fastness_zil::record::Time;
use fastness_zil::*;

use super::*;

/// What the logs of both kinds have.
pub trait Log: Kind + 'static {
    fn refusal(&self) -> Option<LogCause>;
    fn unreplayed_records(&self) -> u64;
    fn pending_entries(&self) -> usize;
    fn suspend(&self, pool: &PoolRef) -> Result<(), LogError>;
    fn resume(&self, pool: &PoolRef) -> Result<(), LogError>;
    fn replay(&self, pool: &PoolRef, handler: &mut Apply) -> Result<Replayed, ReplayFailure>;
    fn drop_tail(&self, pool: &PoolRef) -> Result<u64, LogError>;
    /// What a log does that is not written for a while; whether it did.
    fn witness(&self) -> bool;
}

/// The logs of a pool.
pub trait Logs: Send + Sync + 'static {
    type Log: Log;
    fn get(&self, dataset: DatasetId) -> Option<Arc<Self::Log>>;
    fn datasets(&self) -> Vec<DatasetId>;
    fn create(&self, pool: &PoolRef, tx: &Tx, dataset: DatasetId) -> Result<Arc<Self::Log>, LogError>;
    fn destroy(&self, pool: &PoolRef, tx: &Tx, dataset: DatasetId) -> Result<(), LogError>;
    fn sync(&self, txg: Txg, put: Put<'_>);
    fn synced(&self, txg: Txg);
}

macro_rules! common_log {
    () => {
        fn refusal(&self) -> Option<LogCause> {
            self.refusal()
        }
        fn unreplayed_records(&self) -> u64 {
            self.unreplayed_records()
        }
        fn pending_entries(&self) -> usize {
            self.pending_entries()
        }
        fn suspend(&self, pool: &PoolRef) -> Result<(), LogError> {
            self.suspend(pool)
        }
        fn resume(&self, pool: &PoolRef) -> Result<(), LogError> {
            self.resume(pool)
        }
        fn replay(&self, pool: &PoolRef, handler: &mut Apply) -> Result<Replayed, ReplayFailure> {
            self.replay(pool, handler)
        }
        fn drop_tail(&self, pool: &PoolRef) -> Result<u64, LogError> {
            self.drop_tail(pool)
        }
    };
}

macro_rules! common_logs {
    () => {
        fn get(&self, dataset: DatasetId) -> Option<Arc<Self::Log>> {
            self.get(dataset)
        }
        fn datasets(&self) -> Vec<DatasetId> {
            self.datasets()
        }
        fn create(&self, pool: &PoolRef, tx: &Tx, dataset: DatasetId) -> Result<Arc<Self::Log>, LogError> {
            self.create(pool, tx, dataset)
        }
        fn destroy(&self, pool: &PoolRef, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
            self.destroy(pool, tx, dataset)
        }
    };
}

impl<M: Medium + Sync + Send + 'static> Log for PmemLog<M> {
    common_log!();
    fn witness(&self) -> bool {
        self.witness()
    }
}

impl<S: Space + 'static> Log for LwbLog<S> {
    common_log!();
    fn witness(&self) -> bool {
        self.chain().witness_idle()
    }
}

impl<M: Medium + Sync + Send + 'static> Logs for PmemLogs<M> {
    type Log = PmemLog<M>;
    common_logs!();
    fn sync(&self, _: Txg, _: Put<'_>) {}
    fn synced(&self, txg: Txg) {
        let _ = self.txg_synced(txg);
    }
}

impl<S: Space + 'static> Logs for LwbLogs<S> {
    type Log = LwbLog<S>;
    common_logs!();
    fn sync(&self, txg: Txg, put: Put<'_>) {
        self.sync(txg, put);
    }
    fn synced(&self, txg: Txg) {
        self.txg_synced(txg);
    }
}

/// A pool with logs, and one dataset in use.
pub struct World<L: Logs> {
    pub pool: PoolRef,
    pub logs: Arc<L>,
    pub zil: Arc<Zil<PoolRef, L::Log>>,
}

fn hook<L: Logs>(pool: &PoolRef, logs: &Arc<L>) {
    let (at_sync, at_synced) = (Arc::downgrade(logs), Arc::downgrade(logs));
    pool.sync_hook(move |txg, put| {
        if let Some(logs) = at_sync.upgrade() {
            logs.sync(txg, put);
        }
    });
    pool.hook(move |txg| {
        if let Some(logs) = at_synced.upgrade() {
            logs.synced(txg);
        }
    });
}

fn open<L: Logs>(pool: PoolRef, logs: Arc<L>, dataset: DatasetId) -> World<L> {
    let log = logs.get(dataset).unwrap();
    let zil = Arc::new(Zil::new(dataset, Arc::new(pool.clone()), log));
    let (hook_logs, hook_zil) = (Arc::downgrade(&logs), Arc::downgrade(&zil));
    pool.hook(move |txg| {
        if let Some(logs) = hook_logs.upgrade() {
            logs.synced(txg);
        }
        if let Some(zil) = hook_zil.upgrade() {
            zil.txg_synced(txg);
        }
    });
    World { pool, logs, zil }
}

impl<M: Medium + Sync + Send + 'static> World<PmemLogs<M>> {
    /// A new pool with these contents, whose dataset's log can be written.
    pub fn new(config: Config, ranges: Vec<M>, contents: Contents) -> Self {
        Self::with(PmemLogs::format(config, ranges).unwrap(), contents)
    }

    /// Claims what a crash left; fails as the claim does.
    pub fn import(config: Config, ranges: Vec<M>, disk: Disk) -> Result<Self, ClaimProblem> {
        let import = |pool: &PoolRef, first, headers| {
            let import = PmemLogs::import(config, ranges, first, headers).unwrap();
            if let Some(problem) = import.problems().next() {
                return Err(problem.clone());
            }
            Ok(import.finish(pool, &pool.tx()).unwrap())
        };
        Self::imported(disk, import)
    }
}

impl<L: Logs> World<L> {
    /// A new pool with these contents, whose dataset's log can be written.
    pub fn with(logs: L, contents: Contents) -> Self {
        let disk = Disk { contents: BTreeMap::from([(DATASET, contents)]), ..Disk::default() };
        let pool = PoolRef::new(disk);
        let logs = Arc::new(logs);
        hook(&pool, &logs);
        logs.create(&pool, &pool.tx(), DATASET).unwrap();
        let world = open(pool, logs, DATASET);
        world.pool.sync();
        assert_eq!(world.zil.kind().refusal(), None);
        world
    }

    /// Claims what a crash left; fails as the claim does.
    pub fn imported(
        disk: Disk,
        import: impl FnOnce(&PoolRef, Txg, Vec<(DatasetId, Option<Vec<u8>>)>) -> Result<L, ClaimProblem>,
    ) -> Result<Self, ClaimProblem> {
        let pool = PoolRef::new(disk.clone());
        let headers = disk.contents.keys().map(|id| (*id, disk.headers.0.get(id).cloned())).collect();
        let logs = Arc::new(import(&pool, Txg(disk.synced + 1), headers)?);
        hook(&pool, &logs);
        Ok(open(pool, logs, DATASET))
    }

    pub fn replay(&self) -> Result<Replayed, ReplayFailure> {
        self.zil.kind().replay(&self.pool, &mut Apply::new(&self.pool, DATASET))
    }

    /// Makes a change in a transaction and assigns it.
    pub fn change(&self, op: &Op) {
        let tx = self.pool.tx();
        self.pool.apply(&tx, DATASET, op).unwrap();
        self.zil.assign(tx.txg, itx(op));
    }

    /// Writes to the object and assigns it as a write whose data is read back.
    pub fn change_without_copy(&self, object: u64, offset: usize, data: &[u8]) {
        let tx = self.pool.tx();
        self.pool.apply(&tx, DATASET, &Op::Write(object, offset, data.to_vec())).unwrap();
        let len = data.len() as u64;
        self.zil.assign(tx.txg, Itx::need_copy(ObjectId(object), offset as u64, len, false));
    }

    /// Writes to a file whose write is to be durable on return.
    pub fn write_at_once(&self, object: u64, offset: usize, data: &[u8]) -> Option<bool> {
        let tx = self.pool.tx();
        self.pool.apply(&tx, DATASET, &Op::Write(object, offset, data.to_vec())).unwrap();
        self.zil.place_at_once(tx.txg, ObjectId(object), offset as u64, data, Time::default()).0
    }

    /// Writes to the volume.
    pub fn volume_write(&self, object: u64, offset: usize, data: &[u8]) -> (Txg, bool) {
        self.volume_write_as(object, offset, data, false)
    }

    /// Writes to the volume, with FUA.
    pub fn volume_write_fua(
        &self,
        object: u64,
        offset: usize,
        data: &[u8],
    ) -> Result<Committed, CommitError> {
        let (txg, logged) = self.volume_write_as(object, offset, data, true);
        self.zil.after_fua(txg, logged)
    }

    fn volume_write_as(&self, object: u64, offset: usize, data: &[u8], is_fua: bool) -> (Txg, bool) {
        let tx = self.pool.tx();
        self.pool.apply(&tx, DATASET, &Op::Write(object, offset, data.to_vec())).unwrap();
        (tx.txg, self.zil.log_write(tx.txg, ObjectId(object), offset as u64, data, is_fua))
    }
}
