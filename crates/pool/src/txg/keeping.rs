//! Rows of extents that change, while snapshots need what they were (`metadata::past`).

use std::ops::Range;

use redb::{ReadableTable, Table};

use crate::error::Result;
use crate::metadata::groups::{decode_row, store};
use crate::metadata::past;
use crate::metadata::tables::{ExtentKey, PAST, PastKey};
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group, encode_group};
use crate::space::room::rows_of;
use crate::txg::freeing::{Extents, Freeing, bytes};

type Past<'t> = Table<'t, PastKey, &'static [u8]>;

impl<'a> Freeing<'a> {
    pub(super) fn past(&self) -> Result<Past<'a>> {
        Ok(self.transaction.open_table(PAST)?)
    }

    /// A row as its dataset has it, even if it has none of its own.
    pub(crate) fn row(&self, table: &Extents<'_>, key: ExtentKey) -> Result<Group> {
        let found = match self.branching.shown_base(key.0) {
            None => past::resolve(table, None::<&Past<'_>>, &self.branching, key)?,
            Some(_) => past::resolve(table, Some(&self.past()?), &self.branching, key)?,
        };
        Ok(found.unwrap_or(past::EMPTY))
    }

    /// Rows of an object with blocks of a range, `count` of them at most.
    pub(super) fn rows_of(
        &self,
        table: &Extents<'_>,
        (dataset, object): (u64, u64),
        blocks: &Range<u64>,
        count: usize,
    ) -> Result<Vec<(ExtentKey, Group)>> {
        let (first, last) = rows_of(blocks);
        let key = |group| (dataset, object, group);
        if self.branching.shown_base(dataset).is_none() {
            let rows = table.range(key(first)..=key(last))?.take(count);
            return rows.map(decode_row).collect();
        }
        let groups = {
            let past = self.past()?;
            let groups = first..last + 1;
            past::groups(table, Some(&past), &self.branching, (dataset, object), &groups, count)?
        };
        groups.into_iter().map(|group| Ok((key(group), self.row(table, key(group))?))).collect()
    }

    /// Before a row changes: keeps it for the newest snapshot, unless it has changed since that. Returns
    /// whether it was put aside.
    pub(crate) fn keep(&self, key: ExtentKey, group: &Group) -> Result<bool> {
        if self.branching.newest(key.0).is_none() {
            return Ok(false);
        }
        let life = self.life_of((key.0, key.1))?;
        let Some(newest) = self.branching.newest_with(key.0, life) else { return Ok(false) };
        let mut past = self.past()?;
        if past::has_since(&past, key, newest.0)? {
            return Ok(false);
        }
        let mut kept = *group;
        for (block, slot) in (key.2 * GROUP_BLOCKS..).zip(&mut kept) {
            // What was cleared before all snapshots that could have it is needed by none.
            *slot = slot.filter(|extent| self.branching.is_needed((key.0, key.1, block), extent, life));
        }
        past.insert((key.0, key.1, key.2, newest.0), encode_group(&kept).as_slice())?;
        Ok(true)
    }

    /// Whether a change that drops these extents of a row must keep it first.
    pub(super) fn needs_any(
        &self,
        key: ExtentKey,
        mut dropped: impl Iterator<Item = (u64, Extent)>,
    ) -> Result<bool> {
        if self.branching.newest(key.0).is_none() {
            return Ok(false);
        }
        let life = self.life_of((key.0, key.1))?;
        let is_needed = |block, extent: &_| self.branching.is_needed((key.0, key.1, block), extent, life);
        Ok(dropped.any(|(block, extent)| is_needed(block, &extent)))
    }

    /// A row no longer has an extent: frees it, unless it belongs to the row's base, or a row of the past
    /// still has it. Returns the bytes that its dataset owns less.
    pub(crate) fn give_up(&self, key: ExtentKey, block: u64, extent: &Extent) -> Result<i64> {
        if self.branching.base(key.0).is_some_and(|base| extent.birth <= base.txg) {
            return Ok(0);
        }
        if self.branching.has_past(key.0) {
            let past = self.past()?;
            let at = (block % GROUP_BLOCKS) as usize;
            // A row of the past has what was born by its txg.
            let versions = past::versions(&past, key, extent.birth.0)?;
            if versions.iter().any(|(_, group)| group[at] == Some(*extent)) {
                return Ok(0);
            }
        }
        self.free(extent)
    }

    /// Stores a row: that of a clone also if it has no extents.
    pub(crate) fn store_row(&self, table: &mut Extents<'_>, key: ExtentKey, group: &Group) -> Result<()> {
        if self.branching.base(key.0).is_none() {
            return store(table, key, group);
        }
        table.insert(key, encode_group(group).as_slice())?;
        Ok(())
    }

    /// What a dataset shows has changed by so many bytes.
    pub(crate) fn note_shown(&mut self, dataset: u64, change: i64) {
        if !self.branching.is_empty() && change != 0 {
            *self.shown.entry(dataset).or_default() += change;
        }
    }
}

/// Bytes of the extents of a row.
pub(super) fn bytes_of(group: &Group) -> i64 {
    group.iter().flatten().map(bytes).sum()
}
