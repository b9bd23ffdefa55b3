//! What is different about snapshots of file systems: many objects, and rows of tables.

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::ids::{TableId, Txg};
use crate::metadata::branches::Base;
use crate::metadata::past_rows;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::DatasetKind;
use crate::namespace::dataset::Dataset;
use crate::objects::extent::GROUP_BLOCKS;
use crate::rows::layer::past_charge;
use crate::rows::limits::ROW_VALUE_BYTES_MAX;
use crate::rows::stored;
use crate::space::room::{Charge, Claim};
use crate::state::Shared;
use crate::state::datasets::DatasetCore;
use fastness_sync::order::{read, write};

impl Shared {
    /// From here on changes of the file system are charged for what is kept for its snapshots. Newer txgs may
    /// have changes already: these are charged now. One that has looked and not yet made its change in a
    /// layer pays nothing; that is at most one for each thread, and of room that is kept back.
    pub(super) fn begin_keeping_files(&self, snapshot: Txg, files: &DatasetCore) {
        files.has_snapshots.store(true, Ordering::SeqCst);
        let mut sum = files.rows.charge_past(snapshot, |table, row| {
            let value_bytes = if table.is_long() { ROW_VALUE_BYTES_MAX } else { 0 };
            past_charge(row.key().len(), value_bytes)
        });
        for txg in snapshot.0 + 1..=self.txgs.pipeline.open_txg().0 {
            let changed = self.txgs.changes(Txg(txg)).objects.clone();
            for core in changed.iter().filter(|core| core.dataset == files.id) {
                let mut contents = write(&core.contents);
                let Some(index) = contents.layers.iter().position(|layer| layer.txg.0 == txg) else {
                    continue;
                };
                let layer = contents.layer_mut(index);
                let rows: std::collections::BTreeSet<_> =
                    layer.blocks.keys().map(|block| block / GROUP_BLOCKS).collect();
                let charge = Charge::rows(1 + rows.len() as u64 + 2 * layer.cleared.len() as u64);
                layer.charged += charge;
                sum += charge;
            }
        }
        // These changes are accepted: there is nothing to refuse, and few can be between two txgs.
        let _ = self.space.room.take(sum.total(), Claim::Replay, 0);
    }
}

/// What going back to a snapshot of a file system takes for objects (each, what is to be freed, and what was
/// kept) and for rows of tables (the current fragments, and those that were kept, twice).
pub(super) fn charge_of_files(tables: &Snapshot, base: Base) -> Result<Charge> {
    let (Some(objects), Some(rows)) = (&tables.past_objects, &tables.past_rows) else {
        return Ok(Charge::default());
    };
    let mut charge = Charge::default();
    for row in objects.range((base.branch, 0, 0)..(base.branch + 1, 0, 0))? {
        if row?.0.value().2 >= base.txg.0 {
            charge += Charge::rows(3);
        }
    }
    let (mut at, mut value) = ((TableId(0), Vec::new()), Vec::new());
    while let Some(kept) = past_rows::next_key(rows, base.branch, (at.0, &at.1))? {
        let newer = kept.versions.iter().filter(|(txg, _)| *txg >= base.txg.0);
        let fragments: u64 = newer.map(|(_, fragments)| u64::from(*fragments)).sum();
        if fragments > 0 {
            value.clear();
            stored::get(&tables.rows, base.branch, kept.table, &kept.key, &mut value)?;
            charge += past_charge(kept.key.len(), value.len());
            charge += past_charge(kept.key.len(), 0) * (2 * fragments);
        }
        at = (kept.table, kept.key);
    }
    Ok(charge)
}

impl Dataset {
    /// What a snapshot is of: the kind of its volume or file system. `None` for what is no snapshot.
    pub fn snapshot_of(&self) -> Option<DatasetKind> {
        if self.kind() != DatasetKind::Snapshot {
            return None;
        }
        let parent = read(&self.core.row).parent;
        let namespace = read(&self.shared.datasets.namespace);
        namespace.by_id.get(&parent).map(|core| read(&core.row).kind)
    }
}
