//! A pool as the intent log sees it.

use std::sync::Arc;

use fastness_pool::{Pool, PoolError, Tx};
use fastness_zil::{DatasetId, ObjectId, PoolFailure, Txg};

/// Key beside a dataset: the header of its log.
pub(crate) const HEADER: &[u8] = b"log";

/// A pool, with the trait that `zil` asks for.
#[derive(Debug, Clone)]
pub struct PoolSide(pub(crate) Arc<Pool>);

impl PoolSide {
    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.0
    }
}

fn failure(error: PoolError) -> PoolFailure {
    PoolFailure::new(error.kind(), error)
}

impl fastness_zil::Pool for PoolSide {
    type Tx = Tx;

    fn begin_tx(&self) -> Result<Tx, PoolFailure> {
        self.0.begin_tx().map_err(failure)
    }

    fn txg_of(tx: &Tx) -> Txg {
        Txg(tx.txg().0)
    }

    fn synced_txg(&self) -> Txg {
        Txg(self.0.synced_txg().0)
    }

    fn wait_synced(&self, txg: Txg) -> Result<(), PoolFailure> {
        self.0.wait_synced(fastness_pool::Txg(txg.0)).map_err(failure)
    }

    fn is_suspended(&self) -> bool {
        self.0.is_suspended()
    }

    fn put_log_header(&self, tx: &Tx, dataset: DatasetId, header: Option<&[u8]>) {
        self.0.put_aux(tx, fastness_pool::DatasetId(dataset.0), HEADER, header);
    }

    fn read_back(
        &self,
        dataset: DatasetId,
        object: ObjectId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, PoolFailure> {
        let mut read = || {
            let dataset = self.0.dataset_by_id(fastness_pool::DatasetId(dataset.0))?;
            dataset.object(fastness_pool::ObjectId(object.0))?.read(offset, buffer)
        };
        match read() {
            Err(PoolError::NoDataset(_) | PoolError::NoObject { .. }) => Ok(0),
            result => result.map_err(failure),
        }
    }
}
