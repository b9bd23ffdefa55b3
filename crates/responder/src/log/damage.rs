//! A log whose records are damaged: where it breaks off, and what stands after that.
//!
//! Only what precedes the damage is carried out, in the order in which it was synced, whatever file it is of:
//! a program that has synced one thing before another never finds the second one without the first.
//!
//! A record that cannot be read has its place. Of records that are missing altogether nothing says where they
//! were but the places of the others, which count up: the log breaks off at the first place that nothing has.
//! That may be the place of a sync that the crash had cut short, so that more is left out than was lost.

use fastness_pmlog::{Hidden, OpenError};
use fastness_prb::{ClaimError, EntryId};

use crate::error::LogError;
use crate::geometry::TAGS_OFFSET;

/// After every record.
pub(super) const END: EntryId = EntryId::new(u64::MAX, u64::MAX);

/// What is wrong with a log.
#[derive(Debug)]
pub(super) struct Damage {
    loss: Option<ClaimError>,
    hidden: Option<Hidden>,
    /// Where it breaks off: the first record that is not carried out.
    pub(super) at: EntryId,
    /// Records that cannot be read, or stand on missing ones.
    pub(super) unreadable: u64,
}

impl Damage {
    /// What an opening has found, and the places of the records that can be read, in order.
    pub(super) fn of(
        loss: Option<&ClaimError>,
        hidden: &[Hidden],
        dropped: usize,
        ids: &[EntryId],
    ) -> Option<Damage> {
        let (loss, hidden) = (loss.copied(), hidden.first().copied());
        let gap = || first_gap(ids).unwrap_or(END);
        let at = match (&loss, &hidden) {
            (None, None) => return None,
            (Some(ClaimError::Body { id, .. }), None) => *id,
            (Some(ClaimError::Body { id, .. }), Some(_)) => gap().min(*id),
            _ => gap(),
        };
        Some(Damage { loss, hidden, at, unreadable: dropped as u64 })
    }

    /// The error that says so, with records that can be carried out, and records after the damage that can be
    /// read.
    pub(super) fn error(&self, before: u64, readable_after: u64) -> LogError {
        let source = match (self.loss, self.hidden) {
            (Some(loss), _) => OpenError::Claim(loss),
            (None, Some(hidden)) => OpenError::Hidden(hidden),
            (None, None) => unreachable!("then there is no damage"),
        };
        let start = TAGS_OFFSET as u64;
        LogError::Damaged { source, start, before, after: readable_after + self.unreadable }
    }
}

/// The first place that no record has although a later one is there.
fn first_gap(ids: &[EntryId]) -> Option<EntryId> {
    let gap = |pair: &[EntryId]| {
        let (before, after) = (pair[0], pair[1]);
        match before.generation == after.generation {
            true => (after.gsid.0 != before.gsid.0 + 1)
                .then(|| EntryId::new(before.generation.0, before.gsid.0 + 1)),
            false => (after.gsid.0 > 1).then(|| EntryId::new(after.generation.0, 1)),
        }
    };
    // A log begins with a generation: what is trimmed ends with one.
    let front = ids.first().filter(|id| id.gsid.0 > 1).map(|id| EntryId::new(id.generation.0, 1));
    front.or_else(|| ids.windows(2).find_map(gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_first_place_that_nothing_has() {
        let ids = |places: &[(u64, u64)]| -> Vec<EntryId> {
            places.iter().map(|(generation, gsid)| EntryId::new(*generation, *gsid)).collect()
        };
        assert_eq!(first_gap(&ids(&[])), None);
        assert_eq!(first_gap(&ids(&[(3, 1), (3, 2), (4, 1)])), None);
        assert_eq!(first_gap(&ids(&[(3, 1), (3, 3), (4, 2)])), Some(EntryId::new(3, 2)));
        assert_eq!(first_gap(&ids(&[(3, 1), (4, 2)])), Some(EntryId::new(4, 1)));
        assert_eq!(first_gap(&ids(&[(3, 2), (3, 3)])), Some(EntryId::new(3, 1)));
    }
}
