//! From block to block.

use crate::chain::End;
use crate::error::Ended;
use crate::format::{BlockHeader, Reject, pieces};
use crate::header::Chain;
use crate::ids::{BlockSeq, Extent, Place};
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
        let len = extent.len_bytes as usize;
        if let Err(error) = self.space.read(extent.place, &mut self.buf[..len]) {
            return Err(self.ended(End::Unreadable(error)));
        }
        let header = match BlockHeader::decode(&mut self.buf[..len], self.chain.guid, self.seq) {
            Ok(header) => header,
            Err(Reject::Checksum) => {
                let end = End::Torn { witness: self.find_witness() };
                return Err(self.ended(end));
            }
            Err(reject) => return Err(self.ended(reject)),
        };
        if let Some(Err(reject)) = pieces(&self.buf, &header).find(Result::is_err) {
            return Err(self.ended(reject));
        }
        self.seq = self.seq.next();
        self.next = header.next;
        Ok(Found { header, extent, bytes: &self.buf })
    }

    /// Whether a block behind the torn one in the buffer was written when the torn one was durable.
    ///
    /// A crash may leave the block behind whole and this one torn, both unacknowledged; then that one does not say so.
    fn find_witness(&self) -> Option<BlockSeq> {
        let next = BlockHeader::next_hint(&self.buf).filter(|next| self.space.contains(*next))?;
        let mut bytes = vec![0; next.len_bytes as usize];
        self.space.read(next.place, &mut bytes).ok()?;
        let header = BlockHeader::decode(&mut bytes, self.chain.guid, self.seq.next()).ok()?;
        (header.durable_seq >= self.seq).then_some(header.seq)
    }
}
