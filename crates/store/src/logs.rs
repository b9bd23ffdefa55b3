//! What a kind of logs has to be for a store. `kind_pmem` and `kind_lwb` are the two; `import` decides which
//! one a pool has, and `change` changes it in use.

use std::time::Duration;

use fastness_pool::{Mark, Pool, Tx};
use fastness_prb::SideRepairs;
use fastness_zil::{Choice, ClaimProblem, ClaimSummary, DatasetId, KindId, LogError, Txg};

use crate::config::RegionId;
use crate::marks::Phase;
use crate::region::RegionParts;
use crate::side::PoolSide;
use crate::sides::OpenRegion;

/// A log is idle when nothing was acknowledged for this long.
pub(crate) const IDLE_PERIOD: Duration = Duration::from_millis(5);

/// The log of one dataset.
pub(crate) type DynLog = fastness_zil::DynLog<PoolSide>;

/// The intent log of one dataset.
pub(crate) type Zil = fastness_zil::Zil<PoolSide, DynLog>;

/// All logs of a pool, of whatever kind.
pub(crate) type AllLogs = Box<dyn Logs>;

/// The regions of logs that are no longer in use.
pub(crate) type Regions = Vec<(RegionId, RegionParts)>;

/// The logs of all datasets of a pool.
///
/// Concurrency: any number of threads.
pub(crate) trait Logs: Send + Sync {
    fn kind(&self) -> KindId;

    fn create(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError>;

    fn destroy(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError>;

    fn get(&self, dataset: DatasetId) -> Option<DynLog>;

    fn datasets(&self) -> Vec<DatasetId>;

    /// Gives the headers that must be durable with `txg`, unless transactions have stored them.
    fn sync(&self, _txg: Txg, _put: &mut dyn FnMut(DatasetId, Option<&[u8]>)) {}

    fn txg_synced(&self, txg: Txg);

    /// Lets idle logs record what was acknowledged last, if the pool has its own threads.
    fn watch_idle(&self, _pool: &Pool) {}

    /// Regions that are being written.
    fn regions(&self) -> &[OpenRegion] {
        &[]
    }

    /// Notes in the regions how far a txg has come.
    fn mark(&self, _phase: Phase, _mark: Mark) {}

    /// A side of a mirror that was lost and that the pool has not recorded as out, and its region.
    fn lost_side(&self) -> Option<(usize, RegionId)> {
        None
    }

    /// The fact that a side is out is durable.
    fn side_is_out(&self, _side: usize) {}

    /// Whether no region is left, so that nothing is logged any more.
    fn has_failed(&self) -> bool {
        false
    }

    /// Lets the pool read records by their places; called once, before anything is logged.
    fn add_to(&self, _pool: &Pool) {}

    /// The pool reads no record any more: all of their txgs have synced.
    fn forget_in(&self, _pool: &Pool) {}

    fn medium_stats(&self) -> Option<fastness_prb::Stats> {
        None
    }

    /// Gives the regions back, or the logs if they are still in use.
    fn close(self: Box<Self>) -> Result<Regions, AllLogs>;
}

impl dyn Logs {
    /// Whether a dataset still has records from before the import that are only in the log.
    pub(crate) fn has_unreplayed(&self) -> bool {
        let has = |dataset| self.get(dataset).is_some_and(|log| log.unreplayed_records() > 0);
        self.datasets().into_iter().any(has)
    }
}

/// Logs between claim and the first txg.
pub(crate) trait Claims {
    fn problems(&self) -> Vec<ClaimProblem>;

    fn summaries(&self) -> &[ClaimSummary];

    fn resolve(&mut self, dataset: DatasetId, choice: Choice) -> Result<(), ClaimProblem>;

    /// What opening copied from one side of a mirror to the other.
    fn side_repairs(&self) -> SideRepairs {
        SideRepairs::default()
    }

    fn finish(self: Box<Self>, side: &PoolSide, tx: &Tx) -> Result<AllLogs, LogError>;
}
