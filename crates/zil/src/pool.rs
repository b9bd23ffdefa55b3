//! What the intent log needs of a pool.

use std::error::Error;

use fastness_error::ErrorKind;

use crate::ids::{DatasetId, ObjectId, Txg};

/// A pool could not do what the log asked it for.
#[derive(Debug, thiserror::Error)]
#[error("the pool failed ({kind})")]
pub struct PoolFailure {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// The pool's own error.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl PoolFailure {
    /// A failure with its cause.
    pub fn new(kind: ErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: source.into() }
    }
}

/// A pool as the intent log sees it.
///
/// Txgs: at most three are unsynced at one time (open, quiescing, syncing); they sync in order, each whole or not at
/// all. A transaction belongs to one, and holds it open.
pub trait Pool: Send + Sync {
    /// A transaction; dropping it ends it, what it changed stays.
    type Tx;

    /// Begins a transaction in the open txg.
    ///
    /// # Errors
    /// The pool takes no changes any more.
    fn begin_tx(&self) -> Result<Self::Tx, PoolFailure>;

    /// The txg of a transaction.
    fn txg_of(tx: &Self::Tx) -> Txg;

    /// The newest durable txg.
    fn synced_txg(&self) -> Txg;

    /// Waits until a txg is durable, and makes it end soon. The caller holds no transaction.
    ///
    /// # Errors
    /// It will never be known to be durable: the pool is suspended or closed.
    fn wait_synced(&self, txg: Txg) -> Result<(), PoolFailure>;

    /// Whether no txg will sync until somebody repairs the pool.
    fn is_suspended(&self) -> bool;

    /// Stores the header of a dataset's log with the transaction: durable with its txg, and only with it. `None`
    /// removes it. Of several in one txg the last counts.
    fn put_log_header(&self, tx: &Self::Tx, dataset: DatasetId, header: Option<&[u8]>);

    /// Reads what an object holds now, for a record whose data was not copied; returns how many bytes are there
    /// (fewer behind the object's end, 0 if it is gone). May wait for users of the range, never for a txg.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read_back(
        &self,
        dataset: DatasetId,
        object: ObjectId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, PoolFailure>;
}
