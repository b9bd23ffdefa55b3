//! Importing a pool's log.

use std::sync::Arc;

use fastness_pool::{DatasetKind, Feature, Mark, Pool};
use fastness_prb::Config;
use fastness_zil::record::{Record, Write, WriteData};
use fastness_zil::{Choice, ClaimProblem, KindId};

use crate::config::{DEVICE, LogConfig};
use crate::error::StoreError;
use crate::handler::{Applying, Kinds, Replaying};
use crate::kind_lwb;
use crate::kind_pmem;
use crate::log::{PoolLog, logged};
use crate::logs::Claims;
use crate::options::StoreOptions;
use crate::region::RegionParts;
use crate::replay::ReplayReport;
use crate::side::{HEADER, PoolSide};
use crate::side_loss::LossRecord;
use crate::sides::Sides;
use crate::tuning::Tuning;

/// How far a replay has come.
#[derive(Debug, Clone, Copy)]
pub struct ReplayProgress<'a> {
    /// The dataset.
    pub dataset: &'a str,
    /// Records replayed so far, of all datasets.
    pub done_records: u64,
    /// Records to replay, of all datasets.
    pub total_records: u64,
}

/// What an import of a log is doing; reported at the start, and during a replay now and then.
#[derive(Debug, Clone, Copy)]
pub enum LogImportStep<'a> {
    /// Opens the regions.
    Open,
    /// Finds what is in the log, and holds it.
    Claim,
    /// Brings its records into the pool.
    Replay(ReplayProgress<'a>),
    /// Waits until they are durable there.
    Sync,
}

/// Records after which progress is reported, besides at the beginning of each volume.
const TELL_RECORDS: u64 = 10_000;

/// Whether txgs run once an import has claimed the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Txgs {
    /// They do: on return everything that was replayed is durable.
    Run,
    /// Not before the caller calls [`Pool::start_txgs`]: what is replayed is in the first txg, with what the
    /// caller changes before that. For a pool that was suspended and has more to carry over than its log
    /// ([`Unsynced::apply`](fastness_pool::Unsynced::apply)); all of it was in memory then, as it is now. A
    /// caller that drops the pool before that has changed nothing.
    Paused,
}

impl PoolLog {
    /// The log of a pool that was just created and not imported: of kind lwb.
    ///
    /// Persistence: none; the next txg has headers of the logs.
    ///
    /// # Errors
    /// Those of the pool.
    pub(crate) fn create(
        pool: &Arc<Pool>,
        tuning: Tuning,
        kinds: &Kinds,
    ) -> Result<Arc<PoolLog>, StoreError> {
        let logs = kind_lwb::new(pool);
        let root = pool.dataset(&pool.name())?.id();
        let log = PoolLog::new(pool, logs, tuning, LossRecord::new(root, LogConfig::default()));
        let members = log.members();
        pool.transact(|tx| {
            for (dataset, _) in logged(pool, |kind| kinds.handler(kind).is_some())? {
                log.logs().create(&log.side, tx, dataset.id()).expect("new logs of a new pool");
            }
            Ok(())
        })?;
        drop(members);
        Ok(log)
    }

    /// Puts a pool's log into use after [`Pool::import_paused`]: claims all logs in the first txg, lets txgs
    /// run unless they must wait, and replays the volumes. `regions` are those that the pool's [`LogConfig`]
    /// has in use, in any order, as far as they could be opened. One side of a mirror suffices: the other is
    /// then out ([`RegionConfig::is_out`](crate::RegionConfig)). A pool that never had a log gets one of kind
    /// lwb. `tell` is called with the progress.
    ///
    /// Persistence: on return everything that was acknowledged is in the pool and, if txgs run, synced.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::OtherLog`], [`StoreError::NoLog`], [`StoreError::Copy`],
    /// [`StoreError::TooSmall`]; a log that is damaged; unless `consent` says otherwise. Then only what was
    /// replayed has been changed.
    pub(crate) fn import(
        pool: &Arc<Pool>,
        regions: Vec<Result<RegionParts, StoreError>>,
        txgs: Txgs,
        options: &StoreOptions,
        tell: &mut dyn FnMut(LogImportStep<'_>),
    ) -> Result<(Arc<PoolLog>, ReplayReport), StoreError> {
        let (log, mut report) = PoolLog::claim(pool, regions, options, tell)?;
        if txgs == Txgs::Run {
            pool.start_txgs()?;
        }
        log.replay(options, txgs == Txgs::Paused, &mut report, tell)?;
        if txgs == Txgs::Run {
            tell(LogImportStep::Sync);
            pool.sync()?;
        }
        Ok((log, report))
    }

    /// Opens the log and claims all of it in the first txg, which does not end.
    fn claim(
        pool: &Arc<Pool>,
        regions: Vec<Result<RegionParts, StoreError>>,
        options: &StoreOptions,
        tell: &mut dyn FnMut(LogImportStep<'_>),
    ) -> Result<(Arc<PoolLog>, ReplayReport), StoreError> {
        let (consent, tuning) = (options.consent, options.tuning);
        let knows = |kind| options.kinds.handler(kind).is_some();
        tell(LogImportStep::Claim);
        let config = match PoolLog::config(pool) {
            Err(StoreError::Config(_)) if consent.damaged => None,
            config => Some(config?),
        };
        let opened = match &config {
            Some(config) => {
                OpenLog::of(config, regions, pool.synced_mark()).map_err(|error| error.naming_devices(pool))
            }
            None => Ok(OpenLog::Forgotten),
        };
        let opened = match opened {
            Err(error) if consent.missing && error.is_missing_region() => OpenLog::Forgotten,
            opened => opened?,
        };
        let is_forgotten = matches!(opened, OpenLog::Forgotten);
        let begins_anew = is_forgotten || matches!(opened, OpenLog::Outlived);
        let new_config = config.as_ref().and_then(|config| opened.new_config(config));
        let mut claims = opened.claim(pool, |chunks| tuning.config(chunks), knows)?;
        let problems = claims.problems();
        if let (Some(first), false) = (problems.first(), consent.damaged) {
            return Err(claim_error(pool, first.clone(), problems.len()));
        }
        for problem in &problems {
            let resolved = claims.resolve(problem.dataset, Choice::DropTail);
            resolved.map_err(|problem| claim_error(pool, problem, 1))?;
        }
        let dropped = claims.summaries().iter().map(|found| found.dropped as u64).sum();
        let damaged = problems.len() as u64;
        let sides = claims.side_repairs();
        let report = ReplayReport { dropped, damaged, is_forgotten, sides, ..ReplayReport::default() };
        let side = PoolSide::new(pool, None);
        let root = pool.dataset(&pool.name())?;
        let said = new_config.as_ref().or(config.as_ref()).filter(|_| !begins_anew);
        let losses = LossRecord::new(root.id(), said.cloned().unwrap_or_default());
        let logs = {
            let tx = pool.begin_tx()?;
            if let Some(config) = new_config {
                // In the txg of the headers: before it is durable nothing is logged and no chunk is emptied,
                // so the missing region is as good as this one; afterwards it is not.
                pool.put_aux(&tx, root.id(), DEVICE, Some(&config.encode()));
            }
            if begins_anew {
                pool.set_feature(&tx, Feature::LogDevice, false)?;
                pool.put_aux(&tx, root.id(), DEVICE, None);
                for (dataset, _) in logged(pool, |_| false)? {
                    pool.put_aux(&tx, dataset.id(), HEADER, None);
                }
            }
            claims.finish(&side, &tx)?
        };
        Ok((PoolLog::new(pool, logs, tuning, losses), report))
    }

    fn replay(
        &self,
        options: &StoreOptions,
        is_resumed: bool,
        report: &mut ReplayReport,
        tell: &mut dyn FnMut(LogImportStep<'_>),
    ) -> Result<(), StoreError> {
        let (logs, side) = (self.logs(), PoolSide::for_replay(self.side.pool()));
        let mut with_logs = Vec::new();
        for id in logs.datasets() {
            let dataset = side.pool().dataset_by_id(id)?;
            let Some(log) = logs.get(id) else { continue };
            match options.kinds.handler(dataset.kind()) {
                Some(handler) => with_logs.push((log, dataset, handler)),
                None => report.unknown.push((dataset.name(), dataset.kind())),
            }
        }
        let total_records = with_logs.iter().map(|(log, ..)| log.unreplayed_records()).sum();
        let mut done_records = 0;
        for (log, dataset, handler) in with_logs {
            let (records, name) = (log.unreplayed_records(), dataset.name());
            if records > 0 {
                report.datasets += 1;
                tell(LogImportStep::Replay(ReplayProgress { dataset: &name, done_records, total_records }));
            }
            let (mut of_dataset, mut indirect) = (0, 0);
            let mut applied = |record: &Record<'_>| {
                of_dataset += 1;
                indirect += u64::from(is_indirect(record));
                if of_dataset % TELL_RECORDS == 0 {
                    let done_records = done_records + of_dataset;
                    let progress = ReplayProgress { dataset: &name, done_records, total_records };
                    tell(LogImportStep::Replay(progress));
                }
            };
            let replaying = Replaying::new(&dataset, is_resumed, side.pool().log_space());
            let mut handler = Applying { handler, replaying, applied: &mut applied };
            let replayed = log.replay(&side, &mut handler);
            report.indirect += indirect;
            match replayed {
                Ok(replayed) => report.records += replayed.records,
                Err(failure) if !options.consent.damaged => return Err(failure.into()),
                Err(_) => report.dropped += log.drop_tail(&side)?,
            }
            done_records += records;
        }
        Ok(())
    }
}

fn is_indirect(record: &Record<'_>) -> bool {
    matches!(record, Record::Write(Write { data: WriteData::Indirect { .. }, .. }))
}

fn claim_error(pool: &Pool, problem: ClaimProblem, count: usize) -> StoreError {
    let found = pool.datasets().into_iter().find(|info| info.id.0 == problem.dataset.0);
    let volume = found.and_then(|info| pool.dataset_by_id(info.id).ok()).map(|volume| volume.name());
    let volume = volume.unwrap_or_else(|| problem.dataset.to_string());
    StoreError::Claim { volume, problem: Box::new(problem), count }
}

/// The medium of a pool's log, before it is read.
pub(crate) enum OpenLog {
    Pmem(Sides),
    Lwb,
    /// All regions were lost in use, and nothing in them is needed: the pool has it.
    Outlived,
    /// Everything in the log that the pool had is given up.
    Forgotten,
}

impl OpenLog {
    pub(crate) fn of(
        config: &LogConfig,
        regions: Vec<Result<RegionParts, StoreError>>,
        synced: Mark,
    ) -> Result<OpenLog, StoreError> {
        Ok(match config.kind {
            KindId::Pmem if config.in_use().next().is_none() => OpenLog::Outlived,
            KindId::Pmem => OpenLog::Pmem(Sides::find(config, regions, synced)?),
            KindId::Lwb => OpenLog::Lwb,
        })
    }

    /// The new description of the log for the pool to store; `None` if it is unchanged. A missing region is
    /// out: from the first txg on it lacks what is logged. The next import looks for one that has moved where
    /// it is now.
    fn new_config(&self, config: &LogConfig) -> Option<LogConfig> {
        let OpenLog::Pmem(sides) = self else { return None };
        let mut new = config.clone();
        for known in &mut new.regions {
            match sides.region(known.id).map(|region| &region.info.path) {
                None => known.is_out = true,
                Some(Some(path)) if path.is_absolute() => known.path.clone_from(path),
                // It has no path, or one that says nothing to another process.
                Some(_) => {}
            }
        }
        (new != *config).then_some(new)
    }

    /// `config` is for the PRB: with this machine's settings, and whether the sides of a mirror are repaired.
    pub(crate) fn claim(
        self,
        pool: &Arc<Pool>,
        config: impl FnOnce(usize) -> Config,
        knows: impl Fn(DatasetKind) -> bool,
    ) -> Result<Box<dyn Claims>, StoreError> {
        let first_txg = pool.synced_txg().next();
        let begins_anew = matches!(self, OpenLog::Outlived | OpenLog::Forgotten);
        let with_logs = logged(pool, knows)?.into_iter();
        let headers = with_logs
            .map(|(dataset, header)| (dataset.id(), header.filter(|_| !begins_anew)))
            .collect::<Vec<_>>();
        Ok(match self {
            OpenLog::Pmem(sides) => kind_pmem::claim(sides, config, first_txg, headers)?,
            OpenLog::Lwb | OpenLog::Outlived | OpenLog::Forgotten => {
                kind_lwb::claim(pool, first_txg, headers)
            }
        })
    }
}
