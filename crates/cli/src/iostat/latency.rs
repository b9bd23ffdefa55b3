//! Latencies for people: means, percentiles, histograms.

use std::io::Write;

use fastness_daemon::{IoCounters, IoReport, IoRow, LatencyBucket};

use super::since;
use crate::error::Result;
use crate::table::table;

const PERCENTILES: [(f64, &str); 5] =
    [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];
/// Widest bar of a histogram.
const BAR: u64 = 40;

fn text(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

/// Mean latency of the timed operations.
pub(super) fn mean(counters: &IoCounters) -> String {
    match counters.timed_ops {
        0 => "-".to_owned(),
        ops => text(counters.latency_ns_sum / ops),
    }
}

/// The end of the bucket that at least `share` of the operations did not exceed.
fn percentile(latencies: &[LatencyBucket], share: f64) -> Option<u64> {
    let total: u64 = latencies.iter().map(|bucket| bucket.ops).sum();
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    latencies
        .iter()
        .find(|bucket| {
            seen += bucket.ops;
            seen >= wanted
        })
        .map(|bucket| bucket.to_ns)
}

/// Operations on volumes and files, and requests to mounts and to disks of virtual machines, since a sample,
/// with their names.
fn operations<'a>(
    now: &'a IoReport,
    before: Option<&'a IoReport>,
) -> impl Iterator<Item = (&'a str, String, IoCounters)> {
    now.volumes.iter().flat_map(move |row| {
        let old = before.and_then(|before| before.volumes.iter().find(|old| old.name == row.name));
        let old = old.cloned().unwrap_or_default();
        let IoRow { read, write, sync_write, flush, discard, .. } = row;
        let each = [
            ("read", since(read, &old.read)),
            ("write", since(write, &old.write)),
            ("sync write", since(sync_write, &old.sync_write)),
            ("flush", since(flush, &old.flush)),
            ("discard", since(discard, &old.discard)),
        ];
        let requests = row.requests.iter().map(move |of| {
            let before = old.requests.iter().find(|old| old.request == of.request);
            let before = before.map(|old| old.counters.clone()).unwrap_or_default();
            let protocol = if row.kind == "files" { "fuse" } else { "vhost" };
            (format!("{protocol} {}", of.request), since(&of.counters, &before))
        });
        let each = each.map(|(operation, change)| (operation.to_owned(), change));
        let happened = each.into_iter().chain(requests).filter(|(_, change)| change.timed_ops > 0);
        happened.map(|(operation, change)| (row.name.as_str(), operation, change))
    })
}

/// A line for each operation of each volume.
pub(super) fn percentiles(out: &mut dyn Write, now: &IoReport, before: Option<&IoReport>) -> Result<()> {
    let mut columns = vec![("VOLUME OR FILES", false), ("OPERATION", false), ("TIMED", true), ("MEAN", true)];
    columns.extend(PERCENTILES.map(|(_, name)| (name, true)));
    columns.push(("MAX", true));
    let rows = operations(now, before).map(|(name, operation, change)| {
        let mut cells = vec![name.to_owned(), operation, change.timed_ops.to_string(), mean(&change)];
        let shares = PERCENTILES.iter().map(|(share, _)| *share).chain([1.0]);
        cells.extend(shares.map(|share| percentile(&change.latencies, share).map_or("-".to_owned(), text)));
        cells
    });
    table(out, &columns, rows.collect())?;
    writeln!(out)?;
    Ok(())
}

/// A histogram for each operation of each volume, a line for each power of two.
pub(super) fn histograms(out: &mut dyn Write, now: &IoReport, before: Option<&IoReport>) -> Result<()> {
    for (name, operation, change) in operations(now, before) {
        writeln!(out, "{name}, {operation}: {} timed, mean {}", change.timed_ops, mean(&change))?;
        let powers = by_power(&change.latencies);
        let most = powers.iter().map(|(_, ops)| *ops).max().unwrap_or(1);
        for (to_ns, ops) in powers {
            let bar = "#".repeat((ops * BAR).div_ceil(most) as usize);
            writeln!(out, "  up to {:>9} {ops:>12} {bar}", text(to_ns))?;
        }
    }
    writeln!(out)?;
    Ok(())
}

/// Operations up to each power of two, from the first to the last that has any.
fn by_power(latencies: &[LatencyBucket]) -> Vec<(u64, u64)> {
    let power = |bucket: &LatencyBucket| 64 - bucket.to_ns.leading_zeros();
    let (Some(first), Some(last)) = (latencies.first().map(power), latencies.last().map(power)) else {
        return Vec::new();
    };
    let of =
        |wanted| latencies.iter().filter(|bucket| power(bucket) == wanted).map(|bucket| bucket.ops).sum();
    (first..=last).map(|power| (u64::MAX >> (64 - power.max(1)), of(power))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets() -> Vec<LatencyBucket> {
        [(959, 98), (1023, 1), (9215, 1)].map(|(to_ns, ops)| LatencyBucket { to_ns, ops }).to_vec()
    }

    #[test]
    fn a_percentile_is_the_end_of_the_bucket_that_reaches_it() {
        let at = |share| percentile(&buckets(), share).unwrap();
        assert_eq!([0.0, 0.5, 0.98, 0.99, 1.0].map(at), [959, 959, 959, 1023, 9215]);
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(
            mean(&IoCounters { timed_ops: 2, latency_ns_sum: 3000, ..IoCounters::default() }),
            "1500 ns"
        );
        assert_eq!(mean(&IoCounters::default()), "-");
    }

    #[test]
    fn a_histogram_has_no_gaps() {
        let expected = [(1023, 99), (2047, 0), (4095, 0), (8191, 0), (16383, 1)];
        assert_eq!(by_power(&buckets()), expected);
        assert_eq!(by_power(&[]), []);
    }
}
