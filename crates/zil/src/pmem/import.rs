//! Import: every dataset's log is set up from its stored header and claimed, before the first txg.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fastness_pmem::Medium;
use fastness_prb::{
    ChunkTail, Claimed, Config, Hdl, HdlHeader, Hidden, OnLoss, Prb, SetupError, SideRepairs,
};

use crate::claim::{ClaimCause, ClaimProblem, ClaimSummary, check_finish};
use crate::error::LogError;
use crate::header::{KindId, StoredHeader};
use crate::pmem::log::{PmemLog, Status, stored};
use crate::pmem::logs::PmemLogs;
use crate::pool::Pool;
use crate::replay::Choice;
use fastness_base::{DatasetId, Txg};

enum Slot<M: Medium + Sync> {
    /// There is nothing to replay.
    Empty(Hdl<M>),
    Unclaimed(Hdl<M>, Option<Hidden>),
    Claimed(Hdl<M>, HdlHeader, usize),
    /// The header cannot be used; its bytes are kept for another attempt.
    Unusable(Vec<u8>),
    /// Everything was given up.
    Dropped(Hdl<M>),
}

/// An import between the scan of PM and the first txg.
///
/// Nothing is changed in PM or in the pool before [`finish`](Self::finish), except for entries that one side
/// of a mirror lacked; dropping it leaves everything as it was.
pub struct Import<M: Medium + Sync> {
    prb: Arc<Prb<M>>,
    /// Chunk ends after which entries may be hidden.
    tails: Vec<ChunkTail>,
    first_txg: Txg,
    slots: BTreeMap<DatasetId, Slot<M>>,
    problems: BTreeMap<DatasetId, ClaimProblem>,
    summaries: Vec<ClaimSummary>,
}

impl<M: Medium + Sync> fmt::Debug for Import<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("first_txg", &self.first_txg)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

impl<M: Medium + Sync> PmemLogs<M> {
    /// Scans PM once and claims the log of each dataset, by its header in the last synced txg (`None`: it has
    /// no log). `first_txg` is the txg after that one. The ranges must be those of the last use, in the same
    /// order.
    ///
    /// Logs that cannot be claimed are in [`Import::problems`].
    ///
    /// # Errors
    /// [`SetupError`]: this PM cannot be used at all.
    pub fn import(
        config: Config,
        ranges: Vec<M>,
        first_txg: Txg,
        headers: impl IntoIterator<Item = (DatasetId, Option<Vec<u8>>)>,
    ) -> Result<Import<M>, SetupError> {
        let prb = Prb::open(config, ranges)?;
        let (slots, problems, summaries) = Default::default();
        let tails = prb.chunk_tails(first_txg);
        let mut import = Import { prb, tails, first_txg, slots, problems, summaries };
        for (dataset, header) in headers {
            let slot = header.map_or_else(|| Slot::Empty(import.nozil()), Slot::Unusable);
            import.slots.insert(dataset, slot);
        }
        // All are set up before the first is claimed: the scan sorts entries by log once, for all of them.
        let datasets: Vec<_> = import.slots.keys().copied().collect();
        datasets.iter().for_each(|&dataset| import.try_set_up(dataset));
        datasets.iter().for_each(|&dataset| import.try_claim(dataset, OnLoss::Fail));
        Ok(import)
    }
}

impl<M: Medium + Sync> Import<M> {
    fn nozil(&self) -> Hdl<M> {
        self.prb.setup_hdl(&HdlHeader::NoZil).expect("a log without entries can be set up at any time")
    }

    fn try_set_up(&mut self, dataset: DatasetId) {
        let Some(Slot::Unusable(bytes)) = self.slots.get(&dataset) else { return };
        match self.set_up(bytes) {
            Ok(slot) => {
                self.slots.insert(dataset, slot);
                self.problems.remove(&dataset);
            }
            Err(cause) => {
                self.problems.insert(dataset, ClaimProblem { dataset, cause });
            }
        }
    }

    fn set_up(&self, bytes: &[u8]) -> Result<Slot<M>, ClaimCause> {
        let stored = StoredHeader::decode(bytes)?;
        if stored.names_no_log() {
            // It may be of another kind: the kind was being changed.
            return Ok(Slot::Empty(self.nozil()));
        }
        let header = HdlHeader::decode(stored.of_kind(KindId::Pmem)?)?;
        let hdl = self.prb.setup_hdl(&header)?;
        let hidden = match header {
            HdlHeader::Logging { log } => self.tails.iter().find_map(|tail| tail.hides(log)),
            // Claimed before: what was found then is known exactly, and what was given up may be anywhere.
            HdlHeader::NoZil | HdlHeader::Replaying(_) => None,
        };
        Ok(Slot::Unclaimed(hdl, hidden))
    }

    fn try_claim(&mut self, dataset: DatasetId, on_loss: OnLoss) {
        let Some(Slot::Unclaimed(hdl, hidden)) = self.slots.get_mut(&dataset) else { return };
        let loss = hidden.map(ClaimCause::Hidden);
        if let (Some(cause), OnLoss::Fail) = (&loss, on_loss) {
            // It says where the damage is; a claim would at most find which entries miss something.
            self.problems.insert(dataset, ClaimProblem { dataset, cause: cause.clone() });
            return;
        }
        match hdl.claim(self.first_txg, on_loss) {
            Ok(claimed) => self.claimed(dataset, claimed, loss),
            Err(error) => {
                self.problems.insert(dataset, ClaimProblem { dataset, cause: error.into() });
            }
        }
    }

    fn claimed(&mut self, dataset: DatasetId, claimed: Claimed, hidden: Option<ClaimCause>) {
        let Some(Slot::Unclaimed(hdl, _)) = self.slots.remove(&dataset) else { unreachable!("just claimed") };
        let Claimed { update, entries, without_body, body_bytes, gaps, dropped, loss, .. } = claimed;
        let records = entries - without_body;
        let summary = ClaimSummary {
            dataset,
            records,
            bytes: body_bytes,
            indirect: 0,
            gaps,
            dropped,
            loss: hidden.or(loss.map(Into::into)),
        };
        self.summaries.push(summary);
        let header = update.expect("a log that was unclaimed has a new header").into_header();
        self.slots.insert(dataset, Slot::Claimed(hdl, header, records));
        self.problems.remove(&dataset);
    }

    /// What opening PM copied from one side of a mirror to the other.
    pub fn side_repairs(&self) -> SideRepairs {
        self.prb.side_repairs()
    }

    /// Logs that cannot be claimed.
    pub fn problems(&self) -> impl Iterator<Item = &ClaimProblem> {
        self.problems.values()
    }

    /// What was found of the others.
    pub fn summaries(&self) -> &[ClaimSummary] {
        &self.summaries
    }

    /// Handles a log that cannot be claimed: [`Choice::Retry`] claims it again; [`Choice::DropTail`] gives up
    /// what is missing or damaged and what depends on it, or all of it if the header is unusable.
    ///
    /// # Errors
    /// What is still in the way. [`Choice::ReadOnly`] resolves nothing: the pool must be used without any
    /// txg, so drop the import.
    pub fn resolve(&mut self, dataset: DatasetId, choice: Choice) -> Result<(), ClaimProblem> {
        match choice {
            Choice::Retry => {
                self.try_set_up(dataset);
                self.try_claim(dataset, OnLoss::Fail);
            }
            Choice::DropTail => {
                self.try_claim(dataset, OnLoss::DropTail);
                if self.problems.contains_key(&dataset) {
                    let hdl = self.nozil();
                    if let Some(Slot::Unclaimed(old, _)) = self.slots.insert(dataset, Slot::Dropped(hdl)) {
                        old.teardown(Some(self.first_txg));
                    }
                    self.problems.remove(&dataset);
                }
            }
            Choice::ReadOnly => {}
        }
        self.problems.get(&dataset).map_or(Ok(()), |problem| Err(problem.clone()))
    }

    /// Finishes the import: stores the new headers in `tx`, which is of the first txg, and creates logs for
    /// datasets that have none. One transaction for all datasets.
    ///
    /// Persistence: with that txg; after a crash before that, the same import runs again.
    ///
    /// # Errors
    /// [`LogError::Unclaimed`], [`LogError::OtherTxg`]; nothing was changed, and the import is gone: begin
    /// again.
    pub fn finish<P: Pool>(self, pool: &P, tx: &P::Tx) -> Result<PmemLogs<M>, LogError> {
        check_finish(&self.problems, self.first_txg, P::txg_of(tx))?;
        self.prb.finish_claiming()?;
        let mut logs = BTreeMap::new();
        for (dataset, slot) in self.slots {
            let log = |hdl, status| Arc::new(PmemLog::new(dataset, Arc::clone(&self.prb), hdl, status));
            let log = match slot {
                Slot::Empty(hdl) | Slot::Dropped(hdl) => {
                    let log = log(hdl, Status::Starting);
                    log.start(pool, tx)?;
                    log
                }
                Slot::Claimed(hdl, header, records) => {
                    pool.put_log_header(tx, dataset, Some(&stored(&header)));
                    let log = log(hdl, Status::NotReplayed);
                    log.unreplayed.store(records as u64, std::sync::atomic::Ordering::Relaxed);
                    log
                }
                Slot::Unclaimed(..) | Slot::Unusable(_) => unreachable!("it would be among the problems"),
            };
            logs.insert(dataset, log);
        }
        Ok(PmemLogs::new(self.prb, logs))
    }
}
