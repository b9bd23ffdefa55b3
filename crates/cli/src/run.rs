//! `fastness run`: a program over a directory with a cache in front of it.
//!
//! The cache is mounted over the directory, in a mount namespace that only the program and what it starts
//! have: any program works, statically linked or not, with any number of processes, and with `mmap`. A
//! library that is loaded into programs makes most reads and writes without the mount (`preload`).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use clap::Args;
use fastness_front::Place;
use fastness_fuse::own_mounts;
use fastness_terminal::{Outcome, note};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit, umask};

use crate::error::{CliError, Context, Result, refuse};
use crate::join::Joined;
use crate::leftovers::signal_leftovers;
use crate::passed_on::{NOT_STARTED, PassedOn};
use crate::preload::Preload;
use crate::responder::CacheArgs;

const EXAMPLES: &str = "\
Examples:
  fastness run --pm /dev/dax0.0 --dir /srv/redis -- redis-server --dir /srv/redis --appendonly yes
  fastness run --pm /dev/shm/db.pm --dir . -- sqlite3 test.db     survives kill -9, not a power cut
Every write of the program to a file of the directory is durable when it returns; other programs do not see it
before it is flushed. With --protocol log it is durable when it is synced, and others see it at once. At the end
everything is in the directory. The same --pm and --dir once more, meanwhile: that program joins, and sees what
the other one writes. Processes that the program leaves running keep it mounted; Ctrl-C ends them. After a crash:
the same command again, or `fastness responder recover REGION`.
The exit code is the program's, or 128 and the number of the signal that ended it; 127: it could not be started.";

/// Arguments of `fastness run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The directory
    #[arg(long)]
    dir: PathBuf,
    #[command(flatten)]
    cache: CacheArgs,
    /// Let every read and write go through the mount: no library is loaded into programs
    #[arg(long)]
    no_preload: bool,
    /// The program, and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Arguments of `fastness launch`.
#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// Bits that new files do not get
    #[arg(long)]
    umask: u32,
    /// Most open files, and to what that can be raised
    #[arg(long)]
    files: Option<u64>,
    #[arg(long)]
    files_max: Option<u64>,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &RunArgs) -> Result<Outcome> {
    let inherited = Inherited::take()?;
    if let Some(joined) = Joined::join(&args.cache.pm, &args.dir)? {
        note("fastness: another `fastness run` serves the directory; the program joins it");
        let preload = args.preload(&inherited, joined.device()?, joined.leases());
        let signals = PassedOn::begin(|| {})?;
        let code = signals.wait(inherited.start(&args.command, &preload)?, &args.command[0])?;
        return Ok(Outcome::Program(code));
    }
    own_mounts().map_err(no_namespace)?;
    let service = args.cache.start(&args.dir, Place::Over)?;
    let report = service.report()?;
    note(format_args!("fastness: after a process crash: {}", report.after_process_crash));
    note(format_args!("fastness: after a power cut: {}", report.after_power_cut));
    let mount = std::fs::metadata(service.mount_point()).context("cannot look at the mount")?;
    let preload = args.preload(&inherited, mount.dev(), service.leases());
    // What the program has left running is ended by the first signal, and killed by the next.
    let mut ending = Signal::TERM;
    let signals = PassedOn::begin(move || {
        signal_leftovers(ending);
        ending = Signal::KILL;
    })?;
    let ended =
        inherited.start(&args.command, &preload).and_then(|program| signals.wait(program, &args.command[0]));
    let is_in_use = || {
        note(
            "fastness: the program has ended; what it started, or another `fastness run`, still uses the \
             directory; Ctrl-C ends that",
        );
    };
    service.unmount_when_unused(is_in_use, || false)?;
    drop(signals);
    let (flushed, code) = (service.end(), ended?);
    flushed?;
    Ok(Outcome::Program(code))
}

impl RunArgs {
    /// What the program is started with, by the number of the mount and the socket of its leases.
    fn preload(&self, inherited: &Inherited, device: u64, leases: Option<&Path>) -> Preload {
        if self.no_preload {
            return Preload::default();
        }
        Preload::new(&inherited.program, device, leases).unwrap_or_else(|| {
            note(
                "fastness: the program reads and writes through the mount: no library to load, or another \
                 protocol",
            );
            Preload::default()
        })
    }
}

/// Why nothing can be mounted for one program alone.
fn no_namespace(error: std::io::Error) -> CliError {
    let hint = if rustix::process::geteuid().is_root() {
        ""
    } else {
        ": an ordinary user needs user namespaces, which this system does not allow; root needs none, and \
         `fastness responder mount` works for everybody with fusermount3 (package fuse3)"
    };
    refuse(format!("cannot get a mount namespace: {error}{hint}"))
}

/// What the program gets as if this one were not between it and its caller.
struct Inherited {
    umask: Mode,
    files: Rlimit,
    /// This program. In another namespace of mounts it may have no name: that of before went with its last
    /// process, as in a container.
    program: PathBuf,
}

impl Inherited {
    fn take() -> Result<Inherited> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mask = umask(Mode::empty());
        umask(mask);
        Ok(Inherited { umask: mask, files: getrlimit(Resource::Nofile), program })
    }

    /// Starts a program by way of `launch`. Its working directory is resolved again: ours lies below the
    /// mount.
    fn start(&self, command: &[OsString], preload: &Preload) -> Result<Child> {
        let mut launcher = Command::new(&self.program);
        launcher.arg("launch").arg(format!("--umask={}", self.umask.bits()));
        launcher.args(self.files.current.map(|files| format!("--files={files}")));
        launcher.args(self.files.maximum.map(|files| format!("--files-max={files}")));
        launcher.arg("--").args(command).current_dir(std::env::current_dir()?);
        preload.apply(&mut launcher);
        launcher.spawn().context("cannot start a process")
    }
}

pub(crate) fn launch(args: &LaunchArgs) -> Result<Outcome> {
    umask(Mode::from_bits_truncate(args.umask));
    // Lower limits than those of this process are always allowed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: args.files, maximum: args.files_max });
    let error = Command::new(&args.command[0]).args(&args.command[1..]).exec();
    note(format_args!("fastness: cannot run {}: {error}", args.command[0].display()));
    Ok(Outcome::Program(NOT_STARTED))
}
