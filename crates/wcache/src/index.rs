//! The index: which blocks the log has something of. In DRAM, in shards with a lock each.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use fastness_base::NumberHasher;
use fastness_sync::atomic::{AtomicUsize, Ordering};
use fastness_sync::{RwLock, read, write};

use crate::block::{Block, Piece};

const SHARDS: usize = 256;
/// Neighbouring blocks of one shard, as a power of two.
const RUN_LOG2: u32 = 4;

type Blocks = HashMap<u64, Block, BuildHasherDefault<NumberHasher>>;

#[derive(Debug, Default)]
struct Shard {
    blocks: Blocks,
    /// Blocks that a generation has changed, each once; oldest generation first.
    touched: VecDeque<(u64, Vec<u64>)>,
}

impl Shard {
    fn touch(&mut self, txg: u64, block: u64) {
        match self.touched.iter_mut().rev().find(|(of, _)| *of == txg) {
            Some((_, blocks)) => blocks.push(block),
            None => self.touched.push_back((txg, vec![block])),
        }
    }
}

/// Blocks by number.
///
/// Concurrency: any number of threads. A change takes the lock of one shard for a few instructions; a look
/// holds it while it reads the log, so that what it reads is not let go of meanwhile.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[OwnLine<RwLock<Shard>>]>,
    len: AtomicUsize,
}

/// Away from the cache lines of its neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

impl Index {
    pub(crate) fn new() -> Index {
        let shards = (0..SHARDS).map(|_| OwnLine::default()).collect();
        Index { shards, len: AtomicUsize::new(0) }
    }

    #[inline]
    fn shard(&self, block: u64) -> &RwLock<Shard> {
        let hash = (block >> RUN_LOG2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(hash >> 56) as usize].0
    }

    /// Blocks that the log has something of.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Takes in a change of a part of a block.
    #[inline]
    pub(crate) fn put(&self, block: u64, piece: Piece) {
        let mut shard = write(self.shard(block));
        let txg = piece.order.txg;
        let is_touched = match shard.blocks.get_mut(&block) {
            Some(have) => {
                let is_touched = have.newest().txg == txg;
                have.put(piece);
                is_touched
            }
            None => {
                shard.blocks.insert(block, Block::new(piece));
                self.len.fetch_add(1, Ordering::Relaxed);
                false
            }
        };
        if !is_touched {
            shard.touch(txg, block);
        }
    }

    /// Looks at a block; it stays as it is meanwhile.
    #[inline]
    pub(crate) fn look<T>(&self, block: u64, look: impl FnOnce(Option<&Block>) -> T) -> T {
        look(read(self.shard(block)).blocks.get(&block))
    }

    /// Adds the blocks that generations up to `until` have changed, and forgets that they have. Some may have
    /// been changed again since, and some come twice.
    pub(crate) fn take_touched(&self, until: u64, found: &mut Vec<u64>) {
        for shard in &self.shards {
            let mut shard = write(&shard.0);
            // Oldest first: a generation opens after all of the one before are here.
            while shard.touched.front().is_some_and(|(txg, _)| *txg <= until) {
                found.extend(shard.touched.pop_front().into_iter().flat_map(|(_, blocks)| blocks));
            }
        }
    }

    /// Lets go of what the origin has of these blocks: changes of `until` and before.
    pub(crate) fn retire(&self, blocks: &[u64], until: u64) {
        for block in blocks {
            let mut shard = write(self.shard(*block));
            if shard.blocks.get_mut(block).is_some_and(|have| !have.retire(until)) {
                shard.blocks.remove(block);
                self.len.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Order, Source};

    fn piece(txg: u64, gsid: u64) -> Piece {
        Piece { order: Order { txg, gsid }, source: Source::Zeroes, first: 0, sectors: 8 }
    }

    fn touched(index: &Index, until: u64) -> Vec<u64> {
        let mut found = Vec::new();
        index.take_touched(until, &mut found);
        found.sort_unstable();
        found
    }

    #[test]
    fn a_block_is_named_once_for_each_generation_and_stays_while_it_is_newer() {
        let index = Index::new();
        for (block, txg, gsid) in [(3, 1, 1), (3, 1, 2), (900, 1, 3), (3, 2, 1), (4, 2, 2)] {
            index.put(block, piece(txg, gsid));
        }
        assert_eq!(index.len(), 3);
        assert_eq!(touched(&index, 1), [3, 900]);
        index.retire(&[3, 900], 1);
        assert_eq!(index.len(), 2);
        assert!(index.look(3, |block| block.is_some()) && index.look(900, |block| block.is_none()));
        assert_eq!(touched(&index, 2), [3, 4]);
        index.retire(&[3, 4], 2);
        assert_eq!((index.len(), touched(&index, 9)), (0, vec![]));
    }
}
