//! `fastness volume`: disks in a pool.

use std::io::Write;

use clap::{Args, Subcommand};
use fastness_daemon::{
    Address, DatasetReport, PoolReport, Request, ServedReport, absolute, run_dir, volume_of, volume_socket,
};
use fastness_terminal::{Outcome, note, size};

use crate::access::AccessArgs;
use crate::columns::{self, add_ratios};
use crate::connect::{ask, ask_all, pool_of, print_json};
use crate::consent::ConsentArgs;
use crate::dataset::{datasets, of_kind, rollback, snapshot};
use crate::error::{Result, refuse};
use crate::listing::{Cell, Listing, ListingArgs, Shown};
use crate::pool::assignments;
use crate::pool::list::overcommitted;
use crate::transfer::{ReceiveArgs, SEND, SendArgs, receive, send};

const CREATE: &str = "\
Examples:
  fastness volume create tank/disk 20G
  fastness volume create tank/db 100G -b 8K -o compression=lz4
  fastness volume create tank/vm 20G --thick            its room is kept, whatever others store
A volume is sparse unless it is thick: it takes space for what is written, and writes fail when the pool is full.
`fastness dataset destroy` and `rename` take volumes too.";
const SERVE: &str = "\
Examples:
  fastness volume serve tank/disk                           a Unix socket in the folder of sockets
  fastness volume serve tank/disk --socket /run/disk.sock
  fastness volume serve tank/disk --tcp 127.0.0.1:10809
  fastness volume serve tank/a tank/b --tcp 0.0.0.0:10809 --tls-dir pki --tls-verify-peer
Several volumes can have one address; clients choose by name. One that is served later, in the
same way, joins them. It is served again after each import, until `fastness volume unserve tank/disk`.";

const SNAPSHOT: &str = "\
Examples:
  fastness volume snapshot tank/disk@before
  fastness volume rollback tank/disk@before                 undo what came after
  fastness volume clone tank/disk@before tank/try           a volume of its own that begins like that
  fastness volume promote tank/try                          and takes the place of tank/disk
  fastness volume serve tank/disk@before                    read-only
  fastness volume list -t snapshot
  fastness dataset destroy tank/disk@before
  fastness dataset destroy -n tank/disk@mon%fri             what would be free without these";

/// Commands on volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Create a volume of zeroes
    #[command(after_help = CREATE)]
    Create(CreateArgs),
    /// Change the size; data that is cut off is lost
    Resize {
        /// Full name
        volume: String,
        /// New size
        #[arg(value_parser = size::parse)]
        size: u64,
        /// Allow a smaller size, and lose the data after it
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        consent: ConsentArgs,
    },
    /// Serve a volume over NBD, or to a virtual machine
    #[command(after_help = SERVE)]
    Serve(ServeArgs),
    /// Stop serving a volume
    Unserve {
        /// Full name
        volume: String,
        #[command(flatten)]
        consent: ConsentArgs,
    },
    /// List volumes and their addresses, or snapshots
    List {
        /// What: volume, snapshot, receiving (not everything of it has come)
        #[arg(short = 't', long = "type", value_name = "KINDS", value_delimiter = ',')]
        kinds: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        listing: ListingArgs,
    },
    /// Make snapshots of volumes: each has every write that was acknowledged before
    #[command(after_help = SNAPSHOT)]
    Snapshot {
        /// Full names, such as tank/disk@before
        #[arg(value_name = "VOLUME@NAME", required = true)]
        snapshots: Vec<String>,
    },
    /// Make a volume what its newest snapshot is; later changes are lost
    Rollback {
        /// Full name
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: String,
        /// Destroy newer snapshots, if there are any
        #[arg(short, long)]
        recursive: bool,
    },
    /// Make a volume that begins as a snapshot is
    Clone(CloneArgs),
    /// Write a snapshot, or what has changed since another one, to standard output
    #[command(after_help = SEND)]
    Send(SendArgs),
    /// Make a volume, or the next state of one, of a stream on standard input
    #[command(after_help = SEND)]
    Receive(ReceiveArgs),
    /// Give a clone the snapshots that it stands on; the volume that they were of becomes its clone
    Promote {
        /// Full name of the clone
        #[arg(value_name = "VOLUME")]
        clone: String,
    },
}

/// Arguments of `fastness volume create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Full name, such as tank/disk
    volume: String,
    /// Size
    #[arg(value_parser = size::parse)]
    size: u64,
    /// Block size; the same as -o volblocksize=SIZE
    #[arg(short, long, value_name = "SIZE")]
    block_size: Option<String>,
    /// Keep room for all of it; the same as -o refreservation=auto
    #[arg(long, conflicts_with = "sparse")]
    thick: bool,
    /// Keep no room, as without it
    #[arg(short, long)]
    sparse: bool,
    /// Set a property of the volume
    #[arg(short, value_name = "PROPERTY=VALUE")]
    options: Vec<String>,
    /// Create missing datasets above it, too
    #[arg(short, long)]
    parents: bool,
}

/// Arguments of `fastness volume clone`.
#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// Full name of the snapshot
    #[arg(value_name = "VOLUME@NAME")]
    snapshot: String,
    /// Full name of the new volume
    volume: String,
    /// Set a property of the volume
    #[arg(short, value_name = "PROPERTY=VALUE")]
    options: Vec<String>,
    /// Create missing datasets above it, too
    #[arg(short, long)]
    parents: bool,
}

/// Arguments of `fastness volume serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Full names
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Path of a Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "tcp")]
    socket: Option<String>,
    /// Serve it to a virtual machine instead (virtio-blk over vhost-user): path of a Unix socket
    #[arg(long, value_name = "PATH", conflicts_with_all = ["tcp", "socket", "tls_dir", "insecure"])]
    vhost_user: Option<String>,
    /// Address and port; without TLS, a loopback address
    #[arg(long, value_name = "ADDRESS")]
    tcp: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Serve it only until the pool is exported
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(command: VolumeCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        VolumeCommand::Create(CreateArgs { volume, size, block_size, thick, options, parents, .. }) => {
            let mut properties = assignments(&options)?;
            properties.extend(thick.then(|| ("refreservation".to_owned(), "auto".to_owned())));
            properties.extend(block_size.map(|size| ("volblocksize".to_owned(), size)));
            let request = Request::CreateVolume {
                name: volume.clone(),
                size_bytes: size,
                properties,
                with_parents: parents,
            };
            let () = ask(&volume, &request)?;
            let pool: PoolReport = ask(&volume, &Request::Status)?;
            if let Some(text) = overcommitted(&pool) {
                note(format_args!("warning: {text}"));
            }
        }
        VolumeCommand::Resize { volume, size, shrink, consent } => {
            let now = datasets(Some(&volume))?.remove(0).size_bytes;
            if now.is_some_and(|now| size < now) && !shrink {
                let text =
                    format!("{volume} would lose the data after {}; --shrink allows that", size::show(size));
                return Err(refuse(text));
            }
            let does = format!("change the size of {volume} to {}", size::show(size));
            let request =
                |is_forced| Request::ResizeVolume { name: volume.clone(), size_bytes: size, is_forced };
            return consent.send(&volume, &does, request, out);
        }
        VolumeCommand::Serve(args) => {
            serve(args, out)?;
        }
        VolumeCommand::Unserve { volume, consent } => {
            let does = format!("stop serving {volume}");
            let request = |is_forced| Request::Unserve { name: volume.clone(), is_forced };
            return consent.send(&volume, &does, request, out);
        }
        VolumeCommand::List { kinds, json, listing } => return list(&kinds, json, &listing, out),
        VolumeCommand::Snapshot { snapshots } => {
            snapshot(&snapshots)?;
        }
        VolumeCommand::Rollback { snapshot, recursive } => {
            rollback(snapshot, recursive)?;
        }
        VolumeCommand::Send(args) => return send(args, out),
        VolumeCommand::Receive(args) => return receive(args, out),
        VolumeCommand::Promote { clone } => {
            let () = ask(&clone, &Request::Promote { name: clone.clone() })?;
        }
        VolumeCommand::Clone(CloneArgs { snapshot, volume, options, parents }) => {
            if pool_of(&snapshot) != pool_of(&volume) {
                return Err(refuse("a clone is in the pool of its snapshot"));
            }
            let request = Request::CloneSnapshot {
                snapshot: snapshot.clone(),
                name: volume,
                properties: assignments(&options)?,
                with_parents: parents,
            };
            let () = ask(&snapshot, &request)?;
        }
    }
    Ok(Outcome::Clean)
}

/// Serves one volume after another; prints where each is.
fn serve(args: ServeArgs, out: &mut dyn Write) -> Result<()> {
    let path = |path: String| -> Result<String> { Ok(absolute(path.as_ref())?.display().to_string()) };
    let access = args.access.request()?;
    let given = match (args.socket, args.tcp, args.vhost_user) {
        (_, _, Some(_)) if args.volumes.len() > 1 => {
            return Err(refuse("a virtual machine takes one volume at a socket: serve each at its own"));
        }
        (_, _, Some(at)) => Some(Address::VhostUser(path(at)?)),
        (_, Some(address), None) => Some(Address::Tcp(address)),
        (Some(at), None, None) => Some(Address::Unix(path(at)?)),
        (None, None, None) => None,
    };
    if let Some(address) = given.as_ref().filter(|_| args.volumes.len() > 1) {
        refuse_pools(&args.volumes, address)?;
    }
    let mut shared = given;
    for volume in &args.volumes {
        let address = match &shared {
            Some(address) => address.clone(),
            None => Address::Unix(volume_socket(&run_dir()?, volume)?.display().to_string()),
        };
        let (is_read_only, is_kept, access) = (args.read_only, !args.once, access.clone());
        let request = Request::Serve { name: volume.clone(), address, is_read_only, is_kept, access };
        let served: ServedReport = ask(volume, &request)?;
        writeln!(out, "{}", served.uri)?;
        for warning in served.tls.iter().flat_map(|tls| &tls.warnings) {
            note(format_args!("warning: {warning}"));
        }
        // The next ones go to the port that was found.
        shared = shared.map(|_| served.address);
    }
    Ok(())
}

/// Refuses volumes of different pools at one address: each pool has a process of its own.
fn refuse_pools(volumes: &[String], address: &Address) -> Result<()> {
    let pool = |volume: &str| volume.split('/').next().unwrap_or_default().to_owned();
    let first = &volumes[0];
    match volumes.iter().find(|other| pool(other) != pool(first)) {
        Some(other) => Err(refuse(format!(
            "{first} and {other} are in different pools, which cannot share {address}: serve each at an address of its own"
        ))),
        None => Ok(()),
    }
}

fn list(kinds: &[String], json: bool, args: &ListingArgs, out: &mut dyn Write) -> Result<Outcome> {
    if let Some(unknown) =
        kinds.iter().find(|kind| !["volume", "snapshot", "receiving"].contains(&kind.as_str()))
    {
        return Err(refuse(format!("{unknown} is no kind of volume: volume, snapshot, receiving")));
    }
    let is_wanted = |kind: &str| kinds.iter().any(|wanted| wanted == kind);
    let mut volumes = of_kind("volume", kinds)?;
    if is_wanted("receiving") {
        let mut coming = of_kind("receiving", &["receiving".to_owned()])?;
        // By the name that `receive` and `receive -A` take.
        coming.iter_mut().for_each(|volume| volume.name = volume_of(&volume.name).to_owned());
        volumes.extend(coming);
    }
    add_ratios(&mut volumes, args.named())?;
    if json {
        print_json(out, &volumes)?;
        return Ok(Outcome::Clean);
    }
    let pools: Vec<PoolReport> = ask_all(None, &Request::Status)?;
    let served: Vec<_> = pools.iter().flat_map(|pool| &pool.served).collect();
    let addresses = |volume: &DatasetReport| {
        let of_it = served.iter().filter(|served| served.volume == volume.name);
        let addresses: Vec<_> = of_it.map(|served| served.uri.as_str()).collect();
        if addresses.is_empty() { Cell::Absent } else { Cell::text(addresses.join(" ")) }
    };
    let rows = volumes.into_iter().map(|volume| (addresses(&volume), volume)).collect();
    type Row = (Cell, DatasetReport);
    let name: Shown<Row> = ("volume", |(_, volume)| Cell::text(&volume.name));
    let size: Shown<Row> = ("size", |(_, volume)| volume.size_bytes.map_or(Cell::Absent, Cell::Bytes));
    let used: Shown<Row> = ("used", |(_, volume)| Cell::Bytes(volume.used_bytes));
    let referenced: Shown<Row> = ("referenced", |(_, volume)| Cell::Bytes(volume.referenced_bytes));
    let address: Shown<Row> = ("address", |(addresses, _)| addresses.clone());
    let of_snapshots = [name, size, used, referenced, address];
    let listing = Listing::<Row> {
        shown: if is_wanted("snapshot") { &of_snapshots } else { &[name, size, used, address] },
        others: &[],
        more: &|(_, volume), name| columns::cell(volume, name),
        more_names: &columns::NAMES,
    };
    listing.write(out, args, rows)?;
    Ok(Outcome::Clean)
}
