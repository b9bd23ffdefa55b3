//! A log of either kind, for a pool whose kind is changed while in use ([`Zil::switch_kind`](crate::Zil)).

use std::sync::Arc;

use fastness_lwb::Space;
use fastness_pmem::Medium;

use crate::error::{LogCause, LogError, NotPersisted};
use crate::header::KindId;
use crate::ids::{DatasetId, ObjectId, Txg};
use crate::kind::{Entry, Kind, Persisted, ReadBack};
use crate::lwb::LwbLog;
use crate::pmem::PmemLog;
use crate::pool::Pool;
use crate::replay::{ReplayFailure, ReplayHandler, Replayed};

/// The log of one dataset, of either kind.
#[derive(Debug)]
pub enum AnyLog<M: Medium + Sync, S: Space> {
    /// On persistent memory.
    Pmem(Arc<PmemLog<M>>),
    /// In log-write blocks.
    Lwb(Arc<LwbLog<S>>),
}

impl<M: Medium + Sync, S: Space> Clone for AnyLog<M, S> {
    fn clone(&self) -> Self {
        match self {
            Self::Pmem(log) => Self::Pmem(Arc::clone(log)),
            Self::Lwb(log) => Self::Lwb(Arc::clone(log)),
        }
    }
}

macro_rules! either {
    ($any:expr, $log:ident => $act:expr) => {
        match $any {
            AnyLog::Pmem($log) => $act,
            AnyLog::Lwb($log) => $act,
        }
    };
}

impl<M: Medium + Sync, S: Space> Kind for AnyLog<M, S> {
    #[inline]
    fn id(&self) -> KindId {
        either!(self, log => log.id())
    }

    #[inline]
    fn record_bytes_max(&self) -> usize {
        either!(self, log => log.record_bytes_max())
    }

    #[inline]
    fn writes_alone(&self) -> bool {
        either!(self, log => log.writes_alone())
    }

    fn submit(&self, entries: Vec<Entry>) -> u64 {
        either!(self, log => log.submit(entries))
    }

    fn persist(
        &self,
        object: ObjectId,
        horizon: u64,
        source: &dyn ReadBack,
    ) -> Result<Persisted, NotPersisted> {
        either!(self, log => log.persist(object, horizon, source))
    }

    #[inline]
    fn log_alone(&self, txg: Txg, record: [&[u8]; 2]) -> Result<(), NotPersisted> {
        either!(self, log => log.log_alone(txg, record))
    }

    fn order(&self, is_forced: bool) -> Result<(), LogCause> {
        either!(self, log => log.order(is_forced))
    }

    fn txg_synced(&self, txg: Txg) {
        either!(self, log => log.txg_synced(txg));
    }
}

/// What both kinds have in common; see there.
impl<M: Medium + Sync, S: Space> AnyLog<M, S> {
    /// The dataset.
    pub fn dataset(&self) -> DatasetId {
        either!(self, log => log.dataset())
    }

    /// Why nothing can be written now; `None` if the log is writable.
    pub fn refusal(&self) -> Option<LogCause> {
        either!(self, log => log.refusal())
    }

    /// How full the log is, in 1024ths. Kind lwb takes space from the pool as needed, and is never full
    /// before the pool is.
    #[inline]
    pub fn used_per_1024(&self) -> u32 {
        match self {
            Self::Pmem(log) => log.used_per_1024(),
            Self::Lwb(_) => 0,
        }
    }

    /// Records that wait for replay.
    pub fn unreplayed_records(&self) -> u64 {
        either!(self, log => log.unreplayed_records())
    }

    /// Takes the log out of use and waits until the pool needs nothing in it.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn suspend<P: Pool>(&self, pool: &P) -> Result<(), LogError> {
        either!(self, log => log.suspend(pool))
    }

    /// Puts a suspended log back into use.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn resume<P: Pool>(&self, pool: &P) -> Result<(), LogError> {
        either!(self, log => log.resume(pool))
    }

    /// Replays the log, and creates a new one.
    ///
    /// # Errors
    /// [`ReplayFailure`].
    pub fn replay<P: Pool>(
        &self,
        pool: &P,
        handler: &mut dyn ReplayHandler<P>,
    ) -> Result<Replayed, ReplayFailure> {
        either!(self, log => log.replay(pool, handler))
    }

    /// Gives up the records that were not replayed, and creates a new log.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn drop_tail<P: Pool>(&self, pool: &P) -> Result<u64, LogError> {
        either!(self, log => log.drop_tail(pool))
    }
}
