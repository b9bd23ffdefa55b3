//! The log of one dataset: its HDL, and its state.

use std::sync::Arc;

use fastness_pmem::Medium;
use fastness_prb::{Hdl, HdlHeader, HeaderUpdate, Prb, WriteError};
use fastness_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use fastness_sync::{Condvar, Mutex, RwLock, lock, write};

use crate::error::{LogCause, LogError};
use crate::graph::Graph;
use crate::header::{KindId, StoredHeader};
use crate::pool::Pool;
use fastness_base::{DatasetId, Txg};

/// Whether records can be written; [`PmemLog::refusal`] is derived from this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ready = 0,
    Starting,
    Suspended,
    NotReplayed,
    Destroyed,
    Failed,
}

impl Status {
    fn cause(byte: u8) -> Option<LogCause> {
        match byte {
            0 => None,
            1 => Some(LogCause::Starting),
            2 => Some(LogCause::Suspended),
            3 => Some(LogCause::NotReplayed),
            4 => Some(LogCause::Destroyed),
            _ => Some(LogCause::Failed),
        }
    }
}

/// Commits in progress.
#[derive(Debug, Default)]
pub(super) struct Commits {
    pub(super) graph: Graph,
    /// Threads that wait for others' records.
    pub(super) waiters: usize,
}

/// The log of one dataset in persistent memory.
///
/// Concurrency: any number of threads. Locks: `commits`, then `hdl`; a thread that writes to PM holds `hdl`
/// (shared) and not `commits`.
#[derive(Debug)]
pub struct PmemLog<M: Medium + Sync> {
    pub(super) dataset: DatasetId,
    pub(super) prb: Arc<Prb<M>>,
    /// Held shared by writers; exclusively to order entries and to change the log's state.
    pub(super) hdl: RwLock<Hdl<M>>,
    pub(super) commits: Mutex<Commits>,
    pub(super) changed: Condvar,
    status: AtomicU8,
    /// The txg with which the header becomes durable, in status starting.
    header_txg: AtomicU64,
    /// Records that claim found and that have not been replayed yet.
    pub(super) unreplayed: AtomicU64,
    last_error: Mutex<Option<Arc<WriteError>>>,
}

impl<M: Medium + Sync> PmemLog<M> {
    pub(super) fn new(dataset: DatasetId, prb: Arc<Prb<M>>, hdl: Hdl<M>, status: Status) -> Self {
        Self {
            dataset,
            prb,
            hdl: RwLock::new(hdl),
            commits: Mutex::default(),
            changed: Condvar::new(),
            status: AtomicU8::new(status as u8),
            header_txg: AtomicU64::new(0),
            unreplayed: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    /// Why nothing can be written now; `None` if the log is writable.
    #[inline]
    pub fn refusal(&self) -> Option<LogCause> {
        Status::cause(self.status.load(Ordering::Acquire))
    }

    pub(super) fn set_status(&self, status: Status) {
        // A medium that has failed stays failed, whatever happens to the log.
        let keep = |old: u8| (old != Status::Failed as u8).then_some(status as u8);
        let _ = self.status.fetch_update(Ordering::SeqCst, Ordering::SeqCst, keep);
    }

    /// How full the medium is, which it shares with other logs, in 1024ths.
    #[inline]
    pub fn used_per_1024(&self) -> u32 {
        self.prb.used_per_1024()
    }

    /// The dataset.
    pub fn dataset(&self) -> DatasetId {
        self.dataset
    }

    /// Records that wait for replay.
    pub fn unreplayed_records(&self) -> u64 {
        self.unreplayed.load(Ordering::Relaxed)
    }

    /// The last error of the PRB that a record met, if any.
    pub fn last_error(&self) -> Option<Arc<WriteError>> {
        lock(&self.last_error).clone()
    }

    /// Entries of commit lists that were taken over but are not durable yet.
    pub fn pending_entries(&self) -> usize {
        lock(&self.commits).graph.len()
    }

    /// Maps an error of the PRB to its cause; an error that cannot go away closes the log.
    #[cold]
    pub(super) fn note_error(&self, error: WriteError) -> LogCause {
        let cause = match &error {
            WriteError::NoFreeChunk => return LogCause::NoRoom,
            // The log continues with the next txg.
            WriteError::OnOneSide { .. } | WriteError::SideLost => LogCause::SideLost,
            // The log went out of use between the check of its status and the write.
            WriteError::Misuse(_) => return self.refusal().unwrap_or(LogCause::Bug),
            WriteError::TooLarge { .. } => LogCause::TooLarge,
            WriteError::NoUsableChunk | WriteError::Persist(_) | WriteError::Failed => {
                self.status.store(Status::Failed as u8, Ordering::SeqCst);
                LogCause::Failed
            }
            _ => LogCause::Bug,
        };
        *lock(&self.last_error) = Some(Arc::new(error));
        cause
    }

    pub(super) fn put_header<P: Pool>(&self, pool: &P, tx: &P::Tx, update: HeaderUpdate) {
        pool.put_log_header(tx, self.dataset, Some(&stored(update.header())));
    }

    /// Creates a new log where there is none, with the transaction.
    pub(super) fn start<P: Pool>(&self, pool: &P, tx: &P::Tx) -> Result<(), LogError> {
        let mut hdl = write(&self.hdl);
        self.start_locked(pool, tx, &mut hdl)
    }

    pub(super) fn start_locked<P: Pool>(
        &self,
        pool: &P,
        tx: &P::Tx,
        hdl: &mut Hdl<M>,
    ) -> Result<(), LogError> {
        let Some(update) = hdl.create_log()? else {
            // It was suspended, and the pool failed before the log was gone.
            let is_durable = self.header_txg.load(Ordering::SeqCst) <= pool.synced_txg().0;
            self.set_status(if is_durable { Status::Ready } else { Status::Starting });
            return Ok(());
        };
        self.header_txg.store(P::txg_of(tx).0, Ordering::SeqCst);
        self.set_status(Status::Starting);
        self.put_header(pool, tx, update);
        Ok(())
    }

    /// A txg is durable, and with it a header that was stored in it.
    pub(super) fn headers_synced(&self, txg: Txg) {
        let is_starting = self.refusal() == Some(LogCause::Starting);
        if is_starting && self.header_txg.load(Ordering::SeqCst) <= txg.0 {
            let mut hdl = write(&self.hdl);
            if hdl.header_synced().is_ok() && self.refusal() == Some(LogCause::Starting) {
                self.set_status(Status::Ready);
            }
        }
    }

    /// Takes the log out of use and waits until the pool needs none of its entries, before the medium is
    /// removed. Meanwhile commits wait for their txgs.
    ///
    /// Persistence: on return no header names the log.
    ///
    /// # Errors
    /// [`LogError::Busy`] for a log that was not replayed; those of the pool: the log then stays suspended.
    pub fn suspend<P: Pool>(&self, pool: &P) -> Result<(), LogError> {
        match self.refusal() {
            Some(LogCause::NotReplayed) => return Err(LogError::Busy { dataset: self.dataset }),
            Some(LogCause::Destroyed) => return Err(LogError::Destroyed { dataset: self.dataset }),
            _ => self.set_status(Status::Suspended),
        }
        // After this no thread is writing a record or will: writers check the status again under the lock. So
        // the txg of a transaction that begins now is at least as new as that of every record. The
        // transaction must not begin under the lock: the pool may make it wait for a txg, which a writer that
        // waits for the lock may hold open.
        drop(write(&self.hdl));
        let tx = pool.begin_tx()?;
        let txg = P::txg_of(&tx);
        let update = write(&self.hdl).destroy_log(txg)?;
        self.put_header(pool, &tx, update);
        drop(tx);
        self.wake();
        pool.wait_synced(txg)?;
        Ok(())
    }

    /// Puts a suspended log back into use, as a new log; records are written as soon as its header is
    /// durable.
    ///
    /// # Errors
    /// Those of the pool; the log stays suspended.
    pub fn resume<P: Pool>(&self, pool: &P) -> Result<(), LogError> {
        if self.refusal() != Some(LogCause::Suspended) {
            return Ok(());
        }
        let tx = pool.begin_tx()?;
        self.start(pool, &tx)
    }

    pub(super) fn wake(&self) {
        // Under the lock, so that no waiter is between its check and its sleep.
        drop(lock(&self.commits));
        self.changed.notify_all();
    }
}

pub(super) fn stored(header: &HdlHeader) -> Vec<u8> {
    StoredHeader { kind: KindId::Pmem, bytes: &header.encode() }.encode()
}
