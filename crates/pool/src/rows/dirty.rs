//! From the layers of a txg that has quiesced to the engine's table.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use redb::WriteTransaction;

use crate::error::Result;
use crate::ids::{DatasetId, TableId, Txg};
use crate::metadata::past_rows;
use crate::metadata::tables::ROWS;
use crate::rows::layer::{Row, RowLayer};
use crate::rows::stored;
use crate::state::Shared;
use crate::state::datasets::DatasetCore;
use crate::state::txgs::ChangedShard;
use crate::txg::freeing::Freeing;

/// A shard of a dataset that a txg has changed, with its layer; the txg has quiesced.
pub(crate) struct DirtyRows {
    core: Arc<DatasetCore>,
    shard: usize,
    pub(crate) layer: Arc<RowLayer>,
}

impl DirtyRows {
    /// In order of datasets.
    pub(crate) fn of(txg: Txg, changed: &[ChangedShard]) -> Vec<DirtyRows> {
        let of = |(core, shard): &ChangedShard| {
            let layer = core.rows.layer(*shard, txg).expect("a shard on the list has a layer");
            DirtyRows { core: core.clone(), shard: *shard, layer }
        };
        let mut dirty: Vec<_> = changed.iter().map(of).collect();
        dirty.sort_unstable_by_key(|dirty| (dirty.core.id, dirty.shard));
        dirty
    }

    /// Its dataset, if numbers of objects were allotted since the last txg that stored it.
    pub(crate) fn with_new_numbers(&self) -> Option<DatasetId> {
        let DatasetCore { id, next_object, stored_next, .. } = &*self.core;
        (next_object.load(SeqCst) != stored_next.load(SeqCst)).then_some(*id)
    }

    /// Its txg is durable, and its tables are shown: no reader needs the layer.
    pub(crate) fn drop_layer(&self) {
        self.core.rows.drop_layer(self.shard, self.layer.txg);
    }
}

impl Shared {
    /// Stores the rows of a txg, in the order of their keys.
    pub(crate) fn store_rows(
        &self,
        transaction: &WriteTransaction,
        dirty: &[DirtyRows],
        freeing: &Freeing<'_>,
    ) -> Result<()> {
        if dirty.is_empty() {
            return Ok(());
        }
        let mut table_rows = transaction.open_table(ROWS)?;
        for shards in dirty.chunk_by(|a, b| a.core.id == b.core.id) {
            let dataset = shards[0].core.id.0;
            let mut keeping = freeing.keep_rows(dataset)?;
            let alive = || shards.iter().map(|dirty| &dirty.layer).filter(|layer| !layer.is_destroyed);
            let tables: BTreeSet<TableId> = alive().flat_map(|layer| layer.tables.keys().copied()).collect();
            for table in tables {
                let mut rows: Vec<&Row> =
                    alive().filter_map(|layer| layer.tables.get(&table)).flatten().collect();
                // Of sorted runs, which a stable sort merges.
                rows.sort();
                for row in rows {
                    if let Some((past, newest)) = &mut keeping {
                        past_rows::keep(past, &table_rows, (dataset, table, row.key()), *newest)?;
                    }
                    stored::store(&mut table_rows, dataset, table, row)?;
                }
            }
            self.txgs.pipeline.note_written(shards.iter().map(|dirty| dirty.layer.bytes).sum());
        }
        Ok(())
    }
}
