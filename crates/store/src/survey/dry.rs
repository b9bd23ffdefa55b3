//! Claiming logs in memory only: what an import would report.

use std::sync::Arc;

use fastness_base::ErrorKind;
use fastness_lwb::{Extent, Place, Space, SpaceError};
use fastness_pmem::Region;
use fastness_pool::Pool;
use fastness_prb::Config;
use fastness_zil::{ClaimProblem, ClaimSummary, KindId, LwbLogs};

use crate::error::StoreError;
use crate::import::OpenLog;
use crate::log::{PoolLog, logged};
use crate::region::RegionParts;
use crate::side::UntouchedBlocks;
use crate::space::PoolSpace;
use crate::survey::first_needed_txg;
use crate::tuning::Tuning;

/// What an import would find.
#[derive(Debug, Clone)]
pub struct DryClaim {
    /// Logs that can be claimed.
    pub summaries: Vec<ClaimSummary>,
    /// Logs that cannot.
    pub problems: Vec<ClaimProblem>,
}

/// The log space of a pool, from which nothing is taken and to which nothing is written.
#[derive(Debug)]
pub struct Untouched(pub PoolSpace);

impl Space for Untouched {
    fn allocate(&self, _: u32) -> Result<Place, SpaceError> {
        Err(SpaceError::new(ErrorKind::Invalid, "the log is only looked at"))
    }

    fn free(&self, _: Extent) {}

    fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
        let outside = || SpaceError::new(ErrorKind::Corrupt, format!("{} is not in the pool", extent.place));
        self.0.contains(extent).then_some(()).ok_or_else(outside)
    }

    fn contains(&self, extent: Extent) -> bool {
        self.0.contains(extent)
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.0.device_name(device)
    }

    fn write(&self, _: Place, _: &[u8]) -> Result<(), SpaceError> {
        Err(SpaceError::new(ErrorKind::Invalid, "the log is only looked at"))
    }

    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.0.read(place, buf)
    }

    // A side that has something else is not rewritten: nothing is claimed, so it might be data.
    fn read_checked(
        &self,
        place: Place,
        buf: &mut [u8],
        check: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<bool, SpaceError> {
        self.0.read_checked(place, buf, check)
    }

    fn read_current(
        &self,
        place: Place,
        buf: &mut [u8],
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<(), SpaceError> {
        self.0.read_current(place, buf, look)
    }

    fn flush(&self, _: &[u32]) -> Result<(), SpaceError> {
        Err(SpaceError::new(ErrorKind::Invalid, "the log is only looked at"))
    }
}

/// Claims all logs of a pool in memory only, and drops the claims again: what an import would report. The
/// pool is imported read-only. Kind pmem: bodies of entries are not read; see
/// [`LogSurvey::regions`](crate::survey::LogSurvey::regions) for these.
///
/// # Errors
/// What prevents claiming any log at all: a region that is missing or is a different one, a damaged
/// description.
pub fn claim_dry(pool: &Arc<Pool>, regions: Vec<Region>) -> Result<DryClaim, StoreError> {
    claim_dry_of(pool, regions.into_iter().map(RegionParts::of).collect())
}

pub(super) fn claim_dry_of(
    pool: &Arc<Pool>,
    regions: Vec<Result<RegionParts, StoreError>>,
) -> Result<DryClaim, StoreError> {
    let config = PoolLog::config(pool)?;
    if config.kind == KindId::Lwb {
        let with_logs = logged(pool, |_| false)?.into_iter();
        let headers = with_logs.map(|(dataset, header)| (dataset.id(), header)).collect::<Vec<_>>();
        let space = Arc::new(Untouched(PoolSpace::new(pool.log_space())));
        let blocks = Arc::new(UntouchedBlocks(pool.log_space()));
        let import = LwbLogs::import_with(space, blocks, first_needed_txg(pool), headers);
        let problems = import.problems().cloned().collect();
        return Ok(DryClaim { summaries: import.summaries().to_vec(), problems });
    }
    let look = |chunks| Config { repairs_sides: false, ..Tuning::default().config(chunks) };
    let claims = OpenLog::of(&config, regions, pool.synced_mark())?.claim(pool, look, |_| false)?;
    Ok(DryClaim { summaries: claims.summaries().to_vec(), problems: claims.problems() })
}
