//! Kind pmem: logs on a region of persistent memory, or on a mirror of two.

use std::sync::{Arc, OnceLock};

use fastness_pmem::{AnyRange, Mirror};
use fastness_pool::{Mark, Pool, Tx};
use fastness_prb::{Config, EntryViews, SideRepairs};
use fastness_zil::{
    Choice, ClaimProblem, ClaimSummary, DatasetId, KindId, LogError, PmemImport, PmemLogs, Txg,
};

use crate::config::RegionId;
use crate::error::StoreError;
use crate::logs::{AllLogs, Claims, DynLog, IDLE_PERIOD, Logs, Regions};
use crate::marks::Phase;
use crate::side::PoolSide;
use crate::sides::{OpenRegion, Sides, apart};

/// Logs, and the regions that they are on.
struct OnRegions<L> {
    of: L,
    regions: Vec<OpenRegion>,
    /// What reads the regions for a pool, with the number that the pool has given it.
    views: OnceLock<(u32, Arc<EntryViews>)>,
}

impl<L> OnRegions<L> {
    fn new(of: L, regions: Vec<OpenRegion>) -> OnRegions<L> {
        OnRegions { of, regions, views: OnceLock::new() }
    }
}

/// Logs on regions that were formatted for them.
pub(crate) fn new(logs: PmemLogs<Mirror<AnyRange>>, regions: Vec<OpenRegion>) -> AllLogs {
    Box::new(OnRegions::new(logs, regions))
}

/// Finds what is in the logs with these headers; `config` gives the settings of the PRB for a number of
/// chunks.
pub(crate) fn claim(
    sides: Sides,
    config: impl FnOnce(usize) -> Config,
    first_txg: Txg,
    headers: Vec<(DatasetId, Option<Vec<u8>>)>,
) -> Result<Box<dyn Claims>, StoreError> {
    let (regions, chunks) = sides.mirrored();
    let import = PmemLogs::import(config(chunks.len()), chunks, first_txg, headers)?;
    Ok(Box::new(OnRegions::new(import, regions)))
}

impl Logs for OnRegions<PmemLogs<Mirror<AnyRange>>> {
    fn kind(&self) -> KindId {
        KindId::Pmem
    }

    fn create(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
        self.of.create(side, tx, dataset).map(drop)
    }

    fn destroy(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
        self.of.destroy(side, tx, dataset)
    }

    fn get(&self, dataset: DatasetId) -> Option<DynLog> {
        self.of.get(dataset).map(DynLog::new)
    }

    fn datasets(&self) -> Vec<DatasetId> {
        self.of.datasets()
    }

    fn txg_synced(&self, txg: Txg) {
        // The logs remember that their medium has failed: from then on all callers wait for txgs instead.
        drop(self.of.txg_synced(txg));
    }

    fn watch_idle(&self, pool: &Pool) {
        if pool.has_threads() {
            self.of.watch_idle(IDLE_PERIOD);
        }
    }

    fn regions(&self) -> &[OpenRegion] {
        &self.regions
    }

    fn mark(&self, phase: Phase, mark: Mark) {
        for (side, region) in self.regions.iter().enumerate() {
            if region.mark(phase, mark).is_err() {
                // Before this txg commits, so that the pool can record the loss with it.
                self.of.prb().lose_side(side);
            }
        }
    }

    fn lost_side(&self) -> Option<(usize, RegionId)> {
        let side = self.of.prb().lost_side()?;
        Some((side, self.regions.get(side)?.id))
    }

    fn side_is_out(&self, side: usize) {
        self.of.prb().side_is_out(side);
    }

    fn has_failed(&self) -> bool {
        self.of.prb().has_failed()
    }

    fn add_to(&self, pool: &Pool) {
        let views: Option<Vec<_>> = self.regions.iter().map(|region| region.view.clone()).collect();
        let Some(views) = views.map(|views| Arc::new(EntryViews::new(views))) else { return };
        let number = pool.add_log(views.clone());
        if self.views.set((number, views)).is_ok() {
            self.of.prb().set_number(number);
        }
    }

    fn forget_in(&self, pool: &Pool) {
        if let Some((number, _)) = self.views.get() {
            pool.forget_log(*number);
        }
    }

    fn medium_stats(&self) -> Option<fastness_prb::Stats> {
        let mut stats = self.of.prb().stats();
        if let Some((_, views)) = self.views.get() {
            stats.read_bytes = views.read_bytes();
            stats.read_faults = views.faults();
        }
        Some(stats)
    }

    fn close(self: Box<Self>) -> Result<Regions, AllLogs> {
        let OnRegions { of, regions, .. } = *self;
        match of.close() {
            Ok(chunks) => Ok(apart(regions, chunks)),
            Err(logs) => Err(new(logs, regions)),
        }
    }
}

impl Claims for OnRegions<PmemImport<Mirror<AnyRange>>> {
    fn problems(&self) -> Vec<ClaimProblem> {
        self.of.problems().cloned().collect()
    }

    fn summaries(&self) -> &[ClaimSummary] {
        self.of.summaries()
    }

    fn resolve(&mut self, dataset: DatasetId, choice: Choice) -> Result<(), ClaimProblem> {
        self.of.resolve(dataset, choice)
    }

    fn side_repairs(&self) -> SideRepairs {
        self.of.side_repairs()
    }

    fn finish(self: Box<Self>, side: &PoolSide, tx: &Tx) -> Result<AllLogs, LogError> {
        let OnRegions { of, regions, .. } = *self;
        Ok(new(of.finish(side, tx)?, regions))
    }
}
