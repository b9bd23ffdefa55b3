//! The blocks after the end of a chain.
//!
//! A chain ends at the first missing block. A crash has cut it there, unless a later block says otherwise:
//! blocks that were never acknowledged may be missing, in any order. A later block that was written after
//! this one was durable proves that it was not a crash. The very next block may not prove it: if several were
//! in flight at a time, it was written too early. So all later blocks that can be found are checked.

use crate::chain::read::Reader;
use crate::format::pieces;
use crate::ids::{AHEAD, Ahead, BlockSeq, LogGuid, Lsn};
use crate::space::Space;

/// The blocks after the one that a chain ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Later {
    /// The last one found; 0 if there is none.
    pub last_seq: BlockSeq,
    /// The newest block that they report as durable, and the block that reports it; 0 without one.
    pub durable: (BlockSeq, BlockSeq),
    /// The first block that is damaged, or at the place of another one.
    pub damaged: Option<BlockSeq>,
    /// The last record with a piece in these blocks; 0 without one.
    pub last_lsn: Lsn,
}

impl Later {
    /// Looks for blocks after `seq`. `places`: where that one and the next ones should be. Each block found
    /// names more, so two in a row may be missing.
    ///
    /// It terminates, because a place has one block, and a block one number.
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

    /// The block, if any, that reports block `seq` as durable.
    pub fn witness(&self, seq: BlockSeq) -> Option<BlockSeq> {
        let (durable, witness) = self.durable;
        (durable >= seq).then_some(witness)
    }
}
