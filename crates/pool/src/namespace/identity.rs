//! Which snapshot is which in another pool, and what is between two snapshots.
//!
//! A snapshot has a GUID, drawn when it is made and stored with it. A snapshot that was received has that of
//! the one that was sent: so whoever has both ends of an increment can tell that they are the same.

use std::ops::Range;

use crate::error::{PoolError, Result};
use crate::ids::{DatasetId, Guid};
use crate::namespace::snapshots::{DATA, GUID};
use crate::objects::extent::GROUP_BLOCKS;
use crate::pool::Pool;

/// Part of what differs between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Blocks that follow each other, in order, and whether they are holes in the newer one.
    pub runs: Vec<(Range<u64>, bool)>,
    /// The block from which on there is more.
    pub next: Option<u64>,
}

impl Pool {
    /// The GUID of a snapshot. One that was made before snapshots had any gets one.
    ///
    /// Persistence: durable on return, unless the snapshot is not: then as soon as it is.
    ///
    /// # Errors
    /// [`NoDataset`](crate::PoolError::NoDataset); those of reading the tables and, for an old
    /// snapshot, of a txg.
    pub fn snapshot_guid(&self, snapshot: &str) -> Result<Guid> {
        let dataset = self.dataset(snapshot)?;
        if let Some(guid) = self.stored_guid(&dataset)? {
            return Ok(guid);
        }
        self.sync()?;
        if let Some(guid) = self.stored_guid(&dataset)? {
            return Ok(guid);
        }
        let guid = Guid::random();
        let tx = self.begin_tx()?;
        dataset.put_aux(&tx, GUID, Some(&guid.0.to_le_bytes()));
        self.wait_synced(tx.commit())?;
        Ok(guid)
    }

    fn stored_guid(&self, dataset: &crate::Dataset) -> Result<Option<Guid>> {
        let stored = dataset.synced_aux(GUID)?;
        let number = stored.and_then(|stored| stored.try_into().ok()).map(u64::from_le_bytes);
        Ok(number.filter(|number| *number != 0).map(Guid))
    }

    /// The snapshots with a GUID, of one volume or of any: several if one was received in the pool that it
    /// was sent from.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn snapshots_with_guid(&self, guid: Guid, volume: Option<&str>) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for info in self.snapshots() {
            let is_of = |volume: &str| info.name.split('@').next() == Some(volume);
            if volume.is_none_or(is_of)
                && let Ok(dataset) = self.dataset(&info.name)
                && self.stored_guid(&dataset)? == Some(guid)
            {
                found.push(info.name);
            }
        }
        Ok(found)
    }

    /// Blocks of a volume that differ between two of its snapshots, or all that the newer one has: from a
    /// block on, and of about `rows` rows of 32 blocks. Reads rows that have changed, and no data.
    ///
    /// # Errors
    /// [`Invalid`](crate::PoolError::Invalid) if the older one is not a state of before the newer one, or is
    /// the same one; those of reading the tables.
    pub fn difference(
        &self,
        from: Option<DatasetId>,
        to: DatasetId,
        first_block: u64,
        rows: usize,
    ) -> Result<Difference> {
        if from == Some(to) {
            return Err(PoolError::invalid("snapshot to begin with", "it is that one"));
        }
        let tables = self.shared.tables.current();
        let ends = (from.map(|from| from.0), to.0);
        let found = tables.difference(ends, DATA.0, first_block / GROUP_BLOCKS, rows.max(1));
        let (runs, next) = self.shared.tables.explained(found)?;
        let beyond = |(blocks, is_hole): (Range<u64>, bool)| {
            let blocks = blocks.start.max(first_block)..blocks.end;
            (!blocks.is_empty()).then_some((blocks, is_hole))
        };
        let runs = runs.into_iter().filter_map(beyond).collect();
        Ok(Difference { runs, next: next.map(|group| group * GROUP_BLOCKS) })
    }

    /// Refuses a volume that is not at its snapshot: with a newer snapshot, or changed since. What is not
    /// synced does not count.
    ///
    /// # Errors
    /// [`NotNewest`](crate::PoolError::NotNewest), [`ChangedSince`](crate::PoolError::ChangedSince),
    /// [`NoDataset`](crate::PoolError::NoDataset); those of reading the tables.
    pub fn check_unchanged_since(&self, snapshot: &str) -> Result<()> {
        let namespace = fastness_sync::order::read(&self.shared.datasets.namespace);
        let (_, base) = self.durable(&namespace, snapshot)?;
        self.check_at(&namespace, base, snapshot)
    }
}
