//! The metadata engine, and its tables as of the last synced txg.

use std::sync::Arc;

use fastness_sync::order::{RwLock, read, write};
use redb::Database;

use crate::error::Result;
use crate::metadata::file::MetaFile;
use crate::metadata::snapshot::Snapshot;
use crate::order;

/// The engine's file, the engine, and what readers see of it.
pub(crate) struct Tables {
    pub(crate) meta: MetaFile,
    pub(crate) database: Database,
    snapshot: RwLock<Arc<Snapshot>, { order::SNAPSHOT }>,
}

impl Tables {
    pub(crate) fn new(meta: MetaFile, database: Database, snapshot: Snapshot) -> Tables {
        Tables { meta, database, snapshot: RwLock::new(Arc::new(snapshot)) }
    }

    /// As of the last synced txg.
    pub(crate) fn current(&self) -> Arc<Snapshot> {
        read(&self.snapshot).clone()
    }

    /// From now on readers see this one.
    pub(crate) fn show(&self, snapshot: Snapshot) {
        *write(&self.snapshot) = Arc::new(snapshot);
    }

    /// Turns an error of the tables into its real cause, which the engine forgets; see [`MetaFile::explain`].
    pub(crate) fn explained<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.meta.explain(error))
    }
}
