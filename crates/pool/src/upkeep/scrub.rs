//! Reading everything: scrub, and resilver of sides that missed writes.
//!
//! Both walk the tables of a snapshot in steps. During a step no freed space is reused, so what the snapshot
//! refers to still exists; between steps a newer snapshot is taken, so that whatever was freed meanwhile is
//! skipped. A rollback, a promotion or the end of an increment moves rows that refer to what they did before,
//! perhaps from where the walk has not been to where it has: so these branches are walked again at the end.
//!
//! Resilver: every txg writes to a stale side from the moment it is present, so only earlier writes are
//! missing. The walk copies them. Metadata moves during the walk, so it is copied last, with syncing held
//! off; and so are the log blocks that the side missed, with their I/O held off. Then the labels say that the
//! side is current.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::devices::label;
use crate::devices::vdev::{Side, Vdev};
use crate::error::{PoolError, Result};
use crate::ids::{Place, Txg, UNIT_BYTES};
use crate::metadata::groups::decode_row;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::tables::ExtentKey;
use crate::objects::extent::Extent;
use crate::pool::Pool;
use crate::state::Shared;
use crate::upkeep::damage::Found;
use fastness_sync::order::{lock, read, write};

/// Rows of a step.
const STEP_ROWS: usize = 64;

/// What a scrub or resilver has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubReport {
    /// Bytes of data and metadata that were checked, counted for one side.
    pub done_bytes: u64,
    /// Bytes that were in use when it began: about how much there is to do.
    pub total_bytes: u64,
    /// Copies that were wrong or unreadable; they were rewritten if there was a right one.
    pub wrong_copies: u64,
    /// Places with no right copy.
    pub lost: Vec<Place>,
}

impl Pool {
    /// Reads every copy of everything and rewrites wrong ones. `progress` is called now and then; when it
    /// returns `false`, the scrub ends and returns the report so far. What has no right copy is kept in a
    /// list ([`Pool::damaged`]), which the open txg stores.
    ///
    /// # Errors
    /// Those of reading the tables. Damage is reported, not returned as an error.
    pub fn scrub(&self, mut progress: impl FnMut(&ScrubReport) -> bool) -> Result<ScrubReport> {
        let visit = |vdev: &Vdev, unit, bytes, sum| vdev.scrub(unit, bytes, sum);
        let (mut found, mut is_stopped) = (Found::default(), false);
        let walked = self.shared.walk(&visit, &mut found, &mut |report| {
            is_stopped = !progress(report);
            !is_stopped
        });
        self.keep_damage(found, walked.is_ok() && !is_stopped);
        self.shared.tables.explained(walked)
    }
}

type Visit<'a> = dyn Fn(&Vdev, u64, usize, u64) -> (u64, bool) + 'a;

impl Shared {
    /// Calls `visit` for each extent and each page of metadata; it returns the number of wrong copies, and
    /// whether there is a right one.
    fn walk(
        &self,
        visit: &Visit<'_>,
        found: &mut Found,
        progress: &mut dyn FnMut(&ScrubReport) -> bool,
    ) -> Result<ScrubReport> {
        let mut report = ScrubReport::default();
        {
            let allocator = lock(&self.space.allocator);
            report.total_bytes = allocator.used_bytes();
        }
        let mut moves = self.tables.current().branches.moves();
        let all = (0, 0, 0)..(u64::MAX, 0, 0);
        if !self.walk_now(all, visit, found, &mut report, progress)?
            || !self.walk_past(None, visit, found, &mut report, progress)?
        {
            return Ok(report);
        }
        loop {
            let branches = self.tables.current().branches.clone();
            let moved = branches.moved_since(moves);
            if moved.is_empty() {
                break;
            }
            moves = branches.moves();
            // It counts once, and has been counted.
            let (done_bytes, lost) = (report.done_bytes, report.lost.len());
            for branch in moved {
                let of_it = (branch, 0, 0)..(branch + 1, 0, 0);
                if !self.walk_now(of_it, visit, found, &mut report, progress)?
                    || !self.walk_past(Some(branch), visit, found, &mut report, progress)?
                {
                    return Ok(report);
                }
            }
            report.done_bytes = done_bytes;
            let known: BTreeSet<Place> = report.lost[..lost].iter().copied().collect();
            let new = report.lost.split_off(lost).into_iter().filter(|place| !known.contains(place));
            report.lost.extend(new);
        }
        {
            // Pages move with each sync; there are few of them.
            let _syncing = lock(&self.txgs.syncing);
            for entry in self.tables.meta.entries() {
                let vdev = self.devices.vdevs.at(entry.place, 1)?;
                let outcome = visit(&vdev, entry.place.unit, UNIT_BYTES as usize, entry.sum);
                note(&mut report, entry.place, UNIT_BYTES, outcome);
                if !outcome.1 {
                    found.page(entry.place, entry.sum);
                }
            }
        }
        progress(&report);
        Ok(report)
    }

    /// Visits what the rows of a range have now; returns whether to go on.
    fn walk_now(
        &self,
        range: Range<ExtentKey>,
        visit: &Visit<'_>,
        found: &mut Found,
        report: &mut ScrubReport,
        progress: &mut dyn FnMut(&ScrubReport) -> bool,
    ) -> Result<bool> {
        let mut next = Some(range.start);
        while let Some(from) = next {
            {
                let _no_reuse = read(&self.space.reuse);
                let snapshot = self.tables.current();
                next = None;
                for row in snapshot.extents.range(from..range.end)?.take(STEP_ROWS) {
                    let (key, group) = decode_row(row)?;
                    // A clone's base has the rest of its row.
                    let base = snapshot.branches.base(key.0).map_or(Txg(0), |base| base.txg);
                    for (block, extent) in snapshot.in_use(key, &group).filter(|(_, it)| it.birth > base) {
                        self.visit_block(visit, &snapshot, (key.0, key.1, block), &extent, report, found)?;
                    }
                    next = Some((key.0, key.1, key.2 + 1));
                }
            }
            if !progress(report) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Visits what only snapshots have, of one branch or of all; returns whether to go on.
    fn walk_past(
        &self,
        only: Option<u64>,
        visit: &Visit<'_>,
        found: &mut Found,
        report: &mut ScrubReport,
        progress: &mut dyn FnMut(&ScrubReport) -> bool,
    ) -> Result<bool> {
        let branches: BTreeSet<u64> =
            self.tables.current().branches.all().map(|(_, base)| base.branch).collect();
        for branch in branches.into_iter().filter(|branch| only.is_none_or(|only| only == *branch)) {
            let mut next = Some((branch, 0, 0));
            while let Some(from) = next {
                {
                    let _no_reuse = read(&self.space.reuse);
                    next = self.visit_past(visit, from, found, report)?;
                }
                if !progress(report) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// One step of that; returns where to go on.
    fn visit_past(
        &self,
        visit: &Visit<'_>,
        from: ExtentKey,
        found: &mut Found,
        report: &mut ScrubReport,
    ) -> Result<Option<ExtentKey>> {
        let snapshot = self.tables.current();
        let mut next = None;
        for (key, extents) in snapshot.only_past(from, STEP_ROWS)? {
            for (at, extent) in extents {
                self.visit_block(visit, &snapshot, at, &extent, report, found)?;
            }
            next = Some((key.0, key.1, key.2 + 1));
        }
        Ok(next)
    }

    fn visit_block(
        &self,
        visit: &Visit<'_>,
        snapshot: &Snapshot,
        key: ExtentKey,
        extent: &Extent,
        report: &mut ScrubReport,
        found: &mut Found,
    ) -> Result<()> {
        let lost_before = report.lost.len();
        for piece in snapshot.pieces(extent)? {
            self.visit_extent(visit, &piece, report)?;
        }
        if report.lost.len() > lost_before {
            found.block(key, extent.place, extent.birth.0);
        }
        Ok(())
    }

    fn visit_extent(&self, visit: &Visit<'_>, extent: &Extent, report: &mut ScrubReport) -> Result<()> {
        let vdev = self.devices.vdevs.at(extent.place, extent.units())?;
        let outcome = visit(&vdev, extent.place.unit, extent.stored_bytes as usize, extent.sum);
        note(report, extent.place, extent.units() * UNIT_BYTES, outcome);
        Ok(())
    }

    /// Copies everything that a side should have onto it, and makes it current. The side stays stale if
    /// something could not be read: it must not be relied on in place of the side that has that data and may
    /// return it later.
    pub(crate) fn resilver(
        &self,
        vdev: &Arc<Vdev>,
        side: &Arc<Side>,
        found: &mut Found,
        progress: &mut dyn FnMut(&ScrubReport) -> bool,
    ) -> Result<ScrubReport> {
        let errors_before = side.errors().write;
        let failed = Mutex::new(None);
        let visit = |at: &Vdev, unit, bytes, sum| {
            if at.id != vdev.id {
                return (0, true);
            }
            let Ok((data, _)) = at.read_verified(unit, bytes, sum, "data") else { return (0, false) };
            if let Err(error) = at.write_side(side, unit, &data) {
                lock(&failed).get_or_insert(error);
            }
            (0, true)
        };
        let mut is_stopped = false;
        let report = self.walk(&visit, found, &mut |report| {
            is_stopped = !progress(report) || lock(&failed).is_some();
            !is_stopped
        })?;
        if let Some(error) = lock(&failed).take() {
            return Err(error);
        }
        if is_stopped || !report.lost.is_empty() {
            return Ok(report);
        }
        let _syncing = lock(&self.txgs.syncing);
        self.check_alive()?;
        self.copy_log_blocks(vdev, side)?;
        {
            // No log block may be missed between this check and the side becoming current.
            let _no_log_io = write(&vdev.log_io);
            self.copy_last_log_blocks(vdev, side)?;
            // Pages written since the walk went to this side too; all are durable once it has flushed.
            let device = side.writable().ok_or_else(|| side.unusable())?;
            self.write_last_mark(side)?;
            self.write_last_uberblock(side)?;
            device.flush()?;
            if side.errors().write != errors_before {
                return Err(PoolError::Busy {
                    name: side.path.clone(),
                    why: "it missed writes again meanwhile",
                });
            }
            side.set_stale(false);
        }
        self.write_labels(|_| ())?;
        Ok(report)
    }

    /// Gives a side that has everything the last uberblock: this side may be all that is left before the next
    /// txg; durable after the next flush.
    pub(crate) fn write_last_uberblock(&self, side: &Side) -> Result<()> {
        let uberblock = lock(&self.devices.uberblock).clone();
        let device = side.writable().ok_or_else(|| side.unusable())?;
        Ok(label::write_uberblock(&**device, side.guid, lock(&self.devices.config).guid, &uberblock)?)
    }

    /// Marks a side as having everything of the last synced txg; durable after the next flush.
    pub(crate) fn write_last_mark(&self, side: &Side) -> Result<()> {
        let mark = lock(&self.devices.uberblock).mark();
        let device = side.writable().ok_or_else(|| side.unusable())?;
        Ok(label::write_mark(&**device, side.guid, lock(&self.devices.config).guid, mark)?)
    }
}

fn note(report: &mut ScrubReport, place: Place, bytes: u64, (wrong, is_right): (u64, bool)) {
    report.done_bytes += bytes;
    report.wrong_copies += wrong;
    if !is_right {
        report.lost.push(place);
    }
}
