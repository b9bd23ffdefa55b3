//! Resumes a suspended pool: `pool clear`, `pool add` to a pool that lacks space.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastness_base::{ErrorKind, is_busy, patiently};
use fastness_store::{Consent, Local, Places, VdevSpec};

use crate::devices::PATIENCE;
use crate::imported;
use crate::importing::ImportStep;
use crate::node::Node;
use crate::protocol::Failure;

impl Node {
    /// Resumes a suspended pool, if its devices are back. Of any other, sets the counters of errors of a
    /// device, or of all, back to zero; what scrubs found damaged stays listed until it is whole or gone.
    ///
    /// Persistence: on return everything that was acknowledged, flushed or not, is durable.
    ///
    /// # Errors
    /// No such device, or an error of the import: the pool then stays suspended, and nothing is lost.
    pub fn clear(&self, is_degraded: bool, device: Option<&str>) -> Result<(), Failure> {
        if self.pool().is_suspended() {
            return self.go_on(is_degraded, Vec::new());
        }
        let guid = device.map(|device| self.find(device)).transpose()?.map(|side| side.guid);
        self.pool().clear_errors(guid)?;
        self.journal
            .note(format!("the counters of errors of {} are cleared", device.unwrap_or("all devices")));
        Ok(())
    }

    /// As [`clear`](Self::clear), with more vdevs: for a pool that lacks the space to resume, or whose
    /// devices do. If it fails after adding them, they stay in the pool, and the next [`clear`](Self::clear)
    /// uses them.
    ///
    /// # Errors
    /// As [`clear`](Self::clear), and errors of [`Pool::add`](fastness_store::Pool::add).
    pub(crate) fn go_on(&self, is_degraded: bool, mut added: Vec<VdevSpec>) -> Result<(), Failure> {
        let _alone = fastness_sync::write(&self.changing);
        if self.pool().is_suspended() {
            self.jobs.stop();
            self.trims.stop();
        }
        let patience = Duration::ZERO;
        let places = Places { consent: Consent::NONE, patience, ..self.options.places.clone() };
        let mut tell = self.options.watch.of_log(&self.journal);
        let note = |text| self.journal.note(text);
        let mut source = Local::new(&places, Vec::new(), &note, &mut tell);
        let mut attempt = || {
            self.options.watch.begin(ImportStep::Pool);
            let count = added.len();
            let cleared = self.store.clear(&mut source, is_degraded, &mut added);
            for _ in added.len()..count {
                self.journal.note("a vdev was added to the suspended pool");
            }
            cleared
        };
        let cleared = patiently(PATIENCE, &mut attempt, is_busy)?;
        imported::note(&self.store, &source, &cleared.replayed, &self.journal);
        if self.is_ending.load(Ordering::SeqCst) {
            return Err(Failure::refuse(ErrorKind::Closed, "the pool is being exported"));
        }
        for front in &cleared.unopened {
            self.journal.fail(format!("{} is not served any more: {}", front.dataset, front.why));
        }
        drop(source);
        drop(tell);
        self.options.watch.begin(ImportStep::Serve);
        self.note_imported();
        self.resume_trim();
        self.journal.note(format!(
            "the pool goes on; {} bytes that were in memory only are durable now",
            cleared.bytes
        ));
        Ok(())
    }
}
