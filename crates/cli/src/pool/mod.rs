//! `fastness pool`: pools and their devices.

mod create;
mod events;
mod history;
mod import;
mod labelclear;
pub(crate) mod list;
mod properties;
mod trim;
mod vdevs;

pub(crate) use import::importable;

use std::io::Write;

use clap::{Args, Subcommand};
use fastness_daemon::{CheckReport, DatasetReport, JobReport, PmUse, Request};
use fastness_terminal::size::{self, short};
use fastness_terminal::{Outcome, fields, note};

use crate::connect::{ask, follow, only_pool, print_json};
use crate::consent::ConsentArgs;
use crate::error::{Result, refuse};
use crate::status::job;

const SCRUB: &str = "\
Examples:
  fastness pool scrub tank            start it
  fastness pool scrub tank --wait     start it, and show its progress
  fastness pool scrub tank --stop
Exit code 1 if a copy was wrong.";

/// Commands on pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Clear the labels of devices that belong to no running pool, so that no search finds them any more
    #[command(name = "labelclear", after_help = labelclear::MORE)]
    LabelClear(labelclear::LabelClearArgs),
    /// Create a pool on files or block devices, and start a process that runs it
    #[command(after_help = create::EXAMPLES)]
    Create(create::CreateArgs),
    /// Start a process that runs a pool; without a name, list the pools that can be imported
    #[command(after_help = import::EXAMPLES)]
    Import(import::ImportArgs),
    /// Make everything durable, release the pool's devices, and end its process
    Export {
        /// The pool
        pool: String,
        #[command(flatten)]
        consent: ConsentArgs,
    },
    /// Show devices, errors, and the scrub or resilver of pools
    Status(list::StatusArgs),
    /// List running pools
    List(list::ListArgs),
    /// Add vdevs: DEVICE..., mirror DEVICE..., log ...
    #[command(after_help = ADD)]
    Add(AddArgs),
    /// Remove a log device; the log continues on the others, or on the pool's vdevs
    Remove {
        /// The pool
        pool: String,
        /// Path or GUID
        device: String,
    },
    /// Add a side to a device, a mirror or the log's region of persistent memory, and copy everything onto it
    Attach(AttachArgs),
    /// Remove a side from a mirror
    Detach {
        /// The pool
        pool: String,
        /// Path or GUID
        device: String,
    },
    /// Replace a device with a new one
    Replace(ReplaceArgs),
    /// Stop using a side of a mirror
    Offline {
        /// The pool
        pool: String,
        /// Path or GUID
        device: String,
    },
    /// Use a side again that was missing, failed or missed writes, and copy the missed writes onto it
    Online(OnlineArgs),
    /// Read every copy of everything, and rewrite wrong copies
    #[command(after_help = SCRUB)]
    Scrub(ScrubArgs),
    /// Tell the devices which space is free
    #[command(after_help = trim::HELP)]
    Trim(trim::TrimArgs),
    /// Compare allocated with referenced space; exit code 1 if they differ
    Check(CheckArgs),
    /// Resume a suspended pool whose devices are back; nothing in its memory is lost. Of any other pool, set
    /// the counters of errors back to zero
    #[command(after_help = CLEAR)]
    Clear {
        /// The pool
        pool: String,
        /// Clear the counters of this device only
        device: Option<String>,
        /// Resume although an up-to-date side of a mirror is missing
        #[arg(long)]
        degraded: bool,
    },
    /// Set properties of pools
    #[command(after_help = properties::HELP)]
    Set {
        /// Properties with their new values, and then the names of the pools
        #[arg(value_name = "PROPERTY=VALUE... POOL", required = true)]
        words: Vec<String>,
    },
    /// Show what has happened to running pools since they were imported
    Events(events::EventsArgs),
    /// Show what was asked of running pools, by whom; kept in the pools
    History(history::HistoryArgs),
    /// Show properties of pools, and the features that they need
    #[command(after_help = properties::HELP)]
    Get(properties::GetArgs),
    /// Make everything durable
    Sync {
        /// The pool; may be omitted if only one is running
        pool: Option<String>,
    },
    /// Destroy a pool and everything in it. `pool import -D` brings it back, until something overwrites its
    /// devices
    Destroy {
        /// The pool
        pool: String,
        #[command(flatten)]
        consent: ConsentArgs,
    },
}

const CLEAR: &str = "\
A pool that could not make a transaction group durable is suspended (`fastness status` says why). While it is, with
failmode=wait requests of clients wait, with failmode=continue they fail. This command opens the devices again, imports
the pool, replays its log, writes the changes that were only in memory, and resumes the waiting requests. If it fails,
they keep waiting.
The counters that `pool status` shows count from the import, or from this command on. Blocks that a scrub found without
a right copy stay listed until they are written again or freed.";

const ADD: &str = "\
Examples:
  fastness pool add tank mirror /dev/sdd /dev/sde
  fastness pool add tank log /dev/nvme0n1           synchronous writes go to this disk first
  fastness pool add tank log /dev/dax0.0            or to persistent memory: microseconds
  fastness pool add tank log mirror /dev/dax0.0 /dev/dax1.0
  fastness pool add tank log /dev/shm/tank.log --emulate-pm
A log on persistent memory is of kind pmem, any other of kind lwb. The kind changes while volumes are written.
Adding data devices to a suspended pool also resumes it, like `pool clear`.";

/// How a log device on persistent memory is used.
#[derive(Debug, Clone, Args)]
pub(crate) struct PmArgs {
    /// Use an ordinary file for the log as if it were persistent memory: fast, but its contents survive only
    /// a crash of the process, not a power cut
    #[arg(long)]
    pub(crate) emulate_pm: bool,
    /// Size of that file, if it is created
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    pub(crate) pm_size: u64,
}

impl PmArgs {
    pub(crate) fn to_use(&self) -> PmUse {
        PmUse { emulates: self.emulate_pm, create_bytes: self.emulate_pm.then_some(self.pm_size) }
    }
}

/// Arguments of `fastness pool add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The pool
    pool: String,
    /// Vdevs, as for `pool create`
    #[arg(required = true)]
    vdevs: Vec<String>,
    /// Destroy the contents of the devices, and accept vdevs that look like a mistake
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    pm: PmArgs,
}

/// Arguments of `fastness pool attach`.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The pool
    pool: String,
    /// A device of the pool
    device: String,
    /// The new device
    new: String,
    /// Destroy its contents
    #[arg(short, long)]
    force: bool,
    /// Wait until it is done, and show the progress
    #[arg(short, long)]
    wait: bool,
}

/// Arguments of `fastness pool replace`.
#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    /// The pool
    pool: String,
    /// Path or GUID of the old device
    old: String,
    /// The new device
    new: String,
    /// Destroy its contents
    #[arg(short, long)]
    force: bool,
    /// Wait until it is done, and show the progress
    #[arg(short, long)]
    wait: bool,
}

/// Arguments of `fastness pool online`.
#[derive(Debug, Args)]
pub(crate) struct OnlineArgs {
    /// The pool
    pool: String,
    /// Path or GUID, as `pool status` shows it
    device: String,
    /// Its new path, if it has moved
    #[arg(long)]
    path: Option<String>,
    /// Use what it, and the other sides of its mirror, have grown by; see also the property autoexpand
    #[arg(short, long, conflicts_with_all = ["path", "wait"])]
    expand: bool,
    /// Wait until it is done, and show the progress
    #[arg(short, long)]
    wait: bool,
}

/// Arguments of `fastness pool scrub`.
#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    /// The pool
    pool: String,
    /// Stop the running scrub or resilver
    #[arg(short, long, conflicts_with = "wait")]
    stop: bool,
    /// Wait until it is done, and show the progress
    #[arg(short, long)]
    wait: bool,
}

/// Arguments of `fastness pool check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The pool; may be omitted if only one is running
    pool: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: PoolCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        PoolCommand::Create(args) => create::run(&args, out),
        PoolCommand::LabelClear(args) => labelclear::run(&args),
        PoolCommand::Import(args) => import::run(args, out),
        PoolCommand::Export { pool, consent } => {
            let does = format!("make everything durable, and end the process that runs pool {pool}");
            consent.send(&pool, &does, |is_forced| Request::Export { is_forced }, out)
        }
        PoolCommand::Destroy { pool, consent } => {
            let does = format!("destroy pool {pool}, with its {}", contents(&pool)?);
            consent.send(&pool, &does, |is_forced| Request::Destroy { is_forced }, out)
        }
        PoolCommand::Status(args) => list::status(&args, out),
        PoolCommand::List(args) => list::list(&args, out),
        PoolCommand::Add(AddArgs { pool, vdevs, force, pm }) => {
            let vdevs = vdevs::parse(&vdevs)?;
            done(&pool, &Request::Add { vdevs, is_forced: force, pm: pm.to_use() })
        }
        PoolCommand::Remove { pool, device } => done(&pool, &Request::Remove { device }),
        PoolCommand::Detach { pool, device } => done(&pool, &Request::Detach { device }),
        PoolCommand::Attach(AttachArgs { pool, device, new, force, wait }) => {
            let request =
                Request::Attach { to: device, device: vdevs::absolute(&new)?, is_forced: force, wait };
            long(&pool, &request, wait, out)
        }
        PoolCommand::Replace(ReplaceArgs { pool, old, new, force, wait }) => {
            let request = Request::Replace { old, new: vdevs::absolute(&new)?, is_forced: force, wait };
            long(&pool, &request, wait, out)
        }
        PoolCommand::Offline { pool, device } => done(&pool, &Request::Offline { device }),
        PoolCommand::Online(OnlineArgs { pool, device, expand: true, .. }) => {
            let bytes: u64 = ask(&pool, &Request::Expand { device })?;
            writeln!(out, "the pool is {} larger", short(bytes))?;
            Ok(Outcome::Clean)
        }
        PoolCommand::Online(OnlineArgs { pool, device, path, wait, .. }) => {
            let path = path.map(|path| vdevs::absolute(&path)).transpose()?;
            long(&pool, &Request::Online { device, path, wait }, wait, out)
        }
        PoolCommand::Scrub(ScrubArgs { pool, stop: true, .. }) => {
            let report: Option<JobReport> = ask(&pool, &Request::StopJob)?;
            let text = report.map_or_else(|| "nothing was running".to_owned(), |report| job(&report));
            writeln!(out, "{text}")?;
            Ok(Outcome::Clean)
        }
        PoolCommand::Scrub(ScrubArgs { pool, wait, .. }) => long(&pool, &Request::Scrub { wait }, wait, out),
        PoolCommand::Trim(args) => trim::run(args, out),
        PoolCommand::Check(args) => check(args, out),
        PoolCommand::Clear { pool, device, degraded } => {
            done(&pool, &Request::Clear { is_degraded: degraded, device })
        }
        PoolCommand::Set { words } => properties::set(&words),
        PoolCommand::Events(args) => events::run(&args, out),
        PoolCommand::History(args) => history::run(&args, out),
        PoolCommand::Get(args) => properties::get(&args, out),
        PoolCommand::Sync { pool } => {
            let txg: u64 = ask(&only_pool(pool)?, &Request::Sync)?;
            writeln!(out, "txg {txg} is durable")?;
            Ok(Outcome::Clean)
        }
    }
}

fn done(pool: &str, request: &Request) -> Result<Outcome> {
    let () = ask(pool, request)?;
    Ok(Outcome::Clean)
}

/// What would be lost with a pool.
fn contents(pool: &str) -> Result<String> {
    let all: Vec<DatasetReport> = ask(pool, &Request::Datasets)?;
    let count = |kind: &str, what: &str| {
        let count = all.iter().filter(|dataset| dataset.kind == kind).count();
        format!("{count} {what}{}", if count == 1 { "" } else { "s" })
    };
    Ok(format!("{} and {}", count("volume", "volume"), count("filesystem", "file system")))
}

/// Starts a job, or runs it to its end.
fn long(pool: &str, request: &Request, wait: bool, out: &mut dyn Write) -> Result<Outcome> {
    let report = if wait { follow(pool, request)? } else { ask(pool, request)? };
    writeln!(out, "{}", job(&report))?;
    if !wait {
        note(format_args!("`fastness pool status {pool}` shows the progress"));
    }
    let is_clean = report.wrong_copies == 0 && report.lost.is_empty();
    Ok(if is_clean { Outcome::Clean } else { Outcome::Found })
}

fn check(args: CheckArgs, out: &mut dyn Write) -> Result<Outcome> {
    let report: CheckReport = ask(&only_pool(args.pool)?, &Request::Check)?;
    if args.json {
        print_json(out, &report)?;
    } else {
        let places =
            |places: &[String]| if places.is_empty() { "none".to_owned() } else { places.join(", ") };
        fields(
            out,
            &[
                ("data", short(report.data_bytes)),
                ("metadata", short(report.metadata_bytes)),
                ("leaked", places(&report.leaked)),
                ("referred to, and free", places(&report.missing)),
                ("referred to twice", places(&report.shared)),
            ],
        )?;
    }
    Ok(if report.is_clean { Outcome::Clean } else { Outcome::Found })
}

/// Names and values of properties.
pub(crate) type Assignments = Vec<(String, String)>;

/// Words `name=value`.
pub(crate) fn assignments(words: &[String]) -> Result<Assignments> {
    let split = |word: &String| match word.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(refuse(format!("{word} is not of the form PROPERTY=VALUE"))),
    };
    words.iter().map(split).collect()
}

/// Words `name=value`, at least one, and the names after them, at least one.
pub(crate) fn assignments_first(words: &[String]) -> Result<(Assignments, &[String])> {
    let count = words.iter().take_while(|word| word.contains('=')).count();
    let (values, names) = words.split_at(count.max(1).min(words.len()));
    if names.is_empty() {
        return Err(refuse("say PROPERTY=VALUE, once or several times, and then for what it is to be set"));
    }
    Ok((assignments(values)?, names))
}
