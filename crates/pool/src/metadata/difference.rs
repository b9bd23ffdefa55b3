//! What is between two snapshots of a volume, from rows alone.
//!
//! A row that has changed since a snapshot was kept under the txg of that snapshot or of a newer one
//! (`past`), and what a clone has changed is in rows of its own. So only such rows are looked at; of these, a
//! block is the same in both if it is the same extent. No data is read.

use std::ops::Range;

use crate::error::{PoolError, Result};
use crate::ids::Txg;
use crate::metadata::branches::Base;
use crate::metadata::past;
use crate::metadata::snapshot::Snapshot;
use crate::objects::extent::{GROUP_BLOCKS, Group};

/// Blocks that follow each other, and whether they are holes in the newer one.
pub(crate) type Run = (Range<u64>, bool);

/// Adds a block to runs.
fn add(runs: &mut Vec<Run>, block: u64, is_hole: bool) {
    match runs.last_mut() {
        Some((blocks, of)) if blocks.end == block && *of == is_hole => blocks.end += 1,
        _ => runs.push((block..block + 1, is_hole)),
    }
}

impl Snapshot {
    /// Where the rows of a snapshot may differ from those of an older one: each branch on the way, with the
    /// txg from which on its past counts; the last one without its current rows, which are in its past if
    /// they have changed. `None`: the older one is not on the way.
    fn branches_between(&self, from: Base, to: Base) -> Option<Vec<(u64, Txg, bool)>> {
        let (mut at, mut all) = (to, Vec::new());
        loop {
            if at.branch == from.branch {
                all.push((at.branch, from.txg, false));
                return (from.txg <= at.txg).then_some(all);
            }
            all.push((at.branch, Txg(0), true));
            // A base is older than what begins there.
            at = self.branches.shown_base(at.branch)?;
        }
    }

    /// The first group, from one on, whose row may differ.
    fn next_changed(&self, between: &[(u64, Txg, bool)], object: u64, from: u64) -> Result<Option<u64>> {
        let mut first: Option<u64> = None;
        for (branch, txg, has_rows) in between {
            let end = first.unwrap_or(u64::MAX);
            if *has_rows
                && let Some(row) = self.extents.range((*branch, object, from)..(*branch, object, end))?.next()
            {
                first = Some(row?.0.value().2);
            }
            let Some(rows) = &self.past else { continue };
            let end = first.unwrap_or(u64::MAX);
            for row in rows.range((*branch, object, from, 0)..(*branch, object, end, 0))? {
                let (_, _, group, at) = row?.0.value();
                if at >= txg.0 {
                    first = Some(group);
                    break;
                }
            }
        }
        Ok(first)
    }

    /// Blocks of an object of a snapshot that differ from those of an older one, or all that it has: of about
    /// `rows` rows, from a group on; and the group to go on with.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] if the older one is not a state of before; those of reading the tables.
    pub(crate) fn difference(
        &self,
        (from, to): (Option<u64>, u64),
        object: u64,
        first: u64,
        rows: usize,
    ) -> Result<(Vec<Run>, Option<u64>)> {
        let mut runs = Vec::new();
        let Some(from) = from else {
            let found = self.rows_of((to, object), first..u64::MAX, rows)?;
            for ((.., group), row) in &found {
                (group * GROUP_BLOCKS..).zip(row).filter(|(_, slot)| slot.is_some()).for_each(
                    |(block, _)| {
                        add(&mut runs, block, false);
                    },
                );
            }
            let next = found.last().filter(|_| found.len() == rows).map(|((.., group), _)| group + 1);
            return Ok((runs, next));
        };
        let base = |id: u64| self.branches.base(id).filter(|base| base.snapshot == id);
        let between = base(from).zip(base(to)).and_then(|(from, to)| self.branches_between(from, to));
        let Some(between) = between else {
            return Err(PoolError::invalid("snapshot to begin with", "no state of before that one"));
        };
        let (mut next, mut seen) = (first, 0);
        while let Some(group) = self.next_changed(&between, object, next)? {
            let row = |id| -> Result<Group> {
                let found =
                    past::resolve(&self.extents, self.past.as_ref(), &self.branches, (id, object, group))?;
                Ok(found.unwrap_or(past::EMPTY))
            };
            for (block, (old, new)) in (group * GROUP_BLOCKS..).zip(row(from)?.iter().zip(&row(to)?)) {
                if old != new {
                    add(&mut runs, block, new.is_none());
                }
            }
            (next, seen) = (group + 1, seen + 1);
            if seen == rows {
                return Ok((runs, Some(next)));
            }
        }
        Ok((runs, None))
    }

    /// Whether a branch has changed since its newest snapshot, as of this txg.
    pub(crate) fn has_changed(&self, base: Base, object: u64) -> Result<bool> {
        let now = self.objects.get((base.branch, object))?.map(|row| row.value());
        let then = self.objects.get((base.snapshot, object))?.map(|row| row.value());
        let is_cleared = !self.cleared.of(base.branch).is_empty();
        let between = [(base.branch, base.txg, false)];
        Ok(now != then || is_cleared || self.next_changed(&between, object, 0)?.is_some())
    }
}
