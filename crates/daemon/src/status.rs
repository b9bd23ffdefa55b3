//! Reports on a node.

use std::path::Path;

use fastness_base::Counts;
use fastness_blkdev::{Operation, StatsSnapshot};
use fastness_pmem::Durability;
use fastness_store::{
    self as store, DatasetInfo, DatasetKind, DeviceStatus, FailMode, KindId, PoolLog, PoolStatus, SyncMode,
    VdevClass,
};
use fastness_sync::lock;
use fastness_zpl::FileSystem;
use fastness_zvol::Volume;

use crate::damaged::{DamagedReport, damaged};
use crate::durability::{Before, Facts, LogPlace};
use crate::io_report::{IoCounters, IoReport, IoRow, LatencyBucket, RequestCounters};
use crate::log_status::judge_regions;
use crate::medium::{Survival, describe};
use crate::node::Node;
use crate::protocol::Failure;
use crate::report::{CheckReport, DeviceReport, OperationReport, PoolReport, VdevReport};

/// Maximum number of places named in a report.
const PLACES_MAX: usize = 100;

impl Node {
    /// State of the pool.
    pub fn status(&self) -> PoolReport {
        let pool = self.pool();
        let mut status = pool.status();
        status.vdevs.extend(self.added_since(&status));
        let regions = self.regions();
        let (damaged_blocks, unlisted) = pool.damaged();
        let lost = damaged_blocks.len() as u64 + unlisted;
        let (state, advice) = match judge(&status, pool.fail_mode()) {
            (state, _) if state != "suspended" && lost > 0 => ("damaged", Some(damaged(&status.name, lost))),
            ("online", advice) => judge_regions(&status.name, &regions).unwrap_or(("online", advice)),
            worse => worse,
        };
        let words = self.durability(&status).words();
        let vdev = |(id, class, sides): &(u16, VdevClass, Vec<DeviceStatus>)| VdevReport {
            id: *id,
            is_log: *class == VdevClass::Log,
            devices: sides.iter().map(device).collect(),
        };
        PoolReport {
            state: state.to_owned(),
            advice,
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            import: lock(&self.imported).clone(),
            synced_txg: status.synced.0,
            open_txg: status.open.0,
            dirty_bytes: status.dirty_bytes,
            dirty_bytes_max: self.options.pool.dirty_max_bytes,
            total_bytes: status.total_bytes,
            used_bytes: status.used_bytes,
            free_bytes: status.free_bytes,
            overcommitted_bytes: self.overcommitted_bytes(),
            found: words.found,
            after_process_crash: words.after_process_crash,
            after_power_cut: words.after_power_cut,
            not_flushed: words.not_flushed,
            log: self.log_report(),
            failmode: pool.fail_mode().name().to_owned(),
            waiting: self.store.waiting() + self.services.waiting(),
            vdevs: status.vdevs.iter().map(vdev).collect(),
            damaged: damaged_blocks.iter().map(|block| DamagedReport::of(&pool, block)).collect(),
            damaged_unlisted: unlisted,
            served: self.services.reports(),
            job: self.jobs.report(),
            trim: self.trims.report(),
            events: self.journal.events(),
            guid: status.guid.to_string(),
            name: status.name,
        }
    }

    /// Vdevs that were added after the pool was dropped; they are not open now.
    fn added_since(&self, status: &PoolStatus) -> Vec<(u16, VdevClass, Vec<DeviceStatus>)> {
        let mut added = self.store.vdevs_added();
        added.retain(|(id, ..)| status.vdevs.iter().all(|(known, ..)| known != id));
        for side in added.iter_mut().flat_map(|(.., sides)| sides) {
            (side.is_present, side.info) = (false, None);
        }
        added
    }

    /// The facts that decide what a crash leaves.
    fn durability(&self, status: &PoolStatus) -> Facts {
        let pool = self.pool();
        let stands_in = |log: &PoolLog| {
            // One surviving side of a mirror suffices.
            let regions = log.regions();
            regions.iter().all(|(_, info)| info.durability != Durability::PowerFail)
        };
        let log = match self.log().as_deref() {
            None => LogPlace::Unused,
            Some(log) if log.kind() == KindId::Lwb => LogPlace::Vdevs,
            Some(log) if stands_in(log) => LogPlace::StandsIn,
            Some(_) => LogPlace::Persistent,
        };
        let volumes: Vec<_> =
            pool.datasets().into_iter().filter(|info| info.kind != DatasetKind::Folder).collect();
        let is_disabled = |info: &&DatasetInfo| {
            pool.dataset_by_id(info.id).is_ok_and(|volume| volume.sync_mode() == SyncMode::Disabled)
        };
        Facts {
            before: if pool.was_exported() { Before::Exported } else { Before::Crashed },
            given_up: self.given_up,
            log,
            vdevs: survival(status),
            volumes: volumes.len(),
            disabled: volumes.iter().filter(is_disabled).map(|info| info.name.clone()).collect(),
        }
    }

    pub(crate) fn io(&self) -> IoReport {
        let status = self.pool().status();
        let sides = status.vdevs.iter().flat_map(|(.., sides)| sides);
        IoReport {
            at_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            synced_txg: status.synced.0,
            dirty_bytes: status.dirty_bytes,
            volumes: self.services.io(),
            devices: sides.map(|side| device_row(&side.path, &side.io)).collect(),
            pool: status.name,
        }
    }

    pub(crate) fn check(&self) -> Result<CheckReport, Failure> {
        let report = self.pool().check()?;
        let names = |places: &[fastness_store::Place]| {
            places.iter().take(PLACES_MAX).map(ToString::to_string).collect::<Vec<_>>()
        };
        Ok(CheckReport {
            is_clean: report.is_clean(),
            data_bytes: report.referenced_units * fastness_store::UNIT_BYTES,
            metadata_bytes: report.metadata_units * fastness_store::UNIT_BYTES,
            leaked: names(&report.leaked),
            missing: names(&report.missing),
            shared: names(&report.shared),
        })
    }
}

/// A one-word state of a pool, and what to do about it.
fn judge(status: &PoolStatus, mode: FailMode) -> (&'static str, Option<String>) {
    if let Some(error) = &status.suspended {
        let requests = match mode {
            FailMode::Wait => "writes wait",
            FailMode::Continue => "writes fail",
        };
        let text = format!(
            "{error}; {requests}, nothing is lost yet. See to its devices, and let it go on with `fastness pool clear {0}`; \
             or end it with `fastness pool export {0}`, which loses what was not flushed",
            status.name
        );
        return ("suspended", Some(text));
    }
    let sides = || status.vdevs.iter().flat_map(|(.., sides)| sides);
    if let Some(side) = sides().find(|side| !side.is_present || side.is_stale) {
        let text = match side.is_present {
            true => format!(
                "{0} missed writes: bring it up to date with `fastness pool online {1} {0}`",
                side.path, status.name
            ),
            false if side.is_offline => format!(
                "{0} is offline: bring it back with `fastness pool online {1} {0}`",
                side.path, status.name
            ),
            false => format!(
                "{0} is missing: import the pool with it, or put another in its place with `fastness pool replace {1} {2} NEW`",
                side.path, status.name, side.guid
            ),
        };
        return ("degraded", Some(text));
    }
    if let Some(side) = sides().find(|side| side.has_no_room) {
        let text = format!(
            "{0} has no room for what it says it can hold: nothing new is written to it, until the pool is exported and \
             imported again. Give it room, or add another device with `fastness pool add {1} NEW`",
            side.path, status.name
        );
        return ("degraded", Some(text));
    }
    if let Some(side) = sides().find(|side| side.has_failed_writes) {
        let text = format!(
            "{0} failed to write something new, which is on another device now: nothing new is written to it until the pool \
             is exported and imported again. Put another in its place with `fastness pool replace {1} {2} NEW`",
            side.path, status.name, side.guid
        );
        return ("degraded", Some(text));
    }
    let has_errors = |side: &&DeviceStatus| side.errors.read + side.errors.write + side.errors.checksum > 0;
    let advice = sides().find(has_errors).map(|side| {
        format!("{} made errors; `fastness pool scrub {}` looks at everything", side.path, status.name)
    });
    ("online", advice)
}

/// What a power cut leaves: as much as on the least device.
fn survival(status: &PoolStatus) -> Survival {
    let present = status.vdevs.iter().flat_map(|(.., sides)| sides);
    let each = present.filter_map(|side| Some(describe(Path::new(&side.path), side.info.as_ref()?).1));
    each.min().unwrap_or(Survival::Nothing)
}

fn device(side: &DeviceStatus) -> DeviceReport {
    let state = match side {
        DeviceStatus { is_offline: true, .. } => "offline",
        DeviceStatus { is_present: false, .. } => "missing",
        DeviceStatus { is_poisoned: true, .. } => "failed",
        DeviceStatus { is_stale: true, .. } => "stale",
        DeviceStatus { has_no_room: true, .. } => "full",
        DeviceStatus { has_failed_writes: true, .. } => "failing",
        _ => "online",
    };
    let medium = side.info.as_ref().map(|info| describe(Path::new(&side.path), info).0);
    DeviceReport {
        path: side.path.clone(),
        guid: side.guid.to_string(),
        state: state.to_owned(),
        read_errors: side.errors.read,
        write_errors: side.errors.write,
        checksum_errors: side.errors.checksum,
        healed: side.errors.healed,
        medium: medium.unwrap_or_default(),
    }
}

pub(crate) fn volume_row(volume: &Volume) -> IoRow {
    row("volume", volume.name(), |operation| volume.stats(operation))
}

pub(crate) fn files_row(fs: &FileSystem) -> IoRow {
    row("files", fs.dataset().name(), |operation| fs.stats(operation))
}

/// What was counted, with the buckets that have any.
pub(crate) fn io_counters(counts: &Counts) -> IoCounters {
    let &Counts { ops, bytes, errors, latency_ns_sum, ref latencies } = counts;
    let buckets = latencies.iter().filter(|bucket| bucket.count() > 0);
    let bucket = |bucket: histogram::Bucket| LatencyBucket { to_ns: bucket.end(), ops: bucket.count() };
    let latencies: Vec<_> = buckets.map(bucket).collect();
    let timed_ops = latencies.iter().map(|bucket| bucket.ops).sum();
    IoCounters { ops, bytes, errors, timed_ops, latency_ns_sum, latencies }
}

/// The counters of a request that a server has taken.
pub(crate) fn request_row(request: String, counts: &Counts) -> RequestCounters {
    RequestCounters { request, counters: io_counters(counts) }
}

/// The same, for the list of operations.
pub(crate) fn operation_row(operation: String, counts: &Counts) -> OperationReport {
    let IoCounters { ops, bytes, errors, timed_ops, latency_ns_sum, .. } = io_counters(counts);
    OperationReport { operation, ops, errors, bytes, timed_ops, latency_ns_sum }
}

fn row(kind: &str, name: String, stats: impl Fn(store::Operation) -> Counts) -> IoRow {
    let of = |operation| io_counters(&stats(operation));
    IoRow {
        kind: kind.to_owned(),
        name,
        read: of(store::Operation::Read),
        write: of(store::Operation::Write),
        sync_write: of(store::Operation::SyncWrite),
        flush: of(store::Operation::Flush),
        discard: of(store::Operation::Discard),
        requests: Vec::new(),
    }
}

fn device_row(path: &str, stats: &StatsSnapshot) -> IoRow {
    let of = |operations: &[Operation]| {
        let mut sum = IoCounters::default();
        for operation in operations {
            let one = stats.of(*operation);
            sum.ops += one.ops;
            sum.bytes += one.bytes;
            sum.errors += one.errors;
            sum.timed_ops += one.ops;
            sum.latency_ns_sum += one.latency_ns_sum;
        }
        sum
    };
    IoRow {
        kind: "device".to_owned(),
        name: path.to_owned(),
        read: of(&[Operation::Read]),
        write: of(&[Operation::Write, Operation::WriteZeroes]),
        sync_write: of(&[Operation::WriteFua]),
        flush: of(&[Operation::Flush]),
        discard: of(&[Operation::Discard]),
        requests: Vec::new(),
    }
}
