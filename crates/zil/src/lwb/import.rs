//! Import: every dataset's chain is claimed by its stored header, before the first txg and before anything is
//! allocated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fastness_lwb::{Header, OnLoss, Space};

use crate::claim::{ClaimCause, ClaimProblem, ClaimSummary, check_finish};
use crate::error::LogError;
use crate::header::{KindId, StoredHeader};
use crate::lwb::held::{Held, NoBlocks};
use crate::lwb::log::{LwbLog, stored};
use crate::lwb::logs::LwbLogs;
use crate::lwb::written::Written;
use crate::pool::{Pool, StoredBlocks};
use crate::replay::Choice;
use fastness_base::{DatasetId, Txg};

enum Slot<S: Space> {
    /// There is nothing to replay, or everything was given up.
    Empty,
    Claimed(Box<Held<S>>),
    /// Not claimed; the stored header.
    Unclaimed(Vec<u8>),
}

/// An import between the pool's tables and the first txg.
///
/// Nothing is written before [`finish`](Self::finish); dropping it leaves everything as it was, except for
/// the space's own notes of what is in use: begin again with a new space.
pub struct Import<S: Space> {
    space: Arc<S>,
    blocks: Arc<dyn StoredBlocks>,
    first_txg: Txg,
    slots: BTreeMap<DatasetId, Slot<S>>,
    problems: BTreeMap<DatasetId, ClaimProblem>,
    summaries: Vec<ClaimSummary>,
}

impl<S: Space> fmt::Debug for Import<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("first_txg", &self.first_txg)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

impl<S: Space> LwbLogs<S> {
    /// Claims the log of each dataset, by its header in the last synced txg (`None`: it has no log).
    /// `first_txg` is the txg after that one. Nothing in the space may be in use yet.
    ///
    /// Logs that cannot be claimed are in [`Import::problems`]. That includes logs with a record whose data
    /// is not in the log, see [`import_with`](Self::import_with).
    pub fn import(
        space: Arc<S>,
        first_txg: Txg,
        headers: impl IntoIterator<Item = (DatasetId, Option<Vec<u8>>)>,
    ) -> Import<S> {
        Self::import_with(space, Arc::new(NoBlocks), first_txg, headers)
    }

    /// As [`import`](Self::import), where records may refer to data in `blocks`.
    pub fn import_with(
        space: Arc<S>,
        blocks: Arc<dyn StoredBlocks>,
        first_txg: Txg,
        headers: impl IntoIterator<Item = (DatasetId, Option<Vec<u8>>)>,
    ) -> Import<S> {
        let (slots, problems, summaries) = Default::default();
        let mut import = Import { space, blocks, first_txg, slots, problems, summaries };
        for (dataset, header) in headers {
            import.slots.insert(dataset, header.map_or(Slot::Empty, Slot::Unclaimed));
            import.try_claim(dataset, OnLoss::Fail);
        }
        import
    }
}

impl<S: Space> Import<S> {
    fn try_claim(&mut self, dataset: DatasetId, on_loss: OnLoss) {
        let Some(Slot::Unclaimed(bytes)) = self.slots.get(&dataset) else { return };
        match self.claim(bytes, on_loss) {
            Ok(None) => {
                self.slots.insert(dataset, Slot::Empty);
                self.problems.remove(&dataset);
            }
            Ok(Some(claimed)) => self.claimed(dataset, claimed),
            Err(cause) => {
                self.problems.insert(dataset, ClaimProblem { dataset, cause });
            }
        }
    }

    fn claim(&self, bytes: &[u8], on_loss: OnLoss) -> Result<Option<Held<S>>, ClaimCause> {
        let stored = StoredHeader::decode(bytes)?;
        if stored.names_no_log() {
            // It may be of another kind: the kind was being changed.
            return Ok(None);
        }
        let header = Header::decode(stored.of_kind(KindId::Lwb)?)?;
        let (space, blocks) = (Arc::clone(&self.space), Arc::clone(&self.blocks));
        Ok(Some(Held::claim(space, blocks, &header, self.first_txg, on_loss)?))
    }

    fn claimed(&mut self, dataset: DatasetId, claimed: Held<S>) {
        // It was claimed under a choice, so something was given up.
        let loss = claimed.chain.loss().cloned().map(Into::into);
        let (records, bytes) = (claimed.chain.records() as usize, claimed.chain.record_bytes());
        let indirect = claimed.indirect_records();
        self.summaries.push(ClaimSummary { dataset, records, bytes, indirect, gaps: 0, dropped: 0, loss });
        self.slots.insert(dataset, Slot::Claimed(Box::new(claimed)));
        self.problems.remove(&dataset);
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
    /// what is missing or damaged and what comes after it, or all of it if the header is unusable.
    ///
    /// # Errors
    /// What is still in the way. [`Choice::ReadOnly`] resolves nothing: the pool must be used without any
    /// txg, so drop the import.
    pub fn resolve(&mut self, dataset: DatasetId, choice: Choice) -> Result<(), ClaimProblem> {
        match choice {
            Choice::Retry => self.try_claim(dataset, OnLoss::Fail),
            Choice::DropTail => {
                self.try_claim(dataset, OnLoss::DropTail);
                if self.problems.remove(&dataset).is_some() {
                    self.slots.insert(dataset, Slot::Empty);
                }
            }
            Choice::ReadOnly => {}
        }
        self.problems.get(&dataset).map_or(Ok(()), |problem| Err(problem.clone()))
    }

    /// Finishes the import: stores the headers of what was claimed in `tx`, which is of the first txg, and
    /// creates logs for datasets that have none; [`LwbLogs::sync`] of that txg returns the headers of these.
    /// One transaction for all datasets.
    ///
    /// Persistence: with that txg; after a crash before that, the same import runs again.
    ///
    /// # Errors
    /// [`LogError::Unclaimed`], [`LogError::OtherTxg`]; nothing was changed, and the import is gone: begin
    /// again.
    pub fn finish<P: Pool>(self, pool: &P, tx: &P::Tx) -> Result<LwbLogs<S>, LogError> {
        check_finish(&self.problems, self.first_txg, P::txg_of(tx))?;
        let synced = Txg(self.first_txg.0 - 1);
        let (mut logs, written) = (BTreeMap::new(), Arc::<Written>::default());
        for (dataset, slot) in self.slots {
            let (space, written) = (Arc::clone(&self.space), Arc::clone(&written));
            let log = match slot {
                Slot::Empty => LwbLog::new(dataset, space, written, synced, self.first_txg),
                Slot::Claimed(claimed) => {
                    pool.put_log_header(tx, dataset, Some(&stored(&claimed.chain.header())));
                    LwbLog::unreplayed(dataset, space, written, synced, *claimed)
                }
                Slot::Unclaimed(_) => unreachable!("it would be among the problems"),
            };
            logs.insert(dataset, Arc::new(log));
        }
        Ok(LwbLogs::with(self.space, synced, written, logs))
    }
}
