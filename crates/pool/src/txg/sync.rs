//! Syncing a txg: from layers in DRAM to a new state of the pool.
//!
//! Order: data to new places; the tables in one engine transaction; the pages of the tables and the page map
//! to new places; marks on all devices; flush all devices; the labels, if a device has become stale; the
//! uberblock; flush. Only then is the txg synced: readers see the new tables, layers go away, freed space may
//! be used.
//!
//! Crash cases: before the uberblock is intact on a device, an import finds the previous txg's uberblock,
//! with everything it refers to untouched; afterwards it finds that of this txg, which was preceded by a
//! flush of everything it refers to. An error on the way suspends the pool: the engine's state in memory is
//! then ahead of the medium, and nothing may build on it. The layers stay in memory, for the next import to
//! take over (`carry`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_base::chain;
use redb::{ReadableTable, WriteTransaction};

use crate::devices::label::Uberblock;
use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Txg};
use crate::metadata::branches::{BranchChange, Branches};
use crate::metadata::references;
use crate::metadata::tables::{
    self, AUX, DATASETS, DOOMED, EXTENTS, ExtentKey, NUMBERS, OBJECTS, PIECES, SPACE, USAGE,
};
use crate::objects::cleared::Cleared;
use crate::objects::extent::{Extent, GROUP_BLOCKS};
use crate::objects::object::ObjectCore;
use crate::panics::caught;
use crate::rows::dirty::DirtyRows;
use crate::space::thick::Pinned;
use crate::state::Shared;
use crate::state::datasets::DatasetCore;
use crate::state::txgs::{HookChanges, TxgChanges};
use crate::txg::dirty::Dirty;
use crate::txg::freeing::{Freeing, bytes};
use crate::txg::output::Written;
use crate::txg::pipeline::Progress;
use fastness_sync::order::{lock, read};

/// What a txg leaves to be published when it is durable.
pub(crate) struct Outcome {
    pub(crate) dirty: Vec<Dirty>,
    pub(crate) rows: Vec<DirtyRows>,
    pub(crate) cleared: Arc<Cleared>,
    pub(crate) branches: Arc<Branches>,
    /// Volumes that have other contents than before.
    pub(crate) replaced: Vec<DatasetId>,
    /// Datasets with what they then use.
    pub(crate) used: Vec<(Arc<DatasetCore>, u64)>,
    /// Thick volumes with what snapshots then have of them.
    pub(crate) pinned: Pinned,
    /// What was reserved for it, on top of what layers were charged.
    pub(crate) reserved: i64,
}

impl Shared {
    /// Ends the open txg and makes it durable.
    ///
    /// A panic on the way is an error like any other: the txg may be half done, and no thread may be left
    /// waiting for it.
    pub(crate) fn sync_txg(&self) -> Result<Txg> {
        let _one = lock(&self.txgs.syncing);
        self.check_alive()?;
        lock(&self.space.log).end_claims();
        let txg = self.txgs.pipeline.quiesce();
        let changes = std::mem::take(&mut *self.txgs.changes(txg));
        let result = caught(|| self.tables.explained(self.commit(txg, &changes)));
        match result {
            Ok(()) => {
                // Before threads that wait for the txg: they may rely on what the hooks do.
                let hooks = self.txgs.hooks();
                let told = caught(|| {
                    hooks.iter().for_each(|hook| hook.synced(txg));
                    Ok(())
                });
                let mut progress = lock(&self.txgs.pipeline.progress);
                progress.synced = txg;
                if let Err(error) = told {
                    // It is durable, but the hook's owner does not know.
                    self.suspend(&mut progress, txg, &error);
                }
                self.txgs.pipeline.changed.notify_all();
                Ok(txg)
            }
            Err(error) => {
                // Its layers are all that is left of it; see `carry`.
                *self.txgs.changes(txg) = changes;
                self.suspend(&mut lock(&self.txgs.pipeline.progress), txg, &error);
                Err(error)
            }
        }
    }

    /// No txg will sync any more; wakes the threads that wait.
    pub(crate) fn suspend(&self, progress: &mut Progress, txg: Txg, error: &PoolError) {
        progress.failed.get_or_insert(PoolError::Suspended { txg, reason: chain(error) });
        self.must_check.store(true, Ordering::SeqCst);
        self.txgs.pipeline.changed.notify_all();
    }

    fn commit(&self, txg: Txg, changes: &TxgChanges) -> Result<()> {
        lock(&self.space.allocator).take_count();
        let dirty = self.dirty_objects(txg, changes);
        let rows = DirtyRows::of(txg, &changes.rows);
        let written = self.write_data(txg, &dirty)?;
        self.devices.vdevs.crash_point("sync_after_data");
        self.txgs.pipeline.heart.beat();
        let mut transaction = self.tables.database.begin_write()?;
        transaction.set_quick_repair(true);
        let clears = dirty.iter().any(|dirty| dirty.layer.cleared.len() > 0);
        let ends = !changes.doomed.is_empty() || !changes.branches.is_empty();
        let has_work = clears || ends || self.backlog.is_freeing();
        let mut freeing = Freeing::begin(self, &transaction, has_work);
        let reserved = changes.charged.total() + freeing.reserved;
        let charged: i64 = rows.iter().map(|rows| rows.layer.charged.total()).sum();
        self.store_objects(txg, &transaction, &dirty, written, &mut freeing)?;
        self.store_rows(&transaction, &rows, &freeing)?;
        self.store_branches(txg, &transaction, &changes.branches, &mut freeing)?;
        self.store_changes(txg, &transaction, changes)?;
        for rows in &rows {
            // Numbers of objects that only rows know of are not given again.
            if let Some(dataset) = rows.with_new_numbers() {
                freeing.usage.entry(dataset.0).or_default();
            }
        }
        freeing.free_some()?;
        let used = self.store_usage(txg, &transaction, &freeing.usage)?;
        let pinned = self.store_pinned(txg, &transaction, changes, &used, &freeing.pruned)?;
        freeing.store_shown()?;
        let (cleared, branches) = freeing.end()?;
        self.store_space(txg, &transaction)?;
        transaction.commit()?;
        self.txgs.pipeline.heart.beat();
        let root = self.tables.meta.write_out()?;
        // A device may have run out of space.
        self.note_free(&lock(&self.space.allocator));
        self.devices.vdevs.crash_point("sync_after_metadata");
        self.txgs.pipeline.heart.beat();
        let (pool, generation) = {
            let config = lock(&self.devices.config);
            (config.guid, config.generation)
        };
        let mut uberblock =
            Uberblock { txg, generation, import: self.devices.import, lacking: Vec::new(), root };
        // PERSIST: with the flush below, every current device has the mark of this txg before any has its
        // uberblock. So a device without the mark, beside such an uberblock, is an older copy, and not what a
        // crash leaves.
        let mut lost = self.devices.vdevs.write_mark(pool, uberblock.mark())?;
        lost.extend(self.devices.vdevs.flush()?);
        uberblock.lacking = self.note_lost_log_vdevs(&lost);
        if self.labels_lag(&lock(&self.devices.config).clone()) {
            // Before the uberblock: no import may find it on the other devices and take the stale device for
            // current.
            self.write_labels(|_| ())?;
        }
        self.devices.vdevs.crash_point("sync_after_flush");
        self.txgs.pipeline.heart.beat();
        uberblock.generation = lock(&self.devices.config).generation;
        lost.extend(self.devices.vdevs.write_uberblock(pool, &uberblock)?);
        self.devices.vdevs.crash_point("sync_after_uberblock");
        lost.extend(self.devices.vdevs.flush()?);
        self.settle_lost_log_vdevs(uberblock.mark(), &lost);
        *lock(&self.devices.uberblock) = uberblock;
        if self.labels_lag(&lock(&self.devices.config).clone()) {
            self.write_labels(|_| ())?;
        }
        self.note_unreserved(&dirty, reserved + charged);
        let replaced = changes.branches.iter().flat_map(BranchChange::replaced).collect();
        self.publish(txg, Outcome { dirty, rows, cleared, branches, replaced, used, pinned, reserved })
    }

    /// Compares what the txg took with what was reserved for it.
    fn note_unreserved(&self, dirty: &[Dirty], reserved: i64) {
        let taken = lock(&self.space.allocator).take_count() as i64;
        let charged: i64 = dirty.iter().map(|dirty| dirty.layer.charged.total()).sum();
        self.space.room.note_unreserved(taken - charged - reserved);
    }

    fn dirty_objects(&self, txg: Txg, changes: &TxgChanges) -> Vec<Dirty> {
        let of = |core: &Arc<ObjectCore>| {
            let contents = read(&core.contents);
            let layer = contents.layers.iter().find(|layer| layer.txg == txg);
            let layer = layer.expect("an object on the list has a layer").clone();
            let bytes = layer.bytes();
            Dirty { core: core.clone(), layer, bytes }
        };
        let mut dirty: Vec<_> = changes.objects.iter().map(of).collect();
        dirty.sort_by_key(|dirty| (dirty.core.dataset, dirty.core.id));
        dirty
    }

    fn store_objects(
        &self,
        txg: Txg,
        transaction: &WriteTransaction,
        dirty: &[Dirty],
        written: Written,
        freeing: &mut Freeing<'_>,
    ) -> Result<()> {
        for (place, row) in &written.pieces {
            transaction.open_table(PIECES)?.insert(place, row.as_slice())?;
        }
        // Before anything is freed: what a block shares may be freed by its source in the same txg.
        references::raise(transaction, &written.shared)?;
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut table = transaction.open_table(EXTENTS)?;
        for (Dirty { core, layer, .. }, extents) in dirty.iter().zip(written.extents) {
            let key = (core.dataset.0, core.id.0);
            freeing.usage.entry(core.dataset.0).or_default();
            let shape = (!layer.is_destroyed).then_some((layer.size_bytes, core.block_bytes));
            freeing.keep_object(&objects, key, shape)?;
            let Some(shape) = shape else {
                objects.remove(key)?;
                continue;
            };
            objects.insert(key, shape)?;
            for cleared in layer.cleared.iter() {
                freeing.clear(&mut table, key, &cleared, txg)?;
            }
            for row in extents.chunk_by(|(a, _), (b, _)| a / GROUP_BLOCKS == b / GROUP_BLOCKS) {
                let (owned, shown) = store_group(freeing, &mut table, key, row)?;
                *freeing.usage.entry(core.dataset.0).or_default() += owned;
                freeing.note_shown(core.dataset.0, shown);
                core.taken.change(shown);
            }
        }
        freeing.forget_life();
        Ok(())
    }

    fn store_changes(&self, txg: Txg, transaction: &WriteTransaction, changes: &TxgChanges) -> Result<()> {
        let mut datasets = transaction.open_table(DATASETS)?;
        for (id, row) in &changes.datasets {
            match row {
                Some(row) => drop(datasets.insert(id, row.as_slice())?),
                None => {
                    datasets.remove(id)?;
                    transaction.open_table(USAGE)?.remove(id)?;
                }
            }
        }
        let mut hooked = HookChanges::default();
        let hooks = self.txgs.hooks();
        for hook in hooks {
            hook.sync(txg, &mut hooked)?;
        }
        if hooked.ends_next_soon {
            self.txgs.pipeline.end_soon();
        }
        let mut aux = transaction.open_table(AUX)?;
        for ((dataset, key), value) in changes.aux.iter().chain(&hooked.aux) {
            match value {
                Some(_) if datasets.get(dataset)?.is_none() => {}
                Some(value) => drop(aux.insert((*dataset, key.as_slice()), value.as_slice())?),
                None => drop(aux.remove((*dataset, key.as_slice()))?),
            }
        }
        for (id, _) in changes.datasets.iter().filter(|(_, row)| row.is_none()) {
            let from: (u64, &[u8]) = (*id, &[]);
            let keys = aux.range(from..(*id + 1, &[]))?.map(|row| Ok(row?.0.value().1.to_vec()));
            for key in keys.collect::<Result<Vec<_>>>()? {
                aux.remove((*id, key.as_slice()))?;
            }
        }
        if changes.has_damage {
            self.store_damage(transaction)?;
        }
        let mut doomed = transaction.open_table(DOOMED)?;
        for range in &changes.doomed {
            doomed.insert(*range, ())?;
            self.backlog.has_doomed.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Stores what datasets then use; returns it.
    fn store_usage(
        &self,
        txg: Txg,
        transaction: &WriteTransaction,
        usage: &BTreeMap<u64, i64>,
    ) -> Result<Vec<(Arc<DatasetCore>, u64)>> {
        let mut table = transaction.open_table(USAGE)?;
        let mut all = Vec::with_capacity(usage.len());
        for (id, change) in usage {
            // A destroyed dataset no longer has any usage.
            let Some(dataset) = self.datasets.get(crate::ids::DatasetId(*id), txg) else { continue };
            let used = dataset.used_bytes.load(Ordering::SeqCst).saturating_add_signed(*change);
            let next_object = dataset.next_object.load(Ordering::SeqCst);
            table.insert(id, (next_object, used))?;
            dataset.stored_next.store(next_object, Ordering::SeqCst);
            all.push((dataset, used));
        }
        Ok(all)
    }

    fn store_space(&self, txg: Txg, transaction: &WriteTransaction) -> Result<()> {
        let mut space = transaction.open_table(SPACE)?;
        // Not in the loop's head, which would keep the lock: an insertion may grow the metadata file.
        let dirty = lock(&self.space.allocator).take_dirty();
        for (vdev, region, bitmap) in dirty {
            space.insert((vdev, region), bitmap.as_slice())?;
        }
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(tables::TXG, txg.0)?;
        numbers.insert(tables::NEXT_DATASET, read(&self.datasets.namespace).next_id)?;
        Ok(())
    }
}

/// Replaces blocks of one row, and frees the old ones; returns the change of what the dataset owns, and of
/// what it shows.
fn store_group(
    freeing: &Freeing<'_>,
    table: &mut redb::Table<'_, ExtentKey, &'static [u8]>,
    (dataset, object): (u64, u64),
    blocks: &[(u64, Option<Extent>)],
) -> Result<(i64, i64)> {
    let key = (dataset, object, blocks[0].0 / GROUP_BLOCKS);
    let mut group = freeing.row(table, key)?;
    freeing.keep(key, &group)?;
    let (mut owned, mut shown) = (0, 0);
    for (block, extent) in blocks {
        let old = std::mem::replace(&mut group[(block % GROUP_BLOCKS) as usize], *extent);
        let new = extent.map_or(0, |extent| bytes(&extent));
        owned += new - old.map_or(Ok(0), |old| freeing.give_up(key, *block, &old))?;
        shown += new - old.map_or(0, |old| bytes(&old));
    }
    freeing.store_row(table, key, &group)?;
    Ok((owned, shown))
}
