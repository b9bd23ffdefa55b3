//! What `iostat` knows: operations and their latencies.

use fastness_daemon::{Address, IoCounters, IoReport, IoRow, PoolReport, RequestCounters};

use super::text::{Labels, Text};

/// Ends of the latency buckets, as powers of two in ns: 1 us to 17 s.
const POWERS: std::ops::RangeInclusive<u32> = 10..=34;

/// What the kernel has asked mounts for.
pub(super) fn of_mounts(text: &mut Text, pools: &[PoolReport]) {
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
pub(super) fn of_operations(text: &mut Text, io: &[IoReport]) {
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

/// Latencies of what the kernel has asked mounts for, and all that virtual machines have asked disks for.
pub(super) fn of_requests(text: &mut Text, io: &[IoReport]) {
    let each = |text: &mut Text, kind: &str, show: &dyn Fn(&mut Text, Labels<'_>, &IoCounters)| {
        for report in io {
            for row in report.volumes.iter().filter(|row| row.kind == kind) {
                for RequestCounters { request, counters } in &row.requests {
                    let labels = [("pool", &*report.pool), ("name", &*row.name), ("request", &**request)];
                    show(text, &labels, counters);
                }
            }
        }
    };
    const OF_MOUNTS: &str = "fastness_mount_request_seconds";
    text.head(OF_MOUNTS, "histogram", "Latencies of requests of the kernel");
    each(text, "files", &|text, labels, of| histogram(text, OF_MOUNTS, labels, of));
    type Of = fn(&IoCounters) -> u64;
    let counters: [(&str, &str, Of); 3] = [
        ("fastness_vhost_requests_total", "Requests of virtual machines to their disks", |of| of.ops),
        ("fastness_vhost_request_bytes_total", "Bytes of those that succeeded", |of| of.bytes),
        ("fastness_vhost_request_errors_total", "Those that failed", |of| of.errors),
    ];
    for (name, help, value) in counters {
        text.head(name, "counter", help);
        each(text, "volume", &|text, labels, of| text.sample(name, labels, value(of)));
    }
    const OF_DISKS: &str = "fastness_vhost_request_seconds";
    text.head(OF_DISKS, "histogram", "Latencies of those that were timed");
    each(text, "volume", &|text, labels, of| histogram(text, OF_DISKS, labels, of));
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
        let text = text.finish();
        let lines: Vec<_> = text.lines().collect();
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
}
