//! `fastness up`: a pool in a folder, with a file system and a volume.

mod files;

use std::fs::{self, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args;
use fastness_base::{is_busy, patiently};
use fastness_daemon::{
    AccessRequest, Address, ImportStep, ImportWatch, Node, NodeOptions, PmUse, PoolReport, RegionReport,
    check_address, check_pool_name,
};
use fastness_store::{
    Consent, Device, ImportOptions, KindId, Places, Pool, PoolError, PoolState, Property, VdevSpec,
};
use fastness_terminal::{Outcome, fields, size};
use fastness_zvol::{Volume, VolumeOptions};

use crate::access::AccessArgs;
use crate::error::{Context, Result, busy, refuse};
use crate::made::Made;
use crate::progress::Progress;
use crate::start::{BoundArgs, listen, running, until_end};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fastness up                      a pool, files and a volume in ./fastness-data
  fastness up /srv/disk --size 100G
  fastness up --pm /dev/dax0.0     synchronous writes into persistent memory
  fastness up --emulate-pm         the same without: as fast, and gone with the power
Meanwhile, in another terminal:
  fastness status
  fastness iostat 1
  nbdinfo 'nbd+unix:///fastness-data/volume?socket=fastness-data/volume.sock'";

/// Arguments of `fastness up`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Folder of the pool's file, the mount point and the volume's socket; made if it is not there. Its name
    /// is the pool's
    #[arg(default_value = "fastness-data")]
    dir: PathBuf,
    /// Name of the pool from now on [default: as it is called; a new one as the folder]
    #[arg(long)]
    name: Option<String>,
    /// Size of the volume, when it is made; it takes the space of what is written only
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "8G")]
    size: u64,
    /// Size of the pool's file, when it is made (sparse) [default: twice the volume]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pool_size: Option<u64>,
    /// Block size of the volume, when it is made
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "4K")]
    block_size: u64,
    /// Serve at this address as well, such as 127.0.0.1:10809; without TLS, a loopback address
    #[arg(long, value_name = "ADDRESS")]
    tcp: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    /// Log synchronous writes on persistent memory: a devdax device, or a file on a DAX file system. The pool
    /// keeps the log from then on
    #[arg(long, value_name = "PATH", conflicts_with = "emulate_pm")]
    pm: Option<PathBuf>,
    /// Log synchronous writes in a mapped file that stands in for persistent memory: they take microseconds,
    /// and survive the process but not the power. The pool keeps the log from then on
    #[arg(long)]
    emulate_pm: bool,
    /// Size of that file, when it is made
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    pm_size: u64,
    /// Mount no file system
    #[arg(long)]
    no_mount: bool,
    /// Go on without a log that is missing or damaged: acknowledged writes of the last seconds are lost
    #[arg(long)]
    drop_log: bool,
    /// Import although another host seems to have the pool; lose what is on the region of a new log
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    bounds: BoundArgs,
}

pub(crate) fn run(args: &UpArgs, out: &mut dyn Write) -> Result<Outcome> {
    // Dropped last: when nothing uses the files any more.
    let mut made = Made::default();
    let dir = make_folder(&args.dir, &mut made)?;
    let (socket, image) = (dir.join("volume.sock"), dir.join("pool.img"));
    let name = args.name.as_deref().or(dir.file_name().and_then(|name| name.to_str())).unwrap_or("fastness");
    refuse_taken(name, &dir)?;
    // Before anything is made that would be left.
    check_pool_name(name, args.force || image.exists())?;
    let addresses = addresses(args, &socket)?;
    addresses.iter().try_for_each(|(address, access)| check_address(address, access))?;
    let progress = Progress::start();
    let watch = progress.watch();
    watch.begin(ImportStep::Devices);
    let (device, is_new) = open(args, &dir, name, &watch)?;
    let found = device.probe()?.config;
    if found.state == PoolState::Destroyed {
        return Err(refuse(format!(
            "pool {0} was destroyed: `fastness pool import -D {0} -d {1}` brings it back; to make a new one, remove {2}",
            found.name,
            dir.display(),
            image.display()
        )));
    }
    let known = found.name;
    if args.name.is_none() && known != name {
        refuse_taken(&known, &dir)?;
    }
    let import =
        ImportOptions { is_forced: args.force, rename: args.name.clone(), ..ImportOptions::default() };
    let region = dir.join("pm.log");
    let options = NodeOptions {
        pool: args.bounds.options(),
        places: Places {
            log_paths: vec![region.clone()],
            witnesses: args.pm.iter().cloned().collect(),
            consent: if args.drop_log { Consent::ALL } else { Consent::NONE },
            patience: args.bounds.patience(),
            ..Places::default()
        },
        watch,
        ..NodeOptions::default()
    };
    let node = Node::import(&[device], &import, options)?;
    if is_new {
        made.add(&image);
    }
    let begun = (|| {
        if node.log().is_some_and(|log| log.kind() == KindId::Lwb) {
            made.note(&region);
            add_log(args, &node, &region)?;
        }
        let control = listen(&node)?;
        node.end_on_signals()?;
        let volume = serve(args, &node, &addresses, &mut made)?;
        let files = files::mount(args.no_mount, &node, &dir)?;
        drop(progress);
        say(out, &node.status(), is_new, &files, &volume, &socket)?;
        out.flush()?;
        Ok(control)
    })();
    match begun {
        Ok(control) => {
            let ended = until_end(&node, control);
            files::remove_mount_point(&dir);
            ended.map(|_| Outcome::Clean)
        }
        Err(error) => {
            // Once it is served, a client may have written to it.
            match made.is_something() && is_new {
                true => node.discard(|| made.remove()),
                false => node.give_up(),
            }
            made.keep();
            Err(error)
        }
    }
}

/// Where the volume is served, and to whom: at its socket, to this user; and at the address that was given.
fn addresses(args: &UpArgs, socket: &Path) -> Result<Vec<(Address, AccessRequest)>> {
    let access = args.access.request()?;
    if args.tcp.is_none() && access != AccessRequest::default() {
        return Err(refuse("--tls-dir and --insecure say who may come to an address: give one with --tcp"));
    }
    let tcp = args.tcp.clone().map(|address| (Address::Tcp(address), access));
    let unix = (Address::Unix(socket.display().to_string()), AccessRequest::default());
    Ok(tcp.into_iter().chain([unix]).collect())
}

/// The folder, made for its user alone if it is not there.
fn make_folder(dir: &Path, made: &mut Made) -> Result<PathBuf> {
    let cannot = || format!("cannot make {}", dir.display());
    let above: Vec<_> = dir.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    above.iter().rev().for_each(|path| made.note(path));
    if let Some(parent) = above.first() {
        fs::create_dir_all(parent).with_context(cannot)?;
    }
    made.note(dir);
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error).with_context(cannot),
        _ if dir.is_dir() => {}
        _ => return Err(refuse(format!("{} is no folder", dir.display()))),
    }
    dir.canonicalize().with_context(|| format!("cannot use {}", dir.display()))
}

/// Refuses a name under which a process runs a pool: that of the folder, or another one.
fn refuse_taken(name: &str, dir: &Path) -> Result<()> {
    let Some(report) = running(name)? else { return Ok(()) };
    let paths: Vec<_> = report.vdevs.iter().flat_map(|vdev| &vdev.devices).map(|side| &side.path).collect();
    if paths.iter().any(|path| Path::new(path).parent() == Some(dir)) {
        return Err(busy(format!("pool {name} is already running, as process {}", report.pid)));
    }
    Err(busy(format!(
        "another pool called {name} is running, from {}: give this one another name with --name",
        paths.first().map_or("elsewhere", |path| path.as_str())
    )))
}

/// Makes the volume, if there is none, and serves it; returns its name.
fn serve(
    args: &UpArgs,
    node: &Node,
    addresses: &[(Address, AccessRequest)],
    made: &mut Made,
) -> Result<String> {
    let volume = format!("{}/volume", node.name());
    if node.pool().dataset(&volume).is_err() {
        let options = VolumeOptions { properties: vec![(Property::VolBlockSize, args.block_size)] };
        Volume::create(node.store(), &volume, args.size, &options)?;
    }
    for (address, access) in addresses {
        node.serve(&volume, address, access, false, false)?;
        // A client may have written to it already.
        made.keep();
    }
    Ok(volume)
}

/// Puts the log on persistent memory, if there is some.
fn add_log(args: &UpArgs, node: &Node, region: &Path) -> Result<()> {
    if let Some(path) = &args.pm {
        return Ok(node.add_pm_log(&[path], PmUse::default(), args.force)?);
    }
    if args.emulate_pm {
        if region.exists() {
            // The pool does not know it: what is left of a log that it had once, or was to have.
            fs::remove_file(region).with_context(|| format!("cannot remove {}", region.display()))?;
        }
        node.add_pm_log(&[region], PmUse { emulates: true, create_bytes: Some(args.pm_size) }, args.force)?;
    }
    Ok(())
}

/// Opens the pool's file, or makes the pool; says which.
fn open(args: &UpArgs, dir: &Path, name: &str, watch: &ImportWatch) -> Result<(Device, bool)> {
    let path = dir.join("pool.img");
    let is_in_use = |opened: &Result<Device, PoolError>| {
        let is_in_use = is_busy(opened);
        if is_in_use {
            watch.waits_for(&[&path.display().to_string()]);
        }
        is_in_use
    };
    let reopen = || patiently(args.bounds.patience(), || Device::open(&path), is_in_use);
    if path.exists() {
        return Ok((reopen()?, false));
    }
    // Until the file has its name, so that of two calls one makes it.
    let _made_here = lock_folder(args, dir, watch)?;
    if path.exists() {
        return Ok((reopen()?, false));
    }
    // A crash before the end leaves this file, which the next call makes anew.
    let new = dir.join("pool.img.new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", new.display()));
        }
        _ => {}
    }
    let len_bytes = args.pool_size.unwrap_or_else(|| args.size.saturating_mul(2).max(64 << 20));
    // Dropped before the folder is unlocked.
    let mut unfinished = Made::default();
    unfinished.note(&new);
    let device = Device::create_sparse(&new, len_bytes.next_multiple_of(4096))?;
    let pool = Pool::create(name, &[VdevSpec::single(device)], args.bounds.options());
    let pool = pool.with_context(|| format!("cannot make a pool called {name}, as the folder is"))?;
    pool.export()?;
    drop(pool);
    fs::rename(&new, &path)
        .and_then(|()| fs::File::open(dir)?.sync_all())
        .context("cannot name the pool's file")?;
    unfinished.keep();
    Ok((reopen()?, true))
}

/// Waits for others that make a pool in this folder.
fn lock_folder(args: &UpArgs, dir: &Path, watch: &ImportWatch) -> Result<fs::File> {
    let folder = fs::File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    let is_busy = |locked: &std::result::Result<(), TryLockError>| {
        let is_busy = matches!(locked, Err(TryLockError::WouldBlock));
        if is_busy {
            watch.waits_for(&[&dir.display().to_string()]);
        }
        is_busy
    };
    match patiently(args.bounds.patience(), || folder.try_lock(), is_busy) {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => {
            Err(busy(format!("another process is making a pool in {}", dir.display())))
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", dir.display()))
        }
    }
}

fn say(
    out: &mut dyn Write,
    pool: &PoolReport,
    is_new: bool,
    files: &str,
    volume: &str,
    socket: &Path,
) -> Result<()> {
    let how = if is_new { "made just now" } else { &pool.found };
    let served = pool.served.iter().find(|served| served.volume == volume);
    let served = served.ok_or_else(|| refuse(format!("{volume} is not served")))?;
    let device = &pool.vdevs[0].devices[0];
    let log = match &pool.log {
        Some(log) if log.kind == "pmem" => {
            // An ordinary file that does not stand in for persistent memory is synced to its disk.
            let waits = |region: &RegionReport| !region.emulates && log.medium.contains("ordinary file");
            let words = match log.regions.iter().any(waits) {
                true => "synchronous writes wait until its disk has them",
                false => "synchronous writes take microseconds",
            };
            format!("{} ({words})", log.medium)
        }
        Some(log) => format!("{} (synchronous writes wait for a flush of it; see --pm)", log.medium),
        None => "none".to_owned(),
    };
    fields(
        out,
        &[
            ("pool", format!("{} ({how}, txg {})", pool.name, pool.synced_txg)),
            (
                "device",
                format!(
                    "{} ({}, {})",
                    device.path,
                    device.medium,
                    size::show(pool.total_bytes.next_multiple_of(1 << 20))
                ),
            ),
            ("files", files.to_owned()),
            ("volume", format!("{volume} ({}, sparse)", size::show(served.size_bytes))),
            ("socket", format!("{} (NBD)", socket.display())),
            ("address", served.uri.clone()),
            ("log", log),
            ("after a process crash", pool.after_process_crash.clone()),
            ("after a power cut", pool.after_power_cut.clone()),
            ("not flushed", pool.not_flushed.clone()),
        ],
    )?;
    // Through the socket, which needs no certificates.
    let mut of_it = pool.served.iter().filter(|served| served.volume == volume);
    let uri = &of_it.find(|served| served.tls.is_none()).unwrap_or(served).uri;
    let how = match pool.served.iter().any(|served| matches!(served.address, Address::Mount(_))) {
        true => "Use it: programs find the files where they are mounted. The volume, from another terminal:",
        false => "Use it, from another terminal:",
    };
    writeln!(out, "\n{how}")?;
    writeln!(out, "  nbdinfo '{uri}'")?;
    writeln!(out, "  nbdcopy image.raw '{uri}'")?;
    writeln!(out, "  qemu-system-x86_64 -drive file='{uri}',format=raw,if=virtio ...")?;
    writeln!(out, "  fastness status; fastness iostat 1")?;
    writeln!(out, "\nCtrl-C exports the pool.")?;
    Ok(())
}
