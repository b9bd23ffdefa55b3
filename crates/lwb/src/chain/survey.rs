//! Reads a chain without claiming it: its contents, block by block, up to its end.

use crate::chain::error::Ended;
use crate::chain::gather::{Gather, Record};
use crate::chain::walk::Walk;
use crate::format::pieces;
use crate::header::Chain;
use crate::ids::{AHEAD, BlockSeq, Extent, Txg};
use crate::space::Space;

/// A whole block of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSurvey {
    /// Its number.
    pub seq: BlockSeq,
    /// Where it is.
    pub extent: Extent,
    /// The last block that was durable when it was written.
    pub durable_seq: BlockSeq,
    /// Newest txg of a record with a piece in it; 0 without records.
    pub newest_txg: Txg,
    /// Header and pieces, in bytes.
    pub used_bytes: u32,
    /// Where the chain continues: the next blocks, as far as there was space for them.
    pub next: [Option<Extent>; AHEAD],
}

/// An item of a chain, in chain order: a block comes before the records that end in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// A block.
    Block(BlockSurvey),
    /// A whole record.
    Record(Record<'a>),
}

/// Hands out everything in the chain that can be read, including synced and replayed records, and returns
/// where and why it ends. Nothing is claimed, held or written; blocks that were written after a claim are
/// included.
pub fn survey<S: Space>(space: &S, chain: &Chain, mut tell: impl FnMut(Found<'_>)) -> Ended {
    let (mut walk, mut gather) = (Walk::new(space, chain), Gather::default());
    loop {
        let (seq, place) = (walk.seq(), walk.place());
        let found = match walk.next() {
            Ok(found) => found,
            Err(ended) => return *ended,
        };
        let (header, extent) = (found.header, found.extent);
        tell(Found::Block(BlockSurvey {
            seq,
            extent,
            durable_seq: header.durable_seq,
            newest_txg: header.newest_txg,
            used_bytes: header.used_bytes,
            next: header.next,
        }));
        for (piece, data) in pieces(found.contents, &header).flatten() {
            match gather.push(&piece, data, extent.place) {
                Ok(Some(whole)) => {
                    let (lsn, txg, place) = (whole.lsn, whole.txg, whole.place);
                    tell(Found::Record(Record { lsn, txg, place, bytes: gather.bytes() }));
                }
                Ok(None) => {}
                Err(reject) => return Ended::at(space, seq, place, reject),
            }
        }
    }
}
