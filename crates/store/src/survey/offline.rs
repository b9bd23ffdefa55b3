//! The log of a pool that does not run, opened as an import opens it, and left as it is.

use std::sync::Arc;

use fastness_lwb::{Ended, Found};
use fastness_pool::{Device, ImportOptions, MissingLog, Pool, PoolOptions};
use fastness_prb::{Located, SideFault, SideReport};
use fastness_zil::{DatasetId, Txg};

use crate::config::LogConfig;
use crate::error::StoreError;
use crate::log::PoolLog;
use crate::source::Source;
use crate::space::PoolSpace;
use crate::survey::dry::{DryClaim, Untouched, claim_dry_of};
use crate::survey::regions::{ChunkSurvey, RegionSurvey};
use crate::survey::{VolumeSurvey, first_needed_txg, headers};

/// Imports a pool read-only, in the state of its last synced txg: in any state, since nothing is changed,
/// neither on its devices nor in its log.
///
/// # Errors
/// Those of [`Pool::import_paused`].
pub fn import_to_look(devices: &[Device]) -> Result<Arc<Pool>, StoreError> {
    let import = ImportOptions {
        is_forced: true,
        allows_degraded: true,
        missing_log: MissingLog::Drop,
        ..ImportOptions::default()
    };
    let options = PoolOptions { is_read_only: true, ..PoolOptions::default() };
    Ok(Arc::new(Pool::import_paused(devices, &import, options)?))
}

/// The log of a pool that is imported read-only, with its devices and regions from a [`Source`].
pub struct LogSurvey<'a> {
    source: &'a mut dyn Source,
    pool: Arc<Pool>,
    config: LogConfig,
    volumes: Vec<VolumeSurvey>,
}

impl std::fmt::Debug for LogSurvey<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogSurvey({})", self.pool.name())
    }
}

impl<'a> LogSurvey<'a> {
    /// Imports the pool of the source's devices, as [`import_to_look`] does.
    ///
    /// # Errors
    /// Those of [`Pool::import_paused`], and of reading what the pool says of its log.
    pub fn open(source: &'a mut dyn Source) -> Result<LogSurvey<'a>, StoreError> {
        let pool = import_to_look(&source.devices(None)?)?;
        let (config, volumes) = (PoolLog::config(&pool)?, headers(&pool)?);
        Ok(LogSurvey { source, pool, config, volumes })
    }

    /// What the pool says of its log.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// The last txg that is durable in the pool.
    pub fn synced_txg(&self) -> Txg {
        self.pool.synced_txg()
    }

    /// The datasets that have logs.
    pub fn volumes(&self) -> &[VolumeSurvey] {
        &self.volumes
    }

    /// The name of a dataset, or its number if it has no log.
    pub fn name(&self, dataset: DatasetId) -> String {
        let volume = self.volumes.iter().find(|volume| volume.dataset == dataset);
        volume.map_or_else(|| dataset.to_string(), |volume| volume.name.clone())
    }

    /// The volume that needs the entry.
    pub fn needed(&self, entry: &Located) -> Option<&VolumeSurvey> {
        let header = &entry.header;
        let first = first_needed_txg(&self.pool);
        self.volumes.iter().find(|volume| {
            let is_it = |(log, first): (_, Txg)| header.log == log && header.txg.0 >= first.0;
            volume.entries(first).is_some_and(is_it)
        })
    }

    /// Kind lwb: shows the blocks and records of a volume's chain, and says where it ends; `None`: it has
    /// none.
    pub fn chain(&self, volume: &VolumeSurvey, show: &mut dyn FnMut(Found<'_>)) -> Option<Ended> {
        let space = Untouched(PoolSpace::new(self.pool.log_space()));
        Some(fastness_lwb::survey(&space, &volume.chain()?, show))
    }

    /// Kind pmem: the chunks of the regions that are there.
    ///
    /// # Errors
    /// Those of the source; what is wrong with the first region, if there are some and none can be inspected.
    pub fn regions(&mut self) -> Result<RegionsFound, StoreError> {
        let regions = self.source.regions(&self.pool, &self.config)?;
        let missing = self.config.in_use().count().saturating_sub(regions.len());
        if regions.is_empty() {
            return Ok(RegionsFound { chunks: Vec::new(), missing, errors: Vec::new() });
        }
        let survey = RegionSurvey::new(&self.pool, &self.config, regions)?;
        let look = |index| {
            let found = survey.chunk(index);
            let behind = survey.behind(index, &found, |entry| self.needed(entry).is_some());
            ChunkFound { index, found, behind, sides: survey.side_report(index) }
        };
        let chunks = (0..survey.chunks()).map(look).collect();
        Ok(RegionsFound { chunks, missing, errors: survey.into_errors() })
    }

    /// Claims all logs in memory only, and drops the claims again: what an import would report.
    ///
    /// # Errors
    /// What prevents claiming any log at all: a region that is missing or is a different one, a damaged
    /// description.
    pub fn claim(&mut self) -> Result<DryClaim, StoreError> {
        let regions = self.source.regions(&self.pool, &self.config)?;
        claim_dry_of(&self.pool, regions)
    }
}

/// What the regions of a log have.
#[derive(Debug)]
pub struct RegionsFound {
    /// All chunks.
    pub chunks: Vec<ChunkFound>,
    /// How many regions in use were not found.
    pub missing: usize,
    /// Why an import would leave out or refuse regions that were found.
    pub errors: Vec<StoreError>,
}

/// A chunk of the regions.
#[derive(Debug)]
pub struct ChunkFound {
    /// Its number.
    pub index: usize,
    /// What it has.
    pub found: ChunkSurvey,
    /// A needed entry after the end, and its region offset.
    pub behind: Option<(u64, Located)>,
    /// How the sides of a mirror differ.
    pub sides: SideReport,
}

impl ChunkFound {
    /// Why no crash leaves such an end.
    pub fn damage(&self) -> Option<String> {
        let ChunkSurvey { ends_at, end, .. } = &self.found;
        match &self.behind {
            Some((offset, entry)) => {
                let id = entry.header.id;
                Some(format!("chunk {} ends at {ends_at:#x}, but {id} follows at {offset:#x}", self.index))
            }
            None => end.is_damage().then(|| format!("chunk {} ends at {ends_at:#x}: {end:?}", self.index)),
        }
    }

    /// What is damaged on one side of a mirror, and intact on the other.
    pub fn side_damage(&self) -> Vec<String> {
        let of = |fault: &SideFault| {
            format!(
                "chunk {}: {} is damaged on side {}: {}",
                self.index, fault.entry.header.id, fault.side, fault.error
            )
        };
        let apart = format!("chunk {}: one side is an older copy", self.index);
        let damage = self.sides.faults.iter().filter(|fault| fault.is_damage).map(of);
        damage.chain(self.sides.is_apart.then_some(apart)).collect()
    }
}
