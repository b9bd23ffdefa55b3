//! `fastness cache`: a write cache in persistent memory in front of a block device.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use fastness_base::{AnyError, ErrorKind};
use fastness_daemon::{absolute, run_dir};
use fastness_front::block::{Pair, Recovery, Report, Service, ServiceOptions, inspect};
use fastness_front::{Answer, Endpoint, OnLoss, Options, RegionUse, Request, WhenFull, ask};

use crate::connect::print_json;
use crate::error::{Result, busy};
use crate::exit::Outcome;
use crate::notify::{State, notify};
use crate::output::{fields, note};
use crate::responder::{once_free, region_socket};
use crate::size;

const CREATE: &str = "\
Examples:
  fastness cache create --pm /dev/dax0.0 --origin /dev/sdb
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
    Status(RegionArgs),
    /// Write everything to the origin
    Flush(FlushArgs),
    /// The same, and end the cache: region and origin are independent again
    Detach(FlushArgs),
}

/// What writes do while the log is full and the origin takes nothing.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum WhenFullArg {
    /// They wait for the origin
    Wait,
    /// They fail, with "no space"
    Fail,
}

/// Arguments of `fastness cache create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Persistent memory: a devdax device, or a file on a DAX file system; a file is made if it is not there
    #[arg(long, value_name = "REGION")]
    pm: PathBuf,
    /// Use an ordinary file as if it were persistent memory: it survives the process, but not the power
    #[arg(long)]
    emulate_pm: bool,
    /// Size of the file, when it is made
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    size: u64,
    /// The block device or file that the cache is in front of
    #[arg(long, value_name = "PATH")]
    origin: PathBuf,
    /// Make a cache although the region has one, or the origin belongs to one: what that holds is lost
    #[arg(long)]
    force: bool,
}

/// How the cache of a region is taken up.
#[derive(Debug, Args)]
pub(crate) struct TakeUpArgs {
    /// The origin, if it is not where it was
    #[arg(long, value_name = "PATH")]
    origin: Option<PathBuf>,
    /// Take up the cache although its origin does not confirm that they belong together
    #[arg(long)]
    force: bool,
    /// Give up what depends on missing or damaged entries of the log
    #[arg(long)]
    drop_tail: bool,
}

/// Arguments of `fastness cache serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The region
    region: PathBuf,
    #[command(flatten)]
    take_up: TakeUpArgs,
    /// Use an ordinary file as if it were persistent memory: it survives the process, but not the power
    #[arg(long)]
    emulate_pm: bool,
    /// Path of a Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "tcp")]
    socket: Option<PathBuf>,
    /// Loopback address and port
    #[arg(long, value_name = "ADDRESS")]
    tcp: Option<std::net::SocketAddr>,
    /// What writes do while the log is full and the origin takes nothing
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    when_full: WhenFullArg,
    /// Threads that may write to the region at a time: 2 to 4 for each module
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=32))]
    writers: u32,
    /// Milliseconds that a change may stay in the log alone while the origin has nothing else to do
    #[arg(long, value_name = "MS", default_value = "50", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    flush_ms: u64,
}

/// Arguments of `fastness cache status`.
#[derive(Debug, Args)]
pub(crate) struct RegionArgs {
    /// The region
    region: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of commands that write to the origin.
#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    #[command(flatten)]
    region: RegionArgs,
    #[command(flatten)]
    take_up: TakeUpArgs,
}

pub(crate) fn run(command: CacheCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        CacheCommand::Create(args) => create(&args, out),
        CacheCommand::Serve(args) => serve(&args, out),
        CacheCommand::Status(args) => status(&args, out),
        CacheCommand::Flush(args) => flush(&args, out),
        CacheCommand::Detach(args) => detach(&args, out),
    }
}

fn region_use(emulate_pm: bool) -> RegionUse {
    if emulate_pm { RegionUse::Emulated } else { RegionUse::AsItIs }
}

fn create(args: &CreateArgs, out: &mut dyn Write) -> Result<Outcome> {
    let options = Options::new().force(args.force);
    let pair = Pair { region_bytes: args.size, region_use: region_use(args.emulate_pm), options };
    let made = once_free(|| pair.create(&args.pm, &args.origin))?;
    say(out, &made.report())?;
    Ok(Outcome::Clean)
}

impl TakeUpArgs {
    fn options(&self) -> Options {
        let on_loss = if self.drop_tail { OnLoss::DropTail } else { OnLoss::Fail };
        Options::new().force(self.force).on_loss(on_loss)
    }

    fn take_up(&self, region: &Path, how: RegionUse, options: &Options) -> Result<Recovery> {
        once_free(|| Recovery::of(region, self.origin.as_deref(), how, options))
    }
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
    let options = args.take_up.options().when_full(when_full).committers(args.writers).period(period);
    let recovery = args.take_up.take_up(&args.region, region_use(args.emulate_pm), &options)?;
    let service = Arc::new(Service::start(recovery, &ServiceOptions { endpoint, socket: commands })?);
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

fn status(args: &RegionArgs, out: &mut dyn Write) -> Result<Outcome> {
    let report = match ask_owner(&args.region, Request::Status)? {
        Some(report) => report,
        None => once_free(|| inspect(&args.region))?,
    };
    print(args, &report, out)
}

fn flush(args: &FlushArgs, out: &mut dyn Write) -> Result<Outcome> {
    // A flush takes as long as the origin: whether the process answers at all is asked first.
    let is_served = ask_owner(&args.region.region, Request::Status)?.is_some();
    let flushed = if is_served { ask_owner(&args.region.region, Request::Flush)? } else { None };
    let report = match flushed {
        Some(report) => report,
        None => taken_up(args)?.report(),
    };
    print(&args.region, &report, out)
}

fn taken_up(args: &FlushArgs) -> Result<Recovery> {
    args.take_up.take_up(&args.region.region, RegionUse::AsItIs, &args.take_up.options())
}

fn detach(args: &FlushArgs, out: &mut dyn Write) -> Result<Outcome> {
    if ask_owner(&args.region.region, Request::Status)?.is_some() {
        return Err(busy("the cache is served; end that first"));
    }
    let recovery = taken_up(args)?;
    let origin = recovery.report().origin;
    recovery.detach()?;
    match args.region.json {
        true => print_json(out, &serde_json::json!({ "detached": origin }))?,
        false => writeln!(out, "{origin} has everything, and belongs to no region")?,
    }
    Ok(Outcome::Clean)
}

fn print(args: &RegionArgs, report: &Report, out: &mut dyn Write) -> Result<Outcome> {
    if args.json {
        print_json(out, report)?;
    } else {
        say(out, report)?;
    }
    Ok(if report.has_trouble() { Outcome::Found } else { Outcome::Clean })
}

fn say(out: &mut dyn Write, report: &Report) -> Result<()> {
    let mut rows = vec![
        (
            "region",
            format!("{} ({}, {})", report.region, report.region_kind, size::show(report.region_bytes)),
        ),
        ("origin", format!("{} ({})", report.origin, size::show(report.origin_bytes))),
    ];
    rows.extend(report.uri.iter().map(|uri| ("served at", uri.clone())));
    rows.extend(report.found.iter().map(|found| ("found", found.clone())));
    let unit = if report.pid.is_some() { "blocks of 4 KiB" } else { "changes" };
    let log = format!("{} of {} of log", size::short(report.log_bytes), size::short(report.capacity_bytes));
    rows.push(("not in the origin", format!("{} {unit}, {log}", report.dirty_blocks)));
    if report.dirty_ranges > 0 {
        rows.push(("", format!("and {} long ranges of zeroes", report.dirty_ranges)));
    }
    if report.writes + report.reads > 0 {
        let pause = Duration::from_nanos(report.write_ns_max).as_secs_f64() * 1000.0;
        let text = format!(
            "{}, {}; the longest took {pause:.1} ms, {} were delayed, {} found the log full",
            report.writes,
            size::short(report.written_bytes),
            report.delays,
            report.stops
        );
        rows.push(("writes", text));
        let text = format!(
            "{}; {} from the log, {} from the origin",
            report.reads,
            size::short(report.log_read_bytes),
            size::short(report.origin_read_bytes)
        );
        rows.push(("reads", text));
        let text = format!(
            "{} in {} writes and {} flushes",
            size::short(report.written_back_bytes),
            report.written_back_runs,
            report.write_backs
        );
        rows.push(("written back", text));
    }
    rows.extend(report.failure.iter().map(|why| ("the origin fails", why.clone())));
    if report.is_late() {
        rows.push(("the origin", format!("has not answered for {} s", report.write_back_ms / 1000)));
    }
    if report.is_region_failed {
        rows.push(("the region fails", "nothing is acknowledged any more".to_owned()));
    }
    rows.extend(report.last_error.iter().map(|why| ("last failed request", why.clone())));
    rows.push(("after a process crash", report.after_process_crash.clone()));
    rows.push(("after a power cut", report.after_power_cut.clone()));
    rows.extend(report.notice.iter().map(|text| ("note", text.clone())));
    Ok(fields(out, &rows)?)
}
