//! Replay of one dataset's log.
//!
//! Crash cases: the effects of some records and the header with the number of the last of them are in one
//! transaction, so after a crash all of that is there or nothing. The header of the new chain is stored with
//! the txg of the transaction after the last record, or a later one; the old blocks stay until that txg has
//! synced.

use fastness_lwb::{Header, Record as ChainRecord, ReplayError, Space};
use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::error::{LogCause, LogError};
use crate::lwb::held::Held;
use crate::lwb::log::{LwbLog, stored};
use crate::pool::Pool;
use crate::record::Record;
use crate::replay::{Batch, RecordPlace, ReplayCause, ReplayFailure, ReplayHandler, Replayed};

impl<S: Space> LwbLog<S> {
    /// Replays the log, from where an earlier replay stopped, and creates a new log. A log that was already
    /// replayed is left alone.
    ///
    /// Persistence: each record is applied in a transaction, alone or with those before it, durable with its
    /// txg. The dataset can be changed on return.
    ///
    /// # Errors
    /// [`ReplayFailure`] says where, why, and what the choices are: call it again ([`Choice::Retry`]), call
    /// [`drop_tail`](Self::drop_tail), or neither and keep the dataset read-only.
    ///
    /// [`Choice::Retry`]: crate::Choice::Retry
    pub fn replay<P: Pool>(
        &self,
        pool: &P,
        handler: &mut dyn ReplayHandler<P>,
    ) -> Result<Replayed, ReplayFailure> {
        let mut slot = lock(&self.claimed);
        let Some(claimed) = slot.as_mut().filter(|_| self.status_cause() == Some(LogCause::NotReplayed))
        else {
            return Ok(Replayed::default());
        };
        let (mut number, mut place) = (0, None);
        let mut batch = Batch::new(pool, self.dataset, stored);
        let replayed = claimed.chain.replay(|record, header| {
            number += 1;
            place = Some(RecordPlace::Lwb { lsn: record.lsn, block: record.place });
            self.replay_one(&mut batch, handler, &record, header)
        });
        // Before anything else: the records that were applied are not to be applied again.
        drop(batch);
        let failure = |cause, place| ReplayFailure { dataset: self.dataset, number, place, cause };
        match replayed {
            Ok(_) => {}
            Err(ReplayError::Apply { source, .. }) => return Err(failure(source, place)),
            Err(ReplayError::Damaged(ended)) => return Err(failure(ReplayCause::Damaged(ended), None)),
            Err(ReplayError::Changed { found, claimed }) => {
                return Err(failure(ReplayCause::Changed { found, claimed }, None));
            }
            Err(_) => unreachable!("replay has no other errors"),
        }
        let tx = pool.begin_tx().map_err(|error| failure(ReplayCause::Pool(error), None))?;
        self.end_replay::<P>(&tx, slot.take());
        Ok(Replayed { records: number, reappeared: 0 })
    }

    fn replay_one<P: Pool>(
        &self,
        batch: &mut Batch<'_, P, Header>,
        handler: &mut dyn ReplayHandler<P>,
        entry: &ChainRecord<'_>,
        header: Header,
    ) -> Result<(), ReplayCause> {
        let (head, record) = Record::decode(entry.bytes).map_err(ReplayCause::Record)?;
        if head.txg != entry.txg {
            return Err(ReplayCause::OtherTxg { record: head.txg, entry: entry.txg });
        }
        batch.apply(header, entry.bytes.len(), |tx| {
            handler.apply(tx, &head, &record).map_err(ReplayCause::Handler)
        })?;
        self.unreplayed.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// From this transaction's txg on, which is open, the chain is not needed: that txg names a new one.
    fn end_replay<P: Pool>(&self, tx: &P::Tx, claimed: Option<Held<S>>) {
        let claimed = claimed.expect("a log that was not replayed has what was claimed");
        self.start_anew(claimed, P::txg_of(tx));
    }

    /// Gives up the records that were not replayed, and creates a new log: [`Choice::DropTail`]. Returns how
    /// many.
    ///
    /// Persistence: with the txg of its own transaction.
    ///
    /// # Errors
    /// Those of the pool.
    ///
    /// [`Choice::DropTail`]: crate::Choice::DropTail
    pub fn drop_tail<P: Pool>(&self, pool: &P) -> Result<u64, LogError> {
        let mut slot = lock(&self.claimed);
        if slot.is_none() {
            return Ok(0);
        }
        let tx = pool.begin_tx()?;
        let count = self.unreplayed_records();
        self.end_replay::<P>(&tx, slot.take());
        Ok(count)
    }
}
