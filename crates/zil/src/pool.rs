//! What the intent log needs of a pool.

use std::error::Error;

use fastness_base::{DatasetId, ErrorKind, HasKind, ObjectId, Txg};

/// A pool could not do what the log asked of it.
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

impl HasKind for PoolFailure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// A range of an object whose data may be stored ahead of its txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRange {
    /// Which object.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
}

/// Data that is durable in the pool, where the txg will adopt it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredData {
    /// First byte in the object.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
    /// Bytes that were written for it.
    pub written_bytes: u64,
    /// Where it is; opaque to all but the pool.
    pub address: Vec<u8>,
}

/// Data that records refer to by address, between a crash and the end of replay.
pub trait StoredBlocks: Send + Sync {
    /// Claims the data of a record, before its place can be used for anything else, and makes sure that all
    /// of it is there. The address comes from a medium.
    ///
    /// # Errors
    /// It is not an address, its place is in use or claimed already, or the data is not there. Nothing is
    /// claimed then.
    fn claim(&self, address: &[u8], len_bytes: u64) -> Result<(), PoolFailure>;

    /// Frees what was claimed: it is not needed any more.
    fn free(&self, address: &[u8], len_bytes: u64);
}

/// Where an object ends that has no bytes to read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEnd {
    /// After so many bytes.
    At(u64),
    /// The file was removed, with its bytes.
    Gone,
    /// Before what was to be read: a volume has been made smaller. Its size is that of a txg, and no record
    /// of a write may change it; nor is a write durable without its end before the new size is.
    OfVolume,
    /// Its dataset is gone.
    NoDataset,
}

/// A pool as the intent log sees it.
///
/// Txgs: at most three are unsynced at one time (open, quiescing, syncing); they sync in order, each whole or
/// not at all. A transaction belongs to one, and holds it open.
pub trait Pool: Send + Sync {
    /// A transaction; dropping it ends it, and its changes stay.
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

    /// Waits until a txg is durable, and makes it end soon. The caller must hold no transaction.
    ///
    /// # Errors
    /// It will never be known to be durable: the pool is suspended or closed.
    fn wait_synced(&self, txg: Txg) -> Result<(), PoolFailure>;

    /// Makes the open txg end soon, without waiting for it.
    fn end_txg_soon(&self);

    /// Whether no txg will sync until the pool is repaired.
    fn is_suspended(&self) -> bool;

    /// Stores the header of a dataset's log with the transaction: durable with its txg, and only with it.
    /// `None` removes it. If it is stored several times in one txg, the last one counts.
    fn put_log_header(&self, tx: &Self::Tx, dataset: DatasetId, header: Option<&[u8]>);

    /// Whether a transaction of a replay may take another record: there is room and memory for it, and no
    /// txg waits for it to end. If not, the next record is applied in a transaction of its own.
    fn may_go_on(&self, _tx: &Self::Tx) -> bool {
        false
    }

    /// Reads what an object holds now, for a record whose data was not copied; returns the number of bytes
    /// read (fewer at the object's end, 0 if the object is gone). May wait for users of the range, but never
    /// for a txg.
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

    /// Where an object ends now that had too few bytes to read back: a write beyond that was cut off.
    ///
    /// # Errors
    /// The object cannot be looked at.
    fn file_end(&self, dataset: DatasetId, object: ObjectId) -> Result<FileEnd, PoolFailure>;

    /// How much data a commit must have for [`store`](Self::store) to be worth a flush of its own; `None`: it
    /// never is, or this pool cannot store.
    fn store_bytes_min(&self) -> Option<u64> {
        None
    }

    /// Writes what objects hold now to where their next txg will have it, as far as possible, and makes it
    /// durable there; returns what was stored of each range, in order and without overlaps. The ranges were
    /// changed in txgs that are open or have synced by now. Waits for I/O, but never for a txg.
    ///
    /// Persistence: what is returned can be claimed by its address after any crash, until the txgs that were
    /// open when the call returned have synced.
    ///
    /// # Errors
    /// A flush failed: nothing that was written recently is known to be durable.
    fn store(&self, _dataset: DatasetId, ranges: &[StoreRange]) -> Result<Vec<Vec<StoredData>>, PoolFailure> {
        Ok(ranges.iter().map(|_| Vec::new()).collect())
    }
}
