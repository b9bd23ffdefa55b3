//! Kind lwb: chains of log-write blocks in the pool's log space.

use std::sync::Arc;

use fastness_pool::{Pool, Tx};
use fastness_zil::{
    Choice, ClaimProblem, ClaimSummary, DatasetId, KindId, LogError, LwbImport, LwbLogs, Txg,
};

use crate::logs::{AllLogs, Claims, DynLog, IDLE_PERIOD, Logs, Regions};
use crate::side::{PoolBlocks, PoolSide};
use crate::space::PoolSpace;

/// The logs of a pool without any.
pub(crate) fn new(pool: &Pool) -> AllLogs {
    let space = Arc::new(PoolSpace::new(pool.log_space()));
    Box::new(LwbLogs::new(space, pool.synced_txg()))
}

/// Finds what is in the logs with these headers.
pub(crate) fn claim(
    pool: &Pool,
    first_txg: Txg,
    headers: Vec<(DatasetId, Option<Vec<u8>>)>,
) -> Box<dyn Claims> {
    let space = Arc::new(PoolSpace::new(pool.log_space()));
    let blocks = Arc::new(PoolBlocks(pool.log_space()));
    Box::new(LwbLogs::import_with(space, blocks, first_txg, headers))
}

impl Logs for LwbLogs<PoolSpace> {
    fn kind(&self) -> KindId {
        KindId::Lwb
    }

    fn create(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
        self.create(side, tx, dataset).map(drop)
    }

    fn destroy(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
        self.destroy(side, tx, dataset)
    }

    fn get(&self, dataset: DatasetId) -> Option<DynLog> {
        self.get(dataset).map(DynLog::new)
    }

    fn datasets(&self) -> Vec<DatasetId> {
        self.datasets()
    }

    fn sync(&self, txg: Txg, put: &mut dyn FnMut(DatasetId, Option<&[u8]>)) {
        self.sync(txg, put);
    }

    fn txg_synced(&self, txg: Txg) {
        self.txg_synced(txg);
    }

    fn watch_idle(&self, pool: &Pool) {
        if pool.has_threads() {
            self.watch_idle(IDLE_PERIOD);
        }
    }

    fn close(self: Box<Self>) -> Result<Regions, AllLogs> {
        Ok(Vec::new())
    }
}

impl Claims for LwbImport<PoolSpace> {
    fn problems(&self) -> Vec<ClaimProblem> {
        self.problems().cloned().collect()
    }

    fn summaries(&self) -> &[ClaimSummary] {
        self.summaries()
    }

    fn resolve(&mut self, dataset: DatasetId, choice: Choice) -> Result<(), ClaimProblem> {
        self.resolve(dataset, choice)
    }

    fn finish(self: Box<Self>, side: &PoolSide, tx: &Tx) -> Result<AllLogs, LogError> {
        Ok(Box::new((*self).finish(side, tx)?))
    }
}
