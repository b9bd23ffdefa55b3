//! `fastness status`: all running pools and volumes.

use std::io::Write;

use clap::Args;
use fastness_daemon::{JobReport, LogReport, PoolReport, Request};
use fastness_terminal::size::short;
use fastness_terminal::{Outcome, fields, note};

use crate::connect::{ask_all, print_json};
use crate::error::Result;
use crate::table::table;

/// Arguments of `fastness status`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fastness status\n  fastness status tank --json\nExit code 1 if a pool is not online."
)]
pub(crate) struct StatusArgs {
    /// Show only this pool
    pool: Option<String>,
    /// Print JSON: an array with an object for each pool
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs, out: &mut dyn Write) -> Result<Outcome> {
    let pools: Vec<PoolReport> = ask_all(args.pool.as_deref(), &Request::Status)?;
    if args.json {
        print_json(out, &pools)?;
        return Ok(outcome(&pools));
    }
    if pools.is_empty() {
        note("no pool is running; `fastness up` creates one");
    }
    for (index, pool) in pools.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        head(out, pool)?;
        served(out, pool)?;
        events(out, pool)?;
    }
    Ok(outcome(&pools))
}

/// Whether a pool needs attention.
pub(crate) fn outcome(pools: &[PoolReport]) -> Outcome {
    if pools.iter().all(|pool| pool.state == "online") { Outcome::Clean } else { Outcome::Found }
}

fn head(out: &mut dyn Write, pool: &PoolReport) -> Result<()> {
    let mut rows = vec![
        ("pool", format!("{} ({}, process {}, up {})", pool.name, pool.state, pool.pid, time(pool.uptime_s))),
        ("found", pool.found.clone()),
        ("imported in", pool.import.to_string()),
        ("durable", format!("txg {}; open is txg {}", pool.synced_txg, pool.open_txg)),
        (
            "unsynced",
            format!("{} of at most {} in memory", short(pool.dirty_bytes), short(pool.dirty_bytes_max)),
        ),
        (
            "space",
            format!(
                "{} used, {} free of {}",
                short(pool.used_bytes),
                short(pool.free_bytes),
                short(pool.total_bytes)
            ),
        ),
        ("after a process crash", pool.after_process_crash.clone()),
        ("after a power cut", pool.after_power_cut.clone()),
    ];
    rows.extend(pool.log.as_ref().map(|report| ("log", log(report))));
    rows.extend(pool.job.as_ref().map(|report| ("job", job(report))));
    rows.extend(pool.advice.clone().map(|advice| ("to do", advice)));
    fields(out, &rows)?;
    Ok(())
}

fn served(out: &mut dyn Write, pool: &PoolReport) -> Result<()> {
    if pool.served.is_empty() {
        return Ok(());
    }
    let row = |served: &fastness_daemon::ServedReport| {
        let is_mount = matches!(served.address, fastness_daemon::Address::Mount(_));
        let mut access = if served.is_read_only { "read-only" } else { "read-write" }.to_owned();
        let mut clients = served.clients.to_string();
        if let Some(tls) = &served.tls {
            access.push_str(", TLS");
            if tls.verifies_clients {
                clients = format!("{clients}, {} certified", tls.certified);
            }
        }
        vec![
            served.volume.clone(),
            if is_mount { "-".to_owned() } else { short(served.size_bytes) },
            access,
            if is_mount { "-".to_owned() } else { clients },
            served.uri.clone(),
        ]
    };
    writeln!(out)?;
    let columns =
        [("SERVED", false), ("SIZE", true), ("ACCESS", false), ("CLIENTS", true), ("ADDRESS", false)];
    table(out, &columns, pool.served.iter().map(row).collect())?;
    Ok(())
}

fn events(out: &mut dyn Write, pool: &PoolReport) -> Result<()> {
    if !pool.events.is_empty() {
        writeln!(out, "\nlatest events")?;
    }
    for event in pool.events.iter().rev().take(5).rev() {
        let times = if event.times > 1 { format!(" ({} times)", event.times) } else { String::new() };
        writeln!(out, "  {}{times}", event.text)?;
    }
    Ok(())
}

/// The log in one line.
pub(crate) fn log(report: &LogReport) -> String {
    let regions: Vec<_> = report.regions.iter().map(|region| format!(" {}", region.path)).collect();
    format!(
        "{},{} {}, {} records of {}, {} waits for a txg instead, {} times no room",
        report.kind,
        regions.concat(),
        report.medium,
        report.total.records,
        short(report.total.bytes),
        report.total.fallbacks,
        report.total.stalls
    )
}

/// A scrub or resilver in one line.
pub(crate) fn job(report: &JobReport) -> String {
    let mut text = format!(
        "{} {} after {}: {} of about {}",
        report.what,
        report.state,
        time(report.elapsed_s),
        short(report.done_bytes),
        short(report.total_bytes.max(report.done_bytes)),
    );
    // A trim reads nothing.
    if report.what != "trim" {
        text.push_str(&format!(", {} wrong copies", report.wrong_copies));
    }
    if !report.lost.is_empty() {
        text.push_str(&format!(", no right copy at {}", report.lost.join(", ")));
    }
    if let Some(error) = &report.error {
        text.push_str(&format!(": {error}"));
    }
    text
}

/// Seconds for people.
pub(crate) fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days", seconds / 86400),
    }
}
