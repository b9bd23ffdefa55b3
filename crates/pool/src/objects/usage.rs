//! How much space an object takes.
//!
//! The tables say it block by block. Counting all of them is slow for a large object, so it is counted once,
//! when it is first asked for, and kept up to date by the txgs for as long as the object is open (`taken`).

use crate::error::Result;
use crate::objects::handle::Object;
use crate::txg::freeing::bytes;
use fastness_sync::order::read;

/// Rows held in memory at one time.
const STEP_ROWS: usize = 256;

impl Object {
    /// Bytes that it takes: on the vdevs as of the last synced txg, and what is unsynced, uncompressed. What
    /// replaces something else counts twice until it has synced.
    ///
    /// # Errors
    /// Those of reading the tables.
    pub fn taken_bytes(&self) -> Result<u64> {
        let unsynced: usize = read(&self.core.contents).layers.iter().map(|layer| layer.blocks.len()).sum();
        let unsynced_bytes = unsynced as u64 * u64::from(self.core.block_bytes);
        let synced = match self.core.taken.get() {
            Some(known) => known,
            None => {
                let changes = self.core.taken.changes();
                let counted = self.shared.tables.explained(self.count_taken())?;
                self.core.taken.keep(counted, changes);
                counted
            }
        };
        Ok(synced.max(0) as u64 + unsynced_bytes)
    }

    fn count_taken(&self) -> Result<i64> {
        let (snapshot, mut sum) = (self.shared.tables.current(), 0);
        let mut from = Some(0);
        while let Some(start) = from {
            let object = (self.core.dataset.0, self.core.id.0);
            let rows = snapshot.rows_of(object, start..u64::MAX, STEP_ROWS)?;
            for (key, extents) in &rows {
                sum += snapshot.alive(*key, extents).map(|(_, extent)| bytes(&extent)).sum::<i64>();
            }
            from = rows.last().map(|(key, _)| key.2 + 1);
        }
        Ok(sum)
    }
}
