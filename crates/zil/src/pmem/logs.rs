//! The logs of all datasets of a pool, on one PRB.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastness_pmem::Medium;
use fastness_prb::{CollectError, Collected, Config, HdlHeader, Prb, SetupError};
use fastness_sync::{Mutex, RwLock, lock, read, write};

use crate::error::LogError;
use crate::kind::Kind;
use crate::pmem::idle::{LogMap, Watcher};
use crate::pmem::log::{PmemLog, Status};
use crate::pool::Pool;
use fastness_base::{DatasetId, Txg};

/// All logs of a pool.
///
/// Concurrency: any number of threads; the map is read when a dataset is opened, not for each record.
#[derive(Debug)]
pub struct PmemLogs<M: Medium + Sync> {
    /// Dropped first: it uses the others.
    watcher: Mutex<Option<Watcher>>,
    prb: Arc<Prb<M>>,
    logs: LogMap<M>,
}

impl<M: Medium + Sync> PmemLogs<M> {
    pub(super) fn new(prb: Arc<Prb<M>>, logs: BTreeMap<DatasetId, Arc<PmemLog<M>>>) -> Self {
        Self { watcher: Mutex::default(), prb, logs: Arc::new(RwLock::new(logs)) }
    }

    /// Starts a thread that looks every `period` for logs that were written since and have fallen idle, and
    /// counts on the medium what was written last, so that an import notices if the medium loses it. The
    /// thread ends when these logs are dropped or closed.
    pub fn watch_idle(&self, period: Duration)
    where
        M: Send + 'static,
    {
        let watcher = || Watcher::start(Arc::clone(&self.prb), Arc::clone(&self.logs), period);
        lock(&self.watcher).get_or_insert_with(watcher);
    }

    /// Makes PM durably empty, with no dataset's log on it yet: for a new pool, or PM that is added to one.
    /// The contents of PM are lost.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn format(config: Config, ranges: Vec<M>) -> Result<Self, SetupError> {
        Ok(Self::new(Prb::format(config, ranges)?, BTreeMap::new()))
    }

    /// Creates the log of a new dataset, in the transaction that creates the dataset.
    ///
    /// Persistence: with that txg; until then commits wait for their txgs.
    ///
    /// # Errors
    /// [`LogError::Exists`].
    pub fn create<P: Pool>(
        &self,
        pool: &P,
        tx: &P::Tx,
        dataset: DatasetId,
    ) -> Result<Arc<PmemLog<M>>, LogError> {
        let mut logs = write(&self.logs);
        if logs.contains_key(&dataset) {
            return Err(LogError::Exists { dataset });
        }
        let hdl = self.prb.setup_hdl(&HdlHeader::NoZil)?;
        let log = Arc::new(PmemLog::new(dataset, Arc::clone(&self.prb), hdl, Status::Starting));
        log.start(pool, tx)?;
        logs.insert(dataset, Arc::clone(&log));
        Ok(log)
    }

    /// Destroys the log of a dataset, in the transaction that destroys the dataset. Records that were not
    /// replayed are lost with it. A dataset without a log is left alone. The dataset must not be in use, nor
    /// being replayed.
    ///
    /// Persistence: with that txg; a crash before that leaves dataset and log as they were.
    ///
    /// # Errors
    /// Those of the log's state.
    pub fn destroy<P: Pool>(&self, pool: &P, tx: &P::Tx, dataset: DatasetId) -> Result<(), LogError> {
        let Some(log) = write(&self.logs).remove(&dataset) else { return Ok(()) };
        log.set_status(Status::Destroyed);
        // Entries stay in PM until their txgs have synced; until this txg has, the old header finds them.
        let _nozil = write(&log.hdl).destroy_log(P::txg_of(tx))?;
        pool.put_log_header(tx, dataset, None);
        log.wake();
        Ok(())
    }

    /// The log of a dataset.
    pub fn get(&self, dataset: DatasetId) -> Option<Arc<PmemLog<M>>> {
        read(&self.logs).get(&dataset).cloned()
    }

    /// The datasets that have a log.
    pub fn datasets(&self) -> Vec<DatasetId> {
        read(&self.logs).keys().copied().collect()
    }

    /// A txg is durable, with every header that was stored in it: logs with such a header become writable,
    /// and PM that holds only older entries is emptied. Must be called after each txg, in order.
    ///
    /// # Errors
    /// PM failed; from then on commits wait for their txgs.
    pub fn txg_synced(&self, txg: Txg) -> Result<Collected, CollectError> {
        let logs: Vec<_> = read(&self.logs).values().cloned().collect();
        for log in &logs {
            log.headers_synced(txg);
        }
        let collected = self.prb.collect(txg);
        for log in &logs {
            log.txg_synced(txg);
        }
        collected
    }

    /// Returns PM, once no references to the logs are left.
    ///
    /// # Errors
    /// Returns itself, without logs, while there are references to any: wait, and try again.
    pub fn close(self) -> Result<Vec<M>, Self> {
        drop(self.watcher);
        drop(self.logs);
        self.prb.close().map_err(|(prb, _)| Self::new(prb, BTreeMap::new()))
    }

    /// The underlying PRB.
    pub fn prb(&self) -> &Arc<Prb<M>> {
        &self.prb
    }
}
