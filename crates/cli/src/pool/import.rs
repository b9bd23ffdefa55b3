//! `fastness pool import`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_daemon::{Found, absolute, scan};
use fastness_store::Consent;

use crate::connect::print_json;
use crate::error::Result;
use crate::exit::Outcome;
use crate::output::note;
use crate::pool::list;
use crate::start::{BoundArgs, Import, refuse_running};
use crate::table::table;

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness pool import                      list the pools on devices in /dev
  fastness pool import -d /srv/disks        or in a folder
  fastness pool import tank                 import from the last known devices, or from /dev
  fastness pool import tank -d /srv/disks
  fastness pool import tank -d rbd:volumes  from images of a Ceph pool
  fastness pool import tank --foreground    for a service manager
  fastness pool import tank --missing-log   without a missing log device, and without the writes only it had
  fastness pool import tank --read-only     the last synced state; the log is left as it is
A background process then runs the pool; `fastness pool export tank` ends it. Volumes that were served before are served
again.";

/// Arguments of `fastness pool import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Name or GUID
    pool: Option<String>,
    /// A device, or a folder with devices, or a pool of RBD images (rbd:POOL); may be repeated
    #[arg(short, long = "device", value_name = "PATH")]
    devices: Vec<PathBuf>,
    /// Import although another host seems to be using the pool. If it is, both will destroy the pool
    #[arg(short, long)]
    force: bool,
    /// Change nothing on the devices, not even labels
    #[arg(long)]
    read_only: bool,
    /// Import although the missing side of a mirror may be newer than the present ones; changes that only it
    /// has are lost
    #[arg(long)]
    degraded: bool,
    /// New path of the log's region of persistent memory, if it has moved
    #[arg(long, value_name = "PATH")]
    log: Vec<PathBuf>,
    /// Import without a missing log device: acknowledged writes of the last seconds are lost
    #[arg(short, long)]
    missing_log: bool,
    /// Import with a damaged log: acknowledged writes after the damage are lost
    #[arg(long)]
    drop_log_tail: bool,
    /// Run the pool in this process, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    foreground: bool,
    /// Print JSON: the pool as an object, with the duration of each step of the import
    #[arg(long, requires = "pool")]
    json: bool,
    /// Report to the parent process
    #[arg(long, hide = true)]
    announce: bool,
    #[command(flatten)]
    bounds: BoundArgs,
}

pub(super) fn run(args: ImportArgs, out: &mut dyn Write) -> Result<Outcome> {
    let Some(name) = args.pool else {
        return candidates(args.devices, out);
    };
    refuse_running(&name)?;
    let places = args.devices.iter().map(|place| absolute(place)).collect::<Result<_, _>>()?;
    let import = Import {
        name,
        places,
        is_forced: args.force,
        is_read_only: args.read_only,
        is_degraded: args.degraded,
        log_paths: args.log.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
        consent: Consent { missing: args.missing_log, damaged: args.drop_log_tail },
        bounds: args.bounds,
    };
    if args.foreground {
        return import.foreground(args.announce, out);
    }
    let report = import.background()?;
    if args.json {
        print_json(out, &report)?;
    } else {
        list::show(out, &report)?;
    }
    Ok(Outcome::Clean)
}

/// Lists the pools that can be imported.
fn candidates(mut places: Vec<PathBuf>, out: &mut dyn Write) -> Result<Outcome> {
    let is_everything = places.is_empty();
    if is_everything {
        places.push(PathBuf::from("/dev"));
    }
    let (found, unreadable) = scan(&places);
    for device in unreadable.iter().filter(|_| !is_everything) {
        note(format_args!("{}: {}", device.path, device.why));
    }
    let row = |pool: &Found| {
        let state = match (pool.missing.is_empty(), pool.was_left_open()) {
            (false, _) => format!("{} devices missing", pool.missing.len()),
            (true, true) => format!("not exported by {}", pool.config.host_name),
            (true, false) => "exported".to_owned(),
        };
        let paths: Vec<_> = pool.devices.iter().map(|device| device.path.as_str()).collect();
        vec![pool.config.name.clone(), pool.config.guid.to_string(), state, paths.join(" ")]
    };
    if found.is_empty() {
        note("found no pool to import");
    } else {
        let columns = [("POOL", false), ("GUID", false), ("STATE", false), ("DEVICES", false)];
        table(out, &columns, found.iter().map(row).collect())?;
    }
    Ok(Outcome::Clean)
}
