//! The rows that unsynced txgs have changed; see `rows`.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

use twox_hash::XxHash3_64;

use crate::ids::{TableId, Txg};
use crate::order;
use crate::rows::key::{Key, Keyed, Prefix};
use crate::rows::limits;
use crate::space::room::Charge;
use fastness_sync::order::{RwLock, read, write};

/// Memory that a row counts for besides its key and value: its places in the set and in the allocator.
const ROW_BYTES: u64 = 80;
const SHARDS: usize = 16;

/// A changed row. Ordered by its key alone.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    prefix: Prefix,
    /// Key, then value.
    bytes: Box<[u8]>,
    key_bytes: u16,
    is_removed: bool,
}

impl Row {
    /// The key must not be too long. Without a value the row is removed.
    pub(crate) fn new(key: &[u8], value: Option<&[u8]>) -> Row {
        let mut bytes = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        let (prefix, key_bytes) = (Prefix::of(key), key.len() as u16);
        Row { prefix, bytes: bytes.into(), key_bytes, is_removed: value.is_none() }
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
pub(super) fn charge_of(table: TableId, key_bytes: usize, value_bytes: usize) -> Charge {
    Charge::row(key_bytes, limits::fragments(key_bytes, value_bytes), table.is_long())
}

/// What a kept row with a value of at most this length takes. Its key has a txg besides.
pub(crate) fn past_charge(key_bytes: usize, value_bytes: usize) -> Charge {
    Charge::row(key_bytes + 8, limits::fragments(key_bytes, value_bytes), false)
}

impl Keyed for Row {
    fn place(&self) -> Key<'_> {
        Key { prefix: self.prefix, bytes: self.key() }
    }
}

impl<'a> Borrow<dyn Keyed + 'a> for Row {
    fn borrow(&self) -> &(dyn Keyed + 'a) {
        self
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.cmp(other).is_eq()
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
        self.place().cmp(&other.place())
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
pub(super) struct Change {
    pub(super) bytes: i64,
    pub(super) charged: Charge,
}

impl RowLayer {
    fn new(txg: Txg) -> RowLayer {
        let (tables, charged) = (BTreeMap::new(), Charge::default());
        RowLayer { txg, tables, bytes: 0, charged, is_destroyed: false }
    }

    pub(super) fn get(&self, table: TableId, key: Key<'_>) -> Option<&Row> {
        self.tables.get(&table)?.get(&key as &dyn Keyed)
    }

    /// Puts a row; `past`: what keeping the one that it replaces takes, which happens once.
    fn insert(&mut self, table: TableId, row: Row, past: Charge, change: &mut Change) {
        let (bytes, charge) = (row.memory_bytes(), row.charge(table) + past);
        let old = self.tables.entry(table).or_default().replace(row);
        let (old_bytes, old_charge) =
            old.map_or((0, Charge::default()), |old| (old.memory_bytes(), old.charge(table) + past));
        self.bytes = self.bytes + bytes - old_bytes;
        self.charged += charge - old_charge;
        change.bytes += bytes as i64 - old_bytes as i64;
        change.charged += charge - old_charge;
    }
}

/// Layers, oldest first. In its own cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Shard(pub(super) RwLock<Vec<Arc<RowLayer>>, { order::ROWS }>);

/// The unsynced rows of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Most datasets have none.
    pub(super) shards: OnceLock<Box<[Shard; SHARDS]>>,
}

/// The layer, for changing it.
fn layer_mut(layers: &mut [Arc<RowLayer>], index: usize) -> &mut RowLayer {
    Arc::get_mut(&mut layers[index]).expect("the txg thread shares a layer after its txg has quiesced only")
}

/// The shard of a key.
pub(super) fn shard_of(table: TableId, key: &[u8]) -> usize {
    // Of all bits of the hash, so that tables with the same keys do not meet in the same shards.
    (XxHash3_64::oneshot(key).wrapping_add(u64::from(table.0)) % SHARDS as u64) as usize
}

impl Rows {
    fn shards(&self) -> &[Shard; SHARDS] {
        self.shards.get_or_init(Box::default)
    }

    /// Calls `found` with the newest unsynced change of a row, if there is one.
    pub(super) fn find<T>(&self, table: TableId, key: &[u8], found: impl FnOnce(&Row) -> T) -> Option<T> {
        let layers = read(&self.shards.get()?[shard_of(table, key)].0);
        let key = Key::of(key);
        layers.iter().rev().find_map(|layer| layer.get(table, key)).map(found)
    }

    /// Puts a row into the layer of `txg`, and into newer ones that have it too; tells `is_new` the shard of
    /// a layer that did not exist. `None`: the dataset is destroyed.
    pub(super) fn put(
        &self,
        txg: Txg,
        table: TableId,
        row: Row,
        past: Charge,
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
            if layers[later].get(table, row.place()).is_some() {
                layer_mut(&mut layers, later).insert(table, row.clone(), past, &mut change);
            }
        }
        layer_mut(&mut layers, at).insert(table, row, past, &mut change);
        Some(change)
    }

    /// The longest value that an unsynced txg stores in a row.
    pub(super) fn longest(&self, table: TableId, key: &[u8]) -> usize {
        let Some(shards) = self.shards.get() else { return 0 };
        let layers = read(&shards[shard_of(table, key)].0);
        let of = |layer: &Arc<RowLayer>| layer.get(table, Key::of(key)).and_then(Row::value).map(<[u8]>::len);
        layers.iter().filter_map(of).max().unwrap_or(0)
    }

    /// A snapshot was made in a txg: charges what newer ones have changed since for what they keep; returns
    /// that. `past`: for a row.
    pub(crate) fn charge_past(&self, snapshot: Txg, past: impl Fn(TableId, &Row) -> Charge) -> Charge {
        let mut sum = Charge::default();
        for shard in self.shards.get().into_iter().flat_map(|shards| &shards[..]) {
            let mut layers = write(&shard.0);
            for index in layers.partition_point(|layer| layer.txg <= snapshot)..layers.len() {
                let layer = layer_mut(&mut layers, index);
                let rows = layer.tables.iter().flat_map(|(table, rows)| rows.iter().map(|row| (*table, row)));
                let charge = rows.fold(Charge::default(), |sum, (table, row)| sum + past(table, row));
                layer.charged += charge;
                sum += charge;
            }
        }
        sum
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
    pub(super) fn layer(&self, shard: usize, txg: Txg) -> Option<Arc<RowLayer>> {
        read(&self.shards()[shard].0).iter().find(|layer| layer.txg == txg).cloned()
    }

    /// Drops the layer of a txg that is durable.
    pub(super) fn drop_layer(&self, shard: usize, txg: Txg) {
        write(&self.shards()[shard].0).retain(|layer| layer.txg != txg);
    }
}
