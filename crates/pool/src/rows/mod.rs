//! Ordered tables of a dataset: keyed rows, the newest of which are in DRAM until their txg has synced.
//!
//! Motivation: directories, attributes and inodes are small rows that are looked up by key and listed in
//! order, and whoever has changed one must see it at once.
//!
//! Design: the rows of a dataset are divided by a hash of their keys over [`SHARDS`] shards, each with its
//! lock. A shard has a *layer* for each unsynced txg that changed a row in it: an ordered set of rows, with
//! removed rows as such. A lookup searches the layers of one shard from the newest down, then the tables of
//! the last synced txg (`stored`). Only transactions of the same txg change a layer, so once the txg has
//! quiesced, the txg thread reads its layers without a lock. If a transaction of an older txg changes a row
//! that a newer txg has changed already, the newer layer gets the change as well: readers see whatever came
//! last.
//!
//! Readers and the end of a txg: a reader first searches the layers, and then takes the tables as of now; a
//! txg first shows its tables, and then drops its layers (`publish`). So a reader that does not find a layer
//! any more finds its rows in the tables. Crash cases: those of a txg (`txg/sync`).
//!
//! Memory: a row counts as its key, its value and [`ROW_BYTES`], as dirty bytes like blocks of objects
//! (`txg`). Room: [`Charge::row`](crate::space::room::Charge::row), released with the txg.
//!
//! Performance: one allocation for each row, besides the nodes of the set; nothing is shared by threads that
//! work on different datasets except what all writers share (`txg`, `room`).

mod scan;
mod stored;
mod table;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock, RwLock};

use twox_hash::XxHash3_64;

use crate::ids::{DatasetId, TableId, Txg};
use crate::space::room::Charge;
use crate::state::DatasetCore;
use fastness_sync::{read, write};

#[cfg(fuzzing)]
pub(crate) use stored::Joiner;
pub(crate) use stored::{Rows as StoredRows, read_all, remove_some};
pub use table::{RowChange, Table};

/// Longest key of a row.
pub const ROW_KEY_BYTES_MAX: usize = 1024;
/// Longest value of a row, in tables from [`TableId::FIRST_LONG`] on.
pub const ROW_VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest value in the other tables. Key and value together have at most 1279 bytes there.
pub const ROW_SHORT_VALUE_BYTES_MAX: usize = 1023;
/// Memory that a row counts for besides its key and value: its places in the set and in the allocator.
const ROW_BYTES: u64 = 64;
const SHARDS: usize = 16;

/// A changed row. Ordered by its key alone.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// Key, then value.
    bytes: Box<[u8]>,
    key_bytes: u16,
    is_removed: bool,
}

impl Row {
    /// The key must not be too long. Without a value the row is removed.
    fn new(key: &[u8], value: Option<&[u8]>) -> Row {
        let mut bytes = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        Row { bytes: bytes.into(), key_bytes: key.len() as u16, is_removed: value.is_none() }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_bytes)]
    }

    /// `None`: removed.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        (!self.is_removed).then(|| &self.bytes[usize::from(self.key_bytes)..])
    }

    /// Memory that it counts for.
    fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64 + ROW_BYTES
    }

    fn charge(&self, table: TableId) -> Charge {
        let key_bytes = usize::from(self.key_bytes);
        charge_of(table, key_bytes, self.bytes.len() - key_bytes)
    }
}

/// What a row takes of the room.
fn charge_of(table: TableId, key_bytes: usize, value_bytes: usize) -> Charge {
    Charge::row(key_bytes, stored::fragments(key_bytes, value_bytes), table.is_long())
}

impl Borrow<[u8]> for Row {
    fn borrow(&self) -> &[u8] {
        self.key()
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Row {}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Row) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Row) -> Ordering {
        self.key().cmp(other.key())
    }
}

/// The rows of a shard that one txg has changed.
#[derive(Debug)]
pub(crate) struct RowLayer {
    pub(crate) txg: Txg,
    pub(crate) tables: BTreeMap<TableId, BTreeSet<Row>>,
    /// Memory that it counts for.
    pub(crate) bytes: u64,
    /// What is reserved for it, see `room`.
    pub(crate) charged: Charge,
    pub(crate) is_destroyed: bool,
}

/// How a change has changed what a layer counts for.
#[derive(Debug, Default)]
struct Change {
    bytes: i64,
    charged: Charge,
}

impl RowLayer {
    fn new(txg: Txg) -> RowLayer {
        let (tables, charged) = (BTreeMap::new(), Charge::default());
        RowLayer { txg, tables, bytes: 0, charged, is_destroyed: false }
    }

    fn get(&self, table: TableId, key: &[u8]) -> Option<&Row> {
        self.tables.get(&table)?.get(key)
    }

    fn insert(&mut self, table: TableId, row: Row, change: &mut Change) {
        let (bytes, charge) = (row.memory_bytes(), row.charge(table));
        let old = self.tables.entry(table).or_default().replace(row);
        let (old_bytes, old_charge) =
            old.map_or((0, Charge::default()), |old| (old.memory_bytes(), old.charge(table)));
        self.bytes = self.bytes + bytes - old_bytes;
        self.charged += charge - old_charge;
        change.bytes += bytes as i64 - old_bytes as i64;
        change.charged += charge - old_charge;
    }
}

/// Layers, oldest first. In its own cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard(RwLock<Vec<Arc<RowLayer>>>);

/// The unsynced rows of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Most datasets have none.
    shards: OnceLock<Box<[Shard; SHARDS]>>,
}

/// The layer, for changing it.
fn layer_mut(layers: &mut [Arc<RowLayer>], index: usize) -> &mut RowLayer {
    Arc::get_mut(&mut layers[index]).expect("the txg thread shares a layer after its txg has quiesced only")
}

/// The shard of a key.
fn shard_of(table: TableId, key: &[u8]) -> usize {
    // Of all bits of the hash, so that tables with the same keys do not meet in the same shards.
    (XxHash3_64::oneshot(key).wrapping_add(u64::from(table.0)) % SHARDS as u64) as usize
}

impl Rows {
    fn shards(&self) -> &[Shard; SHARDS] {
        self.shards.get_or_init(Box::default)
    }

    /// Calls `found` with the newest unsynced change of a row, if there is one.
    fn find<T>(&self, table: TableId, key: &[u8], found: impl FnOnce(&Row) -> T) -> Option<T> {
        let layers = read(&self.shards.get()?[shard_of(table, key)].0);
        layers.iter().rev().find_map(|layer| layer.get(table, key)).map(found)
    }

    /// Puts a row into the layer of `txg`, and into newer ones that have it too; tells `is_new` the shard of
    /// a layer that did not exist. `None`: the dataset is destroyed.
    fn put(
        &self,
        txg: Txg,
        table: TableId,
        row: Row,
        is_destroyed: &AtomicBool,
        is_new: impl FnOnce(usize),
    ) -> Option<Change> {
        let shard = shard_of(table, row.key());
        let mut layers = write(&self.shards()[shard].0);
        // Under the lock: see `destroy_from`.
        if is_destroyed.load(SeqCst) {
            return None;
        }
        let mut change = Change::default();
        let at = layers.partition_point(|layer| layer.txg < txg);
        if layers.get(at).is_none_or(|layer| layer.txg != txg) {
            layers.insert(at, Arc::new(RowLayer::new(txg)));
            is_new(shard);
        }
        for later in at + 1..layers.len() {
            if layers[later].get(table, row.key()).is_some() {
                layer_mut(&mut layers, later).insert(table, row.clone(), &mut change);
            }
        }
        layer_mut(&mut layers, at).insert(table, row, &mut change);
        Some(change)
    }

    /// The dataset was marked as destroyed, in `txg`: that txg and newer ones store none of its rows. A
    /// change that did not see the mark has come before, and is found here.
    pub(crate) fn destroy_from(&self, txg: Txg) {
        for shard in self.shards() {
            let mut layers = write(&shard.0);
            for index in layers.partition_point(|layer| layer.txg < txg)..layers.len() {
                layer_mut(&mut layers, index).is_destroyed = true;
            }
        }
    }

    /// The layers of a shard, oldest first. There must be no transactions.
    pub(crate) fn layers(&self, shard: usize) -> Vec<Arc<RowLayer>> {
        read(&self.shards()[shard].0).clone()
    }

    /// The layer of a txg that has quiesced, and no other: those are being changed.
    fn layer(&self, shard: usize, txg: Txg) -> Option<Arc<RowLayer>> {
        read(&self.shards()[shard].0).iter().find(|layer| layer.txg == txg).cloned()
    }

    /// Drops the layer of a txg that is durable.
    fn drop_layer(&self, shard: usize, txg: Txg) {
        write(&self.shards()[shard].0).retain(|layer| layer.txg != txg);
    }
}

/// A shard of a dataset that a txg has changed.
pub(crate) type ChangedShard = (Arc<DatasetCore>, usize);

/// The same, with its layer; the txg has quiesced.
pub(crate) struct DirtyRows {
    core: Arc<DatasetCore>,
    shard: usize,
    pub(crate) layer: Arc<RowLayer>,
}

impl DirtyRows {
    /// In order of datasets.
    pub(crate) fn of(txg: Txg, changed: &[ChangedShard]) -> Vec<DirtyRows> {
        let of = |(core, shard): &ChangedShard| {
            let layer = core.rows.layer(*shard, txg).expect("a shard on the list has a layer");
            DirtyRows { core: core.clone(), shard: *shard, layer }
        };
        let mut dirty: Vec<_> = changed.iter().map(of).collect();
        dirty.sort_unstable_by_key(|dirty| (dirty.core.id, dirty.shard));
        dirty
    }

    /// Its dataset, if numbers of objects were allotted since the last txg that stored it.
    pub(crate) fn with_new_numbers(&self) -> Option<DatasetId> {
        let DatasetCore { id, next_object, stored_next, .. } = &*self.core;
        (next_object.load(SeqCst) != stored_next.load(SeqCst)).then_some(*id)
    }

    /// Its txg is durable, and its tables are shown: no reader needs the layer.
    pub(crate) fn drop_layer(&self) {
        self.core.rows.drop_layer(self.shard, self.layer.txg);
    }
}

#[cfg(test)]
mod tests;
