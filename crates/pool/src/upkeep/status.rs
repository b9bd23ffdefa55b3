//! The status of a pool.

use std::sync::Arc;

use crate::devices::vdev::{DeviceErrors, Side, Vdev};
use crate::error::{PoolError, Result};
use crate::ids::{Guid, Txg};
use crate::pool::Pool;
use crate::txg::pulse::Pulse;
use fastness_sync::order::lock;

/// State of one device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceStatus {
    /// Its own name.
    pub guid: Guid,
    /// Where it is, or was last.
    pub path: String,
    /// Whether it was found.
    pub is_present: bool,
    /// Whether a user has taken it offline.
    pub is_offline: bool,
    /// Whether it missed writes and is not read.
    pub is_stale: bool,
    /// Whether it failed a flush, so that nothing can be written to it until it has been offline and online
    /// again.
    pub is_poisoned: bool,
    /// Whether it has refused a write because the storage below it is full; nothing new is written there
    /// until the next import.
    pub has_no_room: bool,
    /// Whether it has failed a write of new data, which then went to other vdevs; nothing new is written
    /// there until the next import.
    pub has_failed_writes: bool,
    /// What went wrong since the import.
    pub errors: DeviceErrors,
    /// The device's properties; `None` if it is missing.
    pub info: Option<fastness_blkdev::DeviceInfo>,
    /// Operations since it was opened.
    pub io: fastness_blkdev::StatsSnapshot,
}

/// State of a pool at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// GUID.
    pub guid: Guid,
    /// Newest durable txg.
    pub synced: Txg,
    /// The txg that new transactions join.
    pub open: Txg,
    /// Unsynced bytes in memory.
    pub dirty_bytes: u64,
    /// Space of all normal vdevs.
    pub total_bytes: u64,
    /// How much of it is in use, including metadata and what is waiting to be freed.
    pub used_bytes: u64,
    /// How much of it data may use.
    pub free_bytes: u64,
    /// Most bytes that a txg of this import has taken without a reservation: pages that all changes share. An
    /// eighth of the space kept from data covers it.
    pub unreserved_bytes_max: u64,
    /// Why the pool no longer accepts changes.
    pub suspended: Option<PoolError>,
    /// Vdevs: number, class, sides.
    pub vdevs: Vec<(u16, crate::devices::config::VdevClass, Vec<DeviceStatus>)>,
}

impl Pool {
    /// Whether the thread that ends txgs moves, or has nothing to do.
    pub fn pulse(&self) -> Pulse {
        let pipeline = &self.shared.txgs.pipeline;
        let progress = lock(&pipeline.progress);
        let is_over = progress.failed.is_some() || progress.is_stopping || progress.is_frozen;
        let has_reason = progress.wanted > progress.synced || pipeline.must_end();
        let has_thread = self.shared.options.has_txg_thread && !self.shared.options.is_read_only;
        let (beats, is_resting) = pipeline.heart.state();
        Pulse { beats, is_at_rest: is_over || is_resting && !has_reason || !has_thread }
    }

    /// Bytes that users can still write.
    pub fn usable_bytes(&self) -> u64 {
        self.shared.space.room.usable_bytes()
    }

    /// Whether the pool has its own threads; if not, everything runs in its callers.
    pub fn has_threads(&self) -> bool {
        self.shared.options.has_txg_thread
    }

    /// Sets the counters of errors of a device, or of all, back to zero.
    ///
    /// # Errors
    /// [`PoolError::Invalid`] for an unknown device.
    pub fn clear_errors(&self, device: Option<Guid>) -> Result<()> {
        match device {
            Some(guid) => {
                let (_, sides, at) = self.find_side(guid)?;
                sides[at].clear_errors();
            }
            None => {
                let vdevs = self.shared.devices.vdevs.all();
                vdevs.iter().flat_map(|vdev| vdev.sides()).for_each(|side| side.clear_errors());
            }
        }
        Ok(())
    }

    /// The current status.
    pub fn status(&self) -> PoolStatus {
        let shared = &self.shared;
        let (total, used) = {
            let allocator = lock(&shared.space.allocator);
            (allocator.total_bytes(), allocator.used_bytes())
        };
        let device = |vdev: &Vdev, side: &Arc<Side>| DeviceStatus {
            has_no_room: vdev.has_no_room() && !side.is_stale(),
            has_failed_writes: vdev.has_failed_writes() && !side.is_stale(),
            guid: side.guid,
            path: side.path.clone(),
            is_present: side.device.is_some(),
            is_offline: side.is_offline,
            is_stale: side.is_stale(),
            is_poisoned: side.device.as_ref().is_some_and(|device| device.is_poisoned()),
            errors: side.errors(),
            info: side.device.as_ref().map(|device| device.info().clone()),
            io: side.device.as_ref().map(|device| device.stats()).unwrap_or_default(),
        };
        let vdevs = shared.devices.vdevs.all();
        let sides = |vdev: &Vdev| vdev.sides().iter().map(|side| device(vdev, side)).collect();
        let vdevs = vdevs.iter().map(|vdev| (vdev.id, vdev.class, sides(vdev)));
        let (name, guid) = {
            let config = lock(&shared.devices.config);
            (config.name.clone(), config.guid)
        };
        let progress = lock(&shared.txgs.pipeline.progress);
        PoolStatus {
            name,
            guid,
            synced: progress.synced,
            open: shared.txgs.pipeline.open_txg(),
            dirty_bytes: shared.txgs.pipeline.dirty_bytes(),
            total_bytes: total,
            used_bytes: used,
            free_bytes: shared.space.room.usable_bytes(),
            unreserved_bytes_max: shared.space.room.unreserved_max(),
            suspended: progress.failed.clone(),
            vdevs: vdevs.collect(),
        }
    }
}
