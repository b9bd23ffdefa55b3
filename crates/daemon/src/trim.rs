//! Trims: what is free in the pool is discarded on its devices.
//!
//! A trim goes step by step, beside everything else, and how far it has come is kept in the pool now and
//! then, so that the next import goes on with it. `autotrim` discards what was freed every few seconds; what
//! is not discarded when the pool is exported, or freed faster than that, is left to a trim.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fastness_base::{ErrorKind, chain};
use fastness_store::{Guid, Pool, PoolError, ScrubReport, TrimPoint, VdevClass};
use serde::{Deserialize, Serialize};

use crate::jobs::{TRIM, Tell, Work};
use crate::node::Node;
use crate::protocol::Failure;
use crate::report::JobReport;

/// Key stored with the root dataset.
const KEY: &[u8] = b"trim";
/// How often it is stored how far a trim has come.
const KEPT_EVERY: Duration = Duration::from_secs(5);
/// How often `autotrim` discards what was freed.
const AUTO_EVERY: Duration = Duration::from_secs(5);

/// How far a trim has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    vdev: u16,
    unit: u64,
    /// The side, if it is of one only.
    side: Option<u64>,
}

fn keep(pool: &Pool, kept: Option<Kept>) -> Result<(), PoolError> {
    let value = kept.map(|kept| serde_json::to_vec(&kept).expect("numbers"));
    let root = pool.dataset(&pool.name())?;
    let ((), txg) = pool.transact(|tx| {
        root.put_aux(tx, KEY, value.as_deref());
        Ok(())
    })?;
    pool.wait_synced(txg)
}

fn kept(pool: &Pool) -> Option<Kept> {
    let stored = pool.dataset(&pool.name()).ok()?.synced_aux(KEY).ok()??;
    serde_json::from_slice(&stored).ok()
}

/// The work of a trim from a point on.
fn work(pool: Arc<Pool>, from: Kept) -> Work {
    Box::new(move |progress| {
        let side = from.side.map(Guid);
        let mut point = TrimPoint { vdev: from.vdev, unit: from.unit };
        let mut stored = Instant::now();
        let mut report = ScrubReport::default();
        loop {
            (report.done_bytes, report.total_bytes) = pool.trim_progress(Some(point));
            let is_wanted = progress(&report);
            if !is_wanted || stored.elapsed() > KEPT_EVERY {
                // A point from before is as good: it is trimmed twice from there.
                keep(&pool, Some(Kept { vdev: point.vdev, unit: point.unit, side: from.side }))?;
                stored = Instant::now();
            }
            if !is_wanted {
                return Ok(report);
            }
            match pool.trim_step(point, side)?.next {
                Some(next) => point = next,
                None => break,
            }
        }
        keep(&pool, None)?;
        (report.done_bytes, report.total_bytes) = pool.trim_progress(None);
        Ok(report)
    })
}

impl Node {
    /// Trims the pool, or one device; goes on after an import.
    pub(crate) fn trim(
        &self,
        device: Option<&str>,
        wait: bool,
        tell: Tell<'_>,
    ) -> Result<JobReport, Failure> {
        let pool = self.pool();
        let side = device.map(|device| self.trimmed_side(device)).transpose()?;
        let from = Kept { vdev: 0, unit: 0, side: side.map(|(_, guid)| guid.0) };
        let from = Kept { vdev: side.map_or(0, |(vdev, _)| vdev), ..from };
        if self.trims.is_running() {
            let text = "a trim is under way; wait for it, or end it with `fastness pool trim --cancel`";
            return Err(Failure::refuse(ErrorKind::Retry, text));
        }
        keep(&pool, Some(from))?;
        let job = self.trims.start(TRIM.to_owned(), &self.journal, work(pool, from))?;
        job.wait_begun();
        if wait {
            job.wait(tell);
        }
        match job.failure() {
            Some(failure) => Err(failure),
            None => Ok(job.report()),
        }
    }

    /// A side of a vdev for data that can discard, by any name of it.
    fn trimmed_side(&self, device: &str) -> Result<(u16, Guid), Failure> {
        match self.find_with_vdev(device)? {
            (vdev, VdevClass::Normal, side) => Ok((vdev, side.guid)),
            _ => {
                let text = format!("{device} is a device for logs: a trim is of devices for data");
                Err(Failure::refuse(ErrorKind::Invalid, text))
            }
        }
    }

    /// Ends a trim that is under way, and one that an import would go on with.
    pub(crate) fn cancel_trim(&self) -> Result<Option<JobReport>, Failure> {
        self.trims.stop();
        if kept(&self.pool()).is_some() {
            keep(&self.pool(), None)?;
        }
        Ok(self.trims.report())
    }

    /// After an import: goes on with a trim, and notes what is freed, if it is to.
    pub(crate) fn resume_trim(&self) {
        let pool = self.pool();
        if self.options.pool.is_read_only {
            return;
        }
        pool.note_freed(pool.is_trimming());
        if let Some(from) = kept(&pool)
            && let Err(failure) = self.trims.start(TRIM.to_owned(), &self.journal, work(pool, from))
        {
            self.journal.warn(format!("the trim does not go on: {failure}"));
        }
    }

    /// Discards what was freed, as long as the node lives.
    pub(crate) fn trim_always(node: &Arc<Node>) {
        let of = Arc::downgrade(node);
        // Without the thread nothing is discarded, which a trim makes good.
        let started = std::thread::Builder::new().name("autotrim".to_owned()).spawn(move || run_always(&of));
        if let Err(error) = started {
            node.journal.warn(format!("autotrim does not run: {}", chain(&error)));
        }
    }
}

fn run_always(of: &Weak<Node>) {
    let mut has_failed = false;
    loop {
        std::thread::sleep(AUTO_EVERY);
        let Some(node) = of.upgrade() else { return };
        if node.is_ending.load(Ordering::SeqCst) {
            return;
        }
        let pool = node.pool();
        if node.options.pool.is_read_only || pool.is_suspended() || !pool.is_trimming() {
            continue;
        }
        match pool.trim_freed() {
            Ok(_) => has_failed = false,
            Err(error) if !has_failed => {
                has_failed = true;
                node.journal.warn(format!("autotrim: {}", chain(&error)));
            }
            Err(_) => {}
        }
    }
}
