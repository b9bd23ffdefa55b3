//! `fastness pool status` and `fastness pool list`.

use std::io::Write;

use clap::Args;
use fastness_daemon::{DamagedReport, DeviceReport, PoolReport, Request};

use crate::connect::{ask_all, print_json};
use crate::error::Result;
use crate::exit::Outcome;
use crate::output::{fields, note};
use crate::size::short;
use crate::status::{job, log, outcome};
use crate::table::table;

/// Arguments of `fastness pool status`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 if a pool is not online.")]
pub(crate) struct StatusArgs {
    /// Show only this pool
    pool: Option<String>,
    /// List the blocks that have no right copy
    #[arg(long, short)]
    verbose: bool,
    /// Print JSON: an array with an object for each pool
    #[arg(long)]
    json: bool,
}

/// Arguments of `fastness pool list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show only this pool
    pool: Option<String>,
    /// Print JSON: an array with an object for each pool
    #[arg(long)]
    json: bool,
}

pub(super) fn status(args: &StatusArgs, out: &mut dyn Write) -> Result<Outcome> {
    let pools: Vec<PoolReport> = ask_all(args.pool.as_deref(), &Request::Status)?;
    if args.json {
        print_json(out, &pools)?;
    } else {
        none(&pools);
        for (index, pool) in pools.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            show(out, pool)?;
            if args.verbose {
                damaged(out, pool)?;
            }
        }
    }
    Ok(outcome(&pools))
}

pub(super) fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Outcome> {
    let pools: Vec<PoolReport> = ask_all(args.pool.as_deref(), &Request::Status)?;
    if args.json {
        print_json(out, &pools)?;
        return Ok(Outcome::Clean);
    }
    none(&pools);
    let row = |pool: &PoolReport| {
        let share = pool.used_bytes * 100 / pool.total_bytes.max(1);
        vec![
            pool.name.clone(),
            short(pool.total_bytes),
            short(pool.used_bytes),
            short(pool.free_bytes),
            format!("{share}%"),
            pool.state.clone(),
        ]
    };
    let columns =
        [("POOL", false), ("SIZE", true), ("USED", true), ("FREE", true), ("FULL", true), ("STATE", false)];
    if !pools.is_empty() {
        table(out, &columns, pools.iter().map(row).collect())?;
    }
    Ok(Outcome::Clean)
}

/// Blocks without a right copy.
fn damaged(out: &mut dyn Write, pool: &PoolReport) -> Result<()> {
    if pool.damaged.is_empty() && pool.damaged_unlisted == 0 {
        return Ok(());
    }
    let row = |block: &DamagedReport| {
        let dataset = block.dataset.clone().unwrap_or_else(|| "metadata of the pool".to_owned());
        let file = block.file.map_or_else(|| "-".to_owned(), |inode| inode.to_string());
        vec![dataset, file, block.offset.to_string(), block.bytes.to_string(), block.place.clone()]
    };
    writeln!(out, "\nno right copy of (`find -inum` finds the path of an inode)")?;
    let columns = [("DATASET", false), ("INODE", true), ("OFFSET", true), ("BYTES", true), ("PLACE", false)];
    table(out, &columns, pool.damaged.iter().map(row).collect())?;
    if pool.damaged_unlisted > 0 {
        writeln!(out, "and of {} more", pool.damaged_unlisted)?;
    }
    Ok(())
}

fn none(pools: &[PoolReport]) {
    if pools.is_empty() {
        note("no pool is running");
    }
}

/// A pool with its devices.
pub(super) fn show(out: &mut dyn Write, pool: &PoolReport) -> Result<()> {
    let mut rows = vec![("pool", pool.name.clone()), ("state", pool.state.clone())];
    rows.push(("found", pool.found.clone()));
    rows.extend(pool.advice.clone().map(|advice| ("to do", advice)));
    rows.extend(pool.job.as_ref().map(|report| ("job", job(report))));
    rows.extend(pool.log.as_ref().map(|report| ("log", log(report))));
    fields(out, &rows)?;
    writeln!(out)?;
    let columns = [
        ("DEVICE", false),
        ("STATE", false),
        ("READ", true),
        ("WRITE", true),
        ("CKSUM", true),
        ("HEALED", true),
        ("MEDIUM", false),
    ];
    let mut rows = Vec::new();
    for vdev in &pool.vdevs {
        let class = if vdev.is_log { "log " } else { "" };
        let indent = match &vdev.devices[..] {
            [_] => class.to_owned(),
            _ => {
                let mut row = vec![format!("{class}mirror-{}", vdev.id)];
                row.resize(columns.len(), String::new());
                rows.push(row);
                "  ".to_owned()
            }
        };
        rows.extend(vdev.devices.iter().map(|device| line(&indent, device)));
    }
    table(out, &columns, rows)?;
    Ok(())
}

fn line(indent: &str, device: &DeviceReport) -> Vec<String> {
    vec![
        format!("{indent}{}", device.path),
        device.state.clone(),
        device.read_errors.to_string(),
        device.write_errors.to_string(),
        device.checksum_errors.to_string(),
        device.healed.to_string(),
        if device.medium.is_empty() { device.guid.clone() } else { device.medium.clone() },
    ]
}
