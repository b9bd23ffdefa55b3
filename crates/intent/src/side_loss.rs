//! What the pool records of a side of its log that was lost in use.
//!
//! The log takes no records from the loss on (`fastness_prb`, `health`). The next txg stores that the region is out; once it
//! is durable no import reads that region again, and the log goes on with the other. Nobody but the thread that ends txgs
//! has to do anything, and those who wait for that txg instead of the log make it come soon.

use std::sync::{Mutex, PoisonError};

use fastness_pmem::Medium;
use fastness_pool::{DatasetId, HookChanges, Txg};

use crate::config::LogConfig;
use crate::log::DEVICE;
use crate::logs::Logs;

/// What the pool says of its log, and what it is about to say.
#[derive(Debug)]
pub(crate) struct LossRecord {
    /// Whose value the description is.
    root: DatasetId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: LogConfig,
    /// The txg that stores it; older ones say something else.
    since: Txg,
    /// A side that a txg, not durable yet, says is out.
    recording: Option<(Txg, usize)>,
}

impl LossRecord {
    pub(crate) fn new(root: DatasetId, config: LogConfig) -> LossRecord {
        LossRecord { root, state: Mutex::new(State { config, since: Txg(0), recording: None }) }
    }

    /// A transaction of `txg` stores another description, perhaps of other logs. Call it before that transaction ends.
    pub(crate) fn replace(&self, config: &LogConfig, txg: Txg) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { config: config.clone(), since: txg, recording: None };
    }

    /// `txg` is about to commit; `logs` are those in use.
    pub(crate) fn sync<M: Medium + Sync>(&self, txg: Txg, logs: &Logs<M>, changes: &mut HookChanges) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((side, region)) = logs.lost_side().filter(|_| txg >= state.since) else { return };
        if state.recording.is_some() || state.config.in_use().all(|other| other.id == region) {
            return;
        }
        state.config.regions.iter_mut().for_each(|known| known.is_out |= known.id == region);
        state.recording = Some((txg, side));
        // PERSIST: stored with this txg, and durable before the PRB is told in `synced`; excludes that an import takes
        // the lost side for current when it comes back, without what only the other has.
        changes.put(self.root, DEVICE, Some(&state.config.encode()));
    }

    /// `txg` is durable.
    pub(crate) fn synced<M: Medium + Sync>(&self, txg: Txg, logs: &Logs<M>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, side)) = state.recording.take_if(|(of, _)| *of <= txg) {
            logs.side_is_out(side);
        }
    }
}
