//! Thick volumes: room that a volume is sure to find, whatever others store (`refreservation`).
//!
//! What is kept for a volume is what it could still come to need: its `refreservation`, less what it has
//! stored that no snapshot has, plus the rows of tables for the rest. Right after a snapshot that is all of
//! it again, since every block may be overwritten while the snapshot keeps the old ones: without that room a
//! snapshot is refused.
//!
//! What snapshots have of a volume (*pinned*) is counted without looking at blocks: when one is made, it is
//! everything that the volume owns; what is freed because snapshots go is subtracted. It is never less than
//! it should be. If the newest snapshot goes and older ones stay, it is too much by what only that one kept
//! from being the volume's own, until there is another snapshot, or none: more room is kept than needed.
//!
//! A thick volume writes to new places, too, before old ones are free, so its changes may use a part of the
//! slop ([`Claim::Thick`]): a volume that is full of data can be overwritten in a pool that is full. One that
//! is longer than its `refreservation` may not.
//!
//! Crash cases: what is pinned is stored in the txg that changes it. A pool with thick volumes cannot be
//! written to by programs that do not know of them ([`Feature::ThickVolumes`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use redb::{ReadableTable, WriteTransaction};

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Txg, UNIT_BYTES};
use crate::metadata::branches::BranchChange;
use crate::metadata::tables::{AUX, DatasetKind};
use crate::namespace::props::Property;
use crate::objects::extent::GROUP_BLOCKS;
use crate::objects::object::ObjectCore;
use crate::space::room::Claim;
use crate::state::Shared;
use crate::state::datasets::{DatasetCore, Namespace};
use crate::state::txgs::TxgChanges;
use fastness_sync::order::read;

/// Aux data of a thick volume: bytes that its snapshots have, 8 bytes.
pub(crate) const PINNED: &[u8] = b"pinned";

/// Datasets, with the bytes that snapshots have of each.
pub(crate) type Pinned = Vec<(Arc<DatasetCore>, u64)>;

/// The `refreservation` with which each block of a volume is sure to find room, whatever is in it.
///
/// Units: bytes; blocks of less than a unit of the pool (4 KiB) take one.
pub fn thick_bytes(size_bytes: u64, block_bytes: u64) -> u64 {
    let block_bytes = block_bytes.max(1);
    size_bytes.div_ceil(block_bytes).saturating_mul(block_bytes.next_multiple_of(UNIT_BYTES))
}

/// Pages for the rows of that much data; twice as many if old rows are kept for snapshots.
fn rows_bytes(data_bytes: u64, block_bytes: u64, has_snapshots: bool) -> u64 {
    let row_bytes = block_bytes.next_multiple_of(UNIT_BYTES) * GROUP_BLOCKS;
    let pages = data_bytes.div_ceil(row_bytes) * if has_snapshots { 2 } else { 1 };
    // Pages that name other pages have some hundred entries each.
    (pages + pages.div_ceil(32)) * UNIT_BYTES
}

/// What is kept of a `refreservation` for a volume that has `own_bytes` which no snapshot has.
fn kept_bytes(thick_bytes: u64, own_bytes: u64, block_bytes: u64, has_snapshots: bool) -> u64 {
    let left_bytes = thick_bytes.saturating_sub(own_bytes);
    left_bytes + rows_bytes(left_bytes, block_bytes, has_snapshots)
}

impl DatasetCore {
    /// What it is to be sure to find; 0 for none.
    pub(crate) fn thick_bytes(&self) -> u64 {
        read(&self.row).values.get(Property::RefReservation).unwrap_or(0)
    }

    fn block_bytes(&self) -> u64 {
        let own = read(&self.row).values.get(Property::VolBlockSize);
        own.unwrap_or(Property::VolBlockSize.default_value())
    }

    /// Bytes that it owns, or will.
    fn owned_bytes(&self) -> u64 {
        // In this order: unsynced data first becomes used, and only then stops being unsynced.
        let dirty_bytes = self.dirty_bytes.load(Ordering::SeqCst).max(0) as u64;
        self.used_bytes.load(Ordering::SeqCst) + dirty_bytes
    }

    /// All that it owns belongs to a snapshot from this txg on.
    pub(crate) fn pin_all(&self, txg: Txg) {
        self.pinned_txg.fetch_max(txg.0, Ordering::SeqCst);
        self.pinned_bytes.store(self.owned_bytes(), Ordering::SeqCst);
    }

    /// A durable txg has this much pinned.
    fn show_pinned(&self, txg: Txg, bytes: u64) {
        // A newer one has been asked for a snapshot, which is counted already.
        if self.pinned_txg.load(Ordering::SeqCst) <= txg.0 {
            self.pinned_bytes.store(bytes, Ordering::SeqCst);
        }
    }
}

impl Namespace {
    fn has_snapshots(&self, id: u64) -> bool {
        self.children.range((id, "@".to_owned())..(id, "A".to_owned())).next().is_some()
    }

    /// Bytes that are kept for a volume.
    pub(crate) fn thick_kept(&self, core: &DatasetCore) -> u64 {
        let thick_bytes = core.thick_bytes();
        if thick_bytes == 0 {
            return 0;
        }
        let has_snapshots = self.has_snapshots(core.id.0);
        let pinned = if has_snapshots { core.pinned_bytes.load(Ordering::SeqCst) } else { 0 };
        let own_bytes = core.owned_bytes().saturating_sub(pinned);
        kept_bytes(thick_bytes, own_bytes, core.block_bytes(), has_snapshots)
    }

    /// Bytes that are kept for volumes other than this one.
    pub(crate) fn thick_kept_for_others(&self, id: u64) -> u64 {
        let others = self.by_id.values().filter(|core| core.id.0 != id);
        others.map(|core| self.thick_kept(core)).fold(0, u64::saturating_add)
    }
}

impl Shared {
    /// The claim with which an object of a dataset takes room for data. One that is longer than what is kept
    /// for it would take the slop away from those that are not.
    pub(crate) fn claim_of(&self, core: &DatasetCore, object: &ObjectCore, claim: Claim) -> Claim {
        if claim != Claim::Data || !self.datasets.has_limits() {
            return claim;
        }
        let kept_bytes = core.thick_bytes();
        let wanted_bytes = || thick_bytes(object.size_bytes(), object.block_bytes.into());
        if kept_bytes > 0 && wanted_bytes() <= kept_bytes { Claim::Thick } else { claim }
    }

    /// Refuses a `refreservation` that the pool cannot keep. The caller holds the namespace exclusively.
    /// `core`: the volume, unless it is new; `block_bytes`: of one that is new.
    ///
    /// # Errors
    /// [`PoolError::Reservation`].
    pub(crate) fn check_thick(
        &self,
        namespace: &Namespace,
        (name, core): (&str, Option<&DatasetCore>),
        thick_bytes: u64,
        block_bytes: u64,
    ) -> Result<()> {
        let (own_bytes, before, block_bytes, has_snapshots) = match core {
            None => (0, 0, block_bytes, false),
            Some(core) => {
                let has_snapshots = namespace.has_snapshots(core.id.0);
                let own_bytes = if has_snapshots { 0 } else { core.owned_bytes() };
                (own_bytes, namespace.thick_kept(core), core.block_bytes(), has_snapshots)
            }
        };
        let wanted_bytes =
            if thick_bytes == 0 { 0 } else { kept_bytes(thick_bytes, own_bytes, block_bytes, has_snapshots) };
        let free_bytes = self.unpromised_bytes(namespace) + before;
        if wanted_bytes <= free_bytes.max(before) {
            return Ok(());
        }
        Err(PoolError::Reservation { name: name.to_owned(), wanted_bytes, free_bytes })
    }

    /// Refuses a snapshot of a thick volume that could not be overwritten as a whole after it. The caller
    /// holds the namespace exclusively.
    ///
    /// # Errors
    /// [`PoolError::NoRoomForSnapshot`].
    pub(crate) fn check_thick_snapshot(&self, namespace: &Namespace, core: &DatasetCore) -> Result<()> {
        let thick_bytes = core.thick_bytes();
        if thick_bytes == 0 {
            return Ok(());
        }
        let before = namespace.thick_kept(core);
        let wanted_bytes = kept_bytes(thick_bytes, 0, core.block_bytes(), true).saturating_sub(before);
        let free_bytes = self.unpromised_bytes(namespace);
        match wanted_bytes <= free_bytes {
            true => Ok(()),
            false => {
                let volume = namespace.path(core.id.0);
                Err(PoolError::NoRoomForSnapshot { volume, wanted_bytes, free_bytes })
            }
        }
    }

    /// What is free and not kept for anybody.
    fn unpromised_bytes(&self, namespace: &Namespace) -> u64 {
        let left_bytes = self.space.room.left(Claim::Data).max(0) as u64;
        left_bytes.saturating_sub(namespace.reserved_by_others(0))
    }

    /// Stores what snapshots have of thick volumes, as far as this txg changes it. `used`: what datasets then
    /// use; `pruned`: what was freed because snapshots went.
    pub(crate) fn store_pinned(
        &self,
        txg: Txg,
        transaction: &WriteTransaction,
        changes: &TxgChanges,
        used: &[(Arc<DatasetCore>, u64)],
        pruned: &BTreeMap<u64, i64>,
    ) -> Result<Pinned> {
        let mut whole: BTreeSet<u64> = changes.pinning.clone();
        for change in &changes.branches {
            match change {
                BranchChange::Snapshot { branch, .. } => drop(whole.insert(*branch)),
                BranchChange::Rollback { id, .. } => drop(whole.insert(*id)),
                BranchChange::Promote { clone, base } => whole.extend([*clone, base.branch]),
                BranchChange::Absorb { base, .. } => drop(whole.insert(base.branch)),
                BranchChange::Clone { .. } | BranchChange::Gone { .. } => {}
            }
        }
        let mut all = Vec::new();
        let ids: BTreeSet<u64> = whole.iter().chain(pruned.keys()).copied().collect();
        for id in ids {
            let Some(core) = self.datasets.get(DatasetId(id), txg) else { continue };
            if core.thick_bytes() == 0 {
                continue;
            }
            let mut aux = transaction.open_table(AUX)?;
            let before = aux.get((id, PINNED))?.and_then(|row| decode(row.value()));
            let used = used.iter().find(|(of, _)| of.id.0 == id).map(|(_, used)| *used);
            let used = used.unwrap_or(core.used_bytes.load(Ordering::SeqCst));
            let bytes = match before {
                Some(before) if !whole.contains(&id) => {
                    before.saturating_add_signed(-pruned.get(&id).copied().unwrap_or(0))
                }
                _ => used,
            };
            aux.insert((id, PINNED), bytes.to_le_bytes().as_slice())?;
            all.push((core, bytes));
        }
        Ok(all)
    }
}

/// Shows what a durable txg has pinned. While what is used changes, too, the larger number of both counts.
pub(crate) fn show_pinned(txg: Txg, pinned: &Pinned, show_used: impl FnOnce()) {
    for (core, bytes) in pinned {
        core.show_pinned(txg, (*bytes).max(core.pinned_bytes.load(Ordering::SeqCst)));
    }
    show_used();
    pinned.iter().for_each(|(core, bytes)| core.show_pinned(txg, *bytes));
}

/// `None` for bytes of another shape: then all that the volume uses counts.
pub(crate) fn decode(stored: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(stored.try_into().ok()?))
}

/// Refuses the property for what is no volume.
pub(crate) fn check_kind(kind: DatasetKind, name: &str) -> Result<()> {
    match kind {
        DatasetKind::Volume => Ok(()),
        _ => Err(PoolError::invalid("dataset for refreservation (volumes have it)", name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_kept_goes_down_as_a_volume_fills() {
        assert_eq!(thick_bytes(8 * MIB, 16 << 10), 8 * MIB);
        assert_eq!(thick_bytes(8 * MIB, 512), 64 * MIB, "a small block takes a unit");
        assert_eq!(thick_bytes(8 * MIB + 1, 16 << 10), 8 * MIB + (16 << 10));
        let kept = |own| kept_bytes(8 * MIB, own, 4096, false);
        assert_eq!(kept(0), 8 * MIB + (64 + 2) * 4096, "a row for each 128 KiB, and what names them");
        assert_eq!(kept(8 * MIB), 0);
        assert_eq!(kept(9 * MIB), 0);
        assert!(kept(MIB) < kept(0) - MIB);
        assert_eq!(kept_bytes(8 * MIB, 0, 4096, true), 8 * MIB + (128 + 4) * 4096);
    }
}
