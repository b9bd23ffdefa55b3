//! `fastness cache`: a write cache in persistent memory in front of a block device.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use fastness_base::{AnyError, ErrorKind};
use fastness_daemon::{absolute, run_dir};
use fastness_front::block::{Pair, Recovery, Report, Service, ServiceOptions, TakeUp, inspect};
use fastness_front::{Answer, Endpoint, OnLoss, Options, RegionUse, Request, WhenFull, ask};
use fastness_terminal::{Outcome, note};

use crate::cache::args::{
    AttachArgs, CreateArgs, DetachSideArgs, FlushArgs, RegionArgs, ServeArgs, StatusArgs, TakeUpArgs,
    WhenFullArg,
};
use crate::cache::show::{print, say};
use crate::connect::print_json;
use crate::error::{Result, busy, refuse};
use crate::notify::{State, notify};
use crate::responder::{once_free, region_socket};

mod args;
mod show;

const CREATE: &str = "\
Examples:
  fastness cache create --pm /dev/dax0.0 --origin /dev/sdb
  fastness cache create --pm /dev/dax0.0 --pm /dev/dax1.0 --origin /dev/sdb   a mirror: either region may be lost
  fastness cache create --pm /dev/shm/sdb.pm --size 1G --origin /dev/sdb   survives kill -9, not a power cut
`fastness cache serve REGION` then serves it. From then on change the origin through the cache alone.";
const SERVE: &str = "\
Examples:
  fastness cache serve /dev/dax0.0                                  a Unix socket in the folder of sockets
  fastness cache serve /dev/dax0.0 --socket /run/sdb.sock
  fastness cache serve /dev/dax0.0 --tcp 127.0.0.1:10809
Every write is durable when it is acknowledged. Ctrl-C ends it, and writes everything to the origin; once more ends it
at once. If this process is killed, serve again: what the log has is written to the origin first.";

/// Commands on write caches of block devices.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Make a cache in a region, in front of a block device or a file
    #[command(after_help = CREATE)]
    Create(CreateArgs),
    /// Serve the origin over NBD with its cache in front, until Ctrl-C
    #[command(after_help = SERVE)]
    Serve(ServeArgs),
    /// Show what a region holds that its origin does not have
    Status(StatusArgs),
    /// Write everything to the origin
    Flush(FlushArgs),
    /// The same, and end the cache: region and origin are independent again
    Detach(FlushArgs),
    /// Make the cache a mirror of two regions, or put a new region in the place of a side that is out
    Attach(AttachArgs),
    /// Make a mirror a cache in one region again
    DetachSide(DetachSideArgs),
    /// Read the certificates of a cache that is served again; connections go on
    Reload(RegionArgs),
}

pub(crate) fn run(command: CacheCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        CacheCommand::Create(args) => create(&args, out),
        CacheCommand::Serve(args) => serve(&args, out),
        CacheCommand::Status(args) => status(&args, out),
        CacheCommand::Flush(args) => flush(&args, out),
        CacheCommand::Detach(args) => detach(&args, out),
        CacheCommand::Attach(args) => attach(&args, out),
        CacheCommand::DetachSide(args) => detach_side(&args, out),
        CacheCommand::Reload(args) => match ask_owner(&args.region, Request::Reload)? {
            Some(report) => print(out, args.json, &report),
            None => Err(refuse("no process serves the cache of this region")),
        },
    }
}

fn region_use(emulate_pm: bool) -> RegionUse {
    if emulate_pm { RegionUse::Emulated } else { RegionUse::AsItIs }
}

fn create(args: &CreateArgs, out: &mut dyn Write) -> Result<Outcome> {
    if args.pm.len() > 2 {
        let text = "a cache is in one region, or in two that are a mirror: give --pm once or twice";
        return Err(AnyError::new(ErrorKind::Invalid, text.to_owned()).into());
    }
    let options = Options::new().force(args.force);
    let pair = Pair { region_bytes: args.size, region_use: region_use(args.emulate_pm), options };
    let made = once_free(|| pair.create(&args.pm, &args.origin))?;
    say(out, &made.report())?;
    Ok(Outcome::Clean)
}

/// Takes up the cache of a region that no process has.
fn take_up(
    region: &Path,
    other: Option<&PathBuf>,
    args: &TakeUpArgs,
    how: RegionUse,
    options: &Options,
) -> Result<Recovery> {
    let place = TakeUp { origin: args.origin.clone(), other: other.cloned() };
    once_free(|| place.open(region, how, options))
}

fn options(args: &TakeUpArgs) -> Options {
    let on_loss = if args.drop_tail { OnLoss::DropTail } else { OnLoss::Fail };
    Options::new().force(args.force).on_loss(on_loss).degraded(args.degraded)
}

/// The socket of the process that has the cache in a region.
fn socket(region: &Path) -> Result<PathBuf> {
    region_socket("cache", region)
}

fn ask_owner(region: &Path, request: Request) -> Result<Option<Report>> {
    // A region that is not there is reported when it is opened.
    if !region.exists() {
        return Ok(None);
    }
    match ask(&socket(region)?, request)? {
        None => Ok(None),
        Some(Answer::Done(report)) => Ok(Some(*report)),
        Some(Answer::Failed { kind, message, .. }) => {
            Err(AnyError::new(kind.parse().unwrap_or(ErrorKind::Bug), message).into())
        }
    }
}

fn serve(args: &ServeArgs, out: &mut dyn Write) -> Result<Outcome> {
    let commands = socket(&args.region)?;
    let endpoint = match (args.tcp, &args.socket) {
        (Some(address), _) => Endpoint::Tcp(address),
        (None, Some(path)) => Endpoint::Unix(absolute(path)?),
        (None, None) => {
            let name = commands.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Endpoint::Unix(run_dir()?.join(format!("{name}.nbd")))
        }
    };
    let when_full = match args.when_full {
        WhenFullArg::Wait => WhenFull::Wait,
        WhenFullArg::Fail => WhenFull::Fail,
    };
    let period = Duration::from_millis(args.flush_ms);
    let options = options(&args.take_up).when_full(when_full).committers(args.writers).period(period);
    let (other, how) = (args.other.pm.as_ref(), region_use(args.emulate_pm));
    let recovery = take_up(&args.region, other, &args.take_up, how, &options)?;
    // Somebody may ask about either side.
    let mut sockets = vec![commands];
    for region in recovery.regions() {
        sockets.extend(Some(socket(&region)?).filter(|socket| !sockets.contains(socket)));
    }
    let access = args.access.of_front()?;
    let service = Arc::new(Service::start(recovery, &ServiceOptions { endpoint, access, sockets })?);
    service.end_on_signals()?;
    say(out, &service.report())?;
    writeln!(out, "\nCtrl-C ends it, and writes everything to the origin.")?;
    out.flush()?;
    notify(State::Ready);
    service.wait();
    service.end()?;
    note("fastness: ended; the origin has everything");
    Ok(Outcome::Clean)
}

fn status(args: &StatusArgs, out: &mut dyn Write) -> Result<Outcome> {
    let region = &args.region.region;
    let report = match ask_owner(region, Request::Status)? {
        Some(report) => report,
        None => once_free(|| inspect(region, args.other.pm.as_deref()))?,
    };
    print(out, args.region.json, &report)
}

fn flush(args: &FlushArgs, out: &mut dyn Write) -> Result<Outcome> {
    // A flush takes as long as the origin: whether the process answers at all is asked first.
    let is_served = ask_owner(&args.region.region, Request::Status)?.is_some();
    let flushed = if is_served { ask_owner(&args.region.region, Request::Flush)? } else { None };
    let report = match flushed {
        Some(report) => report,
        None => taken_up(args)?.report(),
    };
    print(out, args.region.json, &report)
}

fn taken_up(args: &FlushArgs) -> Result<Recovery> {
    let (other, how) = (args.other.pm.as_ref(), RegionUse::AsItIs);
    take_up(&args.region.region, other, &args.take_up, how, &options(&args.take_up))
}

/// Refuses what cannot be done while a process has the cache.
fn refuse_if_served(region: &Path) -> Result<()> {
    match ask_owner(region, Request::Status)? {
        Some(_) => Err(busy("the cache is served; end that first")),
        None => Ok(()),
    }
}

fn detach(args: &FlushArgs, out: &mut dyn Write) -> Result<Outcome> {
    refuse_if_served(&args.region.region)?;
    let recovery = taken_up(args)?;
    let origin = recovery.report().origin;
    recovery.detach()?;
    match args.region.json {
        true => print_json(out, &serde_json::json!({ "detached": origin }))?,
        false => writeln!(out, "{origin} has everything, and belongs to no region")?,
    }
    Ok(Outcome::Clean)
}

fn attach(args: &AttachArgs, out: &mut dyn Write) -> Result<Outcome> {
    refuse_if_served(&args.region)?;
    let how = region_use(args.emulate_pm);
    let recovery = take_up(&args.region, None, &args.take_up, how, &options(&args.take_up))?;
    recovery.attach(&args.new, how)?;
    joined(out, args.json, &args.region)
}

fn detach_side(args: &DetachSideArgs, out: &mut dyn Write) -> Result<Outcome> {
    refuse_if_served(&args.region)?;
    let (other, how) = (Some(&args.side), RegionUse::AsItIs);
    let recovery = take_up(&args.region, other, &args.take_up, how, &options(&args.take_up))?;
    recovery.detach_side()?;
    joined(out, args.json, &args.region)
}

/// Shows what the regions say after one has come or gone.
fn joined(out: &mut dyn Write, is_json: bool, region: &Path) -> Result<Outcome> {
    let report = once_free(|| inspect(region, None))?;
    print(out, is_json, &report)
}
