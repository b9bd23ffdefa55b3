//! Listing rows in order, from all layers and the last synced txg.
//!
//! Design: rows are copied in batches, and shown without any lock. Of each source (each layer of each shard,
//! then the tables of the last synced txg) a batch takes rows up to a limit. The least key at which a source
//! was cut off is the *horizon*: up to there the batch has everything, and the next batch begins after it. Of
//! rows with the same key the first one counts: sources are read from the newest to the oldest.
//!
//! A row that exists throughout the scan is shown once: keys only go up, and each batch has, for the keys
//! that it covers, what one lookup after the other would have found (`rows`: layers first, then the tables).

use std::ops::{Bound, ControlFlow};

use crate::error::Result;
use crate::ids::TableId;
use crate::rows::key::{Key, Keyed};
use crate::rows::layer::Rows;
use crate::rows::stored;
use crate::rows::table::Table;
use fastness_sync::order::read;

/// Rows of one layer in a batch: few in the first one, because many scans end there.
const LAYER_ROWS: [usize; 2] = [4, 64];
/// For each of these, rows of the synced tables: about as many as all layers together.
const SYNCED_ROWS: usize = 16;
/// Bytes of one source after which a batch takes no more of it, for each of its rows.
const ROW_BYTES: usize = 256;

/// A row in a batch: its key, then its value, from `start` on.
#[derive(Debug)]
struct Entry {
    start: usize,
    key_bytes: usize,
    value_bytes: usize,
    is_removed: bool,
}

/// Rows between two keys.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// What comes after it is not in the batch.
    horizon: Option<Vec<u8>>,
}

/// How much of one source there is in a batch.
#[derive(Debug)]
struct Taken {
    rows_left: usize,
    bytes_left: usize,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.horizon = None;
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..entry.start + entry.key_bytes]
    }

    fn value(&self, entry: &Entry) -> &[u8] {
        let start = entry.start + entry.key_bytes;
        &self.bytes[start..start + entry.value_bytes]
    }

    /// Takes the next row of a source; `false`: no more of it.
    fn take(&mut self, taken: &mut Taken, key: &[u8], value: Option<&[u8]>) -> bool {
        if self.horizon.as_ref().is_some_and(|horizon| key > &horizon[..]) {
            return false;
        }
        let (start, value_bytes) = (self.bytes.len(), value.map_or(0, <[u8]>::len));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Entry { start, key_bytes: key.len(), value_bytes, is_removed: value.is_none() });
        taken.rows_left -= 1;
        taken.bytes_left = taken.bytes_left.saturating_sub(key.len() + value_bytes);
        let is_cut = taken.rows_left == 0 || taken.bytes_left == 0;
        if is_cut {
            // It is the least so far: what is beyond the last horizon was not taken.
            self.horizon = Some(key.to_vec());
        }
        !is_cut
    }

    /// Leaves of each key the newest row, in order, and nothing beyond the horizon.
    fn merge(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        // Stable: newer sources were read first.
        entries.sort_by(|a, b| self.key(a).cmp(self.key(b)));
        entries.dedup_by(|later, first| self.key(later) == self.key(first));
        if let Some(horizon) = &self.horizon {
            entries.truncate(entries.partition_point(|entry| self.key(entry) <= &horizon[..]));
        }
        entries.retain(|entry| !entry.is_removed);
        self.entries = entries;
    }
}

fn keyed<'a>(bound: &'a Bound<Key<'a>>) -> Bound<&'a (dyn Keyed + 'a)> {
    bound.as_ref().map(|key| key as &dyn Keyed)
}

impl Rows {
    fn collect(&self, table: TableId, bounds: (Bound<&[u8]>, Bound<&[u8]>), rows: usize, batch: &mut Batch) {
        let keys = (bounds.0.map(Key::of), bounds.1.map(Key::of));
        let bounds: (Bound<&dyn Keyed>, Bound<&dyn Keyed>) = (keyed(&keys.0), keyed(&keys.1));
        for shard in self.shards.get().into_iter().flat_map(|shards| &shards[..]) {
            let layers = read(&shard.0);
            for changed in layers.iter().rev().filter_map(|layer| layer.tables.get(&table)) {
                let mut taken = Taken { rows_left: rows, bytes_left: rows * ROW_BYTES };
                for row in changed.range::<dyn Keyed, _>(bounds) {
                    if !batch.take(&mut taken, row.key(), row.value()) {
                        break;
                    }
                }
            }
        }
    }
}

fn is_empty((from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

impl Table {
    /// Shows the rows whose keys are within `bounds`, key and value, in the order of their keys, until `show`
    /// breaks. To go on later, begin after the last key that was shown, with [`Bound::Excluded`].
    ///
    /// Concurrency: holds no lock while `show` runs, which may change the table. A row that exists throughout
    /// the scan is shown exactly once; one that is put or removed meanwhile is shown once or not at all, with
    /// a value that it had during the scan. Memory: about 1 MiB, more if values are long, whatever the table
    /// has.
    ///
    /// # Errors
    /// [`PoolError::NoDataset`](crate::PoolError::NoDataset) if the dataset was destroyed; those of reading
    /// the tables: some rows may have been shown.
    pub fn scan(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        mut show: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut from, to) = (bounds.0.map(<[u8]>::to_vec), bounds.1);
        let (mut batch, mut rows) = (Batch::default(), LAYER_ROWS[0]);
        loop {
            let bounds = (from.as_ref().map(Vec::as_slice), to);
            if is_empty(bounds) {
                return Ok(());
            }
            self.fill(bounds, rows, &mut batch)?;
            for entry in &batch.entries {
                if show(batch.key(entry), batch.value(entry)).is_break() {
                    return Ok(());
                }
            }
            let Some(horizon) = batch.horizon.take() else { return Ok(()) };
            from = Bound::Excluded(horizon);
            rows = (rows * 2).min(LAYER_ROWS[1]);
        }
    }

    /// Reads the next batch: all rows within bounds up to its horizon.
    fn fill(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>), rows: usize, batch: &mut Batch) -> Result<()> {
        batch.clear();
        self.check_there()?;
        self.core.rows.collect(self.id, bounds, rows, batch);
        self.shared.check_alive_for_reads()?;
        // Only now: see `rows`.
        let snapshot = self.shared.tables.current();
        let rows = rows * SYNCED_ROWS;
        let mut taken = Taken { rows_left: rows, bytes_left: rows * ROW_BYTES };
        let mut take = |key: &[u8], value: &[u8]| batch.take(&mut taken, key, Some(value));
        let read = match snapshot.rows_at(self.core.id.0) {
            None => stored::each(&snapshot.rows, self.core.id.0, self.id, bounds, &mut take),
            Some(rows) => rows.each(self.id, bounds, &mut take),
        };
        self.shared.tables.explained(read)?;
        batch.merge();
        Ok(())
    }
}
