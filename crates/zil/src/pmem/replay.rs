//! Replay of one dataset's log.
//!
//! Crash cases: the effects of some records and the place after the last of them are in one transaction, so
//! after a crash all of that is there or nothing; the old log is destroyed in the transaction that creates
//! the new one, and its entries stay in PM until that txg has synced.

use fastness_pmem::Medium;
use fastness_prb::{BodyError, Entry, HeaderUpdate, ReplayError};
use fastness_sync::atomic::Ordering;
use fastness_sync::write;

use crate::error::{LogCause, LogError};
use crate::pmem::log::{PmemLog, stored};
use crate::pool::Pool;
use crate::record::Record;
use crate::replay::{Batch, RecordPlace, ReplayCause, ReplayFailure, ReplayHandler, Replayed};

impl<M: Medium + Sync> PmemLog<M> {
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
        if self.refusal() != Some(LogCause::NotReplayed) {
            return Ok(Replayed::default());
        }
        let mut hdl = write(&self.hdl);
        let (mut number, mut place) = (0, None);
        let mut buffer = Vec::new();
        let mut batch = Batch::new(pool, self.dataset, |update: &HeaderUpdate| stored(update.header()));
        let replayed = hdl.replay(|entry, update| {
            if entry.body_len_bytes() == 0 {
                return Ok(()); // A witness.
            }
            number += 1;
            place = Some(RecordPlace::Pmem { entry: entry.id(), region_offset: entry.region_offset() });
            self.replay_one(&mut batch, handler, &entry, update, &mut buffer)
        });
        // Before anything else: the records that were applied are not to be applied again.
        drop(batch);
        let failure = |cause| ReplayFailure { dataset: self.dataset, number, place, cause };
        let nowhere = |cause| ReplayFailure { place: None, ..failure(cause) };
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(ReplayError::Callback { source, .. }) => return Err(failure(source)),
            Err(ReplayError::Log(error)) => return Err(nowhere(ReplayCause::Log(error))),
            Err(ReplayError::Misuse(error)) => return Err(nowhere(ReplayCause::Misuse(error))),
            Err(_) => unreachable!("replay has no other errors"),
        };
        let tx = pool.begin_tx().map_err(|error| nowhere(ReplayCause::Pool(error)))?;
        let misuse = |error| nowhere(ReplayCause::Misuse(error));
        // A header that says that there is no log is never stored: that of the new log, in the same
        // transaction, replaces it.
        let _nozil = hdl.replay_done(P::txg_of(&tx)).map_err(misuse)?;
        self.unreplayed.store(0, Ordering::Relaxed);
        match self.start_locked(pool, &tx, &mut hdl) {
            Ok(()) => {}
            Err(LogError::Misuse(error)) => return Err(misuse(error)),
            Err(other) => unreachable!("{other}: making a log asks the pool for nothing"),
        }
        Ok(Replayed { records: number, reappeared: replayed.reappeared as u64 })
    }

    fn replay_one<P: Pool>(
        &self,
        batch: &mut Batch<'_, P, HeaderUpdate>,
        handler: &mut dyn ReplayHandler<P>,
        entry: &Entry<'_, M>,
        update: HeaderUpdate,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ReplayCause> {
        let len = entry.body_len_bytes();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        match entry.read_body(buffer) {
            // Damaged padding: the record itself is intact.
            Ok(()) | Err(BodyError::Padding { .. }) => {}
            Err(error) => return Err(ReplayCause::Body(error)),
        }
        let (head, record) = Record::decode(&buffer[..len]).map_err(ReplayCause::Record)?;
        if head.txg != entry.txg() {
            return Err(ReplayCause::OtherTxg { record: head.txg, entry: entry.txg() });
        }
        if record.is_indirect() {
            return Err(ReplayCause::Elsewhere);
        }
        batch.apply(update, len, |tx| handler.apply(tx, &head, &record).map_err(ReplayCause::Handler))?;
        self.unreplayed.fetch_sub(1, Ordering::Relaxed);
        Ok(())
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
        if self.refusal() != Some(LogCause::NotReplayed) {
            return Ok(0);
        }
        let mut hdl = write(&self.hdl);
        let tx = pool.begin_tx()?;
        let _nozil = hdl.destroy_log(P::txg_of(&tx))?;
        self.start_locked(pool, &tx, &mut hdl)?;
        Ok(self.unreplayed.swap(0, Ordering::Relaxed))
    }
}
