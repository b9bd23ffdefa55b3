//! The interface between what all logs share and how records reach a medium.
//!
//! Shared: records, what is kept in memory until a commit, what a commit must cover, falling back to waiting
//! for the txg. Up to the kind: where records go, in which order, which of them in parallel, and what waits
//! for what.
//!
//! Source: zil-pmem thesis, 6.1.2 (the commit list is the interface).

use crate::error::NotPersisted;
use crate::header::KindId;
use crate::pool::{FileEnd, PoolFailure, StoreRange, StoredData};
use fastness_base::{LogPlace, ObjectId, Txg};

/// What a kind must write for an entry.
#[derive(Debug)]
pub enum Payload {
    /// An encoded record; the kind puts the number into its head.
    Record(Box<[u8]>),
    /// A write whose data is read back when the record is written, in as many records as it takes.
    NeedCopy {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len_bytes: u64,
    },
    /// Nothing: its record is in the log, but must not be acknowledged yet. Kind pmem, when a side of a
    /// mirror was lost.
    Written,
}

/// Most objects that one record touches (two directories, the object moved, the one it replaces, a
/// whiteout), and the one that stands for all names.
pub const KEYS_MAX: usize = 6;
/// Objects that an entry touches; unused places are [`ObjectId::NONE`].
pub type Keys = [ObjectId; KEYS_MAX];

/// One entry of a commit list.
#[derive(Debug)]
pub struct Entry {
    /// The txg that makes it durable elsewhere.
    pub txg: Txg,
    /// The object in the head.
    pub object: ObjectId,
    /// Objects that it touches: entries that share one must keep their order.
    pub keys: Keys,
    /// Whether every later commit, of whatever object, needs it.
    pub is_sync: bool,
    /// What to write.
    pub payload: Payload,
}

/// Reads data back for [`Payload::NeedCopy`].
pub trait ReadBack {
    /// See [`Pool::read_back`](crate::Pool::read_back).
    ///
    /// # Errors
    /// As there.
    fn read_back(&self, object: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize, PoolFailure>;

    /// See [`Pool::file_end`](crate::Pool::file_end).
    ///
    /// # Errors
    /// As there.
    fn file_end(&self, object: ObjectId) -> Result<FileEnd, PoolFailure>;

    /// See [`Pool::store_bytes_min`](crate::Pool::store_bytes_min).
    fn store_bytes_min(&self) -> Option<u64>;

    /// See [`Pool::store`](crate::Pool::store).
    ///
    /// # Errors
    /// As there.
    fn store(&self, ranges: &[StoreRange]) -> Result<Vec<Vec<StoredData>>, PoolFailure>;
}

/// What a commit has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Persisted {
    /// Records that this call wrote.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often it waited for records that another call was writing.
    pub waits: u64,
    /// Of these, the records with the address of their data.
    pub indirect: u64,
    /// Bytes written to the pool for these.
    pub indirect_bytes: u64,
}

/// The log of one dataset on some medium.
///
/// Concurrency: any number of threads.
pub trait Kind: Send + Sync {
    /// Which kind.
    fn id(&self) -> KindId;

    /// Longest record in bytes.
    fn record_bytes_max(&self) -> usize;

    /// Whether each record of a volume is written as its write runs ([`log_alone`](Self::log_alone)), which
    /// must then be quick. Otherwise records are put on the commit list, and flushes commit.
    fn writes_alone(&self) -> bool;

    /// Takes entries over; the order of calls, and of the entries in each, is the order of the commit list.
    /// Returns the number of the last entry taken over so far. Writes nothing.
    fn submit(&self, entries: Vec<Entry>) -> u64;

    /// Makes durable, among the entries up to number `horizon`: those with `is_sync`, those that touch
    /// `object` (all for [`ObjectId::NONE`]), and those that these depend on.
    ///
    /// Persistence: all of that is durable on return, in the log or by its txg.
    ///
    /// # Errors
    /// [`NotPersisted`] names the newest txg of what is not durable. Nothing that depends on it is written
    /// before that txg has synced.
    fn persist(
        &self,
        object: ObjectId,
        horizon: u64,
        source: &dyn ReadBack,
    ) -> Result<Persisted, NotPersisted>;

    /// Writes one record that is on no commit list. Records whose calls overlap in time have no order;
    /// otherwise the record whose call came first is replayed first. The record is its parts one after the
    /// other; the first is whole lines of 64 bytes, perhaps none.
    ///
    /// Persistence: durable on return. Returns where the record is, if it can be read there until its txg has
    /// synced.
    ///
    /// # Errors
    /// [`NotPersisted`]; later records are written all the same.
    fn log_alone(&self, txg: Txg, record: [&[u8]; 2]) -> Result<Option<LogPlace>, NotPersisted>;

    /// Writes one record of an object at once, in its place in the order of the commit list: after everything
    /// that a commit of the object would have to write, provided that all of that is durable. `false`:
    /// something of it is not, or the kind does not do this, and nothing was written. The parts are as for
    /// [`log_alone`](Self::log_alone). Calls for one object must not overlap in time.
    ///
    /// Persistence: with `true`, durable on return; also returns where the record is, as
    /// [`log_alone`](Self::log_alone) does.
    ///
    /// # Errors
    /// [`NotPersisted`]; later records of the object must not be written before that txg has synced.
    fn log_next(
        &self,
        txg: Txg,
        object: ObjectId,
        record: [&[u8]; 2],
    ) -> Result<(bool, Option<LogPlace>), NotPersisted>;

    /// Makes every later record depend on every earlier one, so that a loss of these is noticed; unless
    /// `is_forced`, only if no call has to wait for it.
    ///
    /// # Errors
    /// The log is not in use; there is nothing to order then.
    fn order(&self, is_forced: bool) -> Result<(), crate::error::LogCause>;

    /// A txg is durable: forgets entries of it and of older ones.
    fn txg_synced(&self, txg: Txg);
}
