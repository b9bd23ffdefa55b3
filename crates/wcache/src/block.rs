//! What the log has of one block of the origin: for each sector, where its newest bytes are.

/// Unit of the smallest writes, in bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Unit of the index, in bytes.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Sectors of a block.
pub(crate) const SECTORS: usize = (BLOCK_BYTES / SECTOR_BYTES) as usize;

/// When a change was logged; the order is that of a replay. Unique in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    /// The generation of the cache.
    pub(crate) txg: u64,
    /// Its place there.
    pub(crate) gsid: u64,
}

/// Where the bytes of a change are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the log, from a region offset on.
    Log {
        /// Region offset of the first byte.
        at: u64,
        /// CRC-32C of all of them.
        crc: u32,
    },
    /// They are zeroes.
    Zeroes,
}

/// A part of a block that one change covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) order: Order,
    pub(crate) source: Source,
    /// First sector of the block.
    pub(crate) first: u8,
    /// Sectors that it covers.
    pub(crate) sectors: u8,
}

impl Piece {
    fn is_whole(&self) -> bool {
        usize::from(self.sectors) == SECTORS
    }

    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first + self.sectors)
    }
}

/// A block of which the log has something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    /// All of it, of one change.
    Whole(Piece),
    /// Each sector of another change, or none.
    Parts(Box<[Option<Piece>; SECTORS]>),
}

impl Block {
    pub(crate) fn new(piece: Piece) -> Block {
        if piece.is_whole() {
            return Block::Whole(piece);
        }
        let mut parts = Box::new([None; SECTORS]);
        parts[piece.range()].fill(Some(piece));
        Block::Parts(parts)
    }

    /// The change that a sector has its bytes of.
    pub(crate) fn sector(&self, sector: usize) -> Option<&Piece> {
        match self {
            Block::Whole(piece) => Some(piece),
            Block::Parts(parts) => parts[sector].as_ref(),
        }
    }

    /// The newest change of any sector.
    pub(crate) fn newest(&self) -> Order {
        let order = |sector| self.sector(sector).map(|piece| piece.order);
        (0..SECTORS).filter_map(order).max().expect("a block in the index has something")
    }

    /// Takes in a change: of each sector the newer one counts, whichever comes first.
    pub(crate) fn put(&mut self, piece: Piece) {
        let is_newer = |have: Option<&Piece>| have.is_none_or(|have| have.order < piece.order);
        if piece.is_whole() && (0..SECTORS).all(|sector| is_newer(self.sector(sector))) {
            *self = Block::Whole(piece);
            return;
        }
        let mut parts: [Option<Piece>; SECTORS] = std::array::from_fn(|sector| self.sector(sector).copied());
        for sector in piece.range() {
            if is_newer(parts[sector].as_ref()) {
                parts[sector] = Some(piece);
            }
        }
        if let Block::Parts(old) = self {
            **old = parts;
        } else if parts.iter().any(|part| part.as_ref() != self.sector(0)) {
            *self = Block::Parts(Box::new(parts));
        }
    }

    /// Lets go of what the origin has: changes of `until` and before. False: nothing is left.
    pub(crate) fn retire(&mut self, until: u64) -> bool {
        match self {
            Block::Whole(piece) => piece.order.txg > until,
            Block::Parts(parts) => {
                for part in parts.iter_mut() {
                    part.take_if(|piece| piece.order.txg <= until);
                }
                parts.iter().any(Option::is_some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(txg: u64, gsid: u64, first: u8, sectors: u8) -> Piece {
        Piece { order: Order { txg, gsid }, source: Source::Zeroes, first, sectors }
    }

    fn gsids(block: &Block) -> Vec<u64> {
        (0..SECTORS).map(|sector| block.sector(sector).map_or(0, |piece| piece.order.gsid)).collect()
    }

    #[test]
    fn of_each_sector_the_newest_change_counts_in_any_order() {
        let pieces = [piece(1, 1, 0, 8), piece(1, 2, 2, 3), piece(1, 3, 4, 4), piece(2, 4, 0, 1)];
        let expected = [4, 1, 2, 2, 3, 3, 3, 3];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let mut block = Block::new(pieces[order[0]]);
            order[1..].iter().for_each(|at| block.put(pieces[*at]));
            assert_eq!(gsids(&block), expected, "{order:?}");
            assert_eq!(block.newest(), Order { txg: 2, gsid: 4 });
            assert!(block.retire(1));
            assert_eq!(gsids(&block), [4, 0, 0, 0, 0, 0, 0, 0]);
            assert!(!block.retire(2));
        }
    }

    #[test]
    fn a_whole_block_gives_way_to_a_newer_one_alone() {
        let mut block = Block::new(piece(3, 7, 0, 8));
        block.put(piece(3, 5, 0, 8));
        block.put(piece(2, 9, 3, 2));
        assert_eq!(block, Block::Whole(piece(3, 7, 0, 8)));
        block.put(piece(3, 8, 0, 8));
        assert_eq!(block, Block::Whole(piece(3, 8, 0, 8)));
        assert!(block.retire(2) && !block.retire(3));
    }
}
