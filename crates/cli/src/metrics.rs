//! `fastness metrics`: all counters of running pools, as Prometheus reads them.
//!
//! There is no server: what scrapes runs this program, or a timer writes its output to a file for the
//! textfile collector of the node exporter.
//!
//! Source: Prometheus, "Exposition formats", text format 0.0.4.

use std::fmt::Display;
use std::io::Write;

use clap::Args;
use fastness_daemon::{Address, IoCounters, IoReport, IoRow, PoolReport, Request, RequestCounters};

use crate::connect::ask_all;
use crate::error::Result;
use crate::exit::Outcome;

const EXAMPLES: &str = "\
Examples:
  fastness metrics
  fastness metrics tank > /var/lib/node_exporter/fastness.prom.new
Latencies are those of the operations that were timed: every synchronous one, and one in 16 of the others.";
/// States of a pool.
const STATES: [&str; 4] = ["online", "degraded", "damaged", "suspended"];
/// Ends of the latency buckets, as powers of two in ns: 1 us to 17 s.
const POWERS: std::ops::RangeInclusive<u32> = 10..=34;

/// Arguments of `fastness metrics`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricsArgs {
    /// Show only this pool
    pool: Option<String>,
}

pub(crate) fn run(args: &MetricsArgs, out: &mut dyn Write) -> Result<Outcome> {
    let pools: Vec<PoolReport> = ask_all(args.pool.as_deref(), &Request::Status)?;
    let io: Vec<IoReport> = ask_all(args.pool.as_deref(), &Request::Io)?;
    let mut text = Text::default();
    of_pools(&mut text, &pools);
    of_logs(&mut text, &pools);
    of_mounts(&mut text, &pools);
    of_operations(&mut text, &io);
    of_requests(&mut text, &io);
    out.write_all(text.0.as_bytes())?;
    Ok(Outcome::Clean)
}

/// Labels of a sample.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text; the samples of a metric follow its head, as the format demands.
#[derive(Debug, Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0 += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
        self.0 += &format!("{name}{{{}}} {value}\n", labels.join(","));
    }

    /// A metric with one sample for each of `all`.
    fn each<T>(&mut self, name: &str, kind: &str, help: &str, all: &[T], of: impl Fn(&T) -> (&str, u64)) {
        self.head(name, kind, help);
        for one in all {
            let (pool, value) = of(one);
            self.sample(name, &[("pool", pool)], value);
        }
    }
}

/// The value of a label: a path may have any character.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn of_pools(text: &mut Text, pools: &[PoolReport]) {
    text.head("fastness_pool_state", "gauge", "1 for the state that the pool is in");
    for pool in pools {
        for state in STATES {
            let is_it = u8::from(pool.state == state);
            text.sample("fastness_pool_state", &[("pool", &pool.name), ("state", state)], is_it);
        }
    }
    type Of = fn(&PoolReport) -> u64;
    let gauges: [(&str, &str, Of); 7] = [
        ("fastness_pool_size_bytes", "Space of the vdevs", |pool| pool.total_bytes),
        ("fastness_pool_used_bytes", "Space in use", |pool| pool.used_bytes),
        ("fastness_pool_free_bytes", "Space available to data", |pool| pool.free_bytes),
        ("fastness_pool_unsynced_bytes", "Changes in memory", |pool| pool.dirty_bytes),
        ("fastness_pool_unsynced_bytes_max", "Bound of these", |pool| pool.dirty_bytes_max),
        ("fastness_pool_waiting_requests", "Requests that wait for a suspended pool", |pool| {
            pool.waiting as u64
        }),
        ("fastness_pool_uptime_seconds", "Since the import", |pool| pool.uptime_s),
    ];
    for (name, help, of) in gauges {
        text.each(name, "gauge", help, pools, |pool| (&pool.name, of(pool)));
    }
    let synced = "fastness_pool_synced_txg";
    text.each(synced, "counter", "Newest durable txg", pools, |pool| (&pool.name, pool.synced_txg));
    let errors = "fastness_device_errors_total";
    text.head(errors, "counter", "Errors of a device, and blocks that were healed on it");
    for pool in pools {
        for device in pool.vdevs.iter().flat_map(|vdev| &vdev.devices) {
            for (error, count) in [
                ("read", device.read_errors),
                ("write", device.write_errors),
                ("checksum", device.checksum_errors),
                ("healed", device.healed),
            ] {
                let labels = [("pool", &*pool.name), ("device", &*device.path), ("error", error)];
                text.sample(errors, &labels, count);
            }
        }
    }
}

fn of_logs(text: &mut Text, pools: &[PoolReport]) {
    text.head("fastness_log_info", "gauge", "The kind of log that the pool uses");
    for pool in pools {
        if let Some(log) = &pool.log {
            text.sample("fastness_log_info", &[("pool", &pool.name), ("kind", &log.kind)], 1);
        }
    }
    let counter = "fastness_log_events_total";
    text.head(counter, "counter", "What the log of a dataset did since it was opened");
    for pool in pools {
        for volume in pool.log.iter().flat_map(|log| &log.volumes) {
            let of = &volume.counters;
            for (event, count) in [
                ("records", of.records),
                ("record_bytes", of.bytes),
                ("commits", of.commits),
                ("flushes", of.flushes),
                ("waits", of.waits),
                ("copied", of.copied),
                ("need_copy", of.need_copy),
                ("indirect", of.indirect),
                ("indirect_bytes", of.indirect_bytes),
                ("txg_instead", of.fallbacks),
                ("stalls", of.stalls),
                ("errors", of.errors),
            ] {
                let labels = [("pool", &*pool.name), ("name", &*volume.name), ("event", event)];
                text.sample(counter, &labels, count);
            }
        }
    }
    let counter = "fastness_log_medium_events_total";
    text.head(counter, "counter", "What was written to the regions of persistent memory since the import");
    for pool in pools {
        let Some(of) = pool.log.as_ref().and_then(|log| log.medium_counters.as_ref()) else { continue };
        for (event, count) in [
            ("entries", of.entries),
            ("bytes", of.bytes),
            ("slot_waits", of.slot_waits),
            ("chunk_waits", of.chunk_waits),
            ("chunks_emptied", of.chunks_collected),
            ("faults", of.media_faults),
        ] {
            text.sample(counter, &[("pool", &pool.name), ("event", event)], count);
        }
    }
}

/// What the kernel has asked mounts for.
fn of_mounts(text: &mut Text, pools: &[PoolReport]) {
    type Of = fn(&fastness_daemon::OperationReport) -> String;
    let metrics: [(&str, &str, Of); 3] = [
        ("fastness_mount_requests_total", "Requests of the kernel", |of| of.ops.to_string()),
        ("fastness_mount_request_errors_total", "Those that failed", |of| of.errors.to_string()),
        ("fastness_mount_request_seconds_total", "Time that they took", |of| {
            (of.latency_ns_sum as f64 / 1e9).to_string()
        }),
    ];
    for (name, help, value) in metrics {
        text.head(name, "counter", help);
        for pool in pools {
            let mounts = pool.served.iter().filter(|served| matches!(served.address, Address::Mount(_)));
            for served in mounts {
                for of in &served.operations {
                    let labels =
                        [("pool", &*pool.name), ("name", &*served.volume), ("request", &*of.operation)];
                    text.sample(name, &labels, value(of));
                }
            }
        }
    }
}

/// Volumes, file systems and devices.
fn of_operations(text: &mut Text, io: &[IoReport]) {
    let each = |text: &mut Text, show: &dyn Fn(&mut Text, Labels<'_>, &IoCounters)| {
        for report in io {
            for row in report.volumes.iter().chain(&report.devices) {
                let IoRow { kind, name, read, write, sync_write, flush, discard, .. } = row;
                for (operation, of) in [
                    ("read", read),
                    ("write", write),
                    ("sync_write", sync_write),
                    ("flush", flush),
                    ("discard", discard),
                ] {
                    let labels =
                        [("pool", &*report.pool), ("kind", kind), ("name", name), ("operation", operation)];
                    show(text, &labels, of);
                }
            }
        }
    };
    type Of = fn(&IoCounters) -> u64;
    let counters: [(&str, &str, Of); 3] = [
        ("fastness_operations_total", "Operations on volumes, files and devices", |of| of.ops),
        ("fastness_operation_bytes_total", "Bytes of those that succeeded", |of| of.bytes),
        ("fastness_operation_errors_total", "Those that failed", |of| of.errors),
    ];
    for (name, help, value) in counters {
        text.head(name, "counter", help);
        each(text, &|text, labels, of| text.sample(name, labels, value(of)));
    }
    text.head("fastness_operation_seconds", "histogram", "Latencies of the operations that were timed");
    each(text, &|text, labels, of| histogram(text, "fastness_operation_seconds", labels, of));
}

/// Latencies of what the kernel has asked mounts for.
fn of_requests(text: &mut Text, io: &[IoReport]) {
    const NAME: &str = "fastness_mount_request_seconds";
    text.head(NAME, "histogram", "Latencies of requests of the kernel");
    for report in io {
        for row in &report.volumes {
            for RequestCounters { request, counters } in &row.requests {
                let labels = [("pool", &*report.pool), ("name", &*row.name), ("request", &**request)];
                histogram(text, NAME, &labels, counters);
            }
        }
    }
}

/// Devices have a sum and a count only.
fn histogram(text: &mut Text, name: &str, labels: Labels<'_>, of: &IoCounters) {
    let bucket = |text: &mut Text, end: &str, count: u64| {
        let labels: Vec<_> = labels.iter().copied().chain([("le", end)]).collect();
        text.sample(&format!("{name}_bucket"), &labels, count);
    };
    if !of.latencies.is_empty() {
        for power in POWERS {
            let end_ns = 1_u64 << power;
            let upto = of.latencies.iter().filter(|bucket| bucket.to_ns < end_ns);
            bucket(text, &(end_ns as f64 / 1e9).to_string(), upto.map(|bucket| bucket.ops).sum());
        }
    }
    bucket(text, "+Inf", of.timed_ops);
    text.sample(&format!("{name}_sum"), labels, of.latency_ns_sum as f64 / 1e9);
    text.sample(&format!("{name}_count"), labels, of.timed_ops);
}

#[cfg(test)]
mod tests {
    use fastness_daemon::LatencyBucket;

    use super::*;

    #[test]
    fn a_histogram_counts_up_to_each_end_and_all_at_last() {
        let latencies = [(959, 98), (2047, 1), (40_000_000_000, 1)];
        let latencies = latencies.map(|(to_ns, ops)| LatencyBucket { to_ns, ops }).to_vec();
        let of =
            IoCounters { timed_ops: 100, latency_ns_sum: 1_500_000_000, latencies, ..IoCounters::default() };
        let mut text = Text::default();
        histogram(&mut text, "fastness_operation_seconds", &[("pool", "tank")], &of);
        let lines: Vec<_> = text.0.lines().collect();
        let bucket =
            |end, count| format!("fastness_operation_seconds_bucket{{pool=\"tank\",le=\"{end}\"}} {count}");
        assert_eq!(lines[..2], [bucket("0.000001024", 98), bucket("0.000002048", 99)]);
        assert_eq!(
            lines[lines.len() - 4..lines.len() - 2],
            [bucket("17.179869184", 99), bucket("+Inf", 100)]
        );
        assert_eq!(lines[lines.len() - 2], "fastness_operation_seconds_sum{pool=\"tank\"} 1.5");
        assert_eq!(lines[lines.len() - 1], "fastness_operation_seconds_count{pool=\"tank\"} 100");
    }

    #[test]
    fn labels_may_have_any_character() {
        let mut text = Text::default();
        text.sample("a", &[("b", "c\"d\\e\nf")], 1);
        assert_eq!(text.0, "a{b=\"c\\\"d\\\\e\\nf\"} 1\n");
    }
}
