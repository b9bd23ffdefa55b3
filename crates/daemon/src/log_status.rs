//! Reports on a node's log.

use fastness_base::chain;
use fastness_store::{LogCause, PoolLog, RegionConfig, RegionStats, VdevClass};

use crate::node::Node;
use crate::report::{
    LogCauseReport, LogCounters, LogRegionCounters, LogReport, LogVolumeReport, RegionReport,
};

impl Node {
    pub(crate) fn log_report(&self) -> Option<LogReport> {
        let log = self.log()?;
        let log = &*log;
        let mut report = LogReport {
            kind: log.kind().name().to_owned(),
            regions: self.regions(),
            medium: self.log_medium(log),
            total: LogCounters::default(),
            volumes: Vec::new(),
            medium_counters: log.medium_stats().as_ref().map(medium_counters),
        };
        for (dataset, stats) in log.stats() {
            let counters = log_counters(&stats);
            report.total = sum(&report.total, &counters);
            // A dataset destroyed in the meantime has no name.
            if let Ok(dataset) = self.pool().dataset_by_id(dataset) {
                let (name, causes) = (dataset.name(), causes(&stats));
                report.volumes.push(LogVolumeReport { name, counters, causes });
            }
        }
        report.volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Some(report)
    }

    pub(crate) fn regions(&self) -> Vec<RegionReport> {
        let config = PoolLog::config(&self.pool()).unwrap_or_default();
        let log = self.log();
        let log = log.as_deref();
        let stats = log.and_then(PoolLog::medium_stats).unwrap_or_default();
        // Sides are in the order of the open regions.
        let open = log.map(PoolLog::regions).unwrap_or_default();
        let lost = log.map(PoolLog::lost_regions).unwrap_or_default();
        let report = |region: &RegionConfig| {
            let side = open.iter().position(|(id, _)| *id == region.id);
            let faults = side.map_or(0, |side| stats.side_faults[side] + stats.read_faults[side]);
            let error = lost.iter().find(|(id, _)| *id == region.id).map(|(_, error)| chain(error));
            // If all regions were lost, the log was on the last one until then.
            let is_alone = config.in_use().next().is_none();
            let state = match (region.is_out, &error, faults) {
                (true, Some(_), _) if is_alone => "lost",
                (true, ..) => "out",
                (false, Some(_), _) => "lost",
                (false, None, 0) => "online",
                (false, None, _) => "faulty",
            };
            RegionReport {
                path: region.path.display().to_string(),
                id: region.id.to_string(),
                emulates: region.emulates,
                medium: side.map(|side| open[side].1.kind.to_string()).unwrap_or_default(),
                state: state.to_owned(),
                faults,
                error,
            }
        };
        config.regions.iter().map(report).collect()
    }

    fn log_medium(&self, log: &PoolLog) -> String {
        let kinds: Vec<_> = log.regions().iter().map(|(_, info)| info.kind.to_string()).collect();
        match &kinds[..] {
            [] => {}
            [only] => return only.clone(),
            [first, second] if first == second => return format!("a mirror of two: {first}"),
            several => return format!("a mirror of {}", several.join(" and ")),
        }
        let usage = self.pool().log_space().usage();
        let of_logs = usage.iter().filter(|usage| usage.class == VdevClass::Log && !usage.is_retired).count();
        match of_logs {
            0 => "blocks on the pool's own devices".to_owned(),
            1 => "blocks on a device for logs".to_owned(),
            count => format!("blocks on {count} devices for logs"),
        }
    }
}

/// What is wrong with the log's regions, although nothing is lost.
pub(crate) fn judge_regions(pool: &str, regions: &[RegionReport]) -> Option<(&'static str, Option<String>)> {
    let bad = regions.iter().find(|region| region.state != "online")?;
    let others = regions.iter().any(|other| other.id != bad.id && other.state == "online");
    let why = match (bad.state.as_str(), &bad.error) {
        ("out", None) => "was missing, and the log goes on without it".to_owned(),
        ("out", Some(error)) => format!("was lost in use, and the log goes on without it ({error})"),
        ("lost", error) if others => {
            let error = error.as_deref().unwrap_or_default();
            format!("was lost in use; the log goes on without it when the next txg has synced ({error})")
        }
        ("lost", error) => {
            let error = error.as_deref().unwrap_or_default();
            format!(
                "was lost in use: synchronous writes wait for txgs, and the next two make durable what only the log had ({error})"
            )
        }
        _ => "does not hold what is written to it".to_owned(),
    };
    let or = if others { format!("detach {pool} {}", bad.id) } else { format!("remove {pool} {}", bad.id) };
    let text = format!(
        "the log's region {} {why}: put another in its place with `fastness pool replace {pool} {} NEW`, or `fastness pool {or}`",
        bad.path, bad.id
    );
    Some(("degraded", Some(text)))
}

fn log_counters(stats: &fastness_store::StatsSnapshot) -> LogCounters {
    let [copied, need_copy, _] = stats.assigned;
    LogCounters {
        records: stats.records + stats.bypass_records,
        bytes: stats.bytes + stats.bypass_bytes,
        commits: stats.commits,
        flushes: stats.flushes,
        waits: stats.waits,
        copied,
        need_copy,
        indirect: stats.indirect,
        indirect_bytes: stats.indirect_bytes,
        fallbacks: stats.fallbacks_total(),
        stalls: stats.stalls(),
        errors: stats.errors,
    }
}

fn sum(a: &LogCounters, b: &LogCounters) -> LogCounters {
    LogCounters {
        records: a.records + b.records,
        bytes: a.bytes + b.bytes,
        commits: a.commits + b.commits,
        flushes: a.flushes + b.flushes,
        waits: a.waits + b.waits,
        copied: a.copied + b.copied,
        need_copy: a.need_copy + b.need_copy,
        indirect: a.indirect + b.indirect,
        indirect_bytes: a.indirect_bytes + b.indirect_bytes,
        fallbacks: a.fallbacks + b.fallbacks,
        stalls: a.stalls + b.stalls,
        errors: a.errors + b.errors,
    }
}

/// Why records of a volume were not in the log when a commit or flush needed them there.
fn causes(stats: &fastness_store::StatsSnapshot) -> Vec<LogCauseReport> {
    let cause = |cause: LogCause| LogCauseReport {
        cause: cause.to_string(),
        fallbacks: stats.fallbacks_of(cause),
        unlogged: stats.unlogged_of(cause),
    };
    let seen = |report: &LogCauseReport| report.fallbacks + report.unlogged > 0;
    LogCause::ALL.into_iter().map(cause).filter(seen).collect()
}

fn medium_counters(stats: &RegionStats) -> LogRegionCounters {
    LogRegionCounters {
        entries: stats.entries,
        bytes: stats.written_bytes,
        slot_waits: stats.slot_waits,
        chunk_waits: stats.chunk_waits,
        chunks_collected: stats.chunks_collected,
        media_faults: stats.media_faults,
        time_in_pm_ns: stats.time_in_pm_ns(),
        read_bytes: stats.read_bytes,
        read_faults: stats.read_faults.iter().sum(),
    }
}

#[cfg(test)]
mod tests {
    use fastness_store::StatsSnapshot;

    use super::*;

    #[test]
    fn causes_that_occurred_are_named_and_no_others() {
        let mut stats = StatsSnapshot::default();
        assert_eq!(causes(&stats), []);
        let at = |cause| LogCause::ALL.iter().position(|other| *other == cause).expect("one of them");
        stats.fallbacks[at(LogCause::NoRoom)] = 3;
        stats.unlogged[at(LogCause::NoRoom)] = 2;
        stats.unlogged[at(LogCause::Failed)] = 1;
        let cause = |cause: LogCause, fallbacks, unlogged| LogCauseReport {
            cause: cause.to_string(),
            fallbacks,
            unlogged,
        };
        assert_eq!(causes(&stats), [cause(LogCause::NoRoom, 3, 2), cause(LogCause::Failed, 0, 1)]);
    }
}
