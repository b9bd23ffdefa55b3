//! An open dataset with its log: changes, and receipts for them.
//!
//! One call makes a change ([`OpenDataset::change`]):
//! 1. While the log is short of space, sleep a little.
//! 2. Lock the range: what a reader saw last is what replay leaves.
//! 3. Begin a transaction, make the change in memory, log its record, end the transaction, unlock.
//! 4. The [`Receipt`] tracks what is left to wait for. [`Receipt::wait`] makes the change as durable as
//!    `sync` demands.
//!
//! If the log does not take the record (no space, suspended, medium failed), the receipt waits for the txg.

use std::ops::Range;
use std::sync::Arc;

use fastness_base::ErrorKind;
use fastness_pool::{Dataset, DatasetHold, ObjectId, Pool, PoolError, SyncMode, Tx};
use fastness_zil::record::{Truncate, Zeroes};
use fastness_zil::{CommitError, Txg};

use crate::dataset_log::DatasetLog;
use crate::log::PoolLog;
use crate::logs::Zil;

/// Why a change was not made, or not made durable.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The pool refused or failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Neither the log nor the pool made it durable.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl ChangeError {
    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ChangeError::Pool(error) => error.kind(),
            ChangeError::Commit(error) => error.kind(),
        }
    }
}

fastness_base::has_kind!(ChangeError);

type Result<T, E = ChangeError> = std::result::Result<T, E>;

/// How durable a change must be: what its caller asks for, combined with the property `sync`
/// ([`of`](Self::of)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// With its txg: it is not logged.
    Txg,
    /// With the next flush.
    Flush,
    /// When [`Receipt::wait`] returns.
    Now,
}

impl Demand {
    /// `is_sync`: the caller wants the change to be durable before it is acknowledged. The property may
    /// change at any time: to be asked for each change.
    pub fn of(mode: SyncMode, is_sync: bool) -> Demand {
        match (mode, is_sync) {
            (SyncMode::Disabled, _) => Demand::Txg,
            (SyncMode::Always, _) | (SyncMode::Standard, true) => Demand::Now,
            (SyncMode::Standard, false) => Demand::Flush,
        }
    }
}

/// An open dataset, with its log.
///
/// As long as there is one, the dataset is not destroyed. Concurrency: any number of threads, and of handles
/// on one dataset.
#[derive(Debug)]
pub struct OpenDataset {
    pub(crate) pool: Arc<Pool>,
    dataset: Dataset,
    _hold: DatasetHold,
    pub(crate) log: Option<Arc<DatasetLog>>,
    /// The log learns of txgs for as long as one of its datasets is open, with its store or without.
    _log_of_pool: Option<Arc<PoolLog>>,
}

/// Takes the records of one change. What a record may be: [`record`](crate::record).
pub struct Records<'a> {
    pub(crate) zil: &'a Zil,
    pub(crate) txg: Txg,
}

impl Records<'_> {
    /// Logs that `data` was written at `offset`. Without `is_copied`, a later commit reads the data back.
    /// Returns whether the record is in the log, or will be with the next flush.
    #[inline]
    pub fn write(&self, object: ObjectId, offset: u64, data: &[u8], is_copied: bool) -> bool {
        self.zil.log_write(self.txg, object, offset, data, is_copied)
    }

    /// Logs that a range was zeroed.
    pub fn zeroes(&self, object: ObjectId, zeroes: Zeroes) -> bool {
        self.zil.log_zeroes(self.txg, object, zeroes)
    }

    /// Logs that an object was truncated.
    pub fn truncate(&self, object: ObjectId, cut: Truncate) -> bool {
        self.zil.log_truncate(self.txg, object, cut)
    }
}

/// A change that was made in memory and logged.
#[must_use = "a change is as durable as `sync` demands when `wait` has returned"]
#[derive(Debug)]
pub struct Receipt<'a> {
    of: &'a OpenDataset,
    demand: Demand,
    txg: Txg,
    is_logged: bool,
}

impl Receipt<'_> {
    /// Combines the receipts of this change and a later one of the same dataset, with the demand of the later
    /// one.
    pub fn and(self, later: Self) -> Self {
        // If one part is not in the log, the whole must wait.
        Receipt { txg: self.txg.max(later.txg), is_logged: self.is_logged && later.is_logged, ..later }
    }

    /// Waits for as long as the change's [`Demand`] says: until it is durable, or not at all. It does not
    /// look at `sync`, which [`Demand::of`] has done.
    ///
    /// Persistence: with [`Demand::Now`], on return.
    ///
    /// # Errors
    /// Those of the log and of the txg. How much is then durable is unknown.
    #[inline]
    pub fn wait(self) -> Result<()> {
        match &self.of.log {
            _ if self.demand != Demand::Now => Ok(()),
            Some(log) => Ok(log.zil.after_fua(self.txg, self.is_logged).map(drop)?),
            None => self.wait_txg(),
        }
    }

    /// Waits for the txg, whatever `sync` says.
    ///
    /// # Errors
    /// The txg failed.
    pub fn wait_txg(self) -> Result<()> {
        Ok(self.of.pool.wait_synced(self.txg)?)
    }
}

impl OpenDataset {
    /// Without a log the pool is read-only.
    pub(crate) fn new(
        pool: Arc<Pool>,
        dataset: Dataset,
        log_of_pool: Option<Arc<PoolLog>>,
    ) -> fastness_pool::Result<OpenDataset> {
        let hold = dataset.hold()?;
        let log = log_of_pool.as_ref().and_then(|log| log.dataset_log(dataset.id()));
        Ok(OpenDataset { pool, dataset, _hold: hold, log, _log_of_pool: log_of_pool })
    }

    /// The dataset itself.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Makes a change of `range`, and logs its record. Changes whose ranges overlap have one order, also in
    /// a replay; nothing orders others. An empty range overlaps nothing. If the pool is out of space, waits
    /// for the space of what was recently discarded or replaced, for as long as txgs free some, and tries
    /// again: `change` may be called several times.
    ///
    /// `sync`: not looked at, `demand` counts; with [`Demand::Txg`] `record` is not called. The table is in
    /// the [crate's documentation](crate#how-durable-a-change-is).
    ///
    /// Persistence: none yet, see [`Receipt`].
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for a range that ends before it begins. Those of `change`: it may have been
    /// made in part, and is not logged.
    #[inline]
    pub fn change(
        &self,
        demand: Demand,
        range: Range<u64>,
        change: impl Fn(&Tx) -> fastness_pool::Result<()>,
        record: impl Fn(Records<'_>) -> bool,
    ) -> Result<Receipt<'_>> {
        if range.end < range.start {
            return Err(PoolError::invalid("range", format!("{range:?}")).into());
        }
        self.until_room(|| self.change_once(demand, &range, &change, &record))
    }

    /// Tries again in a newer transaction while a change is overtaken, and while txgs free space.
    #[inline]
    pub(crate) fn until_room<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        let mut is_first = true;
        loop {
            match change() {
                Err(ChangeError::Pool(PoolError::Overtaken { .. })) => {}
                Err(ChangeError::Pool(PoolError::NoSpace { .. }))
                    if (is_first || self.pool.is_freeing()) && self.pool.reclaim()? =>
                {
                    is_first = false;
                }
                changed => return changed,
            }
        }
    }

    #[inline]
    fn change_once(
        &self,
        demand: Demand,
        range: &Range<u64>,
        change: &impl Fn(&Tx) -> fastness_pool::Result<()>,
        record: &impl Fn(Records<'_>) -> bool,
    ) -> Result<Receipt<'_>> {
        if let Some(log) = self.log.as_ref().filter(|_| demand != Demand::Txg) {
            log.admit();
        }
        let _range = self.log.as_ref().map(|log| log.ranges.lock(range.start, range.end - range.start));
        let tx = self.pool.begin_tx()?;
        let txg = tx.txg();
        let changed = change(&tx);
        let is_logged = match &self.log {
            // A change that failed may have been made in part: only its txg makes that durable.
            Some(log) if changed.is_err() || demand == Demand::Txg => {
                log.zil.note_unlogged(txg);
                false
            }
            Some(log) => record(Records { zil: &log.zil, txg }),
            None => false,
        };
        changed?;
        Ok(self.receipt(demand, txg, is_logged))
    }

    pub(crate) fn receipt(&self, demand: Demand, txg: Txg, is_logged: bool) -> Receipt<'_> {
        Receipt { of: self, demand, txg, is_logged }
    }

    /// Makes every change durable that had returned before the call, through any handle of this process.
    /// Does nothing while `sync=disabled`; the first flush after that waits for what was not logged.
    /// `unsynced`: for a dataset without a log, the newest unsynced txg that changed it.
    ///
    /// # Errors
    /// Those of the log and of the txg. How much is then durable is unknown, and no later flush will claim
    /// it.
    pub fn flush(&self, unsynced: impl FnOnce() -> Option<Txg>) -> Result<()> {
        match &self.log {
            _ if self.dataset.sync_mode() == SyncMode::Disabled => Ok(()),
            Some(log) => Ok(log.zil.flush().map(drop)?),
            None => unsynced().map_or(Ok(()), |txg| Ok(self.pool.wait_synced(txg)?)),
        }
    }
}
