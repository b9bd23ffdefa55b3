//! Changing the log's devices, and with them its kind, while volumes are being written.
//!
//! The steps of a change of the kind; a crash may follow any of them:
//! 1. All logs are suspended: they take no new records, commits wait for txgs, and everything in them is in a
//!    synced txg. Their headers then say that there is no log.
//! 2. One transaction stores the description of the pool's new log, and creates the new logs. Open volumes
//!    switch to these; they take records as soon as that txg is durable.
//! 3. The txg is durable. A crash before this leaves the old description and empty logs, one after it the new
//!    description.
//!
//! If step 1 fails, the old logs are put back into use. Why nothing acknowledged is lost on the way:
//! `docs/adr/2026-11-22-kinds-and-switching.md`.

use std::path::PathBuf;
use std::sync::Arc;

use fastness_sync::{lock, write};

use fastness_pmem::Region;
use fastness_pool::{Feature, Txg, VdevClass};
use fastness_zil::{KindId, LogError};

use crate::config::{DEVICE, LogConfig};
use crate::error::StoreError;
use crate::kind_lwb;
use crate::kind_pmem;
use crate::log::{PoolLog, marked};
use crate::logs::{AllLogs, DynLog};
use crate::region::RegionParts;
use crate::sides::{Formatted, NewRegion, format};

/// Logs that are suspended at a time: they share the txgs that they wait for.
const SUSPENDED_AT_ONCE: usize = 64;

impl PoolLog {
    /// As [`add_regions`](Self::add_regions), with one region.
    ///
    /// # Errors
    /// As there.
    pub fn add_region(&self, region: Region, path: PathBuf, emulates: bool) -> Result<(), StoreError> {
        self.add_regions(|| Ok(vec![NewRegion { parts: RegionParts::of(region)?, path, emulates }]))
    }

    /// Makes a region of persistent memory, or a mirror of two, the log of the pool: the kind is pmem from
    /// now on. The contents of the regions are lost. `make` is called if they are used.
    ///
    /// Persistence: on return the pool has the new log, and records go there. A crash during the call leaves
    /// the old log or the new one, and nothing acknowledged is lost. Concurrency: volumes can be written
    /// meanwhile; synchronous writes wait for txgs for a moment.
    ///
    /// # Errors
    /// [`StoreError::Mixed`] if the pool already has a log device; [`StoreError::TooSmall`]; those of the
    /// region and the pool. The log is then unchanged, unless the pool is suspended.
    pub fn add_regions(
        &self,
        make: impl FnOnce() -> Result<Vec<NewRegion>, StoreError>,
    ) -> Result<(), StoreError> {
        let _changing = self.changing.try_lock().map_err(|_| StoreError::Busy)?;
        if self.kind() == KindId::Pmem {
            return Err(StoreError::Mixed(
                "the pool has a log on persistent memory already: attach the new region to it as a mirror, or remove it first",
            ));
        }
        self.refuse_log_vdevs()?;
        self.switch_to_regions(make()?)
    }

    pub(crate) fn refuse_log_vdevs(&self) -> Result<(), StoreError> {
        if self.side.pool().status().vdevs.iter().any(|(_, class, _)| *class == VdevClass::Log) {
            return Err(StoreError::Mixed(
                "the pool has block devices for its log: remove them first; a log has one kind",
            ));
        }
        Ok(())
    }

    pub(crate) fn switch_to_regions(&self, new: Vec<NewRegion>) -> Result<(), StoreError> {
        let Formatted { logs, regions, configs } = format(self.side.pool(), new, self.tuning)?;
        let config = LogConfig { kind: KindId::Pmem, regions: configs };
        self.switch(kind_pmem::new(logs, regions), &config).map(drop)
    }

    /// Takes all regions out of use: from now on the log is of kind lwb, on the pool's vdevs.
    ///
    /// Persistence, concurrency: as [`add_regions`](Self::add_regions). On return the regions hold nothing of
    /// the pool.
    ///
    /// # Errors
    /// [`StoreError::Mixed`] if there is none; those of the pool.
    pub fn remove_region(&self) -> Result<(), StoreError> {
        let _changing = self.changing.try_lock().map_err(|_| StoreError::Busy)?;
        if self.kind() != KindId::Pmem {
            return Err(StoreError::Mixed("the pool has no log on persistent memory"));
        }
        self.switch_to_vdevs().map(drop)
    }

    /// Returns the logs that were in use before.
    pub(crate) fn switch_to_vdevs(&self) -> Result<Arc<AllLogs>, StoreError> {
        self.switch(kind_lwb::new(self.side.pool()), &LogConfig::default())
    }

    /// Moves all blocks off a vdev for logs and removes it; the log continues on the others.
    ///
    /// Persistence: on return the pool no longer needs it. A crash during the call leaves the pool with or
    /// without it.
    ///
    /// # Errors
    /// Those of the pool; the vdev then stays in use.
    pub fn remove_vdev(&self, vdev: u16) -> Result<(), StoreError> {
        let _changing = self.changing.try_lock().map_err(|_| StoreError::Busy)?;
        let pool = self.side.pool();
        let space = pool.log_space();
        let _members = write(&self.members);
        let logs = self.all();
        let removed = space.retire(vdev).map_err(StoreError::from).and_then(|()| {
            // New chains begin elsewhere, and the old ones are gone.
            self.suspend(&logs)?;
            Ok(pool.remove(vdev)?)
        });
        if removed.is_err() {
            // It is still a vdev for logs; this could fail only if it were not.
            let _ = space.restore(vdev);
        }
        let resumed = self.resume(&logs);
        removed?;
        resumed?;
        pool.sync()?;
        Ok(())
    }

    /// From the next txg on, writes the pool's marks to the regions of these logs.
    fn mark(&self, logs: &[&Arc<AllLogs>]) {
        *lock(&self.marked) = marked(logs);
    }

    pub(crate) fn all(&self) -> Vec<DynLog> {
        let logs = self.logs();
        logs.datasets().into_iter().filter_map(|dataset| logs.get(dataset)).collect()
    }

    fn suspend(&self, logs: &[DynLog]) -> Result<(), LogError> {
        let at_once = self.tuning.suspended_at_once.unwrap_or(SUSPENDED_AT_ONCE).max(1);
        for group in logs.chunks(at_once) {
            if let [only] = group {
                only.suspend(&*self.side)?;
                continue;
            }
            std::thread::scope(|scope| {
                let suspend = |log: &DynLog| log.suspend(&*self.side);
                let threads: Vec<_> = group.iter().map(|log| scope.spawn(move || suspend(log))).collect();
                let ended = threads.into_iter().map(|thread| match thread.join() {
                    Ok(ended) => ended,
                    Err(panic) => std::panic::resume_unwind(panic),
                });
                ended.fold(Ok(()), Result::and)
            })?;
        }
        Ok(())
    }

    fn resume(&self, logs: &[DynLog]) -> Result<(), LogError> {
        logs.iter().map(|log| log.resume(&*self.side)).fold(Ok(()), Result::and)
    }

    /// Replaces all logs, and returns the old ones; see the module.
    fn switch(&self, new: AllLogs, config: &LogConfig) -> Result<Arc<AllLogs>, StoreError> {
        let pool = self.side.pool();
        new.watch_idle(pool);
        let _members = write(&self.members);
        let old = self.all();
        let begun = self.suspend(&old).map_err(StoreError::from).and_then(|()| self.begin(new, config));
        match begun {
            Ok((txg, before)) => {
                pool.wait_synced(txg)?;
                before.forget_in(pool);
                self.mark(&[&self.logs()]);
                Ok(before)
            }
            Err(error) => {
                self.mark(&[&self.logs()]);
                self.resume(&old)?;
                Err(error)
            }
        }
    }

    /// Stores the description of the log, and creates the new logs; returns the txg that makes it durable,
    /// and the previous logs.
    fn begin(&self, new: AllLogs, config: &LogConfig) -> Result<(Txg, Arc<AllLogs>), StoreError> {
        let pool = self.side.pool();
        let root = pool.dataset(&pool.name())?;
        let tx = pool.begin_tx()?;
        // A program that does not know about log devices must not overlook this one.
        pool.set_feature(&tx, Feature::LogDevice, !config.regions.is_empty())?;
        for dataset in self.logs().datasets() {
            new.create(&self.side, &tx, dataset)?;
        }
        pool.put_aux(&tx, root.id(), DEVICE, Some(&config.encode()));
        new.add_to(pool);
        let open = lock(&self.open);
        let new = Arc::new(new);
        self.mark(&[&new, &self.logs()]);
        let mut logs = write(&self.logs);
        let before = std::mem::replace(&mut *logs, new.clone());
        self.losses.replace(config, tx.txg());
        drop(logs);
        for (dataset, volume) in open.iter() {
            if let Some(log) = new.get(*dataset) {
                volume.zil.switch_kind(Arc::new(log));
            }
        }
        drop(open);
        Ok((tx.commit(), before))
    }
}
