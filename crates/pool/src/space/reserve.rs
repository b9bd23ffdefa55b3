//! Reserving room in the pool, and in the quotas of datasets.

use std::sync::atomic::Ordering;

use crate::error::{PoolError, Result};
use crate::namespace::props::Property;
use crate::space::alloc::Allocator;
use crate::space::room::{Charge, Claim};
use crate::state::Shared;
use crate::state::datasets::{DatasetCore, Namespace};
use crate::state::txgs::TxgChanges;
use fastness_sync::order::{lock, read};

impl Shared {
    /// Reserves room for a change of a dataset's objects, or refuses it. The caller may hold the contents of
    /// an open object, but not a dataset's list of objects: if there are quotas, this locks the namespace,
    /// and destroying a dataset locks that list, and the contents of objects that are not open, after the
    /// namespace.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; nothing is reserved.
    pub(crate) fn reserve(&self, dataset: &DatasetCore, charge: Charge, claim: Claim) -> Result<()> {
        let has_limits = matches!(claim, Claim::Data | Claim::Thick) && self.datasets.has_limits();
        // Before anything is checked, as in the pool: of two concurrent calls, one sees the other.
        dataset.dirty_bytes.fetch_add(charge.data, Ordering::SeqCst);
        let room = if has_limits { self.check_quotas(dataset, charge.data as u64) } else { Ok(0) };
        let room = room.map_err(|free_bytes| (free_bytes, true));
        let taken = room.and_then(|reserved| {
            self.space.room.take(charge.total(), claim, reserved).map_err(|free_bytes| (free_bytes, false))
        });
        taken.map_err(|(free_bytes, is_quota)| {
            dataset.dirty_bytes.fetch_sub(charge.data, Ordering::SeqCst);
            PoolError::NoSpace { wanted_bytes: charge.total() as u64, free_bytes, is_quota }
        })
    }

    /// Releases the part of a reservation that was not charged to a layer.
    pub(crate) fn settle(&self, dataset: &DatasetCore, reserved: Charge, charged: Charge) {
        let rest = reserved - charged;
        debug_assert!(rest.data >= 0 && rest.meta >= 0, "{charged:?} was taken of {reserved:?}");
        if rest.data != 0 {
            dataset.dirty_bytes.fetch_sub(rest.data, Ordering::SeqCst);
        }
        if rest.total() != 0 {
            self.space.room.give(rest.total());
        }
    }

    /// Reserves room for rows that a txg changes.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`]; nothing is reserved.
    pub(crate) fn reserve_rows(&self, changes: &mut TxgChanges, charge: Charge, claim: Claim) -> Result<()> {
        let wanted_bytes = charge.total() as u64;
        let refuse = |free_bytes| PoolError::NoSpace { wanted_bytes, free_bytes, is_quota: false };
        self.space.room.take(charge.total(), claim, 0).map_err(refuse)?;
        changes.charged += charge;
        Ok(())
    }

    /// Refuses a change that exceeds a quota of a dataset or one above it; `wanted_bytes` are already
    /// reserved. Returns what reservations of other datasets keep.
    fn check_quotas(&self, dataset: &DatasetCore, wanted_bytes: u64) -> std::result::Result<u64, u64> {
        let namespace = read(&self.datasets.namespace);
        let mut next = Some(dataset.id.0);
        while let Some(core) = next.and_then(|id| namespace.by_id.get(&id)) {
            let (quota, parent) = {
                let row = read(&core.row);
                (row.values.get(Property::Quota).unwrap_or(0), row.parent)
            };
            if quota > 0 {
                let used = namespace.referenced(core.id.0, true);
                if used > quota {
                    return Err((quota + wanted_bytes).saturating_sub(used));
                }
            }
            next = Some(parent);
        }
        Ok(namespace.reserved_by_others(dataset.id.0))
    }

    /// Refuses a reservation that, with those of all other datasets, is more than the pool has free. The
    /// caller holds the namespace exclusively. `id`: the dataset, unless it is new.
    ///
    /// # Errors
    /// [`PoolError::Reservation`].
    pub(crate) fn check_reservation(
        &self,
        namespace: &Namespace,
        (name, id): (&str, Option<u64>),
        bytes: u64,
    ) -> Result<()> {
        let used_bytes = id.map_or(0, |id| namespace.referenced(id, true));
        let before = id.and_then(|id| read(&namespace.by_id.get(&id)?.row).values.get(Property::Reservation));
        let kept_bytes = before.unwrap_or(0).saturating_sub(used_bytes);
        let others_bytes = namespace.reserved_by_others(0) - kept_bytes;
        let left_bytes = self.space.room.left(Claim::Data).max(0) as u64;
        let free_bytes = left_bytes.saturating_sub(others_bytes);
        let wanted_bytes = bytes.saturating_sub(used_bytes);
        if wanted_bytes <= free_bytes.max(kept_bytes) {
            return Ok(());
        }
        let free_bytes = free_bytes + used_bytes;
        Err(PoolError::Reservation { name: name.to_owned(), wanted_bytes: bytes, free_bytes })
    }

    /// What users of a dataset could still store: the room of the pool, less what others have reserved; or
    /// what quotas leave, and `true`, if that is less.
    pub(crate) fn available(&self, dataset: &DatasetCore) -> (u64, bool) {
        let pool_bytes = self.space.room.left(Claim::Data).max(0) as u64;
        if !self.datasets.has_limits() {
            return (pool_bytes, false);
        }
        let namespace = read(&self.datasets.namespace);
        let pool_bytes = pool_bytes.saturating_sub(namespace.reserved_by_others(dataset.id.0));
        let (mut quota_bytes, mut next) = (u64::MAX, Some(dataset.id.0));
        while let Some(core) = next.and_then(|id| namespace.by_id.get(&id)) {
            let (quota, parent) = {
                let row = read(&core.row);
                (row.values.get(Property::Quota).unwrap_or(0), row.parent)
            };
            if quota > 0 {
                let left_bytes = quota.saturating_sub(namespace.referenced(core.id.0, true));
                quota_bytes = quota_bytes.min(left_bytes);
            }
            next = Some(parent);
        }
        (pool_bytes.min(quota_bytes), quota_bytes < pool_bytes)
    }

    /// Whether there may be less room than a record in replay needs.
    pub(crate) fn is_short_for_replay(&self) -> bool {
        self.space.room.left(Claim::Replay) < (self.space.room.slop_bytes() / 4) as i64
    }

    /// Bytes that reservations of datasets keep free.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        if self.datasets.has_limits() { read(&self.datasets.namespace).reserved_by_others(0) } else { 0 }
    }

    /// Updates what is free, after the allocator has changed.
    pub(crate) fn note_free(&self, allocator: &Allocator) {
        self.space.room.set_free(allocator.room_bytes(), allocator.slop_bytes());
    }

    /// Updates what is free when a txg is durable, without what that txg freed.
    pub(crate) fn note_taken(&self) {
        let mut allocator = lock(&self.space.allocator);
        allocator.note_synced();
        self.note_free(&allocator);
    }
}
