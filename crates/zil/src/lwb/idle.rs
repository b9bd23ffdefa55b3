//! A thread that watches logs written recently: when one falls idle, the thread records on the medium what
//! was acknowledged last (`fastness_lwb::Log::witness_idle`). Without this thread, nothing else changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastness_lwb::Space;
use fastness_sync::thread::{Builder, JoinHandle};
use fastness_sync::{RwLock, read};

use crate::lwb::log::LwbLog;
use crate::lwb::written::Written;
use fastness_base::DatasetId;

pub(super) type LogMap<S> = Arc<RwLock<BTreeMap<DatasetId, Arc<LwbLog<S>>>>>;

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    written: Arc<Written>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Checks each log every `period` until it is idle. If the system cannot start a thread, there are no
    /// witnesses.
    pub(super) fn start<S: Space + 'static>(
        written: Arc<Written>,
        logs: LogMap<S>,
        period: Duration,
    ) -> Watcher {
        let its = Arc::clone(&written);
        let run = move || {
            while let Some(datasets) = its.next(period) {
                datasets.into_iter().for_each(|dataset| look(&logs, dataset));
            }
        };
        Watcher { written, thread: Builder::new().name("log-witness".into()).spawn(run).ok() }
    }
}

fn look<S: Space>(logs: &LogMap<S>, dataset: DatasetId) {
    let Some(log) = read(logs).get(&dataset).cloned() else { return };
    // Before the check: a commit during it notifies us again.
    log.noted.clear();
    if log.chain().witness_idle() {
        log.noted.note(dataset);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.written.end();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, there are no witnesses; nothing else depends on it.
            let _ = thread.join();
        }
    }
}
