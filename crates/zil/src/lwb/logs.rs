//! The logs of all datasets of a pool, in one space.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastness_lwb::Space;
use fastness_sync::{Mutex, RwLock, lock, read, write};

use crate::error::LogError;
use crate::kind::Kind;
use crate::lwb::idle::{LogMap, Watcher};
use crate::lwb::log::LwbLog;
use crate::lwb::written::Written;
use crate::pool::Pool;
use fastness_base::{DatasetId, Txg};

/// All logs of a pool.
///
/// The owner must call [`sync`](Self::sync) while each txg is written, and [`txg_synced`](Self::txg_synced)
/// when it is durable, from the first txg on and in order.
///
/// Concurrency: any number of threads; the map is read when a dataset is opened and for each txg, not for
/// each record.
#[derive(Debug)]
pub struct LwbLogs<S: Space> {
    /// Dropped first: it uses the others.
    watcher: Mutex<Option<Watcher>>,
    space: Arc<S>,
    logs: LogMap<S>,
    written: Arc<Written>,
    /// Destroyed logs that hold space until their txgs have synced.
    dying: Mutex<Vec<Arc<LwbLog<S>>>>,
    /// The last synced txg.
    synced: Mutex<Txg>,
}

impl<S: Space> LwbLogs<S> {
    /// Logs without datasets yet, in a space of which nothing is in use. `synced` is the last synced txg.
    pub fn new(space: Arc<S>, synced: Txg) -> Self {
        Self::with(space, synced, Arc::default(), BTreeMap::new())
    }

    pub(super) fn with(
        space: Arc<S>,
        synced: Txg,
        written: Arc<Written>,
        logs: BTreeMap<DatasetId, Arc<LwbLog<S>>>,
    ) -> Self {
        let (logs, watcher) = (Arc::new(RwLock::new(logs)), Mutex::default());
        Self { space, logs, written, watcher, dying: Mutex::default(), synced: Mutex::new(synced) }
    }

    /// Starts a thread that every `period` checks the logs written since: an idle one records on the medium
    /// what was acknowledged last, so that an import notices if the medium loses it. The thread ends when
    /// these logs are dropped.
    pub fn watch_idle(&self, period: Duration)
    where
        S: 'static,
    {
        let watcher = || Watcher::start(Arc::clone(&self.written), Arc::clone(&self.logs), period);
        lock(&self.watcher).get_or_insert_with(watcher);
    }

    /// Creates the log of a new dataset, in the transaction that creates the dataset.
    ///
    /// Persistence: with that txg, which stores the log's header; until then commits wait for their txgs.
    ///
    /// # Errors
    /// [`LogError::Exists`].
    pub fn create<P: Pool>(
        &self,
        _pool: &P,
        tx: &P::Tx,
        dataset: DatasetId,
    ) -> Result<Arc<LwbLog<S>>, LogError> {
        let mut logs = write(&self.logs);
        if logs.contains_key(&dataset) {
            return Err(LogError::Exists { dataset });
        }
        let synced = *lock(&self.synced);
        let (space, written) = (Arc::clone(&self.space), Arc::clone(&self.written));
        let log = Arc::new(LwbLog::new(dataset, space, written, synced, P::txg_of(tx)));
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
    /// None yet; for symmetry with kind pmem.
    pub fn destroy<P: Pool>(&self, pool: &P, tx: &P::Tx, dataset: DatasetId) -> Result<(), LogError> {
        let Some(log) = write(&self.logs).remove(&dataset) else { return Ok(()) };
        log.destroy(P::txg_of(tx));
        pool.put_log_header(tx, dataset, None);
        lock(&self.dying).push(log);
        Ok(())
    }

    /// The log of a dataset.
    pub fn get(&self, dataset: DatasetId) -> Option<Arc<LwbLog<S>>> {
        read(&self.logs).get(&dataset).cloned()
    }

    /// The datasets that have a log.
    pub fn datasets(&self) -> Vec<DatasetId> {
        read(&self.logs).keys().copied().collect()
    }

    fn all(&self) -> Vec<Arc<LwbLog<S>>> {
        let logs: Vec<_> = read(&self.logs).values().cloned().collect();
        logs.into_iter().chain(lock(&self.dying).iter().cloned()).collect()
    }

    /// Returns the headers that must be durable with `txg`, which has no transactions left and is not durable
    /// yet. A header takes precedence over one that a transaction of the txg has stored for the same dataset.
    /// Headers that are durable unchanged are left out.
    ///
    /// If a txg could not be synced, this is called for it again.
    pub fn sync(&self, txg: Txg, put: &mut dyn FnMut(DatasetId, Option<&[u8]>)) {
        for log in self.all() {
            if let Some(header) = log.sync(txg) {
                put(log.dataset(), Some(&header));
            }
        }
    }

    /// A txg is durable, with every header that was stored in it: whatever no header names any more is freed,
    /// and new chains become writable. Must be called after each txg, in order, before threads that wait for
    /// the txg are woken.
    pub fn txg_synced(&self, txg: Txg) {
        {
            // Creating a log takes this lock while holding that of the map.
            let mut synced = lock(&self.synced);
            *synced = txg.max(*synced);
        }
        for log in self.all() {
            log.headers_synced(txg);
            log.txg_synced(txg);
        }
        lock(&self.dying).retain(|log| log.holds_space());
    }

    /// The underlying space.
    pub fn space(&self) -> &Arc<S> {
        &self.space
    }
}
