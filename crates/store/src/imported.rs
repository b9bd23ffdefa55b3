//! An import of a pool and its log, and what has to survive until the next one.

use std::sync::Arc;

use fastness_pool::{Device, DeviceStatus, Pool, Unsynced, VdevClass};

use crate::error::StoreError;
use crate::import::{LogImportStep, Txgs};
use crate::log::PoolLog;
use crate::options::StoreOptions;
use crate::replay::ReplayReport;
use crate::source::Source;

/// One import of a pool.
#[derive(Clone)]
pub(crate) struct Imported {
    pub(crate) pool: Arc<Pool>,
    /// `None`: the pool is read-only, or is being imported again.
    pub(crate) log: Option<Arc<PoolLog>>,
}

impl Imported {
    /// Imports a pool and its log. `before_log` is called before the log is read.
    pub(crate) fn of(
        source: &mut dyn Source,
        devices: &[Device],
        options: &StoreOptions,
        txgs: Txgs,
        before_log: &mut dyn FnMut(&Pool) -> Result<(), StoreError>,
    ) -> Result<(Imported, ReplayReport), StoreError> {
        let pool = Arc::new(Pool::import_paused(devices, &options.import, options.pool.clone())?);
        before_log(&pool)?;
        if options.pool.is_read_only {
            return Ok((Imported { pool, log: None }, ReplayReport::default()));
        }
        let config = PoolLog::config(&pool).unwrap_or_default();
        let regions = source.regions(&pool, &config)?;
        let mut tell = |step: LogImportStep<'_>| source.tell(&pool, step);
        let (log, report) = PoolLog::import(&pool, regions, txgs, options, &mut tell)?;
        Ok((Imported { pool, log: Some(log) }, report))
    }
}

/// Number, class and sides of each vdev.
pub(crate) type Vdevs = Vec<(u16, VdevClass, Vec<DeviceStatus>)>;

/// The unsynced state of a suspended pool that was given up, kept until the next import has it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) unsynced: Unsynced,
    /// Paths of its devices.
    pub(crate) paths: Vec<String>,
}

/// A front end, as the store imports a pool again under it.
pub(crate) trait Reopen: Send + Sync {
    /// Waits until no request uses the front end, and drops it; new requests wait.
    fn let_go(&self);

    /// Opens it in the current import. If that fails, all waiting ends.
    fn take_up(&self) -> Result<(), Unopened>;
}

/// A front end that is not open any more.
#[derive(Debug)]
pub struct Unopened {
    /// Last known name of its dataset.
    pub dataset: String,
    /// Why, with its sources.
    pub why: String,
}
