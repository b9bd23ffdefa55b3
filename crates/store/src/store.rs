//! A pool with its log: what every front end stands on.
//!
//! Design: a [`Store`] owns the current import of a pool, and its log. Datasets are opened by the store only,
//! so none is changed without its log. A suspended pool is imported again inside of the store
//! ([`Store::clear`]); what front ends opened with [`Store::attach`] goes on in the new import.
//!
//! Administration goes to the parts: devices, scrub and properties to [`Store::pool`], devices of the log to
//! [`Store::log`]. Both are of one import; take them anew for each request.

use std::sync::{Arc, Mutex, RwLock, Weak};

use fastness_pool::{Dataset, DatasetKind, Pool, PoolError, Property, Tx, Txg};
use fastness_sync::{read, write};

use crate::dataset::OpenDataset;
use crate::destruction::in_order;
use crate::error::StoreError;
use crate::import::Txgs;
use crate::imported::{Imported, Kept, Reopen, Vdevs};
use crate::log::PoolLog;
use crate::options::StoreOptions;
use crate::replay::ReplayReport;
use crate::source::Source;
use crate::suspension::Suspension;

/// A pool with its log.
///
/// Concurrency: any number of threads. Lock order: clearing, kept, attached, imported.
pub struct Store {
    imported: RwLock<Imported>,
    pub(crate) options: StoreOptions,
    /// Held shared while a dataset is opened, exclusively while the pool is imported again.
    pub(crate) clearing: RwLock<()>,
    /// What a suspended pool had in memory, from when it was given up until the next import has it.
    pub(crate) kept: Mutex<Option<Kept>>,
    /// See [`Store::vdevs_added`].
    pub(crate) vdevs_added: Mutex<Vdevs>,
    pub(crate) attached: Mutex<Vec<Weak<dyn Reopen>>>,
    pub(crate) suspension: Suspension,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.pool().name())
    }
}

impl Store {
    /// Imports a pool and replays its log. A read-only pool is imported without: its log stays as it is.
    ///
    /// Persistence: on return everything that was acknowledged before is in the pool, and synced.
    ///
    /// # Errors
    /// Those of [`Pool::import`] and of the log ([`StoreError::Missing`], [`StoreError::OtherLog`],
    /// [`StoreError::Copy`], [`StoreError::Claim`] and others), unless the options consent to the loss. Then
    /// only what was replayed has been changed.
    pub fn import(
        source: &mut dyn Source,
        options: StoreOptions,
    ) -> Result<(Arc<Store>, ReplayReport), StoreError> {
        let devices = source.devices(None)?;
        let (imported, report) = Imported::of(source, &devices, &options, Txgs::Run, &mut |_| Ok(()))?;
        Ok((Store::new(imported, options), report))
    }

    /// The store of a pool that was just created and not imported. Its log is of kind lwb.
    ///
    /// Persistence: none; the next txg has headers of the logs.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn create(pool: Pool, options: StoreOptions) -> Result<Arc<Store>, StoreError> {
        let pool = Arc::new(pool);
        let log = PoolLog::create(&pool, options.tuning, &options.kinds)?;
        Ok(Store::new(Imported { pool, log: Some(log) }, options))
    }

    fn new(imported: Imported, options: StoreOptions) -> Arc<Store> {
        Arc::new(Store {
            imported: RwLock::new(imported),
            options,
            clearing: RwLock::default(),
            kept: Mutex::default(),
            vdevs_added: Mutex::default(),
            attached: Mutex::default(),
            suspension: Suspension::default(),
        })
    }

    pub(crate) fn imported(&self) -> Imported {
        read(&self.imported).clone()
    }

    pub(crate) fn set_imported(&self, imported: Imported) {
        *write(&self.imported) = imported;
    }

    /// The current import of the pool.
    pub fn pool(&self) -> Arc<Pool> {
        self.imported().pool
    }

    /// Its log; none if the pool is read-only, or is being imported again.
    pub fn log(&self) -> Option<Arc<PoolLog>> {
        self.imported().log
    }

    /// Opens a dataset for changes; it can be opened several times at once, and is not destroyed meanwhile.
    /// The handle belongs to the current import and fails after the next one: see [`attach`](Self::attach).
    ///
    /// # Errors
    /// [`PoolError::NoDataset`]; [`StoreError::UnknownKind`]; [`PoolError::Closed`] once the pool was
    /// exported.
    pub fn dataset(&self, name: &str) -> Result<OpenDataset, StoreError> {
        let _clearing = read(&self.clearing);
        let imported = self.imported();
        let dataset = imported.pool.dataset(name)?;
        self.open(&imported, dataset)
    }

    pub(crate) fn open(&self, imported: &Imported, dataset: Dataset) -> Result<OpenDataset, StoreError> {
        if dataset.kind() == DatasetKind::Snapshot {
            // It never changes, so it has no log.
            return Ok(OpenDataset::new(imported.pool.clone(), dataset, None)?);
        }
        self.options.kinds.check(&dataset)?;
        Ok(OpenDataset::new(imported.pool.clone(), dataset, imported.log.clone())?)
    }

    /// Creates a dataset below an existing one, with its log, and whatever `fill` puts into it, in one
    /// transaction.
    ///
    /// Persistence: durable on return. A crash during the call leaves the whole dataset or none.
    ///
    /// # Errors
    /// [`StoreError::UnknownKind`]; those of [`Pool::create_dataset`] and of `fill`. There is no dataset
    /// then.
    pub fn create_dataset<T>(
        &self,
        name: &str,
        kind: DatasetKind,
        properties: &[(Property, u64)],
        fill: impl Fn(&Tx, &Dataset) -> fastness_pool::Result<T>,
    ) -> Result<(OpenDataset, T), StoreError> {
        let _clearing = read(&self.clearing);
        let imported = self.imported();
        let Imported { pool, log } = &imported;
        let members = log.as_ref().map(|log| (log, log.members()));
        let (made, txg) = pool.transact(|tx| {
            let dataset = pool.create_dataset(tx, name, kind, properties)?;
            // Before there is data: a dataset that has no log yet cannot be opened.
            let logged = self.options.kinds.check(&dataset).and_then(|()| match &members {
                Some((log, guard)) => log.create_log(tx, &dataset, guard),
                None => Ok(()),
            });
            if let Err(error) = logged {
                pool.destroy_dataset(tx, name)?;
                return Ok(Err(error));
            }
            let filled = fill(tx, &dataset);
            if filled.is_err() {
                // In the same txg: no dataset is ever visible without its data.
                let destroyed = members.as_ref().map(|(log, guard)| log.destroy_log(tx, dataset.id(), guard));
                pool.destroy_dataset(tx, name)?;
                if let Some(Err(error)) = destroyed {
                    return Ok(Err(error));
                }
            }
            Ok(Ok((dataset, filled?)))
        })?;
        drop(members);
        let (dataset, filled) = made?;
        let open = self.open(&imported, dataset)?;
        pool.wait_synced(txg)?;
        Ok((open, filled))
    }

    /// Destroys datasets and snapshots in one step, with their logs; parents come before their children in
    /// `names`, snapshots and clones anywhere. Returns
    /// the logs that could not be destroyed, with the error: their records turn out to belong to no dataset,
    /// and are collected with their txgs.
    ///
    /// Persistence: durable on return. A crash during the call may leave some of them.
    ///
    /// # Errors
    /// Those of [`Pool::destroy_dataset`], such as [`PoolError::Busy`] for one that is open, and
    /// [`PoolError::HasClones`]: none is
    /// destroyed, unless it was opened during the call.
    pub fn destroy_datasets(&self, mut names: Vec<String>) -> Result<Vec<(String, StoreError)>, StoreError> {
        let _clearing = read(&self.clearing);
        let Imported { pool, log } = self.imported();
        names.iter().try_for_each(|name| pool.dataset(name)?.check_unused())?;
        names = in_order(&pool, names)?;
        let members = log.as_ref().map(|log| (log, log.members()));
        let mut left = Vec::new();
        // A change that is retried half-way continues where it stopped.
        let ((), txg): ((), Txg) = pool.transact(|tx| {
            while let Some(name) = names.last() {
                let dataset = pool.dataset(name)?;
                let (id, has_log) = (dataset.id(), self.options.kinds.check(&dataset).is_ok());
                pool.destroy_dataset(tx, name)?;
                if let Some((log, members)) = members.as_ref().filter(|_| has_log)
                    && let Err(error) = log.destroy_log(tx, id, members)
                {
                    left.push((name.clone(), error));
                }
                names.pop();
            }
            Ok::<_, PoolError>(())
        })?;
        drop(members);
        pool.wait_synced(txg)?;
        Ok(left)
    }
}
