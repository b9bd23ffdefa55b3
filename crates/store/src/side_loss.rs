//! What the pool records about regions of its log that were lost in use.
//!
//! One side of a mirror is lost: from then on the log takes no records (`fastness_prb`, `health`). The next
//! txg stores that the region is out; once it is durable no import reads that region again, and the log
//! continues on the other.
//!
//! All regions are lost: the log takes no more records, and txgs make everything durable instead. Once one of
//! them is newer than every record, nothing in the regions is needed: it stores that they are all out, and an
//! import requires none of them.
//!
//! Only the thread that ends txgs does any of this. A lost region takes no marks of txgs (`marks`) either,
//! and an import would refuse it as older than the pool: so the loss is recorded with the first txg that the
//! region has no mark of, as far as the contents of the log allow.

use std::sync::Mutex;

use fastness_sync::lock;

use fastness_pool::{DatasetId, HookChanges, Txg};

use crate::config::{DEVICE, LogConfig};
use crate::logs::AllLogs;

/// The pool's current description of its log, and the one that it is about to store.
#[derive(Debug)]
pub(crate) struct LossRecord {
    /// The dataset in whose aux data the description is stored.
    root: DatasetId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: LogConfig,
    /// The txg that stores it; older ones store something else.
    since: Txg,
    /// A side that an unsynced txg records as out.
    recording: Option<(Txg, usize)>,
    /// Set once no region is left; no record belongs to a later txg.
    last_logged: Option<Txg>,
}

impl State {
    fn new(config: LogConfig, since: Txg) -> State {
        State { config, since, recording: None, last_logged: None }
    }
}

impl LossRecord {
    pub(crate) fn new(root: DatasetId, config: LogConfig) -> LossRecord {
        LossRecord { root, state: Mutex::new(State::new(config, Txg(0))) }
    }

    /// A transaction of `txg` stores another description, perhaps of other logs. Must be called before that
    /// transaction ends.
    pub(crate) fn replace(&self, config: &LogConfig, txg: Txg) {
        *lock(&self.state) = State::new(config.clone(), txg);
    }

    /// `txg` is about to commit; `logs` are those in use.
    pub(crate) fn sync(&self, txg: Txg, logs: &AllLogs, changes: &mut HookChanges) {
        let mut state = lock(&self.state);
        if txg < state.since || state.config.in_use().next().is_none() {
            return;
        }
        if logs.has_failed() {
            return self.outlive(&mut state, txg, logs, changes);
        }
        let Some((side, region)) = logs.lost_side() else { return };
        if state.recording.is_some() || state.config.in_use().all(|other| other.id == region) {
            return;
        }
        state.config.regions.iter_mut().for_each(|known| known.is_out |= known.id == region);
        state.recording = Some((txg, side));
        // PERSIST: stored with this txg, and durable before the PRB is told in `synced`; excludes that an
        // import takes the lost side for current when it comes back, without what only the other side has.
        changes.put(self.root, DEVICE, Some(&state.config.encode()));
    }

    /// Records that no region is needed, as soon as that is true.
    fn outlive(&self, state: &mut State, txg: Txg, logs: &AllLogs, changes: &mut HookChanges) {
        if logs.has_unreplayed() {
            return;
        }
        // Of the txgs later than this one, only the next can be open while this one commits, so whatever was
        // logged or replayed by now belongs to that one at the latest. Nothing was logged since: the log has
        // failed.
        let last = *state.last_logged.get_or_insert(txg.next());
        if txg < last {
            return changes.end_next_soon();
        }
        state.config.regions.iter_mut().for_each(|known| known.is_out = true);
        let all_out = state.config.encode();
        // PERSIST: stored with this txg, which makes the last record durable in the pool; excludes that an
        // import goes on without a region whose records are nowhere else.
        changes.put(self.root, DEVICE, Some(&all_out));
    }

    /// `txg` is durable.
    pub(crate) fn synced(&self, txg: Txg, logs: &AllLogs) {
        let mut state = lock(&self.state);
        if let Some((_, side)) = state.recording.take_if(|(of, _)| *of <= txg) {
            logs.side_is_out(side);
        }
    }
}
