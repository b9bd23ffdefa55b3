//! A side that is lost in use: recorded on the other one before anything more is acknowledged.
//!
//! Crash cases: between the loss and its record the log refuses entries (`fastness_prb`), so each side has
//! everything that was acknowledged, and the next opening may use either. The record is one update of the
//! state of the side that is left: it says that the other is out, and names a new opening. Then the origin's
//! mark becomes that opening; only then are entries taken again. So the lost side, should it come back alone,
//! is refused wherever the origin has a mark. The slot has the mark before and the new one, as in an opening,
//! since a crash may come between the two.

use fastness_pmem::Medium;
use fastness_prb::{Prb, WriteError};

use crate::error::Error;
use crate::front::Front;
use crate::options::Options;
use crate::origin::Mark;
use crate::slot::{MirrorState, Slot};
use crate::target::Target;

/// Records the side that is lost, if one is and that is not recorded; returns it.
///
/// Persistence: on success no opening will read that side. After an error the same call can be made again;
/// nothing is acknowledged before one succeeds.
///
/// # Errors
/// Of the side that is left; [`Error::MarkOrigin`].
pub(crate) fn record<M: Medium, C: Medium + Sync>(
    front: &mut Front<M>,
    prb: &Prb<C>,
    target: &Target,
    options: &Options,
) -> Result<Option<usize>, Error> {
    let Some(side) = prb.lost_side().or_else(|| front.lost()) else { return Ok(None) };
    prb.lose_side(side);
    front.lose(side);
    if prb.has_failed() {
        return Err(Error::Write(WriteError::Failed));
    }
    let slot = front.slot();
    let state = slot.mirror.expect("only a mirror can lose a side and go on");
    let [before, last] = slot.openings;
    if state.out.is_none() {
        // Within an opening the origin still has the mark of the one before.
        let before = if target.is_marked() { last } else { before };
        let mirror = Some(MirrorState { out: Some(side), ..state });
        front.update(Slot { openings: [before, options.random()], mirror, ..slot.clone() })?;
    }
    let mark = Mark { cache: front.slot().id, opening: front.slot().openings[1] };
    if !target.has_mark(mark) {
        target.set_mark(Some(mark))?;
    }
    prb.side_is_out(side);
    Ok(Some(side))
}
