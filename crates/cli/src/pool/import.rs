//! `fastness pool import`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_daemon::{Found, PoolReport, Request, absolute, all_known_devices, scan};
use fastness_store::Consent;
use fastness_terminal::{Outcome, note};

use crate::connect::{ask_all, print_json};
use crate::error::{Context, Result};
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
  fastness pool import tank lake            under another name from now on
  fastness pool import -D                   list the pools that were destroyed
  fastness pool import -D tank              bring one back
  fastness pool import -a -N                all of them, and serve nothing
A background process then runs the pool; `fastness pool export tank` ends it. Volumes that were served before are served
again.";

/// Arguments of `fastness pool import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Name or GUID
    pool: Option<String>,
    /// Its name from now on
    #[arg(conflicts_with = "all")]
    new_name: Option<String>,
    /// Import every pool that is found
    #[arg(short, long, conflicts_with_all = ["pool", "foreground"])]
    all: bool,
    /// Pools that were destroyed, and whose devices nothing has overwritten: list them, or import one
    #[arg(short = 'D', long)]
    destroyed: bool,
    /// Serve and mount nothing
    #[arg(short = 'N', long)]
    no_serve: bool,
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
    /// Print JSON: the pool as an object, with the duration of each step of the import; without a name an
    /// array of the pools that can be imported, with --all of those that were
    #[arg(long)]
    json: bool,
    /// Report to the parent process
    #[arg(long, hide = true)]
    announce: bool,
    #[command(flatten)]
    bounds: BoundArgs,
}

pub(super) fn run(args: ImportArgs, out: &mut dyn Write) -> Result<Outcome> {
    if args.all {
        return all(&args, out);
    }
    let Some(name) = &args.pool else {
        return candidates(&args, out);
    };
    refuse_running(name)?;
    let import = args.import(name)?;
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

/// Pools that a scan of /dev, and of where pools were before, finds.
pub(crate) fn importable() -> Vec<Found> {
    let (mut found, _) = scan(&everywhere());
    found.retain(|pool| !pool.is_destroyed());
    found
}

/// Where pools may be: all of /dev, and where they were before.
fn everywhere() -> Vec<PathBuf> {
    let known = all_known_devices().into_iter().map(PathBuf::from);
    let elsewhere = known.filter(|path| path.parent() != Some(Path::new("/dev")) && path.exists());
    std::iter::once(PathBuf::from("/dev")).chain(elsewhere).collect()
}

impl ImportArgs {
    /// The import of one pool.
    fn import(&self, name: &str) -> Result<Import> {
        Ok(Import {
            name: name.to_owned(),
            places: self.devices.iter().map(|place| absolute(place)).collect::<Result<_, _>>()?,
            is_forced: self.force,
            is_read_only: self.read_only,
            is_degraded: self.degraded,
            is_destroyed: self.destroyed,
            new_name: self.new_name.clone(),
            is_quiet: self.no_serve,
            log_paths: self.log.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
            consent: Consent { missing: self.missing_log, damaged: self.drop_log_tail },
            bounds: self.bounds.clone(),
        })
    }

    /// The pools that a scan finds, destroyed or not, as was asked for.
    fn scan(&self) -> Vec<Found> {
        let mut places = self.devices.clone();
        let is_everything = places.is_empty();
        if is_everything {
            places = everywhere();
        }
        let (mut found, unreadable) = scan(&places);
        for device in unreadable.iter().filter(|_| !is_everything) {
            note(format_args!("{}: {}", device.path, device.why));
        }
        found.retain(|pool| pool.is_destroyed() == self.destroyed);
        found
    }
}

/// Imports all pools that are found; goes on after one that fails. The last failure is returned.
fn all(args: &ImportArgs, out: &mut dyn Write) -> Result<Outcome> {
    let found = args.scan();
    if found.is_empty() {
        none(args)?;
    }
    let (mut reports, mut failed) = (Vec::new(), None);
    for pool in found {
        // Without places, by the name under which its devices are remembered.
        let guid = pool.config.guid.to_string();
        let import = args.import(if args.devices.is_empty() { &pool.config.name } else { &guid })?;
        match import.background() {
            Ok(report) => reports.push(report),
            Err(error) => {
                let error = Err::<(), _>(error).context(format!("pool {} is not imported", pool.config.name));
                if let Some(before) = failed.replace(error) {
                    crate::exit::tell(&before);
                }
            }
        }
    }
    if args.json {
        print_json(out, &reports)?;
    } else {
        reports.iter().try_for_each(|report| list::show(out, report))?;
    }
    failed.unwrap_or(Ok(())).map(|()| Outcome::Clean)
}

/// Says that there is nothing to import, and what may be taken for that.
fn none(args: &ImportArgs) -> Result<()> {
    let running: Vec<PoolReport> = ask_all(None, &Request::Status)?;
    let names: Vec<_> = running.iter().map(|pool| pool.name.as_str()).collect();
    let running = match &names[..] {
        [] => String::new(),
        names => format!("; running already: {}", names.join(", ")),
    };
    let which = if args.destroyed { "destroyed pool" } else { "pool to import" };
    note(format_args!("found no {which}{running}"));
    Ok(())
}

/// Lists the pools that can be imported.
fn candidates(args: &ImportArgs, out: &mut dyn Write) -> Result<Outcome> {
    let found = args.scan();
    let row = |pool: &Found| {
        let state = match (pool.missing.is_empty(), pool.was_left_open()) {
            (false, _) => format!("{} devices missing", pool.missing.len()),
            (true, true) => format!("not exported by {}", pool.config.host_name),
            (true, false) if pool.is_destroyed() => "destroyed".to_owned(),
            (true, false) => "exported".to_owned(),
        };
        let paths: Vec<_> = pool.devices.iter().map(|device| device.path.as_str()).collect();
        vec![pool.config.name.clone(), pool.config.guid.to_string(), state, paths.join(" ")]
    };
    if args.json {
        let report = |pool: &Found| {
            let [name, guid, state, _] = &row(pool)[..] else { unreachable!("four columns") };
            let devices: Vec<_> = pool.devices.iter().map(|device| &device.path).collect();
            serde_json::json!({"name": name, "guid": guid, "state": state, "devices": devices, "missing": pool.missing})
        };
        print_json(out, &found.iter().map(report).collect::<Vec<_>>())?;
    } else if found.is_empty() {
        none(args)?;
    } else {
        let columns = [("POOL", false), ("GUID", false), ("STATE", false), ("DEVICES", false)];
        table(out, &columns, found.iter().map(row).collect())?;
    }
    Ok(Outcome::Clean)
}
