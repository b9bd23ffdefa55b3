//! A clone and the volume that it began in change places: rows.
//!
//! The branch with most rows stays where it is, and becomes the clone's; the other one becomes the volume's.
//! So only rows are moved that have changed, in either of the two, since the snapshot that the clone began
//! as: one step of bounded rows for each group of blocks, as in a rollback, and no data.
//!
//! Terms, for one row: `then` is what it was at that snapshot. Who owns an extent follows from its birth, as
//! always: those from after the snapshot go with their row to the other branch, and older ones stay.

use std::collections::BTreeSet;

use redb::ReadableTable;

use crate::error::Result;
use crate::metadata::branches::Base;
use crate::metadata::past;
use crate::metadata::tables::{EXTENTS, ExtentKey, OBJECTS, PastKey, SHOWN};
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group, decode_group, encode_group};
use crate::txg::branching::{DATA, FIRST};
use crate::txg::freeing::{Extents, Freeing, bytes};
use crate::txg::keeping::bytes_of;

/// A row of a branch, now and in the past, with the txg of each version.
struct Versions {
    now: Option<Group>,
    past: Vec<(u64, Group)>,
}

impl Versions {
    /// Bytes of extents that were born after a txg.
    fn newer_bytes(&self, txg: u64) -> i64 {
        let of_slot = |slot: usize| {
            let past = self.past.iter().map(|(_, group)| group);
            let all = self.now.iter().chain(past).filter_map(|group| group[slot]);
            let mut newer: Vec<Extent> = all.filter(|extent| extent.birth.0 > txg).collect();
            newer.sort_by_key(|extent| (extent.birth, extent.place));
            newer.dedup();
            newer.iter().map(bytes).sum::<i64>()
        };
        (0..GROUP_BLOCKS as usize).map(of_slot).sum()
    }
}

impl Freeing<'_> {
    /// `clone`, which begins at `base`, and the branch of `base` change places.
    pub(super) fn promote(&mut self, clone: u64, base: Base) -> Result<()> {
        let mut table = self.transaction.open_table(EXTENTS)?;
        let mut shown = 0;
        for group in self.groups_to_move(&table, clone, base)? {
            shown += self.promote_row(&mut table, (clone, DATA, group), base)?;
        }
        let is_pruned = [clone, base.branch].map(|branch| self.branching.pruning_of(branch).is_some());
        self.branching.promote(clone, base)?;
        self.branching.note_moved(&[clone, base.branch]);
        // What serves no snapshot may have gone to either of them.
        if is_pruned.contains(&true) {
            self.branching.set_pruning(clone, Some(FIRST))?;
            self.branching.set_pruning(base.branch, Some(FIRST))?;
        }
        let mut objects = self.transaction.open_table(OBJECTS)?;
        let size_of_clone = objects.get((clone, DATA))?.map(|row| row.value());
        let size_of_trunk = objects.get((base.branch, DATA))?.map(|row| row.value());
        for (id, size) in [(base.branch, size_of_clone), (clone, size_of_trunk)] {
            match size {
                Some(size) => drop(objects.insert((id, DATA), size)?),
                None => drop(objects.remove((id, DATA))?),
            }
            self.usage.entry(id).or_default();
        }
        let mut table = self.transaction.open_table(SHOWN)?;
        let before = table.get(base.branch)?.map_or(0, |bytes| bytes.value());
        table.insert(clone, before)?;
        table.insert(base.branch, before.saturating_add_signed(shown))?;
        Ok(())
    }

    /// Rows that have changed in either of the two.
    fn groups_to_move(&self, table: &Extents<'_>, clone: u64, base: Base) -> Result<BTreeSet<u64>> {
        let mut groups = BTreeSet::new();
        for row in table.range((clone, DATA, 0)..(clone, DATA + 1, 0))? {
            groups.insert(row?.0.value().2);
        }
        let past = self.past()?;
        for (branch, txg) in [(clone, 0), (base.branch, base.txg.0)] {
            let all: std::ops::Range<PastKey> = (branch, DATA, 0, 0)..(branch, DATA + 1, 0, 0);
            for row in past.range(all)? {
                let (_, _, group, at) = row?.0.value();
                if at >= txg {
                    groups.insert(group);
                }
            }
        }
        Ok(groups)
    }

    fn versions_of(&self, table: &Extents<'_>, key: ExtentKey) -> Result<Versions> {
        let now = table.get(key)?.map(|row| decode_group(row.value())).transpose()?;
        Ok(Versions { now, past: past::versions(&self.past()?, key, 0)? })
    }

    /// One row of the two; `key` is the clone's. Returns by how many bytes what the base's branch shows
    /// changes.
    fn promote_row(&mut self, table: &mut Extents<'_>, key: ExtentKey, base: Base) -> Result<i64> {
        let trunk = (base.branch, key.1, key.2);
        let of_clone = self.versions_of(table, key)?;
        let of_trunk = self.versions_of(table, trunk)?;
        let shown = self.row(table, trunk)?;
        let newer = of_trunk.past.iter().position(|(txg, _)| *txg >= base.txg.0);
        let then = match newer {
            Some(at) => of_trunk.past[at].1,
            None => shown,
        };
        let mut as_clone = then;
        for (block, slot) in (key.2 * GROUP_BLOCKS..).zip(&mut as_clone) {
            *slot = slot.filter(|extent| !self.branching.hides(base.snapshot, key.1, block, extent));
        }
        let (mut kept, moved): (Vec<_>, Vec<_>) =
            of_trunk.past.iter().copied().partition(|(txg, _)| *txg <= base.txg.0);
        let now = of_clone.now.unwrap_or(as_clone);
        let is_kept = kept.last().is_some_and(|(txg, _)| *txg == base.txg.0);
        if !is_kept && (now != then || !of_clone.past.is_empty()) {
            kept.push((base.txg.0, then));
        }
        kept.extend(&of_clone.past);
        let to_trunk = Versions { now: Some(now), past: kept };
        // Without a row of its own it is as the base.
        let to_clone = Versions { now: newer.is_some().then_some(shown), past: moved };
        let moved_bytes = of_trunk.newer_bytes(base.txg.0) - of_clone.newer_bytes(base.txg.0);
        *self.usage.entry(base.branch).or_default() -= moved_bytes;
        *self.usage.entry(key.0).or_default() += moved_bytes;
        self.note_unneeded(trunk.0, key.0, &to_clone, base)?;
        self.replace_versions(table, trunk, &of_trunk, &to_trunk)?;
        self.replace_versions(table, key, &of_clone, &to_clone)?;
        Ok(bytes_of(&now) - bytes_of(&shown))
    }

    /// A version that served the base alone, under the txg of a snapshot that is gone, serves nothing where
    /// it goes: pruning removes it.
    fn note_unneeded(&mut self, trunk: u64, clone: u64, moved: &Versions, base: Base) -> Result<()> {
        let mut from = base.txg.0 + 1;
        for (txg, _) in &moved.past {
            let txgs = from..*txg + 1;
            from = txgs.end;
            if !self.branching.snapshots(trunk).any(|(at, _)| txgs.contains(&at.0)) {
                self.branching.set_pruning(clone, Some(FIRST))?;
            }
        }
        Ok(())
    }

    fn replace_versions(
        &mut self,
        table: &mut Extents<'_>,
        key: ExtentKey,
        before: &Versions,
        after: &Versions,
    ) -> Result<()> {
        match &after.now {
            Some(now) => self.store_row(table, key, now)?,
            None => drop(table.remove(key)?),
        }
        let mut past = self.past()?;
        for (txg, _) in before.past.iter().filter(|(txg, _)| after.past.iter().all(|(at, _)| at != txg)) {
            past.remove((key.0, key.1, key.2, *txg))?;
        }
        for (txg, group) in after.past.iter().filter(|version| !before.past.contains(version)) {
            past.insert((key.0, key.1, key.2, *txg), encode_group(group).as_slice())?;
        }
        Ok(())
    }
}
