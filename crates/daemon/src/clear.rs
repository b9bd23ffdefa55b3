//! Resumes a suspended pool: `pool clear`.
//!
//! Order: requests drain out of the volumes, and new ones wait; the suspended pool is dropped, its unsynced
//! changes are kept in memory (`fastness_pool::Unsynced`), and its devices are closed; they are opened again,
//! as they must be after a failed flush; the pool is imported and its log replayed; the kept changes are
//! written in one transaction and synced; the volumes are opened in the new import; waiting requests are
//! retried.
//!
//! Crash cases: a crash at any moment is a crash of the suspended pool, or of the new import: what was
//! flushed is on the medium or in the log. If a step fails, nothing is lost: the kept changes stay in memory,
//! requests keep waiting, and the next `clear` starts at the import.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use fastness_error::{ErrorKind, chain};
use fastness_pool::{Device, ImportOptions, Pool, PoolError, Unsynced, VdevSpec};
use fastness_store::{Consent, Txgs};
use fastness_zvol::Volume;

use crate::devices::{PATIENCE, patiently};
use crate::error::StartError;
use crate::gate::Slot;
use crate::importing::ImportStep;
use crate::lock;
use crate::log_device::import_log;
use crate::node::{Incarnation, Node, NodeOptions};
use crate::protocol::Failure;

/// How devices are reopened.
#[derive(Clone)]
pub struct Opener(Arc<Open>);

type Open = dyn Fn(&str) -> Result<Device, PoolError> + Send + Sync;

impl Opener {
    /// Opens devices some other way than by path, for those that have none.
    pub fn new(open: impl Fn(&str) -> Result<Device, PoolError> + Send + Sync + 'static) -> Opener {
        Opener(Arc::new(open))
    }
}

impl Default for Opener {
    fn default() -> Opener {
        Opener::new(|path| Device::open(path))
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

/// The unsynced state of a suspended pool that was dropped, kept until the next import has it.
#[derive(Debug)]
pub(crate) struct Kept {
    unsynced: Unsynced,
    /// Paths of its devices.
    paths: Vec<String>,
}

fn paths_of(pool: &Pool) -> Vec<String> {
    let vdevs = pool.status().vdevs;
    vdevs.iter().flat_map(|(.., sides)| sides).map(|side| side.path.clone()).collect()
}

impl Node {
    /// Resumes a suspended pool, if its devices are back.
    ///
    /// Persistence: on return everything that was acknowledged, flushed or not, is durable.
    ///
    /// # Errors
    /// The pool is not suspended, or an error of the import: the pool then stays suspended, and nothing is
    /// lost.
    pub fn clear(&self, is_degraded: bool) -> Result<(), Failure> {
        self.go_on(is_degraded, Vec::new())
    }

    /// As [`clear`](Self::clear), with more vdevs: for a pool that lacks the space to resume, or whose
    /// devices do. If it fails after adding them, they stay in the pool, and the next [`clear`](Self::clear)
    /// uses them.
    ///
    /// # Errors
    /// As [`clear`](Self::clear), and errors of [`Pool::add`].
    pub(crate) fn go_on(&self, is_degraded: bool, added: Vec<VdevSpec>) -> Result<(), Failure> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        let mut kept = lock(&self.kept);
        let old = self.pool();
        let slots: Vec<Arc<Slot>> = lock(&self.servings).iter().map(|serving| serving.slot.clone()).collect();
        if kept.is_none() {
            if !old.is_suspended() {
                let text = format!("pool {} is not suspended", old.name());
                return Err(Failure::refuse(ErrorKind::Invalid, text));
            }
            self.jobs.stop();
            slots.iter().for_each(|slot| slot.let_go());
            self.let_log_go();
            let paths = paths_of(&old);
            *kept = Some(Kept { unsynced: old.abandon()?, paths });
        }
        let kept_now = kept.as_mut().expect("kept above, or by an earlier try");
        let next = self.import_again(kept_now, is_degraded, added)?;
        let Kept { unsynced, .. } = kept_now;
        // Before any txg ends: this and the log's replay are one step, which needs no more space than was
        // reserved. If it fails, the import is dropped unchanged.
        let tx = next.pool.begin_replay_tx()?;
        unsynced.apply(&next.pool, &tx)?;
        let txg = tx.commit();
        next.pool.start_txgs()?;
        // Before any client is served: the next flush reports it as durable.
        next.pool.wait_synced(txg)?;
        let bytes = unsynced.bytes();
        *kept = None;
        lock(&self.vdevs_kept).clear();
        if self.is_ending.load(Ordering::SeqCst) {
            return Err(Failure::refuse(ErrorKind::Closed, "the pool is being exported"));
        }
        self.options.watch.begin(ImportStep::Serve);
        self.take_up(next, &slots);
        self.note_imported();
        self.journal
            .note(format!("the pool goes on; {bytes} bytes that were in memory only are durable now"));
        Ok(())
    }

    /// Imports a pool that was dropped; no txg has ended yet.
    fn import_again(
        &self,
        kept: &mut Kept,
        is_degraded: bool,
        mut added: Vec<VdevSpec>,
    ) -> Result<Incarnation, StartError> {
        let import = ImportOptions { allows_degraded: is_degraded, ..ImportOptions::default() };
        let options = NodeOptions { consent: Consent::NONE, ..self.options.clone() };
        added.reverse();
        let mut attempt = || {
            options.watch.begin(ImportStep::Pool);
            let devices = self.open_again(&kept.paths);
            let pool = Arc::new(Pool::import_paused(&devices, &import, options.pool.clone())?);
            drop(devices);
            while let Some(spec) = added.pop() {
                pool.add(&spec)?;
                // The next attempt has to open it, too.
                kept.paths = paths_of(&pool);
                *lock(&self.vdevs_kept) = pool.status().vdevs;
                self.journal.note("a vdev was added to the suspended pool");
            }
            let (log, given_up) = import_log(&pool, &options, &self.journal, Txgs::Paused)?;
            Ok(Incarnation { pool, log, given_up })
        };
        let is_busy = |result: &Result<Incarnation, StartError>| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Retry)
        };
        patiently(PATIENCE, &mut attempt, is_busy)
    }

    fn open_again(&self, paths: &[String]) -> Vec<Device> {
        let open = |path: &String| match self.options.opener.0(path) {
            Ok(device) => Some(device),
            Err(error) => {
                self.journal.note(format!("{path}: {}", chain(&error)));
                None
            }
        };
        paths.iter().filter_map(open).collect()
    }

    /// Serves the same volumes as before, from the new import.
    fn take_up(&self, next: Incarnation, slots: &[Arc<Slot>]) {
        let (pool, log) = (next.pool.clone(), next.log.clone());
        self.set_incarnation(next);
        for slot in slots {
            let name = pool.dataset_by_id(slot.id).map(|dataset| dataset.name());
            let opened = name
                .map_err(Failure::from)
                .and_then(|name| Volume::open(&pool, log.as_deref(), &name).map_err(Failure::from));
            match opened {
                Ok(volume) => slot.take_up(pool.clone(), Arc::new(volume)),
                // It was created in a txg that never synced, and its creation was never acknowledged.
                Err(error) => {
                    slot.end();
                    self.journal.note(format!("{} is not served any more: {}", slot.name(), chain(&error)));
                }
            }
        }
        self.gate.open();
    }
}
