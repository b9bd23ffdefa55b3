//! The blocks after the end of a chain.
//!
//! A chain ends at the first block that is not there. That is where a crash has cut it, if no later block
//! says otherwise; what was never acknowledged may be missing, in any order. A later block that was written
//! when this one was durable proves that it was not a crash. The next block need not be the one that knows:
//! where several were under way at a time, it was written too early. So all that can be found are asked.

use crate::chain::read::Reader;
use crate::format::pieces;
use crate::ids::{AHEAD, Ahead, BlockSeq, LogGuid, Lsn};
use crate::space::Space;

/// Later blocks of a chain than the one that it ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Later {
    /// The last one that is there; 0 if there is none.
    pub last_seq: BlockSeq,
    /// The newest one of which they say that it was durable, and the block that says so; 0 without one.
    pub durable: (BlockSeq, BlockSeq),
    /// The first block that is there and damaged, or at the place of another one.
    pub damaged: Option<BlockSeq>,
    /// The last record with a piece in those that are there; 0 without one.
    pub last_lsn: Lsn,
}

impl Later {
    /// Looks for blocks after `seq`. `places`: where that one and the next ones would be. Each block that is
    /// there names more, so that two in a row may be missing.
    ///
    /// It ends, because a place has one block, and a block one number.
    pub(super) fn look<S: Space>(
        space: &S,
        guid: LogGuid,
        seq: BlockSeq,
        mut places: Ahead,
        reader: &mut Reader,
    ) -> Later {
        let (mut later, mut seq) = (Later::default(), seq);
        loop {
            places.copy_within(1.., 0);
            places[AHEAD - 1] = None;
            seq = seq.next();
            if seq.is_last() || places.iter().all(Option::is_none) {
                return later;
            }
            let Some(extent) = places[0] else { continue };
            let header = match reader.read(space, extent, guid, seq) {
                Ok(header) => header,
                Err(end) => {
                    later.damaged = later.damaged.or(end.is_changed().then_some(seq));
                    continue;
                }
            };
            later.last_seq = seq;
            later.durable = later.durable.max((header.durable_seq, seq));
            let lsns = pieces(&reader.contents, &header).flatten().map(|(piece, _)| piece.lsn);
            later.last_lsn = lsns.max().unwrap_or_default().max(later.last_lsn);
            for (known, named) in places[1..].iter_mut().zip(header.next) {
                *known = known.or(named);
            }
        }
    }

    /// The block, if any, that says that block `seq` was durable.
    pub fn witness(&self, seq: BlockSeq) -> Option<BlockSeq> {
        let (durable, witness) = self.durable;
        (durable >= seq).then_some(witness)
    }
}
