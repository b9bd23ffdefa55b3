//! HDL: the virtual log of one dataset, a mostly sequential structure on the unordered entries of a PRB.
//!
//! States and their transitions:
//! ```text
//!              create_log                     crash, set up
//!   nozil ----------------------> logging -------------------> unclaimed
//!     ^ ^                           |                              | claim
//!     | +------- destroy_log -------+                              v
//!     +------------- replay, replay_done / destroy_log -------- replaying
//! ```
//!
//! Source: zil-pmem thesis, 5.2 to 5.7 and 5.13.

mod claim;
mod header;
mod replay;
mod resume;
#[cfg(test)]
mod shapes;
mod write;

use std::sync::Arc;

use fastness_pmem::Medium;
use fastness_sync::lock;

use crate::error::Misuse;
use crate::ids::{EntryId, LogGuid, Txg};
use crate::prb::Prb;

pub use claim::{Claimed, OnLoss};
pub use header::{GAPS_MAX, HEADER_BYTES_MAX, HEADER_VERSION, HdlHeader, HeaderUpdate, ReplayingHeader};
pub use replay::{Entry, Replayed};
pub use write::Written;

/// The log of one dataset.
///
/// Concurrency: entries of one generation may be written from many threads through `&self`; everything that
/// orders entries (a new generation, the log's life cycle) takes `&mut self`, so it cannot overlap with a
/// write. Owners that write in parallel keep the log behind a read-write lock.
#[derive(Debug)]
pub struct Hdl<M: Medium + Sync> {
    prb: Arc<Prb<M>>,
    state: State<M>,
}

#[derive(Debug)]
enum State<M> {
    NoZil,
    /// The header says that there may be entries; the chunks have not been searched yet.
    Unclaimed(HdlHeader),
    Replaying(replay::Session<M>),
    Logging(write::Log),
}

impl<M> State<M> {
    fn name(&self) -> &'static str {
        match self {
            Self::NoZil => "nozil",
            Self::Unclaimed(_) => "unclaimed",
            Self::Replaying(_) => "replaying",
            Self::Logging(_) => "logging",
        }
    }

    fn log(&self) -> Option<LogGuid> {
        match self {
            Self::NoZil | Self::Unclaimed(HdlHeader::NoZil) => None,
            Self::Unclaimed(HdlHeader::Logging { log }) => Some(*log),
            Self::Unclaimed(HdlHeader::Replaying(replaying)) => Some(replaying.log),
            Self::Replaying(session) => Some(session.header.log),
            Self::Logging(log) => Some(log.guid()),
        }
    }
}

impl<M: Medium + Sync> Prb<M> {
    /// Sets up the log of a dataset from its persisted header.
    ///
    /// A log with a header other than [`HdlHeader::NoZil`] is unclaimed afterwards.
    ///
    /// # Errors
    /// [`Misuse::AlreadySetUp`]; [`Misuse::ClaimingOver`] for a header other than nozil after the claiming
    /// phase (its entries may already be collected). Source: zil-pmem thesis, 5.13.1 (`prb_setup_hdl`).
    pub fn setup_hdl(self: &Arc<Self>, header: &HdlHeader) -> Result<Hdl<M>, Misuse> {
        let state = match header {
            HdlHeader::NoZil => State::NoZil,
            other => State::Unclaimed(other.clone()),
        };
        let mut lists = lock(&self.lists);
        if let Some(log) = state.log() {
            if !lists.roster.claiming {
                return Err(Misuse::ClaimingOver { log });
            }
            if !lists.roster.guids.insert(log) {
                return Err(Misuse::AlreadySetUp { log });
            }
            lists.roster.unclaimed += 1;
        }
        lists.roster.hdls += 1;
        drop(lists);
        Ok(Hdl { prb: Arc::clone(self), state })
    }
}

impl<M: Medium + Sync> Hdl<M> {
    /// Creates a log if there is none; `None` if there already is one.
    ///
    /// The update must be durable before the first entry is written: call [`Hdl::header_synced`] once it is.
    ///
    /// # Errors
    /// [`Misuse::State`] for a log that is not claimed or not replayed.
    pub fn create_log(&mut self) -> Result<Option<HeaderUpdate>, Misuse> {
        match &self.state {
            State::Logging(_) => return Ok(None),
            State::NoZil => {}
            other => return Err(wrong_state("create_log", "nozil or logging", other)),
        }
        let guid = loop {
            let guid = self.prb.config().random_guid();
            if lock(&self.prb.lists).roster.guids.insert(guid) {
                break guid;
            }
        };
        self.state = State::Logging(write::Log::new(guid));
        Ok(Some(HeaderUpdate::new(HdlHeader::Logging { log: guid })))
    }

    /// Discards the log with all its entries, replayed or not; `sync_txg` is the txg with which the update
    /// will be durable.
    ///
    /// Until then the entries stay where they are, so that an earlier crash finds the log unchanged.
    ///
    /// # Errors
    /// [`Misuse::State`] for a log that is not claimed (tear it down with `abandon` instead).
    pub fn destroy_log(&mut self, sync_txg: Txg) -> Result<HeaderUpdate, Misuse> {
        if let State::Unclaimed(_) = self.state {
            return Err(wrong_state("destroy_log", "nozil, logging or replaying", &self.state));
        }
        self.become_nozil(sync_txg);
        Ok(HeaderUpdate::new(HdlHeader::NoZil))
    }

    /// Detaches the log from its PRB. Nothing is written; the persisted header stays unchanged.
    ///
    /// With `abandon` as `Some(sync_txg)`, chunks that the log holds for replay are released once that txg
    /// has synced; the caller resets the header ([`HdlHeader::NoZil`]) in it. With `None` they stay held
    /// until the PRB is closed. Source: zil-pmem thesis, 5.13.1 (`prb_teardown_hdl`).
    pub fn teardown(mut self, abandon: Option<Txg>) {
        if let Some(sync_txg) = abandon {
            self.become_nozil(sync_txg);
        }
    }

    /// The log's GUID; `None` in state nozil.
    pub fn log(&self) -> Option<LogGuid> {
        self.state.log()
    }

    pub(crate) fn prb(&self) -> &Prb<M> {
        &self.prb
    }

    /// The log's GUID in state logging.
    pub(crate) fn log_in_use(&self) -> Option<LogGuid> {
        match &self.state {
            State::Logging(log) => Some(log.guid()),
            _ => None,
        }
    }

    /// State by name: nozil, unclaimed, replaying or logging.
    pub fn state(&self) -> &'static str {
        self.state.name()
    }

    /// The last entry written or replayed.
    pub fn last_entry(&self) -> Option<EntryId> {
        match &self.state {
            State::Logging(log) => Some(log.last()),
            State::Replaying(session) => Some(session.header.last_replayed()),
            _ => None,
        }
    }

    fn become_nozil(&mut self, sync_txg: Txg) {
        let state = std::mem::replace(&mut self.state, State::NoZil);
        let log = state.log();
        let mut lists = lock(&self.prb.lists);
        if let State::Unclaimed(_) = state {
            lists.roster.unclaimed -= 1;
        }
        if let State::Replaying(session) = state {
            // Entries must stay until the header that no longer needs them is durable: after an earlier
            // crash, replay would resume and find them missing. (zil-pmem thesis, 5.8, wait-replay list)
            lists.releases.entry(sync_txg).or_default().extend(session.into_held_chunks());
        }
        if let Some(log) = log {
            lists.roster.guids.remove(&log);
        }
    }
}

impl<M: Medium + Sync> Drop for Hdl<M> {
    /// As [`Hdl::teardown`] with `None`.
    fn drop(&mut self) {
        self.become_nozil(Txg(u64::MAX));
        lock(&self.prb.lists).roster.hdls -= 1;
    }
}

fn wrong_state<M>(operation: &'static str, needed: &'static str, found: &State<M>) -> Misuse {
    Misuse::State { operation, needed, found: found.name() }
}
