//! A log of any kind as one type, for a pool whose kind is changed while in use
//! ([`Zil::switch_kind`](crate::Zil)).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use fastness_lwb::Space;
use fastness_pmem::Medium;

use crate::error::{LogCause, LogError, NotPersisted};
use crate::header::KindId;
use crate::kind::{Entry, Kind, Persisted, ReadBack};
use crate::lwb::LwbLog;
use crate::pmem::PmemLog;
use crate::pool::Pool;
use crate::replay::{ReplayFailure, ReplayHandler, Replayed};
use fastness_base::{DatasetId, LogPlace, ObjectId, Txg};

/// The log of one dataset of a pool, with what its owner does to it besides writing records.
pub trait OwnedLog<P: Pool>: Kind {
    /// The dataset.
    fn dataset(&self) -> DatasetId;

    /// Why nothing can be written now; `None` if the log is writable.
    fn refusal(&self) -> Option<LogCause>;

    /// How full the log is, in 1024ths. Kind lwb takes space from the pool as needed, and is never full
    /// before the pool is.
    fn used_per_1024(&self) -> u32;

    /// Lets the medium record what was acknowledged last, as the thread does that watches logs which have
    /// fallen idle. Whether it now records everything that has not synced.
    fn witness(&self) -> bool;

    /// Records that wait for replay.
    fn unreplayed_records(&self) -> u64;

    /// Takes the log out of use and waits until the pool needs nothing in it.
    ///
    /// # Errors
    /// [`LogError`].
    fn suspend(&self, pool: &P) -> Result<(), LogError>;

    /// Puts a suspended log back into use.
    ///
    /// # Errors
    /// [`LogError`].
    fn resume(&self, pool: &P) -> Result<(), LogError>;

    /// Replays the log, and creates a new one.
    ///
    /// # Errors
    /// [`ReplayFailure`].
    fn replay(&self, pool: &P, handler: &mut dyn ReplayHandler<P>) -> Result<Replayed, ReplayFailure>;

    /// Gives up the records that were not replayed, and creates a new log.
    ///
    /// # Errors
    /// [`LogError`].
    fn drop_tail(&self, pool: &P) -> Result<u64, LogError>;
}

macro_rules! owned {
    (<$parameter:ident: $($bound:path),+> $log:ty, used: $used:expr, witness: $witness:expr) => {
        impl<P: Pool, $parameter: $($bound +)+> OwnedLog<P> for $log {
            fn dataset(&self) -> DatasetId {
                self.dataset()
            }

            fn refusal(&self) -> Option<LogCause> {
                self.refusal()
            }

            #[inline]
            fn used_per_1024(&self) -> u32 {
                $used(self)
            }

            fn witness(&self) -> bool {
                $witness(self) && self.refusal().is_none()
            }

            fn unreplayed_records(&self) -> u64 {
                self.unreplayed_records()
            }

            fn suspend(&self, pool: &P) -> Result<(), LogError> {
                self.suspend(pool)
            }

            fn resume(&self, pool: &P) -> Result<(), LogError> {
                self.resume(pool)
            }

            fn replay(
                &self,
                pool: &P,
                handler: &mut dyn ReplayHandler<P>,
            ) -> Result<Replayed, ReplayFailure> {
                self.replay(pool, handler)
            }

            fn drop_tail(&self, pool: &P) -> Result<u64, LogError> {
                self.drop_tail(pool)
            }
        }
    };
}

owned!(<M: Medium, Sync> PmemLog<M>, used: PmemLog::used_per_1024, witness: |log: &PmemLog<M>| {
    log.witness();
    !log.witness_is_due()
});
// Only the second call finds that nothing was written since.
owned!(<S: Space> LwbLog<S>, used: |_| 0, witness: |log: &LwbLog<S>| {
    !log.chain().witness_idle() || !log.chain().witness_idle()
});

/// The log of one dataset, of any kind.
pub struct DynLog<P: Pool>(Arc<dyn OwnedLog<P>>);

impl<P: Pool> DynLog<P> {
    /// Wraps a log.
    pub fn new(log: Arc<impl OwnedLog<P> + 'static>) -> Self {
        Self(log)
    }
}

impl<P: Pool> Clone for DynLog<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Pool> fmt::Debug for DynLog<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynLog")
    }
}

impl<P: Pool> Deref for DynLog<P> {
    type Target = dyn OwnedLog<P>;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl<P: Pool> Kind for DynLog<P> {
    #[inline]
    fn id(&self) -> KindId {
        self.0.id()
    }

    #[inline]
    fn record_bytes_max(&self) -> usize {
        self.0.record_bytes_max()
    }

    #[inline]
    fn writes_alone(&self) -> bool {
        self.0.writes_alone()
    }

    fn submit(&self, entries: Vec<Entry>) -> u64 {
        self.0.submit(entries)
    }

    fn persist(
        &self,
        object: ObjectId,
        horizon: u64,
        source: &dyn ReadBack,
    ) -> Result<Persisted, NotPersisted> {
        self.0.persist(object, horizon, source)
    }

    #[inline]
    fn log_alone(&self, txg: Txg, record: [&[u8]; 2]) -> Result<Option<LogPlace>, NotPersisted> {
        self.0.log_alone(txg, record)
    }

    #[inline]
    fn log_next(
        &self,
        txg: Txg,
        object: ObjectId,
        record: [&[u8]; 2],
    ) -> Result<(bool, Option<LogPlace>), NotPersisted> {
        self.0.log_next(txg, object, record)
    }

    fn order(&self, is_forced: bool) -> Result<(), LogCause> {
        self.0.order(is_forced)
    }

    fn txg_synced(&self, txg: Txg) {
        self.0.txg_synced(txg);
    }
}
