//! A pool in use: transactions, syncing, export.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::config::{PoolConfig, PoolState};
use crate::error::{PoolError, Result};
use crate::ids::{ImportId, Mark, Txg};
use crate::room::Claim;
use crate::state::{Shared, TxgHook};
use crate::sync_util::lock;
use crate::thread;
use crate::txg::{DELAY_MAX, Hold, SHARDS};

/// An imported pool.
///
/// Persistence: changes are made in transactions; a transaction belongs to one transaction group (txg), and a
/// txg is durable as a whole once it has synced. A crash leaves exactly the last synced txg. Dropping a pool
/// is such a crash, without loss of what the operating system caches; [`export`](Self::export) is the clean
/// end. Concurrency: any number of threads.
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    homes: Vec<Arc<Home>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name())
    }
}

/// A transaction: holds its txg open. Ends when it is committed or dropped; what it changed stays either way.
///
/// A transaction must be short: its txg, and those behind it, cannot sync before it ends. Waiting for a sync
/// inside of one is a deadlock.
pub struct Tx {
    pub(crate) home: Arc<Home>,
    hold: Hold,
    /// Whether it makes changes that were accepted before.
    is_replay: bool,
}

/// What transactions of some threads refer to the pool with: if all cloned one `Arc`, all would write to its
/// counter.
#[repr(align(128))]
pub(crate) struct Home {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tx({})", self.hold.txg)
    }
}

impl Tx {
    /// The txg that its changes become durable with.
    pub fn txg(&self) -> Txg {
        self.hold.txg
    }

    /// On whose behalf it takes room.
    pub(crate) fn claim(&self, claim: Claim) -> Claim {
        if self.is_replay { Claim::Replay } else { claim }
    }

    /// Ends the transaction; says nothing about durability, see [`Pool::wait_synced`].
    pub fn commit(self) -> Txg {
        self.hold.txg
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.home.shared.pipeline.release(self.hold);
    }
}

impl Pool {
    /// A pool whose txgs do not end yet.
    pub(crate) fn paused(shared: Arc<Shared>) -> Pool {
        let homes = (0..SHARDS).map(|_| Arc::new(Home { shared: shared.clone() })).collect();
        Pool { shared, homes, thread: Mutex::new(None) }
    }

    /// Lets txgs end, after [`import_paused`](Self::import_paused); nothing happens the second time.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start_txgs(&self) -> Result<()> {
        let mut thread = lock(&self.thread);
        lock(&self.shared.log).end_claims();
        let has_thread = self.shared.options.has_txg_thread && !self.shared.options.is_read_only;
        if !has_thread || thread.is_some() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let started =
            std::thread::Builder::new().name("txg".to_owned()).spawn(move || thread::run_caught(&shared));
        *thread = Some(started.map_err(|error| PoolError::BadConfig(format!("no thread: {error}")))?);
        Ok(())
    }

    pub(crate) fn runs_txgs(&self) -> bool {
        lock(&self.thread).is_some()
    }

    /// Whether an error has ended all syncing.
    pub fn is_suspended(&self) -> bool {
        lock(&self.shared.pipeline.progress).failed.is_some()
    }

    /// Name.
    pub fn name(&self) -> String {
        lock(&self.shared.config).name.clone()
    }

    /// The configuration as the labels have it.
    pub fn config(&self) -> PoolConfig {
        lock(&self.shared.config).clone()
    }

    /// Begins a transaction in the open txg. Sleeps first, up to 50 ms at a time, while too much is dirty.
    ///
    /// # Errors
    /// [`PoolError::Suspended`], [`PoolError::Closed`], [`PoolError::ReadOnly`].
    pub fn begin_tx(&self) -> Result<Tx> {
        let shared = &self.shared;
        if shared.options.is_read_only {
            return Err(PoolError::ReadOnly(self.name()));
        }
        if shared.must_check.load(Ordering::Relaxed) {
            shared.check_alive()?;
        }
        let delay = shared.pipeline.delay();
        if !delay.is_zero() && self.is_syncing_alone() {
            std::thread::sleep(delay);
            while shared.pipeline.is_full() {
                shared.check_alive()?;
                if !self.is_syncing_alone() {
                    break;
                }
                std::thread::sleep(DELAY_MAX / 10);
            }
        }
        let hold = shared.pipeline.hold();
        let tx = Tx { home: self.homes[hold.shard].clone(), hold, is_replay: false };
        // Again: a pool that is given up waits for the transactions that it can see, and there must be none
        // behind them.
        if shared.must_check.load(Ordering::Relaxed) {
            shared.check_alive()?;
        }
        Ok(tx)
    }

    /// Begins a transaction for changes that were accepted before a crash or a suspension: replay of a log,
    /// and [`Unsynced::apply`](crate::Unsynced::apply). It finds room whatever users may take now, because it
    /// was reserved then (`room`), and is in no quota's way. One record at a time: waits for a txg, if one
    /// can sync, while there is less room than a record may need.
    ///
    /// # Errors
    /// As [`begin_tx`](Self::begin_tx); those of a sync.
    pub fn begin_replay_tx(&self) -> Result<Tx> {
        let shared = &self.shared;
        let is_started = lock(&shared.log).has_ended_claims;
        let is_short = shared.room.left(Claim::Replay) < (shared.room.slop_bytes() / 4) as i64;
        if is_started && is_short && self.has_unsynced() {
            self.sync()?;
        }
        let mut tx = self.begin_tx()?;
        tx.is_replay = true;
        Ok(tx)
    }

    /// Runs `change` in a transaction of its own, and again in a newer one as long as it is overtaken; once
    /// more if it found no room and there may be some after a sync. Returns what it returned, and the txg to
    /// wait for.
    ///
    /// # Errors
    /// Those of [`begin_tx`](Self::begin_tx) and of `change`, which may have changed something then.
    pub fn transact<T>(&self, mut change: impl FnMut(&Tx) -> Result<T>) -> Result<(T, Txg)> {
        let mut is_reclaimed = false;
        loop {
            let tx = self.begin_tx()?;
            match change(&tx) {
                Err(PoolError::Overtaken { .. }) => {}
                Err(error @ PoolError::NoSpace { .. }) if !is_reclaimed => {
                    drop(tx);
                    is_reclaimed = true;
                    if !self.reclaim()? {
                        return Err(error);
                    }
                }
                result => return result.map(|value| (value, tx.commit())),
            }
        }
    }

    fn has_unsynced(&self) -> bool {
        self.shared.changes.iter().any(|changes| !lock(changes).is_empty())
    }

    /// Whether dirty bytes become fewer without the caller's help.
    fn is_syncing_alone(&self) -> bool {
        lock(&self.thread).is_some() && !lock(&self.shared.pipeline.progress).is_frozen
    }

    /// Whether txgs are freeing what was destroyed or cleared before: then there will be more room.
    pub fn is_freeing(&self) -> bool {
        self.shared.is_freeing()
    }

    /// Makes everything durable that was committed before the call; returns the txg that did it. Without a
    /// txg thread the sync runs in the calling thread.
    ///
    /// # Errors
    /// [`PoolError::Suspended`] and the error that led to it; it is then unknown what of the open txgs is
    /// durable.
    pub fn sync(&self) -> Result<Txg> {
        if self.shared.options.is_read_only {
            return Err(PoolError::ReadOnly(self.name()));
        }
        if !self.shared.options.has_txg_thread {
            return self.shared.sync_txg();
        }
        let txg = self.shared.pipeline.open_txg();
        self.wait_synced(txg)?;
        Ok(txg)
    }

    /// After [`PoolError::NoSpace`]: syncs what is unsynced, because what that frees or replaces can be used
    /// again only when it is durable. `false`: there is nothing unsynced, or nobody syncs but the caller;
    /// trying again would not help. The caller holds no transaction.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn reclaim(&self) -> Result<bool> {
        let open = self.open_txg();
        // One that is being synced has handed its changes over.
        let is_changed = self.has_unsynced() || self.shared.is_freeing();
        let newest = if is_changed { open } else { Txg(open.0 - 1) };
        let helps = newest > self.synced_txg() && self.is_syncing_alone();
        if helps {
            self.wait_synced(newest)?;
        }
        Ok(helps)
    }

    /// Makes the open txg end soon, without waiting for it: somebody holds on to something until it is
    /// durable.
    pub fn end_txg_soon(&self) {
        self.shared.pipeline.end_soon();
    }

    /// Waits until a txg is durable, and makes it end soon if it is still open.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        let shared = &self.shared;
        if !shared.options.has_txg_thread {
            while lock(&shared.pipeline.progress).synced < txg {
                shared.sync_txg()?;
            }
            return Ok(());
        }
        let mut progress = lock(&shared.pipeline.progress);
        progress.wanted = progress.wanted.max(txg);
        shared.pipeline.changed.notify_all();
        loop {
            if progress.synced >= txg {
                return Ok(());
            }
            if let Some(error) = &progress.failed {
                return Err(error.clone());
            }
            if progress.is_stopping {
                return Err(PoolError::Closed);
            }
            progress = shared.pipeline.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The newest durable txg.
    pub fn synced_txg(&self) -> Txg {
        lock(&self.shared.pipeline.progress).synced
    }

    /// The newest durable txg, and the import that wrote it: what a log outside of the pool's devices keeps
    /// as well, so that an older copy of either is found out.
    pub fn synced_mark(&self) -> Mark {
        lock(&self.shared.uberblock).mark()
    }

    /// Whether the pool had been exported before this import, or was made just now: no crash was in between.
    pub fn was_exported(&self) -> bool {
        self.shared.was_exported
    }

    /// The number of this import, which is in the marks of the txgs that it syncs.
    pub fn import_id(&self) -> ImportId {
        self.shared.import
    }

    /// The txg that new transactions join.
    pub fn open_txg(&self) -> Txg {
        self.shared.pipeline.open_txg()
    }

    /// For tests: no txg syncs from now on, whatever anyone waits for; what is dirty then is lost when the
    /// pool is dropped, as in a crash. There is no way back.
    pub fn freeze(&self) {
        let _syncing = lock(&self.shared.syncing);
        lock(&self.shared.pipeline.progress).is_frozen = true;
    }

    /// Calls `hook` in each txg from now on.
    pub fn add_hook(&self, hook: Arc<dyn TxgHook>) {
        lock(&self.shared.hooks).push(hook);
    }

    /// Syncs everything, gives the pool back and closes it; every later call fails with
    /// [`PoolError::Closed`]. Devices stay locked until all handles (objects, datasets, transactions) are
    /// dropped too.
    ///
    /// # Errors
    /// Those of a sync; the pool is closed all the same, and its labels say that it is in use.
    pub fn export(&self) -> Result<()> {
        let result = if self.shared.options.is_read_only { Ok(()) } else { self.last_sync() };
        self.stop();
        result
    }

    fn last_sync(&self) -> Result<()> {
        // What is committed by others from here on, until the pool is closed, is lost: they were to stop
        // first.
        self.sync()?;
        let _syncing = lock(&self.shared.syncing);
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.must_check.store(true, Ordering::SeqCst);
        self.shared.write_labels(|config| config.state = PoolState::Exported)
    }

    pub(crate) fn stop(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.must_check.store(true, Ordering::SeqCst);
        {
            let mut progress = lock(&self.shared.pipeline.progress);
            progress.is_stopping = true;
            self.shared.pipeline.changed.notify_all();
        }
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic of the thread has been reported by itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Checks a name for a pool.
pub(crate) fn check_name(name: &str) -> Result<()> {
    crate::dataset::check_component(name)
}
