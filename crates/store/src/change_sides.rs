//! Changing the regions of a log of kind pmem: attaching, detaching and replacing sides.
//!
//! A new side is never resilvered. The log moves to the pool's vdevs, and from there to a new PRB on the new
//! set of regions, all of them empty; each of the two steps is a change of the kind (`change`). A crash
//! between them leaves the log on the vdevs, with everything that was acknowledged.

use std::sync::Arc;
use std::time::Duration;

use fastness_sync::{now, sleep};

use fastness_zil::KindId;

use crate::config::{DEVICE, LogConfig, RegionId};
use crate::error::StoreError;
use crate::log::PoolLog;
use crate::logs::{AllLogs, Regions};
use crate::sides::NewRegion;

/// How long users of the old logs have to release them; it takes until a write ends.
const LET_GO: Duration = Duration::from_secs(30);

impl PoolLog {
    /// Makes a mirror of the log's region and another one, whose contents are lost. Regions that are out are
    /// forgotten.
    ///
    /// Persistence: on return each record goes to both. A crash during the call leaves the log as it was, on
    /// the pool's vdevs, or on both regions, and nothing acknowledged is lost. Concurrency: volumes can be
    /// written meanwhile; synchronous writes wait for txgs for a moment.
    ///
    /// # Errors
    /// [`StoreError::Mixed`] if the log is not on one region; [`StoreError::LeftOnVdevs`]; those of the
    /// pool.
    pub fn attach_region(&self, new: NewRegion) -> Result<(), StoreError> {
        let _changing = self.changing.try_lock().map_err(|_| StoreError::Busy)?;
        let config = self.pmem_config()?;
        if config.in_use().count() > 1 {
            return Err(StoreError::Mixed(
                "the log is on two regions already: replace one of them, or detach it",
            ));
        }
        self.reform(&config, |_| true, Some(new))
    }

    /// Removes a side from a mirror; the log continues on the other.
    ///
    /// Persistence, concurrency: as [`attach_region`](Self::attach_region). On return the region holds
    /// nothing of the pool.
    ///
    /// # Errors
    /// [`StoreError::Mixed`] if it is the only one in use, or no region is; otherwise as
    /// [`attach_region`](Self::attach_region).
    pub fn detach_region(&self, id: RegionId) -> Result<(), StoreError> {
        let _changing = self.changing.try_lock().map_err(|_| StoreError::Busy)?;
        let mut config = self.pmem_config()?;
        if !config.in_use().any(|region| region.id != id) {
            return Err(StoreError::Mixed("it is the only region of the log: remove it instead"));
        }
        // A region that was lost in use is out, but still open.
        let is_open = self.logs().regions().iter().any(|region| region.id == id);
        if is_open || config.in_use().any(|region| region.id == id) {
            return self.reform(&config, |other| other != id, None);
        }
        config.regions.retain(|region| region.id != id);
        self.store(&config)
    }

    /// Replaces a region that the log has or had: its only one, or a side of a mirror, whether present or
    /// not.
    ///
    /// Persistence, concurrency: as [`attach_region`](Self::attach_region). On return the old region holds
    /// nothing of the pool.
    ///
    /// # Errors
    /// As [`attach_region`](Self::attach_region).
    pub fn replace_region(&self, old: RegionId, new: NewRegion) -> Result<(), StoreError> {
        let _changing = self.changing.try_lock().map_err(|_| StoreError::Busy)?;
        let config = self.pmem_config()?;
        self.reform(&config, |id| id != old, Some(new))
    }

    fn pmem_config(&self) -> Result<LogConfig, StoreError> {
        if self.kind() != KindId::Pmem {
            return Err(StoreError::Mixed("the pool has no log on persistent memory"));
        }
        PoolLog::config(self.side.pool())
    }

    fn store(&self, config: &LogConfig) -> Result<(), StoreError> {
        let pool = self.side.pool();
        let root = pool.dataset(&pool.name())?;
        let tx = pool.begin_tx()?;
        pool.put_aux(&tx, root.id(), DEVICE, Some(&config.encode()));
        self.losses.replace(config, tx.txg());
        let txg = tx.commit();
        Ok(pool.wait_synced(txg)?)
    }

    /// Starts the log anew on those regions in use that are kept, and a new one.
    fn reform(
        &self,
        config: &LogConfig,
        keeps: impl Fn(RegionId) -> bool,
        new: Option<NewRegion>,
    ) -> Result<(), StoreError> {
        let before = self.switch_to_vdevs()?;
        let begun = take_back(before).and_then(|regions| {
            let kept = regions.into_iter().filter(|(id, _)| keeps(*id)).filter_map(|(id, parts)| {
                let known = config.in_use().find(|region| region.id == id)?;
                Some(NewRegion { parts, path: known.path.clone(), emulates: known.emulates })
            });
            self.refuse_log_vdevs()?;
            self.switch_to_regions(kept.chain(new).collect())
        });
        begun.map_err(|source| StoreError::LeftOnVdevs(Box::new(source)))
    }
}

/// The regions of logs that are no longer in use, as soon as no reference to them is left.
fn take_back(mut old: Arc<AllLogs>) -> Result<Regions, StoreError> {
    let until = now() + LET_GO;
    loop {
        old = match Arc::try_unwrap(old) {
            Ok(logs) => match logs.close() {
                Ok(regions) => return Ok(regions),
                Err(logs) => Arc::new(logs),
            },
            Err(shared) => shared,
        };
        if now() > until {
            return Err(StoreError::Busy);
        }
        sleep(Duration::from_millis(1));
    }
}
