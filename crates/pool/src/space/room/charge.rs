//! The most that changes may take.

use std::ops::{Add, AddAssign, Mul, Range, Sub, SubAssign};

use crate::ids::UNIT_BYTES;
use crate::objects::extent::GROUP_BLOCKS;

const UNIT: i64 = UNIT_BYTES as i64;
/// Pages of the tables that changing a row may copy: its leaf, and another one if that leaf is split or
/// merged.
pub(crate) const ROW: i64 = 2 * UNIT;
/// Bytes of a piece in its row; a page of the tables may be half empty.
const PIECE_BYTES: i64 = 2 * 20;

/// Bytes that a change may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Blocks of data. Counted against quotas.
    pub(crate) data: i64,
    /// Pages of tables.
    pub(crate) meta: i64,
}

impl Charge {
    pub(crate) fn total(self) -> i64 {
        self.data + self.meta
    }

    /// `count` rows of tables.
    pub(crate) fn rows(count: u64) -> Charge {
        Charge { data: 0, meta: count as i64 * ROW }
    }

    /// A block, without its row: its units, and any rows of pieces added or removed.
    pub(crate) fn block(block_bytes: usize) -> Charge {
        let units = (block_bytes as i64 + UNIT - 1) / UNIT;
        Charge { data: units * UNIT, meta: 2 * pieces(units) }
    }

    /// Freeing a block, without its row.
    pub(crate) fn freed(block_bytes: usize) -> Charge {
        Charge { data: 0, meta: pieces((block_bytes as i64 + UNIT - 1) / UNIT) }
    }

    /// A row of a dataset's table, stored in so many fragments. If it may replace a row in more of them,
    /// pages at the end of that are copied as well. Where keys are long, pages that name other pages have few
    /// entries, and about as many of them are copied as pages with rows.
    pub(crate) fn row(key_bytes: usize, fragments: u64, replaces_long: bool) -> Charge {
        let ends = 1 + u64::from(replaces_long);
        let keys = Charge { data: 0, meta: (key_bytes / 256) as i64 * UNIT };
        Charge::rows(fragments + ends - 1) + keys * ends
    }

    /// An object that changes in a txg: its row, and its dataset's row.
    pub(crate) fn object() -> Charge {
        Charge::rows(2)
    }

    /// Creating or destroying a dataset: name, usage, its aux rows, object, what is to be freed.
    pub(crate) fn dataset() -> Charge {
        Charge::rows(5)
    }
}

/// The row of a block in pieces.
fn pieces(units: i64) -> i64 {
    if units > 1 { ROW + (units * PIECE_BYTES / UNIT) * UNIT } else { 0 }
}

/// Rows of extents that hold these blocks: first and last.
pub(crate) fn rows_of(blocks: &Range<u64>) -> (u64, u64) {
    (blocks.start / GROUP_BLOCKS, (blocks.end - 1) / GROUP_BLOCKS)
}

impl Add for Charge {
    type Output = Charge;

    fn add(self, other: Charge) -> Charge {
        Charge { data: self.data + other.data, meta: self.meta + other.meta }
    }
}

impl Sub for Charge {
    type Output = Charge;

    fn sub(self, other: Charge) -> Charge {
        Charge { data: self.data - other.data, meta: self.meta - other.meta }
    }
}

impl Mul<u64> for Charge {
    type Output = Charge;

    fn mul(self, count: u64) -> Charge {
        Charge { data: self.data * count as i64, meta: self.meta * count as i64 }
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Charge) {
        *self = *self + other;
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Charge) {
        *self = *self - other;
    }
}
