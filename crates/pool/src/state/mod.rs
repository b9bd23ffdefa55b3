//! What all parts of an imported pool share. Each part owns its locks; `order` has the order of all of them.
//!
//! ```text
//! cache     blocks in memory, and memory for them
//! datasets  the tree of datasets, settings of the pool
//! devices   vdevs with their configuration
//! options   settings of an import
//! space     what is free, promised, still to be freed
//! tables    the metadata engine
//! txgs      changes of unsynced txgs
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use fastness_sync::order::{Mutex, lock};

use crate::error::{PoolError, Result};
use crate::order;
use crate::upkeep::damage::Damage;

pub(crate) mod cache;
pub(crate) mod datasets;
pub(crate) mod devices;
pub(crate) mod options;
pub(crate) mod space;
pub(crate) mod tables;
pub(crate) mod txgs;

use cache::Blocks;
use datasets::Datasets;
use devices::Devices;
use options::PoolOptions;
use space::{Backlog, Space};
use tables::Tables;
use txgs::Txgs;

/// An imported pool, without its threads.
pub(crate) struct Shared {
    pub(crate) options: PoolOptions,
    pub(crate) devices: Devices,
    pub(crate) space: Space,
    pub(crate) tables: Tables,
    pub(crate) datasets: Datasets,
    pub(crate) txgs: Txgs,
    pub(crate) backlog: Backlog,
    pub(crate) blocks: Blocks,
    /// Blocks that no side has right.
    pub(crate) damage: Mutex<Damage, { order::DAMAGE }>,
    pub(crate) is_closed: AtomicBool,
    /// Whether the pool was closed or suspended: a transaction checks this before it takes a lock to find out
    /// more.
    pub(crate) must_check: AtomicBool,
}

impl Shared {
    /// Closes the devices, whoever still has the pool.
    pub(crate) fn let_go(&self) {
        self.devices.vdevs.all().iter().for_each(|vdev| vdev.let_go());
        // Hooks may hold devices of their own, and so may what reads the log.
        self.txgs.forget_hooks();
        self.blocks.logs.forget_all();
    }

    /// Refuses work on a pool that is closed or suspended.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(PoolError::Closed);
        }
        match &lock(&self.txgs.pipeline.progress).failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
