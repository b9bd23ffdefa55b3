//! Log blocks when a side is added or comes back.

use std::sync::Arc;

use fastness_blkdev::AlignedBuf;

use crate::devices::vdev::{Side, Vdev};
use crate::error::Result;
use crate::ids::{Guid, UNIT_BYTES};
use crate::state::Shared;
use fastness_sync::order::{lock, write};

impl Shared {
    /// Sets a vdev's sides, one of which is new or was away: that one has none of the log blocks.
    pub(crate) fn set_sides_with_new(&self, vdev: &Vdev, sides: Vec<Arc<Side>>, new: Guid) {
        let _no_log_io = write(&vdev.log_io);
        vdev.set_sides(sides);
        lock(&self.space.log).miss_all(vdev.id, new);
    }

    /// Copies the log blocks that a side missed onto it. I/O on log blocks waits for at most one copy. The
    /// caller holds off syncing.
    pub(crate) fn copy_log_blocks(&self, vdev: &Vdev, side: &Side) -> Result<()> {
        loop {
            let _no_log_io = write(&vdev.log_io);
            if !self.copy_log_block(vdev, side)? {
                return Ok(());
            }
        }
    }

    /// Copies what was missed since, and puts the vdev back into use. The caller holds `log_io` exclusively
    /// until the side is current.
    pub(crate) fn copy_last_log_blocks(&self, vdev: &Vdev, side: &Side) -> Result<()> {
        while self.copy_log_block(vdev, side)? {}
        lock(&self.space.log).note_recovered(vdev.id);
        Ok(())
    }

    fn copy_log_block(&self, vdev: &Vdev, side: &Side) -> Result<bool> {
        let Some((place, units, missed_by)) = lock(&self.space.log).missed(vdev.id, side.guid) else {
            return Ok(false);
        };
        let mut buf = AlignedBuf::zeroed((units * UNIT_BYTES) as usize, UNIT_BYTES as usize);
        vdev.copy_log(side, place.unit, &mut buf, |source| !missed_by.contains(&source.guid))?;
        // The block may have been freed meanwhile. The copy is then useless but harmless: no txg writes to
        // its space, because the caller holds off syncing, and I/O for a new log block there has to wait.
        if let Some(block) = lock(&self.space.log).holding(place, units) {
            block.missed_by.retain(|guid| *guid != side.guid);
        }
        Ok(true)
    }
}
