//! Log blocks and sides that come, or come back.

use std::sync::Arc;

use fastness_blkdev::AlignedBuf;

use crate::error::Result;
use crate::ids::{Guid, UNIT_BYTES};
use crate::state::Shared;
use crate::sync_util::{lock, write};
use crate::vdev::{Side, Vdev};

impl Shared {
    /// Gives a vdev its sides, of which one is new, or was away: it has none of the log blocks.
    pub(crate) fn set_sides_with_new(&self, vdev: &Vdev, sides: Vec<Arc<Side>>, new: Guid) {
        let _no_log_io = write(&vdev.log_io);
        vdev.set_sides(sides);
        lock(&self.log).miss_all(vdev.id, new);
    }

    /// Copies the log blocks that a side missed onto it. I/O on log blocks waits for one copy at most. The
    /// caller holds off syncing.
    pub(crate) fn copy_log_blocks(&self, vdev: &Vdev, side: &Side) -> Result<()> {
        loop {
            let _no_log_io = write(&vdev.log_io);
            if !self.copy_log_block(vdev, side)? {
                return Ok(());
            }
        }
    }

    /// Copies what was missed since, and uses the vdev again. The caller holds `log_io` alone until the side
    /// is current.
    pub(crate) fn copy_last_log_blocks(&self, vdev: &Vdev, side: &Side) -> Result<()> {
        while self.copy_log_block(vdev, side)? {}
        lock(&self.log).note_recovered(vdev.id);
        Ok(())
    }

    fn copy_log_block(&self, vdev: &Vdev, side: &Side) -> Result<bool> {
        let Some((place, units, missed_by)) = lock(&self.log).missed(vdev.id, side.guid) else {
            return Ok(false);
        };
        let mut buf = AlignedBuf::zeroed((units * UNIT_BYTES) as usize, UNIT_BYTES as usize);
        vdev.copy_log(side, place.unit, &mut buf, |source| !missed_by.contains(&source.guid))?;
        // It may have been freed meanwhile. What was copied is of no use then and does no harm: no txg writes
        // to its room, because the caller holds off syncing, and another log block waits with its I/O.
        if let Some(block) = lock(&self.log).holding(place, units) {
            block.missed_by.retain(|guid| *guid != side.guid);
        }
        Ok(true)
    }
}
