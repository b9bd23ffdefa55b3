//! Ordered tables of a dataset: keyed rows, the newest of which are in DRAM until their txg has synced.
//!
//! Motivation: directories, attributes and inodes are small rows that are looked up by key and listed in
//! order, and whoever has changed one must see it at once.
//!
//! Design: the rows of a dataset are divided by a hash of their keys over [`SHARDS`] shards, each with its
//! lock. A shard has a *layer* for each unsynced txg that changed a row in it: an ordered set of rows, with
//! removed rows as such. A lookup searches the layers of one shard from the newest down, then the tables of
//! the last synced txg (`stored`). Only transactions of the same txg change a layer, so once the txg has
//! quiesced, the txg thread reads its layers without a lock. If a transaction of an older txg changes a row
//! that a newer txg has changed already, the newer layer gets the change as well: readers see whatever came
//! last.
//!
//! Readers and the end of a txg: a reader first searches the layers, and then takes the tables as of now; a
//! txg first shows its tables, and then drops its layers (`publish`). So a reader that does not find a layer
//! any more finds its rows in the tables. Crash cases: those of a txg (`txg/sync`).
//!
//! Memory: a row counts as its key, its value and [`ROW_BYTES`], as dirty bytes like blocks of objects
//! (`txg`). Room: [`Charge::row`](crate::space::room::Charge::row), released with the txg.
//!
//! Performance: one allocation for each row, besides the nodes of the set, and a search reads the rows'
//! allocations only where the beginnings of keys do not tell (`key`); nothing is shared by threads that
//! work on different datasets except what all writers share (`txg`, `room`).
//!
//! ```text
//! limits  lengths of keys, values and fragments
//! key     the order of rows in memory
//! layer   the rows that a txg has changed, in DRAM; the layers of a dataset
//! stored  rows of the last synced txg, in the engine's table
//! dirty   from the layers of a txg to that table
//! table   changes and lookups
//! scan    rows in order, from all layers and the table
//! ```

pub(crate) mod dirty;
mod key;
pub(crate) mod layer;
pub(crate) mod limits;
mod scan;
pub(crate) mod stored;
pub(crate) mod table;
