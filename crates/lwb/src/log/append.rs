//! Appending: a copy into DRAM under a short lock.

use fastness_sync::lock;

use crate::format::RECORD_BYTES_MAX;
use crate::ids::{Lsn, Txg};
use crate::log::Log;
use crate::space::Space;

impl<S: Space> Log<S> {
    /// Appends a record of a change in `txg`; returns its number.
    ///
    /// Persistence: none; see [`commit`](Self::commit). A record that is never committed is dropped once its
    /// txg has synced. Works while the log is down, too: records then wait in DRAM for their txg, or for the
    /// next chain.
    ///
    /// # Panics
    /// If the record is longer than [`RECORD_BYTES_MAX`].
    pub fn append(&self, txg: Txg, record: &[u8]) -> Lsn {
        assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes", record.len());
        lock(&self.queue).push(txg, record)
    }
}
