//! A suspended pool goes on: `pool clear`.
//!
//! Order: no request is inside of a volume any more, and those that come wait; the suspended pool is given up, with what
//! it had in memory kept (`fastness_pool::Unsynced`), and lets go of its devices; they are opened again, as after a
//! failed flush they must be; the pool is imported and its log replayed; what was kept is written in one transaction and
//! synced; volumes are opened in it; those who wait make their requests again.
//!
//! Crash cases: at any moment that of a crash of the suspended pool, or of the new import: what was flushed is on the
//! medium or in the log. If a step fails, nothing is lost: what was kept is kept, requests wait on, and the next
//! `clear` begins with the import.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_error::{ErrorKind, chain};
use fastness_intent::Consent;
use fastness_pool::{Device, ImportOptions, Pool, PoolError};
use fastness_zvol::Volume;

use crate::devices::{PATIENCE, patiently};
use crate::error::StartError;
use crate::gate::Slot;
use crate::importing::ImportStep;
use crate::lock;
use crate::node::{Incarnation, Node, NodeOptions};
use crate::protocol::Failure;

/// How devices are opened again.
#[derive(Clone)]
pub struct Opener(Arc<Open>);

type Open = dyn Fn(&str) -> Result<Device, PoolError> + Send + Sync;

impl Opener {
    /// Another way than by path, for devices that have none.
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

impl Node {
    /// Lets a suspended pool go on, if its devices are back.
    ///
    /// Persistence: on return everything that was acknowledged, flushed or not, is durable.
    ///
    /// # Errors
    /// The pool is not suspended; those of an import: it stays suspended, and nothing is lost.
    pub fn clear(&self, is_degraded: bool) -> Result<(), Failure> {
        let _alone = self.changing.write().unwrap_or_else(std::sync::PoisonError::into_inner);
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
            *kept = Some(old.abandon()?);
        }
        let import = ImportOptions { allows_degraded: is_degraded, ..ImportOptions::default() };
        let is_busy = |result: &Result<Incarnation, StartError>| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Retry)
        };
        let next = patiently(PATIENCE, || self.import_again(&old, &import), is_busy)?;
        let unsynced = kept.as_ref().expect("kept above, or by an earlier try");
        let tx = next.pool.begin_tx()?;
        unsynced.apply(&next.pool, &tx)?;
        // Before anybody is served: a flush that comes next claims it.
        next.pool.wait_synced(tx.commit())?;
        let bytes = unsynced.bytes();
        *kept = None;
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

    fn import_again(&self, old: &Pool, import: &ImportOptions) -> Result<Incarnation, StartError> {
        let status = old.status();
        let open = |path: &String| match self.options.opener.0(path) {
            Ok(device) => Some(device),
            Err(error) => {
                self.journal.note(format!("{path}: {}", chain(&error)));
                None
            }
        };
        let paths = status.vdevs.iter().flat_map(|(.., sides)| sides).map(|side| &side.path);
        let devices: Vec<_> = paths.filter_map(open).collect();
        let options = NodeOptions { consent: Consent::NONE, ..self.options.clone() };
        Incarnation::import(&devices, import, &options, &self.journal)
    }

    /// Serves what was served, from the new import.
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
                // It was made in a txg that never synced, and nobody was told that it was.
                Err(error) => {
                    slot.end();
                    self.journal.note(format!("{} is not served any more: {}", slot.name(), chain(&error)));
                }
            }
        }
        self.gate.open();
    }
}
