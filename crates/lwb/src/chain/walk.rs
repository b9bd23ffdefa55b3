//! From block to block.

use crate::chain::End;
use crate::error::Ended;
use crate::format::{BlockHeader, Reject, pieces};
use crate::header::Chain;
use crate::ids::{BlockSeq, Extent, LogGuid, Place};
use crate::space::{BLOCK_BYTES_MAX, Space};

/// A place in a chain, and a buffer for the block there.
pub(super) struct Walk<'a, S> {
    space: &'a S,
    chain: Chain,
    seq: BlockSeq,
    next: Option<Extent>,
    buf: Vec<u8>,
}

/// A block that is whole.
pub(super) struct Found<'a> {
    pub(super) header: BlockHeader,
    pub(super) extent: Extent,
    pub(super) bytes: &'a [u8],
}

/// The header of a block that is whole, with all its pieces.
fn decode(bytes: &mut [u8], guid: LogGuid, seq: BlockSeq) -> Result<BlockHeader, Reject> {
    let header = BlockHeader::decode(bytes, guid, seq)?;
    match pieces(bytes, &header).find_map(Result::err) {
        Some(reject) => Err(reject),
        None => Ok(header),
    }
}

/// What copies had instead of a block. That one says "never written" outweighs no sign of damage in another.
#[derive(Default)]
struct Refused {
    worst: Option<Reject>,
    /// Where they say that the chain goes on.
    hints: Vec<Extent>,
}

impl Refused {
    fn note(&mut self, reject: Reject, bytes: &[u8]) {
        let weight = |reject: &Reject| match reject {
            Reject::NoBlock | Reject::Foreign(_) | Reject::Stale(_) => 0,
            Reject::Checksum => 1,
            Reject::Misplaced(_) | Reject::Version(_) | Reject::Malformed { .. } => 2,
        };
        // Also of a block that seems to be another one: what is damaged may be its magic, guid or number.
        self.hints.extend(BlockHeader::next_hint(bytes));
        if self.worst.as_ref().is_none_or(|worst| weight(worst) < weight(&reject)) {
            self.worst = Some(reject);
        }
    }
}

impl<'a, S: Space> Walk<'a, S> {
    pub(super) fn new(space: &'a S, chain: &Chain) -> Self {
        let buf = vec![0; BLOCK_BYTES_MAX as usize];
        Walk { space, chain: *chain, seq: chain.first_seq, next: Some(chain.first), buf }
    }

    /// Where the next block is to be.
    pub(super) fn place(&self) -> Option<Place> {
        self.next.map(|extent| extent.place)
    }

    /// Number of the next block.
    pub(super) fn seq(&self) -> BlockSeq {
        self.seq
    }

    /// The chain ends here.
    pub(super) fn ended(&self, end: impl Into<End>) -> Ended {
        Ended { seq: self.seq, place: self.place(), end: end.into() }
    }

    /// The next block, with all its pieces inside of their bounds. Ends at the first block that is not there whole;
    /// each block has one number, so a chain that leads back into itself ends, too.
    pub(super) fn next(&mut self) -> Result<Found<'_>, Ended> {
        let Some(extent) = self.next else {
            return Err(self.ended(End::NoRoom));
        };
        if !self.space.contains(extent) {
            return Err(self.ended(End::OutOfBounds));
        }
        let header = self.read(extent)?;
        self.seq = self.seq.next();
        self.next = header.next;
        Ok(Found { header, extent, bytes: &self.buf })
    }

    /// Reads the next block into the buffer, from whichever copy is whole.
    fn read(&mut self, extent: Extent) -> Result<BlockHeader, Ended> {
        let (guid, seq) = (self.chain.guid, self.seq);
        let mut refused = Refused::default();
        let mut found = None;
        let mut check = |bytes: &mut [u8]| match decode(bytes, guid, seq) {
            Ok(header) => {
                found = Some(header);
                true
            }
            Err(reject) => {
                refused.note(reject, bytes);
                false
            }
        };
        let result =
            self.space.read_checked(extent.place, &mut self.buf[..extent.len_bytes as usize], &mut check);
        match (result, found) {
            (Ok(true), Some(header)) => Ok(header),
            (Err(error), _) => Err(self.ended(End::Unreadable(error))),
            (Ok(_), _) => {
                let end = refused.worst.map_or(End::Unwritten { other: None }, End::from);
                // Whatever is there instead: a block that says so proves that this one was durable.
                let witness = end.is_clean().then(|| self.find_witness(&refused.hints)).flatten();
                Err(self.ended(if witness.is_some() { End::Torn { witness } } else { end }))
            }
        }
    }

    /// Whether a block behind this one was written when this one was durable; `hints`: where it can be.
    ///
    /// A crash may leave the block behind whole and this one not, both unacknowledged; then that one does not say so.
    fn find_witness(&self, hints: &[Extent]) -> Option<BlockSeq> {
        let (guid, seq) = (self.chain.guid, self.seq.next());
        let at = |next: &Extent| {
            let mut bytes = vec![0; next.len_bytes as usize];
            let mut found = None;
            let mut check = |bytes: &mut [u8]| {
                found = BlockHeader::decode(bytes, guid, seq).ok();
                found.is_some()
            };
            self.space.read_checked(next.place, &mut bytes, &mut check).ok()?;
            found.filter(|header| header.durable_seq >= self.seq).map(|header| header.seq)
        };
        hints.iter().filter(|next| self.space.contains(**next)).find_map(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_damage_in_any_copy_count() {
        let (clean, torn, damaged) =
            (Reject::Stale(BlockSeq(3)), Reject::Checksum, Reject::Misplaced(BlockSeq(9)));
        for (copies, worst) in [
            ([clean, Reject::NoBlock], clean),
            ([clean, torn], torn),
            ([torn, clean], torn),
            ([clean, damaged], damaged),
            ([damaged, torn], damaged),
        ] {
            let mut refused = Refused::default();
            copies.iter().for_each(|copy| refused.note(*copy, &[0; 4096]));
            assert_eq!(refused.worst, Some(worst), "{copies:?}");
        }
    }
}
