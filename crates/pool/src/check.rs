//! The full check: what is allocated is what is referred to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Result;
use crate::ids::Place;
use crate::state::Shared;
use crate::sync::decode_row;
use crate::sync_util::lock;
use crate::tables::Snapshot;

/// What a full check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Rows of extents that were read.
    pub rows: u64,
    /// Units of data that extents refer to.
    pub referenced_units: u64,
    /// Units of metadata that the page map refers to.
    pub metadata_units: u64,
    /// Units that are allocated, and nothing refers to them.
    pub leaked: Vec<Place>,
    /// Units that an extent refers to, and they are free.
    pub missing: Vec<Place>,
    /// Units that two extents, or an extent and the page map, refer to.
    pub shared: Vec<Place>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.leaked.is_empty() && self.missing.is_empty() && self.shared.is_empty()
    }
}

pub(crate) fn check(shared: &Shared, snapshot: Arc<Snapshot>) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    let mut seen = BTreeSet::new();
    for row in snapshot.extents.range::<(u64, u64, u64)>(..)? {
        let (_, group) = decode_row(row)?;
        report.rows += 1;
        for extent in group.iter().flatten() {
            for piece in snapshot.pieces(extent)? {
                for unit in piece.place.unit..piece.place.unit + piece.units() {
                    let place = Place { vdev: piece.place.vdev, unit };
                    if !seen.insert(place) {
                        report.shared.push(place);
                    }
                }
            }
        }
    }
    report.referenced_units = seen.len() as u64;
    let allocated: BTreeSet<Place> = lock(&shared.allocator).data_units().collect();
    report.leaked = allocated.difference(&seen).copied().collect();
    report.missing = seen.difference(&allocated).copied().collect();
    for entry in shared.meta.entries() {
        report.metadata_units += 1;
        if !seen.insert(entry.place) {
            report.shared.push(entry.place);
        }
    }
    Ok(report)
}
