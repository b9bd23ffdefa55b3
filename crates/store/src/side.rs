//! A pool as the intent log sees it.

use std::sync::Arc;

use fastness_pool::{Dataset, DatasetKind, LogSpace, Pool, PoolError, StoreRequest, StoredRun, Tx};
use fastness_zil::{DatasetId, FileEnd, ObjectId, PoolFailure, StoreRange, StoredBlocks, StoredData, Txg};

/// Key in a dataset's aux data: the header of its log.
pub(crate) const HEADER: &[u8] = b"log";

/// A pool, with the trait that `zil` requires.
#[derive(Debug, Clone)]
pub(crate) struct PoolSide {
    pool: Arc<Pool>,
    store_bytes_min: Option<u64>,
    /// Whether its transactions make changes that were accepted before a crash.
    is_replay: bool,
}

impl PoolSide {
    /// Wraps a pool; `store_bytes_min` as in [`Tuning`](crate::Tuning).
    pub(crate) fn new(pool: &Arc<Pool>, store_bytes_min: Option<u64>) -> PoolSide {
        PoolSide { pool: pool.clone(), store_bytes_min, is_replay: false }
    }

    /// Wraps a pool for replay.
    pub(crate) fn for_replay(pool: &Arc<Pool>) -> PoolSide {
        PoolSide { pool: pool.clone(), store_bytes_min: None, is_replay: true }
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn object(&self, dataset: DatasetId, object: ObjectId) -> Result<fastness_pool::Object, PoolError> {
        let dataset = self.pool.dataset_by_id(dataset)?;
        dataset.object(object)
    }
}

fn failure(error: PoolError) -> PoolFailure {
    PoolFailure::new(error.kind(), error)
}

impl fastness_zil::Pool for PoolSide {
    type Tx = Tx;

    fn begin_tx(&self) -> Result<Tx, PoolFailure> {
        let tx = if self.is_replay { self.pool.begin_replay_tx() } else { self.pool.begin_tx() };
        tx.map_err(failure)
    }

    fn txg_of(tx: &Tx) -> Txg {
        tx.txg()
    }

    fn synced_txg(&self) -> Txg {
        self.pool.synced_txg()
    }

    fn wait_synced(&self, txg: Txg) -> Result<(), PoolFailure> {
        self.pool.wait_synced(txg).map_err(failure)
    }

    fn end_txg_soon(&self) {
        self.pool.end_txg_soon();
    }

    fn is_suspended(&self) -> bool {
        self.pool.is_suspended()
    }

    fn put_log_header(&self, tx: &Tx, dataset: DatasetId, header: Option<&[u8]>) {
        self.pool.put_aux(tx, dataset, HEADER, header);
    }

    fn may_go_on(&self, tx: &Tx) -> bool {
        self.is_replay && self.pool.may_go_on(tx)
    }

    fn read_back(
        &self,
        dataset: DatasetId,
        object: ObjectId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, PoolFailure> {
        match self.object(dataset, object).and_then(|object| object.read(offset, buffer)) {
            Err(PoolError::NoDataset(_) | PoolError::NoObject { .. }) => Ok(0),
            result => result.map_err(failure),
        }
    }

    fn file_end(&self, dataset: DatasetId, object: ObjectId) -> Result<FileEnd, PoolFailure> {
        let of = |dataset: Dataset| match dataset.kind() {
            DatasetKind::Volume => Ok(FileEnd::OfVolume),
            _ => dataset.object(object).map(|object| FileEnd::At(object.size_bytes())),
        };
        match self.pool.dataset_by_id(dataset).and_then(of) {
            Err(PoolError::NoDataset(_)) => Ok(FileEnd::NoDataset),
            Err(PoolError::NoObject { .. }) => Ok(FileEnd::Gone),
            result => result.map_err(failure),
        }
    }

    fn store_bytes_min(&self) -> Option<u64> {
        self.store_bytes_min
    }

    fn store(&self, dataset: DatasetId, ranges: &[StoreRange]) -> Result<Vec<Vec<StoredData>>, PoolFailure> {
        let mut stored = vec![Vec::new(); ranges.len()];
        // An object that cannot be opened cannot be stored; reading it back reports why.
        let open = |range: &StoreRange| self.object(dataset, range.object).ok();
        let objects: Vec<_> = ranges.iter().map(open).collect();
        let with_object = objects.iter().zip(ranges).enumerate();
        let (indices, requests): (Vec<usize>, Vec<StoreRequest<'_>>) = with_object
            .filter_map(|(index, (object, range))| {
                let StoreRange { offset, len_bytes, .. } = *range;
                Some((index, StoreRequest { object: object.as_ref()?, offset, len_bytes }))
            })
            .unzip();
        let least_bytes = self.store_bytes_min.unwrap_or(u64::MAX);
        let found = self.pool.store(&requests, least_bytes).map_err(failure)?;
        for (index, runs) in indices.into_iter().zip(found) {
            stored[index] = runs.into_iter().map(data_of).collect();
        }
        Ok(stored)
    }
}

fn data_of(run: StoredRun) -> StoredData {
    let StoredRun { offset, len_bytes, written_bytes, address } = run;
    StoredData { offset, len_bytes, written_bytes, address }
}

/// Data that records name, stored among the data of a pool.
#[derive(Debug)]
pub(crate) struct PoolBlocks(pub(crate) LogSpace);

impl StoredBlocks for PoolBlocks {
    fn claim(&self, address: &[u8], len_bytes: u64) -> Result<(), PoolFailure> {
        self.0.claim_stored(address, len_bytes).map_err(failure)
    }

    fn free(&self, address: &[u8], len_bytes: u64) {
        self.0.free_stored(address, len_bytes);
    }
}

/// The same, for a pool that is only inspected.
pub(crate) struct UntouchedBlocks(pub(crate) LogSpace);

impl StoredBlocks for UntouchedBlocks {
    fn claim(&self, address: &[u8], len_bytes: u64) -> Result<(), PoolFailure> {
        self.0.check_stored(address, len_bytes).map_err(failure)
    }

    fn free(&self, _: &[u8], _: u64) {}
}
