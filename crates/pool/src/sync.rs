//! Syncing a txg: from layers in DRAM to a new state of the pool.
//!
//! Order: data to new places; the tables in one engine transaction; the pages of the tables and the page map to new
//! places; marks on all devices; flush all devices; the labels, if a device has become stale; the uberblock; flush. Only
//! then is the txg synced: readers see the new tables, layers go away, freed space may be used.
//!
//! Crash cases: before the uberblock is whole on a device, an import finds that of the txg before, and everything
//! it refers to untouched; afterwards, that of this txg, which was preceded by a flush of all that it refers to.
//! An error on the way suspends the pool: what the engine has in memory is then ahead of the medium, and nobody may
//! build on it. The layers stay in memory, for the next import to take over (`carry`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_error::chain;
use redb::{ReadableTable, WriteTransaction};

use crate::error::{PoolError, Result};
use crate::extent::{Extent, GROUP_BLOCKS, Group, decode_group, decode_pieces, encode_group};
use crate::ids::{Txg, UNIT_BYTES};
use crate::label::Uberblock;
use crate::object::{Layer, ObjectCore};
use crate::output::Written;
use crate::state::{HookChanges, Shared, TxgChanges};
use crate::sync_util::{lock, read};
use crate::tables::{
    self, AUX, DATASETS, DOOMED, EXTENTS, ExtentKey, NUMBERS, OBJECTS, PIECES, SPACE, USAGE,
};

/// Rows of extents that one txg frees of what was destroyed.
const DOOMED_ROWS: usize = 4096;

/// An object of the txg with its layer.
pub(crate) struct Dirty {
    pub(crate) core: Arc<ObjectCore>,
    pub(crate) layer: Arc<Layer>,
    /// Bytes of its blocks.
    pub(crate) bytes: u64,
}

impl Shared {
    /// Ends the open txg and makes it durable.
    pub(crate) fn sync_txg(&self) -> Result<Txg> {
        let _one = lock(&self.syncing);
        self.check_alive()?;
        lock(&self.log).end_claims();
        let txg = self.pipeline.quiesce();
        let changes = std::mem::take(&mut *self.changes(txg));
        let result = self.explained(self.commit(txg, &changes));
        if result.is_ok() {
            // Before those who wait for the txg: they may rely on what the hooks do.
            let hooks = lock(&self.hooks).clone();
            hooks.iter().for_each(|hook| hook.synced(txg));
        }
        let mut progress = lock(&self.pipeline.progress);
        match result {
            Ok(()) => progress.synced = txg,
            Err(ref error) => {
                // Its layers are all that is left of it, see `carry`.
                *self.changes(txg) = changes;
                progress.failed = Some(PoolError::Suspended { txg, reason: chain(error) });
                self.must_check.store(true, Ordering::SeqCst);
            }
        }
        self.pipeline.changed.notify_all();
        drop(progress);
        result.map(|()| txg)
    }

    fn commit(&self, txg: Txg, changes: &TxgChanges) -> Result<()> {
        let dirty = self.dirty_objects(txg, changes);
        let written = self.write_data(txg, &dirty)?;
        self.vdevs.crash_point("sync_after_data");
        let mut transaction = self.database.begin_write()?;
        transaction.set_quick_repair(true);
        let mut usage = BTreeMap::new();
        self.store_objects(&transaction, &dirty, written, &mut usage)?;
        self.store_changes(txg, &transaction, changes)?;
        self.free_doomed(&transaction, &mut usage)?;
        self.store_usage(txg, &transaction, &usage)?;
        self.store_space(txg, &transaction)?;
        transaction.commit()?;
        let root = self.meta.write_out()?;
        self.vdevs.crash_point("sync_after_metadata");
        let (pool, generation) = {
            let config = lock(&self.config);
            (config.guid, config.generation)
        };
        let mut uberblock = Uberblock { txg, generation, import: self.import, root };
        // PERSIST: with the flush below every current device has the mark of this txg before any has its uberblock. So a
        // device without it, beside such an uberblock, is an older copy, and not what a crash leaves.
        let mut lost = self.vdevs.write_mark(pool, uberblock.mark())?;
        lost.extend(self.vdevs.flush()?);
        self.note_lost_log_vdevs(&lost);
        if self.labels_lag(&lock(&self.config).clone()) {
            // Before the uberblock: nobody may find it on the others and take the stale device for current.
            self.write_labels(|_| ())?;
        }
        self.vdevs.crash_point("sync_after_flush");
        uberblock.generation = lock(&self.config).generation;
        lost.extend(self.vdevs.write_uberblock(pool, &uberblock)?);
        self.vdevs.crash_point("sync_after_uberblock");
        lost.extend(self.vdevs.flush()?);
        self.settle_lost_log_vdevs(txg, &lost);
        *lock(&self.uberblock) = uberblock;
        if self.labels_lag(&lock(&self.config).clone()) {
            self.write_labels(|_| ())?;
        }
        self.publish(txg, dirty)
    }

    fn dirty_objects(&self, txg: Txg, changes: &TxgChanges) -> Vec<Dirty> {
        let of = |core: &Arc<ObjectCore>| {
            let contents = read(&core.contents);
            let layer = contents.layers.iter().find(|layer| layer.txg == txg);
            let layer = layer.expect("an object on the list has a layer").clone();
            let bytes = layer.blocks.values().map(|block| block.len() as u64).sum();
            Dirty { core: core.clone(), layer, bytes }
        };
        let mut dirty: Vec<_> = changes.objects.iter().map(of).collect();
        dirty.sort_by_key(|dirty| (dirty.core.dataset, dirty.core.id));
        dirty
    }

    fn store_objects(
        &self,
        transaction: &WriteTransaction,
        dirty: &[Dirty],
        written: Written,
        usage: &mut BTreeMap<u64, i64>,
    ) -> Result<()> {
        for (place, row) in &written.pieces {
            transaction.open_table(PIECES)?.insert(place, row.as_slice())?;
        }
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut table = transaction.open_table(EXTENTS)?;
        for (Dirty { core, layer, .. }, extents) in dirty.iter().zip(written.extents) {
            let key = (core.dataset.0, core.id.0);
            let used = usage.entry(core.dataset.0).or_default();
            if layer.is_destroyed {
                objects.remove(key)?;
                continue;
            }
            objects.insert(key, (layer.size_bytes, core.block_bytes))?;
            for cleared in layer.cleared.iter() {
                *used -= self.clear(transaction, &mut table, key, cleared)?;
            }
            let mut at = 0;
            while at < extents.len() {
                let group = extents[at].0 / GROUP_BLOCKS;
                let len = extents[at..].partition_point(|(block, _)| block / GROUP_BLOCKS == group);
                *used +=
                    self.store_group(transaction, &mut table, (key.0, key.1, group), &extents[at..at + len])?;
                at += len;
            }
        }
        Ok(())
    }

    /// Replaces blocks of one row; returns the change of used bytes.
    fn store_group(
        &self,
        transaction: &WriteTransaction,
        table: &mut redb::Table<'_, ExtentKey, &'static [u8]>,
        key: ExtentKey,
        blocks: &[(u64, Option<Extent>)],
    ) -> Result<i64> {
        let mut group: Group = match table.get(key)? {
            Some(row) => decode_group(row.value())?,
            None => [None; GROUP_BLOCKS as usize],
        };
        let mut change = 0;
        for (block, extent) in blocks {
            let old = std::mem::replace(&mut group[(block % GROUP_BLOCKS) as usize], *extent);
            change += extent.map_or(0, |extent| bytes(&extent)) - self.free(transaction, old)?;
        }
        store(table, key, &group)?;
        Ok(change)
    }

    fn free(&self, transaction: &WriteTransaction, extent: Option<Extent>) -> Result<i64> {
        let Some(extent) = extent else { return Ok(0) };
        let pieces = if extent.is_in_pieces() {
            let mut table = transaction.open_table(PIECES)?;
            let row = table.remove(extent.place.pack())?.map(|row| row.value().to_vec());
            decode_pieces(&extent, row.as_deref())?
        } else {
            vec![extent]
        };
        let mut allocator = lock(&self.allocator);
        for piece in pieces {
            allocator.free_data(piece.place, piece.units())?;
        }
        Ok(bytes(&extent))
    }

    /// Frees a range of blocks; returns their bytes.
    fn clear(
        &self,
        transaction: &WriteTransaction,
        table: &mut redb::Table<'_, ExtentKey, &'static [u8]>,
        (dataset, object): (u64, u64),
        blocks: std::ops::Range<u64>,
    ) -> Result<i64> {
        let groups = blocks.start / GROUP_BLOCKS..=(blocks.end - 1) / GROUP_BLOCKS;
        let rows = table.range((dataset, object, *groups.start())..=(dataset, object, *groups.end()))?;
        let rows = rows.map(decode_row);
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let mut freed = 0;
        for (key, mut group) in rows {
            for (index, slot) in group.iter_mut().enumerate() {
                if blocks.contains(&(key.2 * GROUP_BLOCKS + index as u64)) {
                    freed += self.free(transaction, slot.take())?;
                }
            }
            store(table, key, &group)?;
        }
        Ok(freed)
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
        let hooks = lock(&self.hooks).clone();
        for hook in hooks {
            hook.sync(txg, &mut hooked)?;
        }
        if hooked.ends_next_soon {
            self.pipeline.end_soon();
        }
        let mut aux = transaction.open_table(AUX)?;
        for (dataset, key, value) in changes.aux.iter().chain(&hooked.aux) {
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
        let mut doomed = transaction.open_table(DOOMED)?;
        for range in &changes.doomed {
            doomed.insert(*range, ())?;
            self.has_doomed.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Frees some of what was destroyed.
    fn free_doomed(&self, transaction: &WriteTransaction, usage: &mut BTreeMap<u64, i64>) -> Result<()> {
        if !self.has_doomed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut doomed = transaction.open_table(DOOMED)?;
        let mut table = transaction.open_table(EXTENTS)?;
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut budget = DOOMED_ROWS;
        while budget > 0 {
            let Some(range) = doomed.first()?.map(|row| row.0.value()) else {
                self.has_doomed.store(false, Ordering::SeqCst);
                break;
            };
            let (dataset, first, last) = range;
            let rows = table.range((dataset, first, 0)..=(dataset, last, u64::MAX))?.take(budget);
            let rows = rows.map(decode_row);
            let rows = rows.collect::<Result<Vec<_>>>()?;
            for (key, group) in &rows {
                for extent in group {
                    *usage.entry(dataset).or_default() -= self.free(transaction, *extent)?;
                }
                table.remove(key)?;
            }
            let keys = objects.range((dataset, first)..=(dataset, last))?.take(budget);
            let keys = keys.map(|row| Ok(row?.0.value())).collect::<Result<Vec<_>>>()?;
            for key in &keys {
                objects.remove(key)?;
            }
            if rows.len() < budget && keys.len() < budget {
                doomed.remove(range)?;
            }
            budget = budget.saturating_sub(rows.len() + keys.len() + 1);
        }
        Ok(())
    }

    fn store_usage(
        &self,
        txg: Txg,
        transaction: &WriteTransaction,
        usage: &BTreeMap<u64, i64>,
    ) -> Result<()> {
        let mut table = transaction.open_table(USAGE)?;
        for (id, change) in usage {
            // A destroyed dataset has no usage any more.
            let Some(dataset) = self.dataset(crate::ids::DatasetId(*id), txg) else { continue };
            let used = dataset.used_bytes.load(Ordering::Relaxed).saturating_add_signed(*change);
            dataset.used_bytes.store(used, Ordering::Relaxed);
            table.insert(id, (dataset.next_object.load(Ordering::SeqCst), used))?;
        }
        Ok(())
    }

    fn store_space(&self, txg: Txg, transaction: &WriteTransaction) -> Result<()> {
        let mut space = transaction.open_table(SPACE)?;
        // Not in the head of the loop, which would keep the lock: an insertion may make the metadata's file grow.
        let dirty = lock(&self.allocator).take_dirty();
        for (vdev, region, bitmap) in dirty {
            space.insert((vdev, region), bitmap.as_slice())?;
        }
        let mut numbers = transaction.open_table(NUMBERS)?;
        numbers.insert(tables::TXG, txg.0)?;
        numbers.insert(tables::NEXT_DATASET, read(&self.namespace).next_id)?;
        Ok(())
    }
}

type Row<'a> = (redb::AccessGuard<'a, ExtentKey>, redb::AccessGuard<'a, &'static [u8]>);

pub(crate) fn decode_row(
    row: std::result::Result<Row<'_>, redb::StorageError>,
) -> Result<(ExtentKey, Group)> {
    let (key, value) = row?;
    Ok((key.value(), decode_group(value.value())?))
}

fn bytes(extent: &Extent) -> i64 {
    (extent.units() * UNIT_BYTES) as i64
}

fn store(table: &mut redb::Table<'_, ExtentKey, &'static [u8]>, key: ExtentKey, group: &Group) -> Result<()> {
    if group.iter().all(Option::is_none) {
        table.remove(key)?;
    } else {
        table.insert(key, encode_group(group).as_slice())?;
    }
    Ok(())
}
