//! Carries changes from a suspended pool to its next import, so that what was acknowledged but is not yet
//! durable survives.
//!
//! Problem: the engine of a suspended pool may hold state in memory that is ahead of the medium, so it cannot
//! continue. A new import finds the last synced txg, and the intent log finds what was made durable since.
//! All other changes, which were acknowledged to users and are still readable, are in DRAM, in the layers of
//! objects and of tables.
//!
//! Design: [`Pool::abandon`] waits for transactions to end, releases the devices, and returns the layers. The
//! owner imports the pool again, paused, and replays its log; [`Unsynced::apply`] then makes the same changes
//! in one transaction; then txgs may end. Afterwards every object and every table that was carried over reads
//! as before: what is in no layer is as of the last synced txg in both imports, and everything that the log
//! replayed was in a layer.
//!
//! Room: all of this is in one txg with the replay, so a block that is partly in the log and partly in a
//! layer is written once, as it would have been (`room`).
//!
//! Crash cases: before the transaction's txg has synced, the state is that after any crash of the suspended
//! pool: its last synced txg, plus the log. Afterwards it is everything. It is one txg, so there is no state
//! between the two. If that txg fails, it is unknown which of the two holds: the next import tells by the
//! mark of its last txg (`label`), and does not apply again what is durable. The same goes for the txg in
//! which the pool was suspended.
//!
//! Objects that were created or destroyed are, too, and numbers that were allotted are not given again: the
//! rows that are carried over refer to them.
//!
//! A block that only a log has is read when the pool is abandoned: the regions of the log are closed after
//! that. What the log has lost is left out; the import meets it in the log, and asks.
//!
//! Not carried over: datasets that no synced txg has, and changes of properties. Their callers wait for the
//! txg before they report success, so these were never acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, ImportId, Mark, ObjectId, Txg};
use crate::objects::handle::Object;
use crate::objects::object::{Layer, ObjectCore};
use crate::pool::{Pool, Tx};
use crate::rows::layer::RowLayer;
use crate::state::datasets::DatasetCore;
use fastness_sync::order::{lock, read};

/// What a pool had in memory when it was abandoned.
///
/// Persistence: none; it is in DRAM, as much as was dirty.
#[derive(Debug, Clone, Default)]
pub struct Unsynced {
    objects: Vec<Carried>,
    destroyed: Vec<(DatasetId, ObjectId)>,
    rows: Vec<CarriedRows>,
    /// The import that was abandoned.
    of: ImportId,
    /// For each import that took this over, the first txg that has all of it; whether that txg became durable
    /// is unknown.
    applied: Vec<Mark>,
}

#[derive(Debug, Clone)]
struct Carried {
    dataset: DatasetId,
    object: ObjectId,
    block_bytes: u32,
    /// Oldest first.
    layers: Vec<Arc<Layer>>,
}

/// Rows of one shard of a dataset.
#[derive(Debug, Clone)]
struct CarriedRows {
    dataset: DatasetId,
    /// No object has this number, or a higher one.
    next_object: ObjectId,
    /// Oldest first.
    layers: Vec<Arc<RowLayer>>,
}

impl Pool {
    /// Abandons a suspended pool: closes it, releases its devices, and returns what was not durable. Waits
    /// for transactions to end.
    ///
    /// # Errors
    /// [`PoolError::Busy`] for a pool that is not suspended; nothing was changed.
    pub fn abandon(&self) -> Result<Unsynced> {
        let shared = &self.shared;
        if !self.is_suspended() {
            return Err(PoolError::Busy { name: self.name(), why: "it is not suspended" });
        }
        // No transaction begins from here on; see `begin_tx`.
        self.stop();
        let _syncing = lock(&shared.txgs.syncing);
        let _naming = lock(&shared.devices.naming);
        shared.txgs.pipeline.quiesce();
        let mut cores: BTreeMap<(u64, u64), Arc<ObjectCore>> = BTreeMap::new();
        let mut shards: BTreeMap<(DatasetId, usize), Arc<DatasetCore>> = BTreeMap::new();
        for changes in shared.txgs.take_changes() {
            shards.extend(changes.rows.into_iter().map(|(core, shard)| ((core.id, shard), core)));
            let objects = changes.objects;
            cores.extend(objects.into_iter().map(|core| ((core.dataset.0, core.id.0), core)));
        }
        let carried = |core: Arc<ObjectCore>| Carried {
            dataset: core.dataset,
            object: core.id,
            block_bytes: core.block_bytes,
            layers: read(&core.contents).layers.iter().map(|layer| shared.in_memory(&core, layer)).collect(),
        };
        let carried_rows = |((dataset, shard), core): ((DatasetId, usize), Arc<DatasetCore>)| {
            let is_there = !core.is_destroyed.load(Ordering::SeqCst);
            let next_object = ObjectId(core.next_object.load(Ordering::SeqCst));
            is_there.then(|| CarriedRows { dataset, next_object, layers: core.rows.layers(shard) })
        };
        let rows = shards.into_iter().filter_map(carried_rows).collect();
        let is_destroyed = |core: &Arc<ObjectCore>| core.is_destroyed.load(Ordering::SeqCst);
        let (destroyed, objects): (Vec<_>, Vec<_>) = cores.into_values().partition(is_destroyed);
        let destroyed = destroyed.into_iter().map(|core| (core.dataset, core.id)).collect();
        let objects = objects.into_iter().map(carried).collect();
        shared.let_go();
        Ok(Unsynced { objects, destroyed, rows, of: shared.devices.import, applied: Vec::new() })
    }
}

impl Unsynced {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let of = |carried: &Carried| {
            let blocks = carried.layers.iter().map(|layer| layer.blocks.len() as u64);
            blocks.sum::<u64>() * u64::from(carried.block_bytes)
        };
        let rows = self.rows.iter().flat_map(|carried| &carried.layers).map(|layer| layer.bytes);
        self.objects.iter().map(of).sum::<u64>() + rows.sum::<u64>()
    }

    /// Makes the same changes in a transaction of the new import, begun with [`Pool::begin_replay_tx`] so
    /// that it finds room. It is sure to find room if no txg has ended since the import
    /// ([`Pool::import_paused`]): then what the log replayed and what is carried over are in one txg, which
    /// needs no more than was reserved for both. In that case an error leaves nothing behind, provided the
    /// pool is dropped.
    ///
    /// Persistence: all of it with the transaction's txg.
    ///
    /// # Errors
    /// [`PoolError::Busy`] if txgs already end by themselves: one could contain half of this, up to an error.
    /// Also the errors of writing; then a part is in the transaction, and the pool must be abandoned.
    pub fn apply(&mut self, pool: &Pool, tx: &Tx) -> Result<()> {
        if pool.runs_txgs() {
            return Err(PoolError::Busy { name: pool.name(), why: "its txgs run already" });
        }
        let synced = pool.synced_mark();
        let has_all = |applied: &Mark| synced.import == applied.import && synced.txg >= applied.txg;
        let applied = Mark { txg: tx.txg(), import: pool.import_id() };
        if self.applied.iter().any(has_all) {
            self.applied.push(applied);
            return Ok(());
        }
        // A txg whose last flush failed may be durable all the same; applying it again would need the same
        // room twice.
        let is_synced = |txg: Txg| synced.import == self.of && txg <= synced.txg;
        for carried in &self.objects {
            let object = pool.dataset_by_id(carried.dataset).and_then(|dataset| {
                match dataset.object(carried.object) {
                    // No synced txg has it, and the log may not: it is as new as its layers.
                    Err(PoolError::NoObject { .. }) => {
                        dataset.create_object_with(tx, carried.object, carried.block_bytes)
                    }
                    object => object,
                }
            });
            match object {
                Ok(object) => carried.apply(&object, tx, &is_synced)?,
                Err(PoolError::NoDataset(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for (dataset, object) in &self.destroyed {
            let dataset = pool.dataset_by_id(*dataset);
            match dataset.and_then(|dataset| dataset.destroy_object(tx, *object)) {
                // It was never in a txg, or the txg that destroyed it is durable after all.
                Ok(()) | Err(PoolError::NoDataset(_) | PoolError::NoObject { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for carried in &self.rows {
            match pool.dataset_by_id(carried.dataset) {
                Ok(dataset) => {
                    let last = carried.next_object.0.saturating_sub(1);
                    dataset.note_object(ObjectId(last));
                    let layers = carried.layers.iter().filter(|layer| !is_synced(layer.txg));
                    let tables = layers.flat_map(|layer| &layer.tables);
                    for (id, rows) in tables {
                        let table = dataset.table(*id);
                        rows.iter().try_for_each(|row| table.put_row(tx, row))?;
                    }
                }
                Err(PoolError::NoDataset(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.applied.push(applied);
        Ok(())
    }
}

impl Carried {
    fn apply(&self, object: &Object, tx: &Tx, is_synced: &impl Fn(Txg) -> bool) -> Result<()> {
        let block_bytes = u64::from(self.block_bytes);
        for layer in self.layers.iter().filter(|layer| !is_synced(layer.txg)) {
            for cleared in layer.cleared.iter() {
                let (start, end) = (cleared.start * block_bytes, cleared.end * block_bytes);
                object.punch(tx, start, end - start)?;
            }
            // In order, so that neighbours pay for their row once, as they did.
            let mut blocks: Vec<_> = layer.blocks.iter().collect();
            blocks.sort_unstable_by_key(|(block, _)| **block);
            for (block, data) in blocks {
                let bytes = data.bytes().expect("it was read when the pool was abandoned");
                let offset = block * block_bytes;
                let len = layer.size_bytes.saturating_sub(offset).min(block_bytes) as usize;
                object.write(tx, offset, &bytes[..len])?;
            }
            if object.size_bytes() != layer.size_bytes {
                object.truncate(tx, layer.size_bytes)?;
            }
        }
        Ok(())
    }
}
