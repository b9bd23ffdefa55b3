//! The log of one dataset: its chain, and its state.

use std::sync::Arc;

use fastness_lwb::{CommitError, Header, Log, Lsn, Options, Space};
use fastness_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, lock};

use crate::error::{LogCause, LogError};
use crate::graph::Graph;
use crate::header::{KindId, StoredHeader};
use crate::lwb::held::Held;
use crate::lwb::written::{Noted, Written};
use crate::pool::Pool;
use fastness_base::{DatasetId, Txg};

/// What the log's life cycle allows; whether the chain is writable is up to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    InUse = 0,
    Suspended,
    NotReplayed,
    Destroyed,
}

/// Commits in progress.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// Entries that have not been passed to the chain yet.
    pub(super) graph: Graph,
    /// Threads waiting for others to append.
    pub(super) waiters: usize,
    /// The last record of every entry that has left the graph.
    pub(super) last: Lsn,
    /// The newest txg of these.
    pub(super) newest: Txg,
}

/// Which headers the log stores, and what it holds until a txg has synced.
#[derive(Debug)]
pub(super) struct Life<S: Space> {
    /// The first txg whose header the log stores: before that, the dataset does not exist, or replay
    /// transactions store the header.
    pub(super) from: Option<Txg>,
    /// The txg that destroys the dataset: from then on there is no header.
    pub(super) until: Option<Txg>,
    /// The header that was returned last.
    put: Option<(Txg, Header)>,
    /// The durable header; `None` if the log did not store it.
    durable: Option<Header>,
    /// A chain that was replayed or given up, and the txg from which on no header names it.
    pub(super) release: Option<(Txg, Held<S>)>,
}

/// The log of one dataset in a chain of log-write blocks.
///
/// Concurrency: any number of threads. Locks, none of which is held during I/O or while data is read back:
/// `commits` or `life`, then those of the chain. Only replay holds `claimed`, for as long as it runs.
#[derive(Debug)]
pub struct LwbLog<S: Space> {
    pub(super) dataset: DatasetId,
    pub(super) log: Log<Arc<S>>,
    pub(super) commits: Mutex<Commits>,
    pub(super) changed: Condvar,
    status: AtomicU8,
    pub(super) life: Mutex<Life<S>>,
    pub(super) claimed: Mutex<Option<Held<S>>>,
    /// Records that claim found and that have not been replayed yet.
    pub(super) unreplayed: AtomicU64,
    pub(super) noted: Noted,
    last_error: Mutex<Option<CommitError>>,
}

impl<S: Space> LwbLog<S> {
    /// A log that has a chain from txg `from` on.
    pub(super) fn new(
        dataset: DatasetId,
        space: Arc<S>,
        written: Arc<Written>,
        synced: Txg,
        from: Txg,
    ) -> Self {
        let log = Self::build(dataset, space, written, synced, None);
        lock(&log.life).from = Some(from);
        log.log.start();
        log
    }

    /// A log that must be replayed first.
    pub(super) fn unreplayed(
        dataset: DatasetId,
        space: Arc<S>,
        written: Arc<Written>,
        synced: Txg,
        claimed: Held<S>,
    ) -> Self {
        Self::build(dataset, space, written, synced, Some(claimed))
    }

    fn build(
        dataset: DatasetId,
        space: Arc<S>,
        written: Arc<Written>,
        synced: Txg,
        claimed: Option<Held<S>>,
    ) -> Self {
        let status = if claimed.is_some() { Status::NotReplayed } else { Status::InUse };
        let unreplayed = claimed.as_ref().map_or(0, |held| held.chain.records());
        Self {
            dataset,
            log: Log::new(space, synced, Options::default()),
            commits: Mutex::default(),
            changed: Condvar::new(),
            status: AtomicU8::new(status as u8),
            life: Mutex::new(Life { from: None, until: None, put: None, durable: None, release: None }),
            claimed: Mutex::new(claimed),
            unreplayed: AtomicU64::new(unreplayed),
            noted: Noted::new(written),
            last_error: Mutex::new(None),
        }
    }

    /// Why nothing can be committed now; `None` if commits are possible.
    pub fn refusal(&self) -> Option<LogCause> {
        self.status_cause().or_else(|| self.log.down().map(|error| cause_of(&error)))
    }

    /// As [`refusal`](Self::refusal), without checking the chain.
    pub(super) fn status_cause(&self) -> Option<LogCause> {
        match self.status.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(LogCause::Suspended),
            2 => Some(LogCause::NotReplayed),
            _ => Some(LogCause::Destroyed),
        }
    }

    pub(super) fn set_status(&self, status: Status) {
        self.status.store(status as u8, Ordering::SeqCst);
    }

    /// The dataset.
    pub fn dataset(&self) -> DatasetId {
        self.dataset
    }

    /// Records that wait for replay.
    pub fn unreplayed_records(&self) -> u64 {
        self.unreplayed.load(Ordering::Relaxed)
    }

    /// The last error of the chain that a commit met, if any.
    pub fn last_error(&self) -> Option<CommitError> {
        lock(&self.last_error).clone()
    }

    /// Entries of commit lists that were taken over but not appended yet.
    pub fn pending_entries(&self) -> usize {
        lock(&self.commits).graph.len()
    }

    /// The underlying chain: counters, space in use.
    pub fn chain(&self) -> &Log<Arc<S>> {
        &self.log
    }

    /// Maps an error of the chain to its cause.
    #[cold]
    pub(super) fn note_error(&self, error: CommitError) -> LogCause {
        let cause = self.status_cause().unwrap_or_else(|| cause_of(&error));
        *lock(&self.last_error) = Some(error);
        cause
    }

    /// The header to store with `txg`, if the log must store one and it differs from the durable one.
    pub(super) fn sync(&self, txg: Txg) -> Option<Vec<u8>> {
        let mut life = lock(&self.life);
        if life.from.is_none_or(|from| txg < from) {
            return None;
        }
        let header = self.log.sync_header(txg);
        if life.until.is_some_and(|until| until <= txg) {
            return None;
        }
        life.put = Some((txg, header));
        // A pool that fails to sync a txg asks again: what was returned before says nothing about what is
        // durable.
        (life.durable != Some(header)).then(|| stored(&header))
    }

    /// A txg is durable, and with it the header that was stored in it.
    pub(super) fn headers_synced(&self, txg: Txg) {
        let release = {
            let mut life = lock(&self.life);
            if let Some((_, header)) = life.put.take_if(|(at, _)| *at <= txg) {
                life.durable = Some(header);
            }
            life.release.take_if(|(at, _)| *at <= txg)
        };
        self.log.synced(txg);
        if let Some((_, claimed)) = release {
            claimed.release();
        }
    }

    /// Whether the log has anything in the space.
    pub(super) fn holds_space(&self) -> bool {
        lock(&self.life).release.is_some() || !self.log.extents().is_empty()
    }

    /// Gives up what was claimed, and begins a new chain with the transaction.
    pub(super) fn start_anew(&self, claimed: Held<S>, txg: Txg) {
        let mut life = lock(&self.life);
        life.release = Some((txg, claimed));
        life.from = Some(txg);
        self.unreplayed.store(0, Ordering::Relaxed);
        self.log.start();
        self.set_status(Status::InUse);
    }

    /// Takes the log out of use and waits until the pool needs none of its blocks, before the device is
    /// removed or the kind is changed. Meanwhile commits wait for their txgs.
    ///
    /// Persistence: on return the header says that there is no log, everything that was acknowledged is in
    /// the pool, and the log occupies no space.
    ///
    /// # Errors
    /// [`LogError::Busy`] for a log that was not replayed; those of the pool: the log then stays suspended.
    pub fn suspend<P: Pool>(&self, pool: &P) -> Result<(), LogError> {
        match self.status_cause() {
            Some(LogCause::NotReplayed) => return Err(LogError::Busy { dataset: self.dataset }),
            Some(LogCause::Destroyed) => return Err(LogError::Destroyed { dataset: self.dataset }),
            _ => self.set_status(Status::Suspended),
        }
        self.log.stop();
        self.wake();
        // Anything acknowledged from here on is in blocks that were being written, so its transaction had
        // begun: the txg of one that begins now is at least as new. A block that is still being written keeps
        // the chain for another txg: its place cannot be reused yet.
        loop {
            let txg = {
                let tx = pool.begin_tx()?;
                P::txg_of(&tx)
            };
            pool.wait_synced(txg)?;
            if !self.holds_space() {
                return Ok(());
            }
        }
    }

    /// Puts a suspended log back into use: the next txg has a new chain, and records are written once that
    /// has synced.
    ///
    /// # Errors
    /// None yet; for symmetry with kind pmem.
    pub fn resume<P: Pool>(&self, _pool: &P) -> Result<(), LogError> {
        if self.status_cause() == Some(LogCause::Suspended) {
            self.log.resume();
            self.set_status(Status::InUse);
        }
        Ok(())
    }

    /// Ends the log with its dataset, in a transaction of `txg`.
    pub(super) fn destroy(&self, txg: Txg) {
        self.set_status(Status::Destroyed);
        self.log.stop();
        let claimed = lock(&self.claimed).take();
        let mut life = lock(&self.life);
        life.until = Some(txg);
        life.from.get_or_insert(txg);
        if let Some(claimed) = claimed {
            life.release = Some((txg, claimed));
        }
        drop(life);
        self.wake();
    }

    pub(super) fn wake(&self) {
        // Under the lock, so that no waiter is between its check and its sleep.
        drop(lock(&self.commits));
        self.changed.notify_all();
    }
}

fn cause_of(error: &CommitError) -> LogCause {
    match error {
        // Stopped, and resumed: the new chain is not durable yet.
        CommitError::NotStarted | CommitError::Stopped => LogCause::Starting,
        CommitError::NoSpace(_) => LogCause::NoRoom,
        CommitError::Write { .. } | CommitError::Flush { .. } => LogCause::Failed,
        _ => LogCause::Bug,
    }
}

pub(super) fn stored(header: &Header) -> Vec<u8> {
    StoredHeader { kind: KindId::Lwb, bytes: &header.encode() }.encode()
}
