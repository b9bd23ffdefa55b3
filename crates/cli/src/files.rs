//! `fastness fs`: file systems in a pool.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use fastness_daemon::{
    Address, DatasetReport, FilesCheckReport, MountRequest, OfflineReport, PoolReport, Request, ServedReport,
    absolute, check_files_offline,
};
use fastness_terminal::Outcome;
use serde::Serialize;

use crate::columns::{self, add_ratios};
use crate::connect::{ask, ask_all, print_json};
use crate::dataset::{of_kind, rollback, snapshot};
use crate::error::{Result, refuse};
use crate::listing::{Cell, Listing, ListingArgs, Shown};
use crate::offline;
use crate::pool::assignments;

const CREATE: &str = "\
Examples:
  fastness fs create tank/home
  fastness fs create tank/db -o recordsize=16K --mount /srv/db
Its root directory belongs to you. `fastness dataset destroy`, `rename`, `set` and `get` take file systems too.";
const MOUNT: &str = "\
Examples:
  fastness fs mount tank/home /home
  fastness fs mount tank/home /mnt -o ro,noexec --once
It is mounted again after each import, until `fastness fs unmount tank/home`. Options: ro, nosuid, nodev,
noexec, noatime, allow_other (as an ordinary user, which needs fusermount3 of the package fuse3), no_io_uring,
io_uring. Requests come over io_uring where Linux offers it, which is faster: since 6.14, and after
`echo Y > /sys/module/fuse/parameters/enable_uring`. With io_uring it is noted if they do not, and why.";

const SNAPSHOT: &str = "\
Examples:
  fastness fs snapshot tank/home@monday
  fastness fs list -t snapshot
  fastness fs mount tank/home@monday /mnt
  fastness dataset destroy tank/home@monday%friday -n
A snapshot never changes: it is mounted read-only. It has what programs had written when the command began; what they
have changed in mappings of files and not synced may be missing.";

const ROLLBACK: &str = "\
Examples:
  fastness fs unmount tank/home
  fastness fs rollback tank/home@monday
  fastness fs mount tank/home /home
The file system is not mounted meanwhile. Its inode numbers are not given again.";

const CHECK: &str = "\
Examples:
  fastness fs check tank/home
  fastness fs check tank/home /srv/disks   of a pool that does not run
Of a pool that does not run, the tables of the last transaction group are compared, and nothing is changed. What the
log has since then is not looked at, and the output says whether there may be something.";

const HELPER: &str = "\
mount(8) calls this program as /sbin/mount.fastness, a link to it: `mount -t fastness tank/home /home`, and lines of
/etc/fstab. The pool must be running. docs/guide/files.md has examples.";

/// Commands on file systems.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// Create an empty file system
    #[command(after_help = CREATE)]
    Create(CreateArgs),
    /// Mount a file system, or a snapshot
    #[command(after_help = MOUNT)]
    Mount(MountArgs),
    /// Mount as mount(8) asks for it; not after an import
    #[command(after_help = HELPER, hide = true)]
    MountHelper(HelperArgs),
    /// Unmount a file system; it is not mounted again by the next import
    Unmount {
        /// Full name, or mount point
        what: String,
        /// Also if files are in use: programs that use them get errors
        #[arg(short, long)]
        force: bool,
    },
    /// Make snapshots of file systems: each has everything that was written before
    #[command(after_help = SNAPSHOT)]
    Snapshot {
        /// Full names, such as tank/home@monday
        #[arg(value_name = "FILES@NAME", required = true)]
        snapshots: Vec<String>,
    },
    /// Make a file system what its newest snapshot is; later changes are lost
    #[command(after_help = ROLLBACK)]
    Rollback {
        /// Full name
        #[arg(value_name = "FILES@NAME")]
        snapshot: String,
        /// Destroy newer snapshots, if there are any
        #[arg(short, long)]
        recursive: bool,
    },
    /// List file systems and their mount points, or snapshots
    List {
        /// What: filesystem, snapshot
        #[arg(short = 't', long = "type", value_name = "KINDS", value_delimiter = ',')]
        kinds: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        listing: ListingArgs,
    },
    /// Compare links, entries, orphans and objects; for a file system that nothing changes meanwhile
    #[command(after_help = CHECK)]
    Check {
        /// Full name
        files: String,
        /// Devices of a pool that does not run, or folders of them, if they are elsewhere than they were
        #[arg(value_name = "DEVICE")]
        places: Vec<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `fastness fs create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Full name, such as tank/home
    files: String,
    /// Set a property of the file system
    #[arg(short, value_name = "PROPERTY=VALUE")]
    options: Vec<String>,
    /// Create missing datasets above it, too
    #[arg(short, long)]
    parents: bool,
    /// Mount it there, now and after each import
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,
}

/// Arguments of `fastness fs mount`.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Full name
    files: String,
    /// An existing directory
    path: PathBuf,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Only until the pool is exported
    #[arg(long)]
    once: bool,
}

/// Arguments that mount(8) gives its helpers.
#[derive(Debug, Args)]
pub(crate) struct HelperArgs {
    /// Full name
    files: String,
    /// An existing directory
    path: PathBuf,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Do all but mount
    #[arg(short)]
    fake: bool,
    /// Ignore unknown options
    #[arg(short = 's')]
    sloppy: bool,
    /// Has no meaning here: /etc/mtab is a link
    #[arg(short)]
    no_mtab: bool,
    /// Has no meaning here: only what fails is said
    #[arg(short)]
    verbose: bool,
    /// Type, with a subtype
    #[arg(short, value_name = "TYPE")]
    r#type: Option<String>,
}

/// Words of /etc/fstab for programs that read it, not for what is mounted.
fn is_for_fstab(word: &str) -> bool {
    const WORDS: [&str; 10] =
        ["auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "group", "comment"];
    WORDS.contains(&word) || word.starts_with("x-") || word.starts_with("comment=")
}

fn mount_for_mount(args: HelperArgs) -> Result<()> {
    let HelperArgs { files, path, mut options, fake, sloppy, .. } = args;
    options.retain(|word| !is_for_fstab(word) && (!sloppy || is_known(word)));
    let options = mount_options(&options)?;
    if !fake {
        mount_at(&files, &path, options, false)?;
    }
    Ok(())
}

pub(crate) fn run(command: FilesCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        FilesCommand::Create(CreateArgs { files, options, parents, mount }) => {
            let request = Request::CreateFiles {
                name: files.clone(),
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                properties: assignments(&options)?,
                with_parents: parents,
            };
            let () = ask(&files, &request)?;
            if let Some(path) = mount {
                let mounted = mount_at(&files, &path, MountRequest::default(), true)?;
                writeln!(out, "{}", mounted.uri)?;
            }
        }
        FilesCommand::Mount(MountArgs { files, path, options, once }) => {
            mount_at(&files, &path, mount_options(&options)?, !once)?;
        }
        FilesCommand::MountHelper(args) => mount_for_mount(args)?,
        FilesCommand::Unmount { what, force } => return unmount(&what, force),
        FilesCommand::Snapshot { snapshots } => snapshot(&snapshots)?,
        FilesCommand::Rollback { snapshot, recursive } => rollback(snapshot, recursive)?,
        FilesCommand::List { kinds, json, listing } => return list(&kinds, json, &listing, out),
        FilesCommand::Check { files, places, json } => return check(&files, &places, json, out),
    }
    Ok(Outcome::Clean)
}

fn mount_at(
    files: &str,
    path: &std::path::Path,
    options: MountRequest,
    is_kept: bool,
) -> Result<ServedReport> {
    let path = absolute(path)?.display().to_string();
    ask(files, &Request::Mount { name: files.to_owned(), path, options, is_kept })
}

type SetOption = fn(&mut MountRequest);

/// Options as of mount(8); the last ones ask for what is so anyway.
const OPTIONS: &[(&str, SetOption)] = &[
    ("ro", |options| options.is_read_only = true),
    ("nosuid", |options| options.no_set_id = true),
    ("nodev", |options| options.no_devices = true),
    ("noexec", |options| options.no_exec = true),
    ("noatime", |options| options.no_access_time = true),
    ("allow_other", |options| options.allows_others = true),
    ("io_uring", |options| options.is_over_rings = Some(true)),
    ("no_io_uring", |options| options.is_over_rings = Some(false)),
    ("rw", |_| ()),
    ("suid", |_| ()),
    ("dev", |_| ()),
    ("exec", |_| ()),
    ("defaults", |_| ()),
    ("relatime", |_| ()),
];

fn is_known(word: &str) -> bool {
    OPTIONS.iter().any(|(known, _)| *known == word)
}

pub(crate) fn mount_options(words: &[String]) -> Result<MountRequest> {
    let mut options = MountRequest::default();
    for word in words {
        let Some((_, set)) = OPTIONS.iter().find(|(known, _)| known == word) else {
            let known: Vec<_> = OPTIONS.iter().map(|(known, _)| *known).collect();
            let text = format!("{word} is no option of a mount; there are {}", known.join(", "));
            return Err(refuse(text));
        };
        set(&mut options);
    }
    Ok(options)
}

/// By name or mount point: the latter is asked for at every running pool.
fn unmount(what: &str, is_forced: bool) -> Result<Outcome> {
    // The name of a file system has a slash, and does not begin with one.
    if what.contains('/') && !what.starts_with('/') && !what.starts_with('.') {
        let () = ask(what, &Request::Unmount { what: what.to_owned(), is_forced })?;
        return Ok(Outcome::Clean);
    }
    let path = absolute(what.as_ref())?.display().to_string();
    let pools: Vec<PoolReport> = ask_all(None, &Request::Status)?;
    let mut served = pools.iter().flat_map(|pool| &pool.served);
    let Some(found) = served.find(|served| served.address == Address::Mount(path.clone())) else {
        return Err(refuse(format!("no file system of a running pool is mounted at {path}")));
    };
    let () = ask(&found.volume, &Request::Unmount { what: found.volume.clone(), is_forced })?;
    Ok(Outcome::Clean)
}

/// A file system as it is listed.
#[derive(Debug, Serialize)]
struct ListedFiles {
    #[serde(flatten)]
    dataset: DatasetReport,
    /// None while it is not mounted.
    mounted_at: Option<String>,
}

const NAME: Shown<ListedFiles> = ("file system", |listed| Cell::text(&listed.dataset.name));
const USED: Shown<ListedFiles> = ("used", |listed| Cell::Bytes(listed.dataset.used_bytes));
const MOUNTED: Shown<ListedFiles> =
    ("mounted at", |listed| listed.mounted_at.as_ref().map_or(Cell::Absent, Cell::text));

fn list(kinds: &[String], json: bool, args: &ListingArgs, out: &mut dyn Write) -> Result<Outcome> {
    if let Some(unknown) = kinds.iter().find(|kind| !["filesystem", "snapshot"].contains(&kind.as_str())) {
        return Err(refuse(format!("{unknown} is no kind of file system: filesystem, snapshot")));
    }
    let mut files = of_kind("filesystem", kinds)?;
    add_ratios(&mut files, args.named())?;
    let pools: Vec<PoolReport> = ask_all(None, &Request::Status)?;
    let served: Vec<_> = pools.iter().flat_map(|pool| &pool.served).collect();
    let listed = files.into_iter().map(|dataset| {
        let at = served.iter().find(|served| served.volume == dataset.name);
        ListedFiles { mounted_at: at.map(|served| served.uri.clone()), dataset }
    });
    let listed: Vec<_> = listed.collect();
    if json {
        print_json(out, &listed)?;
        return Ok(Outcome::Clean);
    }
    let listing = Listing::<ListedFiles> {
        shown: if kinds.iter().any(|kind| kind == "snapshot") {
            &[NAME, USED, ("referenced", |listed| Cell::Bytes(listed.dataset.referenced_bytes)), MOUNTED]
        } else {
            &[NAME, USED, MOUNTED]
        },
        others: &[("mounted", |listed| listed.mounted_at.as_ref().map_or(Cell::Absent, Cell::text))],
        more: &|listed, name| columns::cell(&listed.dataset, name),
        more_names: &columns::NAMES,
    };
    listing.write(out, args, listed)?;
    Ok(Outcome::Clean)
}

fn check(files: &str, places: &[PathBuf], json: bool, out: &mut dyn Write) -> Result<Outcome> {
    let pool = files.split('/').next().unwrap_or_default();
    let report: FilesCheckReport = match offline::is_running(pool)? {
        true => ask(files, &Request::CheckFiles { name: files.to_owned() })?,
        false => check_files_offline(&*offline::open(pool, places)?, files)?,
    };
    if json {
        print_json(out, &report)?;
    } else {
        if let Some(OfflineReport { synced_txg, leaves_log_out }) = report.offline {
            let log = match leaves_log_out {
                true => "it was not exported, and what its log has since then was not looked at",
                false => "it was exported, and its log has nothing since then",
            };
            writeln!(out, "pool {pool} does not run: the state of txg {synced_txg}; {log}")?;
        }
        let FilesCheckReport { files: count, directories, names, without_name, .. } = report;
        writeln!(
            out,
            "{files}: {count} files, {directories} directories, {names} names, {without_name} without a name"
        )?;
        for finding in &report.findings {
            writeln!(out, "{finding}")?;
        }
        match report.findings_count {
            0 => writeln!(out, "nothing is wrong")?,
            count => writeln!(out, "{count} findings")?,
        }
    }
    Ok(if report.findings_count == 0 { Outcome::Clean } else { Outcome::Found })
}
