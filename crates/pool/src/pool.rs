//! A pool in use: transactions, syncing, export.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crate::devices::config::{PoolConfig, PoolState};
use crate::error::{PoolError, Result};
use crate::ids::{ImportId, Mark, Txg};
use crate::order;
use crate::space::room::Claim;
use crate::state::Shared;
use crate::state::txgs::TxgHook;
use crate::txg::pipeline::{DELAY_MAX, Hold, SHARDS};
use crate::txg::thread;
use fastness_sync::order::{Mutex, lock, wait};
use fastness_sync::sleep;

/// An imported pool.
///
/// Persistence: changes are made in transactions; a transaction belongs to one transaction group (txg), and
/// a txg is durable as a whole once it has synced. A crash leaves exactly the last synced txg. Dropping a
/// pool amounts to such a crash, except that what the operating system caches is not lost;
/// [`export`](Self::export) is the clean end. Concurrency: any number of threads.
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    homes: Vec<Arc<Home>>,
    thread: Mutex<Option<JoinHandle<()>>, { order::THREAD }>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.name())
    }
}

/// A transaction: holds its txg open. Ends when it is committed or dropped; its changes stay either way.
///
/// A transaction must be short: its txg, and later ones, cannot sync before it ends. Waiting for a sync
/// inside a transaction is a deadlock.
pub struct Tx {
    pub(crate) home: Arc<Home>,
    hold: Hold,
    /// Whether its changes were accepted before.
    is_replay: bool,
}

/// How transactions of a group of threads refer to the pool: if all cloned one `Arc`, all would write to its
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

    /// The claim under which it takes room.
    pub(crate) fn claim(&self, claim: Claim) -> Claim {
        if self.is_replay { Claim::Replay } else { claim }
    }

    /// Whether its changes were accepted before a crash or a suspension: a dataset that has become read-only
    /// since takes them all the same.
    pub(crate) fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Ends the transaction; this says nothing about durability, see [`Pool::wait_synced`].
    pub fn commit(self) -> Txg {
        self.hold.txg
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.home.shared.txgs.pipeline.release(self.hold);
    }
}

impl Pool {
    /// A pool whose txgs do not end yet.
    pub(crate) fn paused(shared: Arc<Shared>) -> Pool {
        let homes = (0..SHARDS).map(|_| Arc::new(Home { shared: shared.clone() })).collect();
        Pool { shared, homes, thread: Mutex::new(None) }
    }

    /// Lets txgs end, after [`import_paused`](Self::import_paused); a second call does nothing.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start_txgs(&self) -> Result<()> {
        let mut thread = lock(&self.thread);
        lock(&self.shared.space.log).end_claims();
        let has_thread = self.shared.options.has_txg_thread && !self.shared.options.is_read_only;
        if !has_thread || thread.is_some() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let started =
            std::thread::Builder::new().name("txg".to_owned()).spawn(move || thread::run_caught(&shared));
        *thread = Some(started.map_err(|error| PoolError::NoThread(Arc::new(error)))?);
        Ok(())
    }

    pub(crate) fn runs_txgs(&self) -> bool {
        lock(&self.thread).is_some()
    }

    /// Whether an error has ended all syncing.
    pub fn is_suspended(&self) -> bool {
        lock(&self.shared.txgs.pipeline.progress).failed.is_some()
    }

    /// Name.
    pub fn name(&self) -> String {
        lock(&self.shared.devices.config).name.clone()
    }

    /// The configuration as the labels have it.
    pub fn config(&self) -> PoolConfig {
        lock(&self.shared.devices.config).clone()
    }

    /// Begins a transaction in the open txg. First sleeps, up to 50 ms at a time, while too much is dirty.
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
        let delay = shared.txgs.pipeline.delay();
        if !delay.is_zero() && self.is_syncing_alone() {
            sleep(delay);
            while shared.txgs.pipeline.is_full() {
                shared.check_alive()?;
                if !self.is_syncing_alone() {
                    break;
                }
                sleep(DELAY_MAX / 10);
            }
        }
        let hold = shared.txgs.pipeline.hold();
        let tx = Tx { home: self.homes[hold.shard].clone(), hold, is_replay: false };
        // Checked again: abandoning a pool waits for the transactions that it can see, and there must be
        // none after them.
        if shared.must_check.load(Ordering::Relaxed) {
            shared.check_alive()?;
        }
        Ok(tx)
    }

    /// Whether a transaction of a replay may make the changes of another record: there is room for one,
    /// memory is not short, and no txg waits for the transaction to end.
    pub fn may_go_on(&self, tx: &Tx) -> bool {
        let shared = &self.shared;
        shared.txgs.pipeline.open_txg() == tx.txg()
            && shared.txgs.pipeline.delay().is_zero()
            && !shared.is_short_for_replay()
    }

    /// Begins a transaction for changes that were accepted before a crash or a suspension: replay of a log,
    /// and [`Unsynced::apply`](crate::Unsynced::apply). It finds room whatever users may take now, because
    /// the room was reserved then (`room`), and neither a quota nor `readonly` limits it. While there is
    /// less room than a record may need, waits for a txg, if one can sync. One record at a time, and another
    /// one in the same transaction only if it [may go on](Self::may_go_on).
    ///
    /// # Errors
    /// As [`begin_tx`](Self::begin_tx); those of a sync.
    pub fn begin_replay_tx(&self) -> Result<Tx> {
        let shared = &self.shared;
        let is_started = lock(&shared.space.log).has_ended_claims;
        if is_started && shared.is_short_for_replay() && self.has_unsynced() {
            self.sync()?;
        }
        let mut tx = self.begin_tx()?;
        tx.is_replay = true;
        Ok(tx)
    }

    fn has_unsynced(&self) -> bool {
        self.shared.txgs.has_changes()
    }

    /// Whether dirty bytes go down without the caller's help.
    fn is_syncing_alone(&self) -> bool {
        lock(&self.thread).is_some() && !lock(&self.shared.txgs.pipeline.progress).is_frozen
    }

    /// Whether txgs are freeing what was destroyed or cleared before: then there will be more space.
    pub fn is_freeing(&self) -> bool {
        self.shared.backlog.is_freeing()
    }

    /// Makes everything durable that was committed before the call; returns the txg that did it. Without a
    /// txg thread the calling thread runs the sync.
    ///
    /// # Errors
    /// [`PoolError::Suspended`] and the error that led to it; how much of the open txgs is durable is then
    /// unknown.
    pub fn sync(&self) -> Result<Txg> {
        if self.shared.options.is_read_only {
            return Err(PoolError::ReadOnly(self.name()));
        }
        if !self.shared.options.has_txg_thread {
            return self.shared.sync_txg();
        }
        let txg = self.shared.txgs.pipeline.open_txg();
        self.wait_synced(txg)?;
        Ok(txg)
    }

    /// After [`PoolError::NoSpace`]: syncs what is unsynced, because what that frees or replaces can be
    /// reused only once it is durable; and waits for space that a trim holds. `false`: there is none, and
    /// nothing is unsynced, or nothing but the caller syncs; trying again would not help. The caller must
    /// hold no transaction.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn reclaim(&self) -> Result<bool> {
        let open = self.open_txg();
        // The txg being synced has already handed its changes over.
        let is_changed = self.has_unsynced() || self.shared.backlog.is_freeing();
        let newest = if is_changed { open } else { Txg(open.0 - 1) };
        let helps = newest > self.synced_txg() && self.is_syncing_alone();
        if helps {
            self.wait_synced(newest)?;
        }
        Ok(self.wait_trimmed() || helps)
    }

    /// Makes the open txg end soon, without waiting for it: something is being held until it is durable.
    pub fn end_txg_soon(&self) {
        self.shared.txgs.pipeline.end_soon();
    }

    /// Waits until a txg is durable; if it is still open, makes it end soon.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn wait_synced(&self, txg: Txg) -> Result<()> {
        let shared = &self.shared;
        if !shared.options.has_txg_thread {
            while lock(&shared.txgs.pipeline.progress).synced < txg {
                shared.sync_txg()?;
            }
            return Ok(());
        }
        let mut progress = lock(&shared.txgs.pipeline.progress);
        progress.wanted = progress.wanted.max(txg);
        shared.txgs.pipeline.changed.notify_all();
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
            progress = wait(&shared.txgs.pipeline.changed, progress);
        }
    }

    /// The newest durable txg.
    pub fn synced_txg(&self) -> Txg {
        lock(&self.shared.txgs.pipeline.progress).synced
    }

    /// The newest durable txg, and the import that wrote it: a log outside the pool's devices records this
    /// too, so that an older copy of either is recognised.
    pub fn synced_mark(&self) -> Mark {
        lock(&self.shared.devices.uberblock).mark()
    }

    /// Whether the pool was exported before this import, or was just created: no crash came in between.
    pub fn was_exported(&self) -> bool {
        self.shared.devices.was_exported
    }

    /// The number of this import, which is in the marks of the txgs that it syncs.
    pub fn import_id(&self) -> ImportId {
        self.shared.devices.import
    }

    /// The txg that new transactions join.
    pub fn open_txg(&self) -> Txg {
        self.shared.txgs.pipeline.open_txg()
    }

    /// For tests: no txg syncs from now on, whatever waits for one; what is dirty is lost when the pool is
    /// dropped, as in a crash. This cannot be undone.
    pub fn freeze(&self) {
        let _syncing = lock(&self.shared.txgs.syncing);
        lock(&self.shared.txgs.pipeline.progress).is_frozen = true;
    }

    /// Calls `hook` in each txg from now on.
    pub fn add_hook(&self, hook: Arc<dyn TxgHook>) {
        self.shared.txgs.add_hook(hook);
    }

    /// Syncs everything, releases the pool and closes it. From then on nothing of it is changed, opened or
    /// read, not even what is in memory: such calls fail with [`PoolError::Closed`]. What it is like (names,
    /// properties, sizes, status) can still be asked. Devices stay locked until all handles (objects,
    /// datasets, transactions) are dropped too.
    ///
    /// # Errors
    /// Those of a sync; the pool is closed all the same, and its labels say that it is in use.
    pub fn export(&self) -> Result<()> {
        let result = match self.shared.options.is_read_only {
            true => Ok(()),
            false => self.last_sync(PoolState::Exported),
        };
        self.stop();
        result
    }

    /// Closes all devices, whoever still has the pool: its owner ends. An image's lock is given up here,
    /// which a process that just ends does not do; another host would have to wait until it is taken for
    /// dead.
    pub fn release(&self) {
        self.stop();
        self.shared.let_go();
    }

    /// Syncs everything, and says in the labels what has become of the pool.
    pub(crate) fn last_sync(&self, state: PoolState) -> Result<()> {
        // What other threads commit from here on, until the pool is closed, is lost: they should have
        // stopped.
        self.sync()?;
        let _syncing = lock(&self.shared.txgs.syncing);
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.must_check.store(true, Ordering::SeqCst);
        self.shared.write_labels(|config| config.state = state)
    }

    pub(crate) fn stop(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        self.shared.must_check.store(true, Ordering::SeqCst);
        {
            let mut progress = lock(&self.shared.txgs.pipeline.progress);
            progress.is_stopping = true;
            self.shared.txgs.pipeline.changed.notify_all();
        }
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
        // The step of a trim that runs is the last one.
        drop(lock(&self.shared.space.trimming));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}
