//! The command-line program of Fastness.
//!
//! One file for each group of commands; each writes to the handle it is given, so that a closed pipe ends the
//! program quietly, and returns an [`Outcome`], which becomes the exit code.
//!
//! # Code map
//! `start`: a pool in the foreground or background; `service`: the pools of a file, which `config` reads;
//! `notify`: tells a service manager. `up`: the embedded pool. `connect`: talks to a daemon; `metrics`: what
//! Prometheus reads. `error`: why a command failed, and advice; `exit`: exit codes. The command line makes no
//! decisions of its own.

#![forbid(unsafe_code)]

mod access;
mod bench;
mod cache;
mod columns;
mod config;
mod connect;
mod consent;
mod content;
mod cost;
mod dataset;
mod error;
mod exit;
mod files;
mod iostat;
mod join;
mod leftovers;
mod listing;
mod log;
mod made;
mod metrics;
mod notify;
mod offline;
mod passed_on;
mod pin;
mod pool;
mod preload;
mod progress;
mod reload;
mod responder;
mod run;
mod service;
mod start;
mod status;
mod table;
mod top;
mod transfer;
mod up;
mod volume;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::error::Result;
use fastness_crashcheck_cli::{CrashcheckCommand, Program};
use fastness_terminal::{CompletionsArgs, ManArgs, Outcome, completions, man};

const EXIT_CODES: &str = "\
Exit codes:
  0  done, nothing found
  1  damage, a difference or a failed goal was found (log recover, log verify, pool scrub,
     pool check, fs check, status, crashcheck, bench)
  2  wrong usage
  3  the request or the configuration is wrong; change it
  4  busy (for example, open elsewhere); try again later
  5  no space: trim or recover the log, add a device, enlarge the region or the file system
  6  the contents of the medium are inconsistent
  7  the medium failed; use a copy, and replace it
  8  closed after an earlier failure, or its process has ended meanwhile; open or import it
  9  a defect of this program
 10  input or output of the program itself failed
 11  no process has the pool, the volume or the files; start or import it
 12  permission denied
 13  the port or socket is in use; choose another";

/// Storage on persistent memory.
///
/// A synchronous write waits for a copy of its bytes in persistent memory instead of a disk, and nothing
/// acknowledged is lost. Without persistent memory, a file can stand in for it; the program then says what
/// survives. Nothing has run on hardware with persistent memory yet.
#[derive(Debug, Parser)]
#[command(name = "fastness", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a pool in a folder, mount a file system and serve a volume from it: the quickest way to begin
    Up(up::UpArgs),
    /// Run pools as a service, with their volumes, mounts and counters, as a configuration file has them
    Start(service::StartArgs),
    /// Check the configuration file of `start`, or print an example
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Read the certificates of all addresses with TLS again
    Reload(reload::ReloadArgs),
    /// Show running pools, volumes and file systems
    Status(status::StatusArgs),
    /// Show the load of volumes, file systems and devices
    Iostat(iostat::IostatArgs),
    /// Print all counters for Prometheus
    Metrics(metrics::MetricsArgs),
    /// Create, import, change and check pools
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Create and list datasets, and set their properties
    #[command(subcommand)]
    Dataset(dataset::DatasetCommand),
    /// Create, resize and serve volumes
    #[command(subcommand)]
    Volume(volume::VolumeCommand),
    /// Create, mount and check file systems
    #[command(subcommand)]
    Fs(files::FilesCommand),
    /// Create, write, recover and examine a durable record log
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Put a write cache in persistent memory in front of a block device
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Put a cache in persistent memory in front of a directory of any file system
    #[command(subcommand)]
    Responder(responder::ResponderCommand),
    /// Run a program over a directory with a cache in persistent memory in front of it
    Run(run::RunArgs),
    /// What `run` starts: sets what a program inherits, and becomes that program
    #[command(hide = true)]
    Launch(run::LaunchArgs),
    /// Check crash consistency
    #[command(subcommand)]
    Crashcheck(Box<CrashcheckCommand>),
    /// Run a command, and measure what a gigabyte costs: CPU time and energy
    Cost(cost::CostArgs),
    /// Show which processes and threads write how much to persistent memory
    Top(top::TopArgs),
    /// Let threads that overload persistent memory share a few CPUs
    Pin(pin::PinArgs),
    /// Measure, as ratios against a baseline in the same run
    Bench(bench::BenchArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print or write manual pages
    Man(ManArgs),
}

/// The crash tester, as a command of this program.
const CRASHCHECK: Program = Program { guard: &["crashcheck", "guard"] };

fn run(cli: Cli, out: &mut dyn Write) -> Result<Outcome> {
    match cli.command {
        Command::Up(args) => up::run(&args, out),
        Command::Start(args) => service::run(&args, out),
        Command::Config(command) => config::run(&command, out),
        Command::Reload(args) => reload::run(&args, out),
        Command::Status(args) => status::run(&args, out),
        Command::Iostat(args) => iostat::run(&args, out),
        Command::Metrics(args) => metrics::run(&args, out),
        Command::Pool(command) => pool::run(command, out),
        Command::Dataset(command) => dataset::run(command, out),
        Command::Volume(command) => volume::run(command, out),
        Command::Fs(command) => files::run(command, out),
        Command::Log(command) => log::run(command, out),
        Command::Cache(command) => cache::run(command, out),
        Command::Responder(command) => responder::run(command, out),
        Command::Run(args) => run::run(&args),
        Command::Launch(args) => run::launch(&args),
        Command::Crashcheck(command) => Ok(fastness_crashcheck_cli::run(*command, &CRASHCHECK, out)?),
        Command::Cost(args) => cost::run(&args, out),
        Command::Top(args) => top::run(&args, out),
        Command::Pin(args) => pin::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Completions(args) => Ok(completions(&args, Cli::command(), out)?),
        Command::Man(args) => Ok(man(&args, Cli::command(), out)?),
    }
}

/// The command line; that of mount(8), which calls this program by another name, becomes a command of ours.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == "mount.fastness") {
        arguments.splice(1..1, ["fs", "mount-helper"].map(OsString::from));
    }
    arguments
}

/// Where this process publishes what it writes to PM; without a folder for it, nobody sees that.
fn counters_folder() -> Option<PathBuf> {
    fastness_daemon::run_dir().ok()
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments());
    fastness_pmem::counters::publish_with(counters_folder);
    let mut out = fastness_terminal::stdout();
    let result = run(cli, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    exit::code(result)
}
