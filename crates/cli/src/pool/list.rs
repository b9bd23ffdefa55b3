//! `fastness pool status` and `fastness pool list`.

use std::io::Write;

use clap::Args;
use fastness_daemon::{DamagedReport, DeviceReport, PoolReport, RegionReport, Request};
use fastness_terminal::size::short;
use fastness_terminal::{Outcome, fields, note};

use crate::connect::{ask_all, print_json};
use crate::error::Result;
use crate::listing::{Cell, Listing, ListingArgs};
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
    #[command(flatten)]
    listing: ListingArgs,
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
    let listing = Listing::<PoolReport> {
        shown: &[
            ("pool", |pool| Cell::text(&pool.name)),
            ("size", |pool| Cell::Bytes(pool.total_bytes)),
            ("used", |pool| Cell::Bytes(pool.used_bytes)),
            ("free", |pool| Cell::Bytes(pool.free_bytes)),
            ("full", |pool| Cell::text(format!("{}%", pool.used_bytes * 100 / pool.total_bytes.max(1)))),
            ("state", |pool| Cell::text(&pool.state)),
        ],
        others: &[
            ("name", |pool| Cell::text(&pool.name)),
            ("guid", |pool| Cell::text(&pool.guid)),
            ("pid", |pool| Cell::Number(u64::from(pool.pid))),
            ("failmode", |pool| Cell::text(&pool.failmode)),
            ("txg", |pool| Cell::Number(pool.synced_txg)),
            ("overcommitted", |pool| Cell::Bytes(pool.overcommitted_bytes)),
        ],
        more: &|_, _| None,
        more_names: &[],
    };
    listing.write(out, &args.listing, pools)?;
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

/// Whether volumes could come to need more than there is, in words.
pub(crate) fn overcommitted(pool: &PoolReport) -> Option<String> {
    let bytes = pool.overcommitted_bytes;
    (bytes > 0).then(|| {
        format!(
            "if all volumes of {} were written to the end, {} would be missing: add a device, or keep room for \
             those that need it (`fastness dataset set refreservation=auto VOLUME`)",
            pool.name,
            short(bytes)
        )
    })
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
    rows.extend(overcommitted(pool).map(|text| ("warning", text)));
    rows.extend(pool.job.as_ref().map(|report| ("job", job(report))));
    rows.extend(pool.trim.as_ref().map(|report| ("trim", job(report))));
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
    let regions = pool.log.as_ref().map_or(&[][..], |log| &log.regions);
    let indent = if regions.len() > 1 { "  " } else { "log " };
    if regions.len() > 1 {
        let mut row = vec!["log mirror".to_owned()];
        row.resize(columns.len(), String::new());
        rows.push(row);
    }
    rows.extend(regions.iter().map(|region| region_line(indent, region)));
    table(out, &columns, rows)?;
    Ok(())
}

/// A region of persistent memory. Loads and stores have no counters of errors: what it did not hold is a
/// wrong copy.
fn region_line(indent: &str, region: &RegionReport) -> Vec<String> {
    let medium = if region.medium.is_empty() { &region.id } else { &region.medium };
    let cells = [
        &format!("{indent}{}", region.path),
        &region.state,
        "-",
        "-",
        &region.faults.to_string(),
        "-",
        medium,
    ];
    cells.map(str::to_owned).to_vec()
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
