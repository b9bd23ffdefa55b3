//! Writes inside an object, as volumes make them: the change first, or the record.
//!
//! A synchronous write of whole blocks to a log in persistent memory is logged first, if the pool's property
//! `logdata` is `pm`: then its bytes are in the log, and need not be copied into memory
//! ([`Object::overwrite_logged`]). All others change the object first, so that one that fails is in no log.

use fastness_pool::{Object, Tx};
use fastness_zil::record::WRITE_HEAD_BYTES;

use crate::dataset::{ChangeError, Demand, OpenDataset, Receipt, Records};
use crate::dataset_log::DatasetLog;

type Result<T> = std::result::Result<T, ChangeError>;

impl OpenDataset {
    /// Writes `data` inside `object`, an object of this dataset, which does not grow. `is_copied`: as for
    /// [`Records::write`]. Otherwise as [`change`](Self::change).
    ///
    /// Persistence: none yet, see [`Receipt`].
    ///
    /// # Errors
    /// As there, and those of [`Object::overwrite_logged`].
    #[inline]
    pub fn overwrite(
        &self,
        demand: Demand,
        object: &Object,
        offset: u64,
        data: &[u8],
        is_copied: bool,
    ) -> Result<Receipt<'_>> {
        if demand == Demand::Now
            && object.is_for_the_log_alone(offset, data.len())
            && let Some(log) = &self.log
        {
            return self.until_room(|| self.log_first(log, object, offset, data, is_copied));
        }
        let change = |tx: &Tx| object.overwrite(tx, offset, data);
        let record = |records: Records<'_>| records.write(object.id(), offset, data, is_copied);
        self.change(demand, offset..offset + data.len() as u64, change, record)
    }

    #[inline]
    fn log_first(
        &self,
        log: &DatasetLog,
        object: &Object,
        offset: u64,
        data: &[u8],
        is_copied: bool,
    ) -> Result<Receipt<'_>> {
        log.admit();
        let _range = log.ranges.lock(offset, data.len() as u64);
        let tx = self.pool.begin_tx()?;
        let txg = tx.txg();
        let place = || log.zil.place_write(txg, object.id(), offset, data, is_copied);
        let made = object.overwrite_logged(&tx, offset, data, WRITE_HEAD_BYTES as u32, place);
        if made.is_err() {
            // It may have been made in part: only its txg makes that durable.
            log.zil.note_unlogged(txg);
        }
        Ok(self.receipt(Demand::Now, txg, made?))
    }
}
