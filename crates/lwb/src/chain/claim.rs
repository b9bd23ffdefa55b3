//! Claim: finds the blocks of a chain after a crash and takes their space, before anything else is allocated.

use crate::chain::End;
use crate::chain::error::{ClaimError, Ended, LostRecords};
use crate::chain::gather::{Gather, Record};
use crate::chain::walk::Walk;
use crate::format::pieces;
use crate::header::{Chain, Claim, Header};
use crate::ids::{BlockSeq, Extent, Lsn, Txg};
use crate::space::{Space, SpaceError};

/// What claim does about a damaged chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// Fails; the operator can look for the cause and import again.
    Fail,
    /// Keeps what precedes the damage and gives up the rest, permanently.
    DropTail,
}

/// A log between claim and the end of replay.
#[derive(Debug)]
pub struct Claimed<S> {
    pub(super) space: S,
    /// `None` if there is no chain.
    pub(super) claim: Option<Claim>,
    /// The claimed space.
    extents: Vec<Extent>,
    records: u64,
    record_bytes: u64,
    ended: Option<Ended>,
    loss: Option<ClaimError>,
}

/// Walks the chain that `header` names, checks all of it, and takes its space. `first_txg` is the first txg
/// after the import; records of older ones are not counted. Nothing is written.
///
/// The header that [`Claimed::header`] returns must be durable with `first_txg`, before anything that was not
/// claimed is overwritten. A crash before that finds the log unchanged.
///
/// # Errors
/// [`ClaimError`] under [`OnLoss::Fail`]; then no space is held.
pub fn claim<S: Space>(
    space: S,
    header: &Header,
    first_txg: Txg,
    on_loss: OnLoss,
) -> Result<Claimed<S>, ClaimError> {
    claim_each(space, header, first_txg, on_loss, &mut |_| Ok(()))
}

/// As [`claim`], for records that refer to something outside the log: `take` is passed each record that
/// replay would hand out, in order, and may refuse one whose data is missing. That counts as damage at this
/// record: nothing from there on counts.
///
/// `take` may have been passed records that do not count in the end: on an error all of them, otherwise those
/// after [`Claimed::last_lsn`].
///
/// # Errors
/// As [`claim`].
pub fn claim_each<S: Space>(
    space: S,
    header: &Header,
    first_txg: Txg,
    on_loss: OnLoss,
    take: &mut dyn FnMut(Record<'_>) -> Result<(), SpaceError>,
) -> Result<Claimed<S>, ClaimError> {
    let (chain, before) = match header {
        Header::None => return Ok(Claimed::nothing(space)),
        Header::Logging(chain) => (*chain, None),
        Header::Claimed(claim) => (claim.chain, Some(*claim)),
    };
    let first_txg = before.map_or(first_txg, |claim| claim.first_txg);
    let replayed = before.map_or(Lsn(0), |claim| claim.replayed);
    let mut scan = Scan { extents: Vec::new(), records: 0, record_bytes: 0, last_lsn: Lsn(0) };
    let last_seq = before.map(|claim| claim.last_seq);
    // What an earlier claim gave up stays given up.
    let last_lsn = before.map_or(Lsn(u64::MAX), |claim| claim.last_lsn);
    let counts = |lsn, txg| lsn > replayed && lsn <= last_lsn && txg >= first_txg;
    let ended = scan.run(&space, &chain, last_seq, counts, take);
    let loss = loss(&ended, &chain, &scan, before.as_ref());
    if let (Some(loss), OnLoss::Fail) = (&loss, on_loss) {
        scan.extents.into_iter().for_each(|extent| space.free(extent));
        return Err(loss.clone());
    }
    // In the block with a refused record, the records before it still count.
    let last_seq = if ended.end.is_refused() { ended.seq } else { BlockSeq(ended.seq.0 - 1) };
    let last_lsn = scan.last_lsn.max(replayed).min(last_lsn);
    let claim = Claim { chain, first_txg, last_seq, last_lsn, replayed };
    let Scan { extents, records, record_bytes, .. } = scan;
    Ok(Claimed { space, claim: Some(claim), extents, records, record_bytes, ended: Some(ended), loss })
}

/// The loss that is certain, if any.
fn loss(ended: &Ended, chain: &Chain, scan: &Scan, before: Option<&Claim>) -> Option<ClaimError> {
    let lost = LostRecords { after: scan.last_lsn, seen: ended.later.last_lsn };
    if !ended.is_clean() {
        return Some(ClaimError::Damaged { ended: Box::new(ended.clone()), lost });
    }
    let durable_seq = before.map_or(chain.durable_seq, |claim| claim.last_seq);
    if ended.seq <= durable_seq {
        return Some(ClaimError::Lost { ended: Box::new(ended.clone()), durable_seq, lost });
    }
    let claimed = before.map(|claim| claim.last_lsn).filter(|claimed| *claimed > scan.last_lsn)?;
    Some(ClaimError::Changed { found: scan.last_lsn, claimed })
}

/// What the walk has found so far.
struct Scan {
    extents: Vec<Extent>,
    records: u64,
    record_bytes: u64,
    last_lsn: Lsn,
}

impl Scan {
    /// Walks until the chain ends, or after `last_seq`.
    fn run<S: Space>(
        &mut self,
        space: &S,
        chain: &Chain,
        last_seq: Option<BlockSeq>,
        counts: impl Fn(Lsn, Txg) -> bool,
        take: &mut dyn FnMut(Record<'_>) -> Result<(), SpaceError>,
    ) -> Ended {
        let (mut walk, mut gather) = (Walk::new(space, chain), Gather::default());
        loop {
            if last_seq.is_some_and(|last| walk.seq() > last) {
                return walk.ended(End::Claimed);
            }
            let (seq, place) = (walk.seq(), walk.place());
            let found = match walk.next() {
                Ok(found) => found,
                Err(ended) => return *ended,
            };
            let damaged = |end| Ended::at(space, seq, place, end);
            if space.claim(found.extent).is_err() {
                return damaged(End::OutOfBounds);
            }
            self.extents.push(found.extent);
            let (records, record_bytes) = (self.records, self.record_bytes);
            for (piece, data) in pieces(found.contents, &found.header).flatten() {
                let before_last = gather.last();
                match gather.push(&piece, data, found.extent.place) {
                    Ok(Some(whole)) if counts(whole.lsn, whole.txg) => {
                        let (lsn, txg, place_of) = (whole.lsn, whole.txg, whole.place);
                        let record = Record { lsn, txg, place: place_of, bytes: gather.bytes() };
                        if let Err(why) = take(record) {
                            self.last_lsn = before_last;
                            return damaged(End::Refused { lsn, why });
                        }
                        self.records += 1;
                        self.record_bytes += gather.bytes().len() as u64;
                    }
                    Ok(_) => {}
                    Err(reject) => {
                        self.extents.pop();
                        space.free(found.extent);
                        (self.records, self.record_bytes) = (records, record_bytes);
                        return damaged(reject.into());
                    }
                }
            }
            self.last_lsn = gather.last();
        }
    }
}

impl<S> Claimed<S> {
    fn nothing(space: S) -> Claimed<S> {
        let (extents, ended, loss) = Default::default();
        Claimed { space, claim: None, extents, records: 0, record_bytes: 0, ended, loss }
    }

    /// The header to store: with the first txg, and after replaying records.
    pub fn header(&self) -> Header {
        self.claim.map_or(Header::None, Header::Claimed)
    }

    /// Records to replay.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of those records.
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// The last record that counts; 0 if there is none.
    pub fn last_lsn(&self) -> Lsn {
        self.claim.map_or(Lsn(0), |claim| claim.last_lsn)
    }

    /// The claimed space: the blocks of the chain, in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Where the chain ended, and why; `None` without a chain.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// What was given up, under [`OnLoss::DropTail`].
    pub fn loss(&self) -> Option<&ClaimError> {
        self.loss.as_ref()
    }
}

impl<S: Space> Claimed<S> {
    /// Frees the space. Call it once a header that no longer names the chain is durable: after a crash before
    /// that, the chain is claimed again.
    pub fn release(self) {
        self.extents.iter().for_each(|extent| self.space.free(*extent));
    }
}
