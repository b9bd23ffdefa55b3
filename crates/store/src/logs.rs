//! The logs of all volumes of a pool, of the pool's current kind.

use std::fmt;
use std::time::Duration;

use fastness_pmem::{AnyRange, Mirror};
use fastness_pool::{Mark, Pool, Tx};
use fastness_prb::SideRepairs;
use fastness_zil::{
    Choice, ClaimProblem, ClaimSummary, DatasetId, KindId, LogError, LwbImport, LwbLogs, PmemImport,
    PmemLogs, Txg,
};

use crate::marks::Phase;
use crate::region::RegionId;
use crate::side::PoolSide;
use crate::sides::OpenRegion;
use crate::space::PoolSpace;

/// A log of kind lwb is idle when nothing was acknowledged for this long.
const IDLE_PERIOD: Duration = Duration::from_millis(5);

/// The log of one volume.
pub(crate) type AnyLog = fastness_zil::AnyLog<Mirror<AnyRange>, PoolSpace>;

/// All logs.
pub(crate) enum Logs {
    Pmem(PmemLogs<Mirror<AnyRange>>, Vec<OpenRegion>),
    Lwb(LwbLogs<PoolSpace>),
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logs({:?})", self.kind())
    }
}

impl Logs {
    /// Lets idle logs record what was acknowledged last, if the pool has its own threads.
    pub(crate) fn watch_idle(&self, pool: &Pool) {
        if let (Logs::Lwb(logs), true) = (self, pool.has_threads()) {
            logs.watch_idle(IDLE_PERIOD);
        }
    }

    pub(crate) fn kind(&self) -> KindId {
        match self {
            Logs::Pmem(..) => KindId::Pmem,
            Logs::Lwb(_) => KindId::Lwb,
        }
    }

    /// Regions of kind pmem that are being written.
    pub(crate) fn regions(&self) -> &[OpenRegion] {
        match self {
            Logs::Pmem(_, regions) => regions,
            Logs::Lwb(_) => &[],
        }
    }

    /// A side of a mirror that was lost and that the pool has not recorded as out, and its region.
    pub(crate) fn lost_side(&self) -> Option<(usize, RegionId)> {
        match self {
            Logs::Pmem(logs, regions) => {
                let side = logs.prb().lost_side()?;
                Some((side, regions.get(side)?.id))
            }
            Logs::Lwb(_) => None,
        }
    }

    /// Whether no region is left, so that nothing is logged any more.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self, Logs::Pmem(logs, _) if logs.prb().has_failed())
    }

    /// Whether a volume still has records from before the import that are only in the log.
    pub(crate) fn has_unreplayed(&self) -> bool {
        let has = |dataset| self.get(dataset).is_some_and(|log| log.unreplayed_records() > 0);
        self.datasets().into_iter().any(has)
    }

    /// The fact that a side is out is durable.
    pub(crate) fn side_is_out(&self, side: usize) {
        if let Logs::Pmem(logs, _) = self {
            logs.prb().side_is_out(side);
        }
    }

    pub(crate) fn medium_stats(&self) -> Option<fastness_prb::Stats> {
        match self {
            Logs::Pmem(logs, _) => Some(logs.prb().stats()),
            Logs::Lwb(_) => None,
        }
    }

    pub(crate) fn create(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
        match self {
            Logs::Pmem(logs, _) => logs.create(side, tx, dataset).map(drop),
            Logs::Lwb(logs) => logs.create(side, tx, dataset).map(drop),
        }
    }

    pub(crate) fn destroy(&self, side: &PoolSide, tx: &Tx, dataset: DatasetId) -> Result<(), LogError> {
        match self {
            Logs::Pmem(logs, _) => logs.destroy(side, tx, dataset),
            Logs::Lwb(logs) => logs.destroy(side, tx, dataset),
        }
    }

    pub(crate) fn get(&self, dataset: DatasetId) -> Option<AnyLog> {
        match self {
            Logs::Pmem(logs, _) => logs.get(dataset).map(AnyLog::Pmem),
            Logs::Lwb(logs) => logs.get(dataset).map(AnyLog::Lwb),
        }
    }

    pub(crate) fn datasets(&self) -> Vec<DatasetId> {
        match self {
            Logs::Pmem(logs, _) => logs.datasets(),
            Logs::Lwb(logs) => logs.datasets(),
        }
    }

    /// Returns the headers that must be durable with `txg`. Those of kind pmem are already in the
    /// transactions.
    pub(crate) fn sync(&self, txg: Txg, put: &mut dyn FnMut(DatasetId, Option<&[u8]>)) {
        if let Logs::Lwb(logs) = self {
            logs.sync(txg, put);
        }
    }

    /// Notes in the regions of kind pmem how far a txg has come.
    pub(crate) fn mark(&self, phase: Phase, mark: Mark) {
        let Logs::Pmem(logs, regions) = self else { return };
        for (side, region) in regions.iter().enumerate() {
            if region.mark(phase, mark).is_err() {
                // Before this txg commits, so that the pool can record the loss with it.
                logs.prb().lose_side(side);
            }
        }
    }

    pub(crate) fn txg_synced(&self, txg: Txg) {
        match self {
            // The logs remember that their medium has failed: from then on all callers wait for txgs instead.
            Logs::Pmem(logs, _) => drop(logs.txg_synced(txg)),
            Logs::Lwb(logs) => logs.txg_synced(txg),
        }
    }
}

/// Logs between claim and the first txg.
pub(crate) enum Claims {
    Pmem(PmemImport<Mirror<AnyRange>>, Vec<OpenRegion>),
    Lwb(LwbImport<PoolSpace>),
}

impl Claims {
    pub(crate) fn problems(&self) -> Vec<ClaimProblem> {
        match self {
            Claims::Pmem(import, _) => import.problems().cloned().collect(),
            Claims::Lwb(import) => import.problems().cloned().collect(),
        }
    }

    /// What opening copied from one side of a mirror to the other.
    pub(crate) fn side_repairs(&self) -> SideRepairs {
        match self {
            Claims::Pmem(import, _) => import.side_repairs(),
            Claims::Lwb(_) => SideRepairs::default(),
        }
    }

    pub(crate) fn summaries(&self) -> &[ClaimSummary] {
        match self {
            Claims::Pmem(import, _) => import.summaries(),
            Claims::Lwb(import) => import.summaries(),
        }
    }

    pub(crate) fn resolve(&mut self, dataset: DatasetId, choice: Choice) -> Result<(), ClaimProblem> {
        match self {
            Claims::Pmem(import, _) => import.resolve(dataset, choice),
            Claims::Lwb(import) => import.resolve(dataset, choice),
        }
    }

    pub(crate) fn finish(self, side: &PoolSide, tx: &Tx) -> Result<Logs, LogError> {
        Ok(match self {
            Claims::Pmem(import, regions) => Logs::Pmem(import.finish(side, tx)?, regions),
            Claims::Lwb(import) => Logs::Lwb(import.finish(side, tx)?),
        })
    }
}
