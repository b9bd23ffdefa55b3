//! How many rows change when a branch becomes what its newest snapshot is: found out before, so that room for
//! them can be reserved (`space::room`), and no more than that.

use crate::error::Result;
use crate::metadata::branches::Base;
use crate::metadata::past;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::PastKey;
use crate::objects::extent::{Extent, GROUP_BLOCKS, Group, decode_group};

impl Snapshot {
    /// Of the extents of a volume or file system, what only snapshots have of them, and cleared ranges. That
    /// changes the rows which were kept since, and those that have to do with an extent that goes: of its
    /// pieces, or how many blocks name its place. What other changes of the same txg do to such a row, they
    /// have reserved.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub(crate) fn rows_of_going_back(&self, base: Base) -> Result<u64> {
        let mut rows = self.cleared.of(base.branch).len() + self.branches.holes(base.snapshot).len();
        let Some(past) = &self.past else { return Ok(rows as u64) };
        let counts = self.counts()?;
        let is_shared = |extent: &Extent| -> Result<bool> {
            let count = counts.as_ref().map(|counts| counts.get(extent.place.pack())).transpose()?;
            Ok(count.flatten().is_some())
        };
        let (mut next, end): (PastKey, PastKey) = ((base.branch, 0, 0, 0), (base.branch + 1, 0, 0, 0));
        while let Some(row) = past.range(next..end)?.next() {
            let (branch, object, group, _) = row?.0.value();
            next = (branch, object, group + 1, 0);
            let kept = past::versions(past, (branch, object, group), base.txg.0)?;
            let Some((_, then)) = kept.first() else { continue };
            let now = self.extents.get((branch, object, group))?;
            let now = now.map(|row| decode_group(row.value())).transpose()?.unwrap_or(past::EMPTY);
            rows += 1 + kept.len();
            let mut versions: Vec<&Group> = kept.iter().map(|(_, group)| group).collect();
            versions.push(&now);
            for extent in leaving(&versions, then, &now) {
                rows += usize::from(extent.is_in_pieces() || is_shared(&extent)?);
            }
        }
        Ok(rows as u64)
    }
}

/// Extents that may leave a row: all that it has had, but for those that stay where they are.
fn leaving(versions: &[&Group], then: &Group, now: &Group) -> Vec<Extent> {
    let mut leaving = Vec::new();
    for slot in 0..GROUP_BLOCKS as usize {
        let mut had: Vec<_> = versions.iter().filter_map(|group| group[slot]).collect();
        had.retain(|extent| then[slot] != Some(*extent) || now[slot] != Some(*extent));
        had.sort_by_key(|extent| (extent.birth, extent.place));
        had.dedup();
        leaving.append(&mut had);
    }
    leaving
}
