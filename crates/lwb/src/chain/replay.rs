//! Replay: hands the records of a claimed chain to their owner, in order, each with the header to store with
//! it.

use std::error::Error;

use crate::chain::claim::Claimed;
use crate::chain::error::{Ended, ReplayError};
use crate::chain::gather::{Gather, Record};
use crate::chain::walk::Walk;
use crate::format::pieces;
use crate::header::{Claim, Header};
use crate::space::Space;

/// What replay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Records handed out.
    pub records: u64,
    /// Records left out because their txgs had synced before the crash.
    pub obsolete: u64,
}

impl<S: Space> Claimed<S> {
    /// Replays the records after the last one that was replayed.
    ///
    /// For each, `apply` must, in one transaction, apply it and store the header; consecutive records may
    /// share a transaction, with the header of the last. If it fails, neither may become durable; a later
    /// call continues from that record. When all are replayed, the owner stores a
    /// header without the chain ([`Header::None`], or that of a new log), and calls
    /// [`release`](Claimed::release) once it is durable.
    ///
    /// # Errors
    /// [`ReplayError`]: try again, or give up the rest by storing [`Header::None`].
    pub fn replay<E: Error + 'static>(
        &mut self,
        mut apply: impl FnMut(Record<'_>, Header) -> Result<(), E>,
    ) -> Result<Replayed, ReplayError<E>> {
        let mut done = Replayed { records: 0, obsolete: 0 };
        let Claimed { space, claim: Some(claim), .. } = self else { return Ok(done) };
        let (mut walk, mut gather) = (Walk::new(space, &claim.chain), Gather::default());
        while walk.seq() <= claim.last_seq {
            let (seq, place) = (walk.seq(), walk.place());
            let found = walk.next().map_err(ReplayError::Damaged)?;
            for (piece, data) in pieces(found.contents, &found.header).flatten() {
                let whole = gather.push(&piece, data, found.extent.place);
                let damaged = |reject| ReplayError::Damaged(Box::new(Ended::at(space, seq, place, reject)));
                let whole = whole.map_err(damaged)?;
                // After the last claimed record there may be some that were given up.
                let is_wanted = |lsn| lsn > claim.replayed && lsn <= claim.last_lsn;
                let Some(whole) = whole.filter(|whole| is_wanted(whole.lsn)) else { continue };
                if whole.txg < claim.first_txg {
                    done.obsolete += 1;
                    continue;
                }
                let (lsn, txg, place) = (whole.lsn, whole.txg, whole.place);
                let next = Claim { replayed: lsn, ..*claim };
                let record = Record { lsn, txg, place, bytes: gather.bytes() };
                apply(record, Header::Claimed(next)).map_err(|source| ReplayError::Apply {
                    lsn,
                    place,
                    source,
                })?;
                *claim = next;
                done.records += 1;
            }
        }
        if gather.last() < claim.last_lsn && claim.replayed < claim.last_lsn {
            return Err(ReplayError::Changed { found: gather.last(), claimed: claim.last_lsn });
        }
        Ok(done)
    }
}
