//! Removing rows of the past that no snapshot needs any more, in bounded steps.
//!
//! Whenever a snapshot is destroyed, its branch is walked from the beginning. A row of the past serves the
//! snapshots since the one before it; without any, it goes, and what only it had is freed.

use redb::ReadableTable;

use crate::error::Result;
use crate::ids::Txg;
use crate::metadata::past;
use crate::metadata::tables::{EXTENTS, ExtentKey, PastKey, SHOWN};
use crate::objects::extent::{GROUP_BLOCKS, Group, decode_group, encode_group};
use crate::txg::freeing::{Extents, Freeing};

impl Freeing<'_> {
    /// Prunes branches for as long as the budget lasts.
    pub(super) fn prune_some(&mut self) -> Result<()> {
        if !self.branching.has_pruning() {
            return Ok(());
        }
        let mut table = self.transaction.open_table(EXTENTS)?;
        while let Some((branch, _)) = self.branching.next_pruning() {
            if !self.prune(&mut table, branch)? {
                return Ok(());
            }
        }
        while let Some(branch) = self.branching.files.next_pruning() {
            if !self.prune_files(branch)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Prunes one branch; returns whether it is done.
    pub(super) fn prune(&mut self, table: &mut Extents<'_>, branch: u64) -> Result<bool> {
        let Some(mut next) = self.branching.pruning_of(branch) else { return Ok(true) };
        while self.rows > 0 {
            let first = {
                let past = self.past()?;
                let from: PastKey = (branch, next.0, next.1, 0);
                let row = past.range(from..(branch + 1, 0, 0, 0))?.next().transpose()?;
                row.map(|(key, _)| key.value())
            };
            let Some((_, object, group, _)) = first else {
                self.branching.set_pruning(branch, None)?;
                if self.branching.newest(branch).is_none() && self.branching.base(branch).is_none() {
                    // Now it shows what it owns, as before its first snapshot.
                    self.shown.remove(&branch);
                    self.transaction.open_table(SHOWN)?.remove(branch)?;
                }
                return Ok(true);
            };
            self.prune_row(table, (branch, object, group))?;
            next = (object, group + 1);
        }
        self.branching.set_pruning(branch, Some(next))?;
        Ok(false)
    }

    /// Removes the versions of a row that no snapshot needs, and of the others what none of theirs shows.
    fn prune_row(&mut self, table: &mut Extents<'_>, key: ExtentKey) -> Result<()> {
        let before = past::versions(&self.past()?, key, 0)?;
        let life = self.life_of((key.0, key.1))?;
        let mut kept: Vec<(u64, Group)> = Vec::with_capacity(before.len());
        let mut from = Txg(0);
        for (txg, group) in &before {
            let txgs = from..Txg(txg + 1);
            from = txgs.end;
            if !self.branching.snapshots(key.0).any(|(at, _)| txgs.contains(&at) && life.has(at)) {
                continue;
            }
            let mut shown = *group;
            for (block, slot) in (key.2 * GROUP_BLOCKS..).zip(&mut shown) {
                let is_shown =
                    |extent: &_| self.branching.is_shown((key.0, key.1, block), extent, life, &txgs);
                *slot = slot.filter(is_shown);
            }
            kept.push((*txg, shown));
        }
        self.replace_past(table, key, &before, &kept)
    }

    /// Stores `kept` as the rows of the past in place of `before`, and frees what no row has any more.
    pub(super) fn replace_past(
        &mut self,
        table: &Extents<'_>,
        key: ExtentKey,
        before: &[(u64, Group)],
        kept: &[(u64, Group)],
    ) -> Result<()> {
        let now = table.get(key)?.map(|row| decode_group(row.value())).transpose()?.unwrap_or(past::EMPTY);
        self.rows = self.rows.saturating_sub(1 + before.len() - kept.len());
        {
            let mut past = self.past()?;
            for (txg, group) in before {
                let key = (key.0, key.1, key.2, *txg);
                match kept.iter().find(|(at, _)| at == txg) {
                    Some((_, now)) if now == group => {}
                    Some((_, now)) => drop(past.insert(key, encode_group(now).as_slice())?),
                    None => drop(past.remove(key)?),
                }
            }
        }
        let mut freed = 0;
        let base = self.branching.base(key.0).map_or(Txg(0), |base| base.txg);
        for (slot, now) in now.iter().enumerate() {
            let mut gone: Vec<_> = before.iter().filter_map(|(_, group)| group[slot]).collect();
            gone.sort_by_key(|extent| (extent.birth, extent.place));
            gone.dedup();
            let is_kept =
                |extent| *now == Some(extent) || kept.iter().any(|(_, group)| group[slot] == Some(extent));
            for extent in gone.into_iter().filter(|extent| extent.birth > base && !is_kept(*extent)) {
                self.charge_free(&extent);
                freed += self.free(&extent)?;
            }
        }
        if freed > 0 {
            *self.usage.entry(key.0).or_default() -= freed;
            *self.pruned.entry(key.0).or_default() += freed;
        }
        Ok(())
    }
}
