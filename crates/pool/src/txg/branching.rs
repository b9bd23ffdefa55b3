//! Snapshots and clones that a txg makes, destroys and goes back to.

use std::sync::atomic::Ordering;

use redb::{ReadableTable, WriteTransaction};

use crate::error::Result;
use crate::ids::{DatasetId, Txg};
use crate::metadata::branches::{Base, BranchChange};
use crate::metadata::tables::{OBJECTS, SHOWN};
use crate::state::Shared;
use crate::txg::freeing::Freeing;

/// The object of a volume.
pub(super) const DATA: u64 = 1;
/// Pruning begins with the first row.
pub(super) const FIRST: (u64, u64) = (0, 0);

impl Shared {
    /// Makes changes of branches, when everything else of the txg is in the tables of extents.
    pub(super) fn store_branches(
        &self,
        txg: Txg,
        transaction: &WriteTransaction,
        changes: &[BranchChange],
        freeing: &mut Freeing<'_>,
    ) -> Result<()> {
        for change in changes {
            match *change {
                BranchChange::Snapshot { id, branch, of_files } => {
                    let base = Base { branch, txg, snapshot: id };
                    let shown = self.shown(txg, transaction, branch, freeing)?;
                    freeing.shown.insert(branch, 0);
                    let mut table = transaction.open_table(SHOWN)?;
                    table.insert(branch, shown)?;
                    table.insert(id, shown)?;
                    drop(table);
                    let holes = freeing.clearing.of(branch);
                    freeing.branching.insert(id, base, &holes)?;
                    match of_files {
                        true => freeing.branching.files_mut().insert(transaction, branch)?,
                        false => copy_size(transaction, branch, id)?,
                    }
                }
                BranchChange::Clone { id, base } => {
                    freeing.branching.insert(id, base, &[])?;
                    copy_size(transaction, base.snapshot, id)?;
                    let mut table = transaction.open_table(SHOWN)?;
                    let shown = table.get(base.snapshot)?.map_or(0, |bytes| bytes.value());
                    table.insert(id, shown)?;
                    // Its row of usage: which number its next object has.
                    freeing.usage.entry(id).or_default();
                }
                BranchChange::Gone { id } => {
                    transaction.open_table(OBJECTS)?.remove((id, DATA))?;
                    if let Some(base) = freeing.branching.forget(id)? {
                        freeing.branching.set_pruning(base.branch, Some(FIRST))?;
                        freeing.begin_pruning_files(base.branch)?;
                    }
                }
                BranchChange::Rollback { id, base } => {
                    freeing.roll_back(base)?;
                    let holes = freeing.branching.holes(base.snapshot);
                    freeing.clearing.replace(id, &holes);
                    copy_size(transaction, base.snapshot, id)?;
                    freeing.usage.entry(id).or_default();
                }
                BranchChange::Promote { clone, base } | BranchChange::Absorb { clone, base } => {
                    freeing.promote(clone, base)?;
                }
            }
        }
        Ok(())
    }

    /// Bytes that a branch shows now.
    fn shown(
        &self,
        txg: Txg,
        transaction: &WriteTransaction,
        branch: u64,
        freeing: &Freeing<'_>,
    ) -> Result<u64> {
        let known = transaction.open_table(SHOWN)?.get(branch)?.map(|bytes| bytes.value());
        let (before, change) = match known {
            Some(before) => (before, freeing.shown.get(&branch)),
            // A volume without snapshots shows what it owns.
            None => {
                let core = self.datasets.get(DatasetId(branch), txg);
                let owned = core.map_or(0, |core| core.used_bytes.load(Ordering::SeqCst));
                (owned, freeing.usage.get(&branch))
            }
        };
        Ok(before.saturating_add_signed(change.copied().unwrap_or(0)))
    }
}

impl Freeing<'_> {
    /// Stores what datasets then show, as far as they have to do with snapshots.
    pub(super) fn store_shown(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.shown);
        if changes.is_empty() {
            return Ok(());
        }
        let mut table = self.transaction.open_table(SHOWN)?;
        for (id, change) in changes {
            let before = table.get(id)?.map(|bytes| bytes.value());
            if let Some(before) = before {
                table.insert(id, before.saturating_add_signed(change))?;
            }
        }
        Ok(())
    }
}

/// A volume or snapshot has the size of another. One that the same txg destroys has none any more.
fn copy_size(transaction: &WriteTransaction, from: u64, to: u64) -> Result<()> {
    let mut objects = transaction.open_table(OBJECTS)?;
    let size = objects.get((from, DATA))?.map(|row| row.value());
    if let Some(size) = size {
        objects.insert((to, DATA), size)?;
    }
    Ok(())
}
