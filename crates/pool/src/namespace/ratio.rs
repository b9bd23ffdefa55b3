//! How much compression saves, counted when it is asked for.
//!
//! Rows of extents say both lengths of a block. Counters kept for each dataset would be one more thing that
//! an older program leaves wrong; and hardly anybody looks.

use crate::error::Result;
use crate::ids::UNIT_BYTES;
use crate::metadata::groups::decode_row;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::ExtentKey;
use crate::namespace::dataset::Dataset;
use crate::objects::extent::Extent;
use crate::txg::freeing::bytes;

/// Rows held in memory at one time.
const STEP_ROWS: usize = 256;

/// Space that blocks take, and what it would be without compression.
///
/// Units: bytes, each block rounded up to a unit of the pool. Zeroes at the end of a block take nothing
/// either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ratio {
    /// Without compression.
    pub plain_bytes: u64,
    /// As stored.
    pub stored_bytes: u64,
}

impl Ratio {
    fn add(&mut self, extent: &Extent) {
        self.plain_bytes += u64::from(extent.logical_bytes).next_multiple_of(UNIT_BYTES);
        self.stored_bytes += bytes(extent) as u64;
    }

    /// Of two things together.
    #[must_use]
    pub fn with(self, other: Ratio) -> Ratio {
        Ratio {
            plain_bytes: self.plain_bytes + other.plain_bytes,
            stored_bytes: self.stored_bytes + other.stored_bytes,
        }
    }
}

impl Dataset {
    /// What it takes as of the last synced txg, with what is kept for its snapshots, without the datasets
    /// below. Reads all its rows of extents.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn used_ratio(&self) -> Result<Ratio> {
        let tables = self.shared.tables.current();
        self.shared.tables.explained(used(&tables, self.core.id.0))
    }

    /// What it shows as of the last synced txg, whichever dataset that is counted for. Reads all its rows of
    /// extents.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn shown_ratio(&self) -> Result<Ratio> {
        let tables = self.shared.tables.current();
        self.shared.tables.explained(shown(&tables, self.core.id.0))
    }
}

fn used(tables: &Snapshot, dataset: u64) -> Result<Ratio> {
    let mut sum = Ratio::default();
    let base = tables.branches.base(dataset).map(|base| base.txg);
    for row in tables.extents.range((dataset, 0, 0)..(dataset + 1, 0, 0))? {
        let (key, group) = decode_row(row)?;
        for (_, extent) in tables.in_use(key, &group) {
            if base.is_none_or(|base| extent.birth > base) {
                sum.add(&extent);
            }
        }
    }
    let mut next: ExtentKey = (dataset, 0, 0);
    loop {
        let rows = tables.only_past(next, STEP_ROWS)?;
        let Some((last, _)) = rows.last() else { return Ok(sum) };
        next = (dataset, last.1, last.2 + 1);
        rows.iter().flat_map(|(_, extents)| extents).for_each(|(_, extent)| sum.add(extent));
    }
}

fn shown(tables: &Snapshot, dataset: u64) -> Result<Ratio> {
    let mut sum = Ratio::default();
    for row in tables.objects.range((dataset, 0)..(dataset + 1, 0))? {
        let object = row?.0.value();
        let mut from = Some(0);
        while let Some(start) = from {
            let rows = tables.rows_of(object, start..u64::MAX, STEP_ROWS)?;
            for (key, group) in &rows {
                tables.alive(*key, group).for_each(|(_, extent)| sum.add(&extent));
            }
            from = rows.last().map(|(key, _)| key.2 + 1);
        }
    }
    Ok(sum)
}
