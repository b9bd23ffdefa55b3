//! `fastness responder`: a cache in persistent memory in front of a directory.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use fastness_base::{AnyError, ErrorKind, HasKind, is_busy, patiently};
use fastness_daemon::run_dir;
use fastness_front::{
    Answer, FrontError, Pair, Place, ProtocolKind, Recovery, RegionUse, Report, Request, Service,
    ServiceOptions, TakeUp, ask, inspect,
};
use fastness_terminal::{Outcome, fields, note, size};

use crate::connect::print_json;
use crate::error::{CliError, Result, busy};
use crate::notify::{State, notify};

/// Files that are named as not being in the directory.
const FILES_SHOWN: usize = 10;
/// How long a process that was killed may take to let its region go.
const DYING: Duration = Duration::from_secs(1);

const MOUNT: &str = "\
Examples:
  fastness responder mount /srv/db /mnt/db --pm /dev/dax0.0
  fastness responder mount /srv/db /mnt/db --pm /dev/shm/db.pm   survives kill -9, not a power cut
Programs that use /mnt/db find the files of /srv/db; every write is durable when it returns, or with --protocol log,
when it is synced. Ctrl-C unmounts. If this process is killed, mount again, or `fastness responder recover REGION`.
Change files through the mount alone.";

/// Commands on caches in front of directories.
#[derive(Debug, Subcommand)]
pub(crate) enum ResponderCommand {
    /// Mount a directory with a cache in front of it, until Ctrl-C
    #[command(after_help = MOUNT)]
    Mount(MountArgs),
    /// Show what a region holds that its directory does not have
    Status(RegionArgs),
    /// Write everything to the directory
    Flush(RecoverArgs),
    /// After a crash: write everything that was acknowledged to the directory
    Recover(RecoverArgs),
    /// The same, and end the cache: region and directory are independent again
    Detach(DetachArgs),
}

/// How writes become durable.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProtocolArg {
    /// Into the other chunk of a pair
    Fr,
    /// In place, under a log of operations
    Melov,
    /// In place, under a journal, and into the directory at once; a second write to 4 KiB waits for a sync
    Pmal,
    /// The same, but times with a flush alone
    PmalO,
    /// Into the directory at once, durable when synced: fsync goes into a log
    Log,
}

/// Arguments of `fastness responder mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// The directory
    dir: PathBuf,
    /// Where to mount it
    mount_point: PathBuf,
    #[command(flatten)]
    cache: CacheArgs,
}

/// The cache of a directory: its region, and how it works.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// Persistent memory: a devdax device, or a file on a DAX file system; a file is made if it is not there
    #[arg(long, value_name = "REGION")]
    pub(crate) pm: PathBuf,
    /// Use an ordinary file as if it were persistent memory: it survives the process, but not the power
    #[arg(long)]
    emulate_pm: bool,
    /// Size of the file, when it is made [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// How writes become durable, when the cache is made [default: fr]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<ProtocolArg>,
    /// Milliseconds from one flush to the next
    #[arg(long, value_name = "MS", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    flush_ms: u64,
    /// Make a cache although the directory belongs to another region: what that holds is lost
    #[arg(long)]
    force: bool,
}

/// Arguments of `fastness responder status`.
#[derive(Debug, Args)]
pub(crate) struct RegionArgs {
    /// The region
    region: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of commands that write to the directory.
#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    region: RegionArgs,
    /// The directory, if it is not where it was
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Go on although the region or the directory is an older copy, or .fastness-responder is lost: what was
    /// written since may be undone
    #[arg(long)]
    force: bool,
    /// Give up what is damaged: with the protocol log, the first damaged record and all that follow; with
    /// others, chunks that do not say whose they are, and what cannot be read of a file that the crash has
    /// lost
    #[arg(long)]
    drop_tail: bool,
}

/// Arguments of `fastness responder detach`.
#[derive(Debug, Args)]
pub(crate) struct DetachArgs {
    #[command(flatten)]
    recover: RecoverArgs,
    /// Save what the region has of files that are not in the directory any more, each as a file in DIR
    #[arg(long, value_name = "DIR")]
    orphans: Option<PathBuf>,
    /// Give up what the region has of files that are not in the directory any more
    #[arg(long, conflicts_with = "orphans")]
    give_up_orphans: bool,
}

pub(crate) fn run(command: ResponderCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        ResponderCommand::Mount(args) => mount(&args, out),
        ResponderCommand::Status(args) => status(&args, out),
        ResponderCommand::Flush(args) => flush(&args, out),
        ResponderCommand::Recover(args) => recover(&args, out),
        ResponderCommand::Detach(args) => detach(&args, out),
    }
}

/// The socket of the process that has a region.
pub(crate) fn socket(region: &Path) -> Result<PathBuf> {
    region_socket("responder", region)
}

/// A socket for a region, whatever path leads to that.
pub(crate) fn region_socket(what: &str, region: &Path) -> Result<PathBuf> {
    let found = std::fs::metadata(region).map_err(|error| {
        let kind = ErrorKind::Invalid;
        AnyError::new(kind, format!("cannot find the region {}: {error}", region.display()))
    })?;
    Ok(run_dir()?.join(format!("{what}-{:x}-{:x}.sock", found.dev(), found.ino())))
}

/// Asks the process that has a region, if there is one.
pub(crate) fn ask_owner(region: &Path, request: Request) -> Result<Option<Answer>> {
    // A region that is not there is reported when it is opened.
    Ok(if region.exists() { ask(&socket(region)?, request)? } else { None })
}

/// Opens a region that another process may still have: one that was killed lets it go a moment after.
pub(crate) fn once_free<T>(open: impl FnMut() -> std::result::Result<T, FrontError>) -> Result<T> {
    Ok(patiently(DYING, open, is_busy)?)
}

impl CacheArgs {
    /// Opens the cache of a directory, recovers it, and mounts it.
    pub(crate) fn start(&self, dir: &Path, place: Place) -> Result<Service> {
        let pair = Pair {
            region_bytes: self.size,
            region_use: if self.emulate_pm { RegionUse::Emulated } else { RegionUse::AsItIs },
            protocol: self.protocol.map(|protocol| match protocol {
                ProtocolArg::Fr => ProtocolKind::Fr,
                ProtocolArg::Melov => ProtocolKind::Melo,
                ProtocolArg::Pmal => ProtocolKind::Pmal,
                ProtocolArg::PmalO => ProtocolKind::PmalOrdered,
                ProtocolArg::Log => ProtocolKind::Log,
            }),
            is_shared: place == Place::Over,
            is_forced: self.force,
        };
        let recovery = once_free(|| pair.open(&self.pm, dir))?;
        let flush_period = Duration::from_millis(self.flush_ms);
        Ok(Service::start(recovery, &ServiceOptions { place, flush_period, socket: socket(&self.pm)? })?)
    }
}

fn mount(args: &MountArgs, out: &mut dyn Write) -> Result<Outcome> {
    let service = Arc::new(args.cache.start(&args.dir, Place::At(args.mount_point.clone()))?);
    service.unmount_on_signals(|text| note(format_args!("fastness: {text}")))?;
    say(out, &service.report()?)?;
    writeln!(out, "\nCtrl-C unmounts it, and writes everything to the directory.")?;
    out.flush()?;
    notify(State::Ready);
    service.wait();
    service.end()?;
    note("fastness: unmounted; the directory has everything");
    Ok(Outcome::Clean)
}

fn status(args: &RegionArgs, out: &mut dyn Write) -> Result<Outcome> {
    let report = match ask_owner(&args.region, Request::Status)? {
        Some(answer) => report_of(answer)?,
        None => {
            let (inspection, info) = inspect(&args.region)?;
            Report::of_unused(&args.region, &inspection, &info)
        }
    };
    print(args, &report, out)
}

fn flush(args: &RecoverArgs, out: &mut dyn Write) -> Result<Outcome> {
    match ask_owner(&args.region.region, Request::Flush)? {
        Some(answer) => print(&args.region, &report_of(answer)?, out),
        None => recover(args, out),
    }
}

fn take_up(args: &RecoverArgs) -> Result<Recovery> {
    if ask_owner(&args.region.region, Request::Status)?.is_some() {
        return Err(busy("the region is mounted; unmount it first"));
    }
    let (region, dir) = (&args.region.region, args.dir.as_deref());
    let agreed = TakeUp { is_forced: args.force, drops_tail: args.drop_tail };
    once_free(|| Recovery::of(region, dir, RegionUse::AsItIs, agreed))
}

fn recover(args: &RecoverArgs, out: &mut dyn Write) -> Result<Outcome> {
    let report = take_up(args)?.flush()?;
    print(&args.region, &report, out)
}

fn detach(args: &DetachArgs, out: &mut dyn Write) -> Result<Outcome> {
    let recovery = take_up(&args.recover)?;
    let directory = recovery.directory();
    let (mut saved, mut given_up) = (Vec::new(), 0);
    if let Some(dir) = &args.orphans {
        saved = recovery.save_orphans(dir)?;
        recovery.give_up_orphans()?;
    } else if args.give_up_orphans {
        given_up = recovery.give_up_orphans()?;
    }
    recovery.detach()?;
    if args.recover.region.json {
        let directory = directory.display().to_string();
        let found = serde_json::json!({ "detached": directory, "saved": saved, "given_up_files": given_up });
        print_json(out, &found)?;
        return Ok(Outcome::Clean);
    }
    for orphan in &saved {
        writeln!(
            out,
            "{}: {} bytes of inode {}, which had {} bytes then; the rest are holes",
            orphan.path, orphan.saved_bytes, orphan.inode, orphan.size
        )?;
    }
    if saved.is_empty() && given_up > 0 {
        writeln!(out, "gave up what the region had of {given_up} files that are not in the directory")?;
    }
    writeln!(out, "{} has everything, and belongs to no region", directory.display())?;
    Ok(Outcome::Clean)
}

pub(crate) fn report_of(answer: Answer) -> Result<Report> {
    match answer {
        Answer::Done(report) => Ok(*report),
        Answer::Failed { kind, message, .. } => {
            let kind = kind.parse().unwrap_or(ErrorKind::Bug);
            Err(AnyError::new(kind, message).into())
        }
    }
}

fn print(args: &RegionArgs, report: &Report, out: &mut dyn Write) -> Result<Outcome> {
    if args.json {
        print_json(out, report)?;
    } else {
        say(out, report)?;
    }
    Ok(if report.has_trouble() { Outcome::Found } else { Outcome::Clean })
}

/// A file of the directory as people know it.
fn named(path: Option<&str>, inode: u64) -> String {
    path.map_or_else(|| format!("inode {inode}"), |path| format!("{path} (inode {inode})"))
}

fn say(out: &mut dyn Write, report: &Report) -> Result<()> {
    let mut rows = vec![
        (
            "region",
            format!("{} ({}, {})", report.region, report.region_kind, size::show(report.region_bytes)),
        ),
        ("directory", report.directory.clone()),
    ];
    rows.extend(report.directory_trouble.iter().map(|text| ("", text.clone())));
    rows.extend(report.mounted_at.iter().map(|at| ("mounted at", at.clone())));
    rows.push(("protocol", report.protocol.clone()));
    rows.extend(report.found.iter().map(|found| ("found", found.clone())));
    let chunks = format!("{} chunks of {}", report.dirty_chunks, size::show(report.chunk_bytes));
    rows.push(match report.protocol.as_str() {
        "log" => ("in the log", format!("{} syncs, which the directory may not have", report.dirty_chunks)),
        _ => ("not in the directory", chunks),
    });
    for file in report.dirty_files.iter().take(FILES_SHOWN) {
        rows.push(("", format!("{} of {}", file.chunks, named(file.path.as_deref(), file.inode))));
    }
    if report.dirty_files.len() > FILES_SHOWN {
        rows.push(("", format!("and of {} more files", report.dirty_files.len() - FILES_SHOWN)));
    }
    if report.unsynced_names > 0 {
        rows.push(("names", format!("{} changes that the directory may not have", report.unsynced_names)));
    }
    if report.orphaned_chunks > 0 {
        let text =
            format!("{} of them belong to files that are not in the directory", report.orphaned_chunks);
        rows.push(("orphans", text));
    }
    if report.damaged_tags > 0 {
        rows.push(("damaged", format!("{} tags or logs contradict themselves", report.damaged_tags)));
    }
    rows.extend(report.log_damage.iter().map(|text| ("damaged", text.clone())));
    for failure in &report.failures {
        let text = format!("{}: {}", named(failure.path.as_deref(), failure.inode), failure.error);
        rows.push(("cannot be flushed", text));
    }
    for late in &report.late {
        let name = named(late.path.as_deref(), late.inode);
        rows.push((
            "is being flushed",
            format!("{name}: the directory has not answered for {} s", late.seconds),
        ));
    }
    if report.refused_opens > 0 {
        let text = format!(
            "{} times none was left for a program; {} of {} files may be open ({} open now) with this limit of \
             the server (ulimit -n)",
            report.refused_opens,
            report.open_files_max,
            report.descriptors_max.unwrap_or(0),
            report.open_files
        );
        rows.push(("descriptors", text));
    }
    if report.direct_reads + report.direct_writes > 0 {
        let of = |what: &str, count: u64, bytes: u64| format!("{what}: {count}, {}", size::show(bytes));
        let writes = of("writes", report.direct_writes, report.direct_written_bytes);
        let reads = of("reads", report.direct_reads, report.direct_read_bytes);
        rows.push(("past the mount", format!("{writes}; {reads}")));
    }
    rows.push(("after a process crash", report.after_process_crash.clone()));
    rows.push(("after a power cut", report.after_power_cut.clone()));
    rows.extend(report.notice.iter().map(|text| ("note", text.clone())));
    Ok(fields(out, &rows)?)
}

impl From<FrontError> for CliError {
    fn from(error: FrontError) -> CliError {
        AnyError::of(&error, Some(error.kind())).into()
    }
}
