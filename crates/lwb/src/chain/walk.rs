//! Walks a chain from block to block.

use crate::chain::End;
use crate::chain::error::Ended;
use crate::chain::later::Later;
use crate::chain::read::Reader;
use crate::format::BlockHeader;
use crate::header::Chain;
use crate::ids::{Ahead, BlockSeq, Extent, Place};
use crate::space::Space;

/// A place in a chain, and buffers for the block there.
pub(super) struct Walk<'a, S> {
    space: &'a S,
    chain: Chain,
    seq: BlockSeq,
    /// Where the next blocks are.
    next: Ahead,
    reader: Reader,
}

/// A whole block.
pub(super) struct Found<'a> {
    pub(super) header: BlockHeader,
    pub(super) extent: Extent,
    pub(super) contents: &'a [u8],
}

impl<'a, S: Space> Walk<'a, S> {
    pub(super) fn new(space: &'a S, chain: &Chain) -> Self {
        let reader = Reader::default();
        Walk { space, chain: *chain, seq: chain.first_seq, next: chain.places(), reader }
    }

    /// Where the next block should be.
    pub(super) fn place(&self) -> Option<Place> {
        self.next[0].map(|extent| extent.place)
    }

    /// Number of the next block.
    pub(super) fn seq(&self) -> BlockSeq {
        self.seq
    }

    /// The chain ends here.
    pub(super) fn ended(&self, end: impl Into<End>) -> Ended {
        Ended::at(self.space, self.seq, self.place(), end)
    }

    /// The next block, with all its pieces within bounds. Ends at the first block that is missing or
    /// incomplete; each block has one number, so a chain that loops ends, too.
    pub(super) fn next(&mut self) -> Result<Found<'_>, Box<Ended>> {
        let Some(extent) = self.next[0] else {
            return Err(Box::new(self.ended(End::NoRoom)));
        };
        if self.seq.is_last() {
            return Err(Box::new(self.ended(End::OutOfBounds)));
        }
        match self.reader.read(self.space, extent, self.chain.guid, self.seq) {
            Ok(header) => {
                self.seq = self.seq.next();
                self.next = header.next;
                Ok(Found { header, extent, contents: &self.reader.contents })
            }
            Err(end) => {
                let later = Later::look(self.space, self.chain.guid, self.seq, self.next, &mut self.reader);
                Err(Box::new(Ended { later, ..self.ended(end) }))
            }
        }
    }
}
