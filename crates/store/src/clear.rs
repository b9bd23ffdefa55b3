//! Resumes a suspended pool: `pool clear`.
//!
//! Order: requests drain out of the front ends, and new ones wait; the suspended pool is given up, its
//! unsynced changes are kept in memory (`fastness_pool::Unsynced`), and its devices are closed; they are
//! opened again, as they must be after a failed flush; the pool is imported and its log replayed; the kept
//! changes are written in one transaction and synced; the front ends are opened in the new import; waiting
//! requests are retried.
//!
//! Crash cases: a crash at any moment is a crash of the suspended pool, or of the new import: what was
//! flushed is on the medium or in the log. If a step fails, nothing is lost: the kept changes stay in memory,
//! requests keep waiting, and the next [`Store::clear`] starts at the import.

use std::sync::Arc;

use fastness_pool::{DeviceStatus, ImportOptions, Pool, VdevClass, VdevSpec};
use fastness_sync::{lock, write};

use crate::error::StoreError;
use crate::import::Txgs;
use crate::imported::{Imported, Kept, Reopen, Unopened};
use crate::options::{Consent, StoreOptions};
use crate::replay::ReplayReport;
use crate::source::Source;
use crate::store::Store;

/// How a suspended pool went on.
#[derive(Debug)]
pub struct Cleared {
    /// Bytes that were in memory only, and are durable now.
    pub bytes: u64,
    /// Front ends that could not be opened again: their datasets were created in a txg that never synced, and
    /// their creation was never acknowledged.
    pub unopened: Vec<Unopened>,
    /// What was replayed.
    pub replayed: ReplayReport,
}

fn paths_of(pool: &Pool) -> Vec<String> {
    let vdevs = pool.status().vdevs;
    vdevs.iter().flat_map(|(.., sides)| sides).map(|side| side.path.clone()).collect()
}

impl Store {
    /// Resumes a suspended pool, if its devices are back, and adds vdevs to it: for a pool that lacks the
    /// space to go on, or whose devices do. What was added is taken out of `added`, and stays in the pool if
    /// a later step fails.
    ///
    /// Persistence: on return everything that was acknowledged, flushed or not, is durable.
    ///
    /// # Errors
    /// [`StoreError::NotSuspended`], or an error of the import: the pool then stays suspended, and nothing is
    /// lost.
    pub fn clear(
        &self,
        source: &mut dyn Source,
        allows_degraded: bool,
        added: &mut Vec<VdevSpec>,
    ) -> Result<Cleared, StoreError> {
        let _clearing = write(&self.clearing);
        let mut kept = lock(&self.kept);
        let attached: Vec<Arc<dyn Reopen>> =
            lock(&self.attached).iter().filter_map(std::sync::Weak::upgrade).collect();
        if kept.is_none() {
            let old = self.pool();
            if !old.is_suspended() {
                return Err(StoreError::NotSuspended(old.name()));
            }
            attached.iter().for_each(|front| front.let_go());
            // It holds the regions, which are opened again.
            self.set_imported(Imported { pool: old.clone(), log: None });
            let paths = paths_of(&old);
            *kept = Some(Kept { unsynced: old.abandon()?, paths });
        }
        let of = kept.as_mut().expect("kept above, or by an earlier try");
        let host = self.options.import.host.clone();
        let import = ImportOptions { host, allows_degraded, ..ImportOptions::default() };
        let options = StoreOptions { import, consent: Consent::NONE, ..self.options.clone() };
        let devices = source.devices(Some(&of.paths))?;
        let (next, replayed) = Imported::of(source, &devices, &options, Txgs::Paused, &mut |pool| {
            while let Some(spec) = added.last() {
                pool.add(spec)?;
                added.pop();
                // The next attempt has to open it, too.
                of.paths = paths_of(pool);
                *lock(&self.vdevs_added) = pool.status().vdevs;
            }
            Ok(())
        })?;
        drop(devices);
        // Before any txg ends: this and the log's replay are one step, which needs no more space than was
        // reserved. If it fails, the import is dropped unchanged.
        let tx = next.pool.begin_replay_tx()?;
        of.unsynced.apply(&next.pool, &tx)?;
        let txg = tx.commit();
        next.pool.start_txgs()?;
        // Before any client is served: the next flush reports it as durable.
        next.pool.wait_synced(txg)?;
        let bytes = of.unsynced.bytes();
        *kept = None;
        lock(&self.vdevs_added).clear();
        self.set_imported(next);
        let unopened = attached.iter().filter_map(|front| front.take_up().err()).collect();
        self.suspension.resume();
        Ok(Cleared { bytes, unopened, replayed })
    }

    /// The vdevs of a suspended pool that was given up, if some were added to it since; otherwise empty.
    pub fn vdevs_added(&self) -> Vec<(u16, VdevClass, Vec<DeviceStatus>)> {
        lock(&self.vdevs_added).clone()
    }
}
