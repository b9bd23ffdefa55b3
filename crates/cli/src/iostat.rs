//! `fastness iostat`: what volumes, file systems and devices do.

mod latency;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use fastness_daemon::{IoCounters, IoReport, IoRow, LatencyBucket, Request};
use fastness_terminal::Outcome;
use fastness_terminal::size::short;

use crate::connect::ask_all;
use crate::error::{Result, refuse};
use crate::table::table;

const EXAMPLES: &str = "\
Examples:
  fastness iostat              averages since the import
  fastness iostat 1            then every second, until Ctrl-C
  fastness iostat tank 5 12    pool tank, every 5 s, 12 times
  fastness iostat -l 5         percentiles of the latencies of volumes and files, and of what
                               the kernel asks mounts for, and virtual machines their disks
  fastness iostat -w           the same as histograms
Sync writes (with FUA, or with sync=always) are durable when they return; a flush makes all earlier writes durable. The
latency of other writes lasts until the bytes are in memory (volumes) or with the kernel or disk (devices). --json
prints a line for each sample, with counters and histograms since the import.";

/// Arguments of `fastness iostat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct IostatArgs {
    /// `[POOL] [SECONDS [COUNT]]`
    #[arg(value_name = "POOL] [SECONDS [COUNT", num_args = 0..=3)]
    args: Vec<String>,
    /// Show percentiles of latencies, for each volume or file system and operation
    #[arg(short, long, conflicts_with = "histograms")]
    latencies: bool,
    /// Show latencies as histograms
    #[arg(short = 'w', long)]
    histograms: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Pool, interval, count.
fn parse(args: &[String]) -> Result<(Option<&str>, Option<u64>, Option<u64>)> {
    let (pool, numbers) = match args.split_first() {
        Some((first, rest)) if first.parse::<u64>().is_err() => (Some(first.as_str()), rest),
        _ => (None, args),
    };
    let number = |index: usize| -> Result<Option<u64>> {
        let Some(text) = numbers.get(index) else { return Ok(None) };
        match text.parse() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => Err(refuse(format!("{text} is not a number of seconds or a count"))),
        }
    };
    Ok((pool, number(0)?, number(1)?))
}

pub(crate) fn run(args: &IostatArgs, out: &mut dyn Write) -> Result<Outcome> {
    let (pool, interval_s, count) = parse(&args.args)?;
    let mut before: Vec<IoReport> = Vec::new();
    for sample in 0.. {
        let now: Vec<IoReport> = ask_all(pool, &Request::Io)?;
        if args.json {
            for report in &now {
                writeln!(out, "{}", serde_json::to_string(report)?)?;
            }
        } else {
            for report in &now {
                let old = before.iter().find(|old| old.pool == report.pool);
                match (args.latencies, args.histograms) {
                    (true, _) => latency::percentiles(out, report, old)?,
                    (_, true) => latency::histograms(out, report, old)?,
                    _ => show(out, report, old)?,
                }
            }
        }
        out.flush()?;
        before = now;
        let Some(interval_s) = interval_s else { break };
        if count.is_some_and(|count| sample + 1 >= count) {
            break;
        }
        std::thread::sleep(Duration::from_secs(interval_s));
    }
    Ok(Outcome::Clean)
}

fn show(out: &mut dyn Write, now: &IoReport, before: Option<&IoReport>) -> Result<()> {
    let elapsed_ns = now.at_ns - before.map_or(0, |before| before.at_ns.min(now.at_ns));
    let seconds = (elapsed_ns as f64 / 1e9).max(1e-3);
    writeln!(out, "pool {}: txg {} durable, {} unsynced", now.pool, now.synced_txg, short(now.dirty_bytes))?;
    let columns = [
        ("", false),
        ("READ/s", true),
        ("WRITE/s", true),
        ("SYNC/s", true),
        ("FLUSH/s", true),
        ("READ B/s", true),
        ("WRITE B/s", true),
        ("READ", true),
        ("WRITE", true),
        ("SYNC", true),
        ("FLUSH", true),
        ("ERRORS", true),
    ];
    let none = IoRow::default();
    let mut rows = Vec::new();
    for (rows_now, rows_before) in [
        (&now.volumes, before.map(|before| &before.volumes)),
        (&now.devices, before.map(|before| &before.devices)),
    ] {
        for row in rows_now {
            let old =
                rows_before.and_then(|rows| rows.iter().find(|old| old.name == row.name)).unwrap_or(&none);
            rows.push(line(row, old, seconds));
        }
    }
    table(out, &columns, rows)?;
    writeln!(out)?;
    Ok(())
}

fn line(now: &IoRow, before: &IoRow, seconds: f64) -> Vec<String> {
    let change = [
        since(&now.read, &before.read),
        since(&now.write, &before.write),
        since(&now.sync_write, &before.sync_write),
        since(&now.flush, &before.flush),
    ];
    let errors: u64 = change.iter().map(|change| change.errors).sum();
    let bytes = [change[0].bytes, change[1].bytes + change[2].bytes];
    let mut cells = vec![format!("{} {}", now.kind, now.name)];
    cells.extend(change.iter().map(|change| rate(change.ops, seconds)));
    cells.extend(bytes.iter().map(|bytes| short((*bytes as f64 / seconds) as u64)));
    cells.extend(change.iter().map(latency::mean));
    cells.push(errors.to_string());
    cells
}

/// The change between two samples; a volume that was closed in between begins at 0.
fn since(now: &IoCounters, before: &IoCounters) -> IoCounters {
    let ops_before = |to_ns| before.latencies.iter().find(|old| old.to_ns == to_ns).map_or(0, |old| old.ops);
    let latencies = now
        .latencies
        .iter()
        .map(|bucket| LatencyBucket { ops: bucket.ops.saturating_sub(ops_before(bucket.to_ns)), ..*bucket });
    IoCounters {
        ops: now.ops.saturating_sub(before.ops),
        bytes: now.bytes.saturating_sub(before.bytes),
        errors: now.errors.saturating_sub(before.errors),
        timed_ops: now.timed_ops.saturating_sub(before.timed_ops),
        latency_ns_sum: now.latency_ns_sum.saturating_sub(before.latency_ns_sum),
        latencies: latencies.filter(|bucket| bucket.ops > 0).collect(),
    }
}

fn rate(ops: u64, seconds: f64) -> String {
    let rate = ops as f64 / seconds;
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_pool_an_interval_and_a_count() {
        let args = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let parsed =
            |texts: &[&str]| parse(&args(texts)).ok().map(|(pool, a, b)| (pool.map(str::to_owned), a, b));
        assert_eq!(parsed(&[]), Some((None, None, None)));
        assert_eq!(parsed(&["5"]), Some((None, Some(5), None)));
        assert_eq!(parsed(&["tank", "5", "2"]), Some((Some("tank".to_owned()), Some(5), Some(2))));
        assert_eq!(parsed(&["5", "tank"]), None);
        assert_eq!(parsed(&["0"]), None);
    }

    #[test]
    fn rates_are_differences() {
        let now = IoCounters {
            ops: 30,
            bytes: 3000,
            errors: 1,
            timed_ops: 2,
            latency_ns_sum: 3000,
            latencies: vec![LatencyBucket { to_ns: 2047, ops: 2 }],
        };
        let before = IoCounters { ops: 10, ..IoCounters::default() };
        let change = since(&now, &before);
        assert_eq!((change.ops, rate(change.ops, 4.0).as_str()), (20, "5.0"));
        assert_eq!(since(&now, &now).latencies, []);
    }
}
