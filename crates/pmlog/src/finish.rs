//! The end of a recovery: discards the old log and starts a new one.
//!
//! Crash cases: the header of the new log switches over. Before it is durable, the next recovery finds the
//! old log with all its records; afterwards, the new log, empty, and chunks with records that belong to no
//! log.

use std::convert::Infallible;

use fastness_prb::{Misuse, Txg};

use crate::error::RecoverError;
use crate::log::RecordLog;
use crate::medium::LogMedium;
use crate::recovery::Recovery;

impl<R: LogMedium> Recovery<R> {
    /// Discards the records, which must all have been handed out, and starts a new log.
    ///
    /// Persistence: on return no crash brings the records back; after a crash inside, all are recovered, or
    /// none.
    ///
    /// # Errors
    /// [`RecoverError`]; the log is unchanged, except after Collect, when it is empty.
    pub fn finish(mut self) -> Result<RecordLog<R>, RecoverError<Infallible>> {
        if self.records() == 0 {
            self.hand_out(|_, _| Ok(()))?;
        }
        let sync_txg = self.sync_txg();
        match self.hdl.replay_done(sync_txg) {
            // The header without a log needs no update of its own: that of the new log replaces it.
            Ok(_nozil) => self.start_anew(sync_txg),
            Err(Misuse::ReplayNotFinished) => Err(RecoverError::NotReplayed),
            Err(other) => Err(RecoverError::Bug(other)),
        }
    }

    /// Discards the records, handed out or not, and starts a new log.
    ///
    /// Persistence: as [`Recovery::finish`].
    ///
    /// # Errors
    /// As [`Recovery::finish`].
    pub fn discard(mut self) -> Result<RecordLog<R>, RecoverError<Infallible>> {
        let sync_txg = self.sync_txg();
        // As in `finish`: the header of the new log replaces it.
        let _nozil = self.hdl.destroy_log(sync_txg).map_err(RecoverError::Bug)?;
        self.start_anew(sync_txg)
    }

    /// The txg whose sync makes the records obsolete.
    fn sync_txg(&self) -> Txg {
        Txg(self.front.slot().synced.0 + 1)
    }

    fn start_anew(self, sync_txg: Txg) -> Result<RecordLog<R>, RecoverError<Infallible>> {
        let geometry = *self.geometry();
        let Self { prb, hdl, front, committers, .. } = self;
        let mut log = RecordLog::new(prb, hdl, front, geometry, committers);
        log.start_log(sync_txg)?;
        log.prb().finish_claiming().map_err(RecoverError::Bug)?;
        log.collect(sync_txg)?;
        Ok(log)
    }
}
