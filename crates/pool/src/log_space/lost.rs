//! Vdevs for logs that lack a txg: no side took its mark, its uberblock, or a flush of them.
//!
//! A pool goes on without such a vdev. But an import finds no mark of the newest txg there, and takes the
//! vdev for an older copy of itself that was put back: what it has of the log no longer counts. So, from the
//! moment the vdev lacks a txg:
//! 1. No flush of log blocks succeeds there; the log waits for txgs, and starts anew elsewhere.
//! 2. Once the txg that was open at that moment has synced, nothing that was acknowledged because of the vdev
//!    needs it any more: the labels call it given up, and an import goes on without it and without asking: a
//!    log whose next block would have been there ends before it. The vdev is used again after a resilver.
//!
//! In between, an import may find the vdev in state 1: a txg's uberblock records which vdevs for logs did not
//! take its mark, and the last mark that each took. If the vdev has that mark, it is unchanged, and the log's
//! own proofs decide; if not, it is an older copy.
//!
//! A vdev that takes a whole txg again before 2 is used again.

use crate::devices::vdev::Vdev;
use crate::error::{PoolError, Result};
use crate::ids::Mark;
use crate::log_space::blocks::Lost;
use crate::state::Shared;
use fastness_sync::order::lock;

impl Shared {
    /// Notes that these vdevs for logs did not take the mark of the txg being synced. Returns each with the
    /// last mark that it took.
    pub(crate) fn note_lost_log_vdevs(&self, lost: &[u16]) -> Vec<(u16, Mark)> {
        let (open, newest) = (self.txgs.pipeline.open_txg(), lock(&self.devices.uberblock).clone());
        // A vdev that already lacked the last txg, in the import before this one, has none of its marks.
        let last =
            |id| newest.lacking.iter().find(|(of, _)| *of == id).map_or(newest.mark(), |(_, last)| *last);
        let mut log = lock(&self.space.log);
        let lost =
            lost.iter().map(|id| (*id, log.lost.entry(*id).or_insert(Lost { open, last: last(*id) }).last));
        lost.collect()
    }

    /// A txg with this mark has synced, and `lost` are all vdevs for logs that lack part of it. The caller
    /// updates the labels.
    pub(crate) fn settle_lost_log_vdevs(&self, mark: Mark, lost: &[u16]) {
        let open = self.txgs.pipeline.open_txg();
        let mut log = lock(&self.space.log);
        log.lost.retain(|id, _| lost.contains(id));
        for id in lost {
            // Newly lost vdevs did take the mark.
            log.lost.entry(*id).or_insert(Lost { open, last: mark });
        }
        let is_over = |id: &u16| log.lost.get(id).is_some_and(|lost| lost.open <= mark.txg);
        for vdev in self.devices.vdevs.all().iter().filter(|vdev| is_over(&vdev.id)) {
            vdev.sides().iter().for_each(|side| side.give_up());
        }
    }

    /// Refuses to call anything durable that is on such a vdev.
    pub(super) fn check_not_lost(&self, vdev: &Vdev) -> Result<()> {
        if !lock(&self.space.log).lost.contains_key(&vdev.id) {
            return Ok(());
        }
        let path = vdev.sides().first().map(|side| side.path.clone()).unwrap_or_default();
        Err(PoolError::Busy { name: path, why: "it did not take the last transaction group" })
    }
}
