//! From a pool that is suspended to the next import of it, without losing what was acknowledged and not yet
//! durable.
//!
//! Problem: what the engine of a suspended pool has in memory may be ahead of the medium, so it cannot go on.
//! A new import finds the last synced txg, and the intent log what was made durable since. All other changes,
//! which users were told of and can still read, are in the layers of objects in DRAM.
//!
//! Design: [`Pool::abandon`] waits for transactions to end, lets go of the devices, and hands out the layers;
//! the owner imports the pool again, paused, and replays its log; [`Unsynced::apply`] then makes the same
//! changes in one transaction; then txgs may end. After it every object that was carried over reads as it
//! did: what is in no layer is as of the last synced txg in both, and what the log has replayed was in a
//! layer.
//!
//! Room: all of it is in one txg with the replay, so a block of which the log has a part and a layer the rest
//! is written once, as it would have been (`room`).
//!
//! Crash cases: before the transaction's txg has synced, as after any crash of the suspended pool: its last
//! synced txg, and what the log has. Afterwards everything. One txg, so there is nothing between the two. If
//! that txg fails, nobody knows which of the two it is: the next import tells by the mark of its last txg
//! (`label`), and what is durable is not applied again. The same goes for the txg in which the pool was
//! suspended.
//!
//! What is not carried over: datasets and objects that no synced txg has, and changes of properties. Whoever
//! makes them waits for their txg before saying that they are done; nobody was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::handle::Object;
use crate::ids::{DatasetId, ImportId, Mark, ObjectId};
use crate::object::{Layer, ObjectCore};
use crate::pool::{Pool, Tx};
use crate::sync_util::{lock, read};

/// What a pool had in memory when it was given up.
///
/// Persistence: none; it is in DRAM, as much as was dirty.
#[derive(Debug, Clone, Default)]
pub struct Unsynced {
    objects: Vec<Carried>,
    /// The import that was given up.
    of: ImportId,
    /// Of each import that took it over the first txg that has all of it; whether it became durable is not
    /// known.
    applied: Vec<Mark>,
}

#[derive(Debug, Clone)]
struct Carried {
    dataset: DatasetId,
    object: ObjectId,
    block_bytes: u64,
    /// Oldest first.
    layers: Vec<Arc<Layer>>,
}

impl Pool {
    /// Gives up a pool that is suspended: it is closed, its devices are let go, and what was not durable is
    /// handed out. Waits for transactions to end.
    ///
    /// # Errors
    /// [`PoolError::Busy`] for a pool that is not suspended; nothing was changed.
    pub fn abandon(&self) -> Result<Unsynced> {
        let shared = &self.shared;
        if !self.is_suspended() {
            return Err(PoolError::Busy { name: self.name(), why: "it is not suspended" });
        }
        // From here on no transaction begins; see `begin_tx`.
        self.stop();
        let _syncing = lock(&shared.syncing);
        let _naming = lock(&shared.naming);
        shared.pipeline.quiesce();
        let mut cores: BTreeMap<(u64, u64), Arc<ObjectCore>> = BTreeMap::new();
        for changes in &shared.changes {
            let objects = std::mem::take(&mut lock(changes).objects);
            cores.extend(objects.into_iter().map(|core| ((core.dataset.0, core.id.0), core)));
        }
        let carried = |core: Arc<ObjectCore>| Carried {
            dataset: core.dataset,
            object: core.id,
            block_bytes: u64::from(core.block_bytes),
            layers: read(&core.contents).layers.clone(),
        };
        let is_there = |core: &Arc<ObjectCore>| !core.is_destroyed.load(Ordering::SeqCst);
        let objects = cores.into_values().filter(is_there).map(carried).collect();
        shared.vdevs.all().iter().for_each(|vdev| vdev.let_go());
        // They may have devices of their own.
        lock(&shared.hooks).clear();
        Ok(Unsynced { objects, of: shared.import, applied: Vec::new() })
    }
}

impl Unsynced {
    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        let of = |carried: &Carried| {
            carried.layers.iter().map(|layer| layer.blocks.len() as u64).sum::<u64>() * carried.block_bytes
        };
        self.objects.iter().map(of).sum()
    }

    /// Makes the same changes in a transaction of the pool that was imported since: one of
    /// [`Pool::begin_replay_tx`], so that it finds room. It surely does if no txg has ended since the import
    /// ([`Pool::import_paused`]): then what the log has replayed and what is taken over are in one txg, which
    /// needs no more than was reserved for both. An error leaves nothing behind then, if the pool is dropped.
    ///
    /// Persistence: all of it with the transaction's txg.
    ///
    /// # Errors
    /// [`PoolError::Busy`] if txgs end by themselves already: one could have the half of this that came
    /// before an error. Those of writing; then a part is in the transaction, and the pool has to be given up.
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
        // A txg whose last flush failed may be durable all the same; again, it would need the same room
        // again.
        let is_synced = |layer: &Layer| synced.import == self.of && layer.txg <= synced.txg;
        for carried in &self.objects {
            let found =
                pool.dataset_by_id(carried.dataset).and_then(|dataset| dataset.object(carried.object));
            match found {
                Ok(object) => carried.apply(&object, tx, &is_synced)?,
                Err(PoolError::NoDataset(_) | PoolError::NoObject { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.applied.push(applied);
        Ok(())
    }
}

impl Carried {
    fn apply(&self, object: &Object, tx: &Tx, is_synced: &impl Fn(&Layer) -> bool) -> Result<()> {
        for layer in self.layers.iter().filter(|layer| !is_synced(layer)) {
            for cleared in layer.cleared.iter() {
                let (start, end) = (cleared.start * self.block_bytes, cleared.end * self.block_bytes);
                object.punch(tx, start, end - start)?;
            }
            // In order, so that neighbours pay for their row once, as they did.
            let mut blocks: Vec<_> = layer.blocks.iter().collect();
            blocks.sort_unstable_by_key(|(block, _)| **block);
            for (block, bytes) in blocks {
                let offset = block * self.block_bytes;
                let len = layer.size_bytes.saturating_sub(offset).min(self.block_bytes) as usize;
                object.write(tx, offset, &bytes[..len])?;
            }
            if object.size_bytes() != layer.size_bytes {
                object.truncate(tx, layer.size_bytes)?;
            }
        }
        Ok(())
    }
}
