//! Freeing what was overwritten, cleared and destroyed.
//!
//! Destroyed objects, and cleared ranges of many blocks, are freed a number of rows at a time in each txg: so
//! a txg takes a bounded time, and its table pages come out of what is kept back for that (`room`). While
//! anything is left to free, txgs follow each other. Cleared ranges take turns; while something destroyed is
//! also waiting, each of the two gets half. What snapshots do not need any more (`pruning`) gets what cleared
//! ranges leave.
//!
//! Memory: one batch of rows at a time, and 24 bytes for each extent that the txg frees: 4096 rows of 32 are
//! 3 MiB.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use redb::{ReadableTable, Table, WriteTransaction};

use crate::error::Result;
use crate::ids::{ObjectId, Txg, UNIT_BYTES};
use crate::metadata::branches::{Branches, Branching};
use crate::metadata::groups::decode_row;
use crate::metadata::life::Life;
use crate::metadata::past_objects::ObjectKey;
use crate::metadata::references;
use crate::metadata::tables::{DOOMED, EXTENTS, ExtentKey, OBJECTS, PIECES, ROWS};
use crate::objects::cleared::{Cleared, Clearing};
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group, decode_pieces};
use crate::objects::object::is_freed_at_once;
use crate::rows::stored::remove_some;
use crate::space::room::{FREES, ROW};
use crate::state::Shared;
use fastness_sync::order::{lock, read};

/// First and last object of a destroyed dataset, whose tables go as well.
pub(crate) const WHOLE_DATASET: (u64, u64) = (0, u64::MAX);
/// Rows held in memory at one time.
const STEP_ROWS: usize = 64;

pub(super) type Extents<'t> = Table<'t, ExtentKey, &'static [u8]>;

/// What one txg frees.
pub(crate) struct Freeing<'a> {
    pub(super) shared: &'a Shared,
    pub(super) transaction: &'a WriteTransaction,
    pub(super) clearing: Clearing,
    pub(super) branching: Branching<'a>,
    has_shared: bool,
    /// The life of the object that was asked for last.
    pub(super) life: Cell<Option<(ObjectKey, Life)>>,
    /// Rows that may still be changed.
    pub(super) rows: usize,
    /// Bytes that were reserved for them.
    pub(crate) reserved: i64,
    /// Dataset → change of used bytes.
    pub(crate) usage: BTreeMap<u64, i64>,
    /// Dataset → bytes that were freed because snapshots went.
    pub(crate) pruned: BTreeMap<u64, i64>,
    /// Dataset → change of the bytes that it shows.
    pub(super) shown: BTreeMap<u64, i64>,
}

impl<'a> Freeing<'a> {
    /// Reserves room for as many rows as one txg may free, if it has any to free; otherwise uses what is kept
    /// back for that.
    pub(crate) fn begin(
        shared: &'a Shared,
        transaction: &'a WriteTransaction,
        has_work: bool,
    ) -> Freeing<'a> {
        let wanted = shared.options.frees_per_txg.max(1);
        let reserved = if has_work { shared.space.room.take_some(wanted as i64 * ROW) } else { 0 };
        let kept = (shared.space.room.slop_bytes() / FREES) as i64;
        let rows = wanted.min((reserved.max(kept) / ROW) as usize);
        let tables = shared.tables.current();
        Freeing {
            shared,
            transaction,
            clearing: Clearing::new(tables.cleared.clone()),
            branching: Branching::new(transaction, tables.branches.clone()),
            has_shared: shared.space.has_shared.load(Ordering::SeqCst),
            life: Cell::new(None),
            rows,
            reserved,
            usage: BTreeMap::new(),
            pruned: BTreeMap::new(),
            shown: BTreeMap::new(),
        }
    }

    /// Frees one extent, unless another block is stored there, too; returns its bytes.
    pub(crate) fn free(&self, extent: &Extent) -> Result<i64> {
        if self.has_shared && !extent.is_in_pieces() && references::lower(self.transaction, extent.place)? {
            return Ok(bytes(extent));
        }
        let pieces = if extent.is_in_pieces() {
            let mut table = self.transaction.open_table(PIECES)?;
            let row = table.remove(extent.place.pack())?.map(|row| row.value().to_vec());
            decode_pieces(extent, row.as_deref())?
        } else {
            vec![*extent]
        };
        let mut allocator = lock(&self.shared.space.allocator);
        for piece in pieces {
            allocator.free_data(piece.place, piece.units())?;
        }
        Ok(bytes(extent))
    }

    /// Blocks were cleared in `txg`: frees them if room for that was reserved, or else notes them.
    pub(crate) fn clear(
        &mut self,
        table: &mut Extents<'_>,
        object: (u64, u64),
        blocks: &Range<u64>,
        txg: Txg,
    ) -> Result<()> {
        if !is_freed_at_once(blocks) {
            self.clearing.insert(object, blocks, txg);
            return Ok(());
        }
        let rows = self.rows;
        for (key, group) in self.rows_of(table, object, blocks, STEP_ROWS)? {
            self.rows = usize::MAX;
            self.free_row(table, key, group, &|block, _| blocks.contains(&block))?;
        }
        self.rows = rows;
        Ok(())
    }

    /// Frees the extents of a row that `is_dead`; returns the block at which the budget ran out.
    fn free_row(
        &mut self,
        table: &mut Extents<'_>,
        key: ExtentKey,
        mut group: Group,
        is_dead: &dyn Fn(u64, &Extent) -> bool,
    ) -> Result<Option<u64>> {
        let blocks = key.2 * GROUP_BLOCKS..;
        let (mut freed, mut dropped, mut stopped) = (0, 0, None);
        let dead = blocks.clone().zip(&group).filter_map(|(block, slot)| Some((block, (*slot)?)));
        if self.rows > 0 && self.needs_any(key, dead.filter(|(block, extent)| is_dead(*block, extent)))? {
            self.rows -= usize::from(self.keep(key, &group)?);
        }
        for (block, slot) in blocks.zip(&mut group) {
            let Some(extent) = slot.filter(|extent| is_dead(block, extent)) else { continue };
            if self.rows == 0 {
                stopped = Some(block);
                break;
            }
            self.charge_free(&extent);
            freed += self.give_up(key, block, &extent)?;
            dropped += bytes(&extent);
            *slot = None;
        }
        self.rows = self.rows.saturating_sub(1);
        if dropped > 0 {
            *self.usage.entry(key.0).or_default() -= freed;
            self.note_shown(key.0, -dropped);
            self.note_freed((key.0, key.1), dropped);
            self.store_row(table, key, &group)?;
        }
        Ok(stopped)
    }

    /// Freeing an extent may change another row.
    pub(super) fn charge_free(&mut self, extent: &Extent) {
        self.rows = self.rows.saturating_sub(usize::from(extent.is_in_pieces() || self.has_shared));
    }

    /// Blocks of an object that may be open are freed.
    fn note_freed(&self, (dataset, object): (u64, u64), freed: i64) {
        let namespace = read(&self.shared.datasets.namespace);
        let Some(core) = namespace.by_id.get(&dataset) else { return };
        if let Some(core) = lock(&core.objects).get(&ObjectId(object)).and_then(Weak::upgrade) {
            core.taken.change(-freed);
        }
    }

    /// Frees some of what was cleared and some of what was destroyed, in this txg or before.
    pub(crate) fn free_some(&mut self) -> Result<()> {
        let all = self.rows;
        let has_doomed = self.shared.backlog.has_doomed.load(Ordering::SeqCst);
        let for_doomed = if has_doomed { all / 2 } else { 0 };
        self.rows = all - for_doomed;
        self.free_cleared()?;
        self.prune_some()?;
        self.rows += for_doomed;
        if has_doomed { self.free_doomed() } else { Ok(()) }
    }

    fn free_cleared(&mut self) -> Result<()> {
        let mut table = self.transaction.open_table(EXTENTS)?;
        let mut at = *lock(&self.shared.backlog.next_cleared);
        while self.rows > 0 {
            let Some((key, end, txg)) = self.clearing.next(at) else { break };
            let before = self.rows;
            let to = self.free_range(&mut table, (key.0, key.1), &(key.2..end), txg)?;
            // Searching for it was work, too.
            self.rows = self.rows.min(before - 1);
            self.clearing.advance(key, to);
            at = (key.0, key.1, to);
        }
        *lock(&self.shared.backlog.next_cleared) = at;
        Ok(())
    }

    /// Frees dead extents of a range; returns the block up to which none are left.
    fn free_range(
        &mut self,
        table: &mut Extents<'_>,
        object: (u64, u64),
        blocks: &Range<u64>,
        txg: Txg,
    ) -> Result<u64> {
        let is_dead = |block, extent: &Extent| blocks.contains(&block) && extent.birth < txg;
        let mut from = blocks.start;
        while from < blocks.end && self.rows > 0 {
            let step = self.rows.min(STEP_ROWS);
            let rows = self.rows_of(table, object, &(from..blocks.end), step)?;
            let is_last = rows.len() < step;
            for (key, group) in rows {
                if self.rows == 0 {
                    return Ok(from);
                }
                if let Some(stopped) = self.free_row(table, key, group, &is_dead)? {
                    return Ok(stopped);
                }
                from = ((key.2 + 1) * GROUP_BLOCKS).min(blocks.end);
            }
            if is_last {
                return Ok(blocks.end);
            }
        }
        Ok(from)
    }

    fn free_doomed(&mut self) -> Result<()> {
        let mut doomed = self.transaction.open_table(DOOMED)?;
        let mut table = self.transaction.open_table(EXTENTS)?;
        while self.rows > 0 {
            let Some(range) = doomed.first()?.map(|row| row.0.value()) else {
                self.shared.backlog.has_doomed.store(false, Ordering::SeqCst);
                return Ok(());
            };
            let (dataset, first, last) = range;
            let is_whole = (first, last) == WHOLE_DATASET;
            if is_whole && !(self.prune(&mut table, dataset)? && self.prune_files(dataset)?) {
                return Ok(());
            }
            loop {
                let step = self.rows.min(STEP_ROWS);
                let rows = table.range((dataset, first, 0)..=(dataset, last, u64::MAX))?.take(step);
                let rows = rows.map(decode_row).collect::<Result<Vec<_>>>()?;
                let is_last = rows.len() < step;
                for (key, group) in rows {
                    if self.rows == 0 || self.free_row(&mut table, key, group, &|_, _| true)?.is_some() {
                        return Ok(());
                    }
                    // Of a clone it is still there, without extents.
                    table.remove(key)?;
                }
                if is_last {
                    break;
                }
                if self.rows == 0 {
                    return Ok(());
                }
            }
            // Only when no extents are left: an object without its row would have no owner.
            let step = self.rows;
            let mut objects = self.transaction.open_table(OBJECTS)?;
            let keys = objects.range((dataset, first)..=(dataset, last))?.take(step);
            let keys = keys.map(|row| Ok(row?.0.value())).collect::<Result<Vec<_>>>()?;
            for key in &keys {
                objects.remove(key)?;
            }
            self.rows -= keys.len();
            if is_whole {
                let mut stored = self.transaction.open_table(ROWS)?;
                self.rows -= remove_some(&mut stored, dataset, self.rows)?;
            }
            if self.rows > 0 {
                doomed.remove(range)?;
                if is_whole {
                    self.branching.forget(dataset)?;
                }
                self.rows -= 1;
            }
        }
        Ok(())
    }

    /// Stores which ranges are left; returns them, and the branches.
    pub(crate) fn end(self) -> Result<(Arc<Cleared>, Arc<Branches>)> {
        Ok((self.clearing.store(self.transaction)?, self.branching.end()))
    }
}

pub(crate) fn bytes(extent: &Extent) -> i64 {
    (extent.units() * UNIT_BYTES) as i64
}
