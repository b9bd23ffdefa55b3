//! `fastness dataset`: names and their properties.

use std::collections::BTreeSet;
use std::io::Write;

use clap::{Args, Subcommand};
use fastness_daemon::{DatasetReport, DestroyedReport, Request, inherit_user_properties};
use fastness_terminal::Outcome;
use fastness_terminal::size::short;

use crate::columns::{self, add_ratios};
use crate::connect::{ask, ask_all, pool_of, print_json};
use crate::error::{Result, refuse};
use crate::listing::{Cell, Listing, ListingArgs, Value, values};
use crate::pool::{assignments, assignments_first};

const PROPERTIES: &str = "\
Properties:
  sync           standard | always | disabled   when synchronous writes are acknowledged
  logbias        latency | throughput           what the log is optimised for
  recordsize     512 to 1M                      block of new files
  volblocksize   512 to 1M                      block of a volume, fixed when it is created
  compression    off | lz4 | zstd               of new blocks
  readonly       off | on                       refuse changes
  quota          SIZE | none                    most space for a dataset and those below it
  reservation    SIZE | none                    space kept free for it, and those below it
  refreservation SIZE | auto | none             room of a volume of its own, again after each snapshot; auto: all of it
  WHO:NAME       text, 8192 bytes at most       your own, for example org.example:owner (a-z 0-9 : - . _)
All but quota, the reservations and volblocksize are inherited. Snapshots take those with a colon, and no others.
Read-only (`get`, columns of lists): type, creation (UTC), used, available, referenced, volsize, origin, clones,
compressratio and refcompressratio (how much longer the data would be without compression; counting that reads
the rows of all blocks, so it is shown where it is asked for).
Examples:
  fastness dataset set compression=lz4 quota=10G tank/logs tank/old
  fastness dataset set org.example:owner=ops tank
  fastness dataset get all tank/logs
  fastness dataset inherit org.example:owner tank/logs";

/// Commands on datasets.
#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Create a dataset
    #[command(after_help = PROPERTIES)]
    Create(CreateArgs),
    /// Destroy a dataset, a volume, or snapshots
    Destroy {
        /// Full name; of snapshots also VOLUME@FIRST%LAST, with all in between
        dataset: String,
        /// Destroy everything below it, too: datasets, snapshots; of a snapshot, its clones
        #[arg(short, long)]
        recursive: bool,
        /// Destroy nothing, and say what would be destroyed and free
        #[arg(short = 'n', long)]
        dry_run: bool,
    },
    /// Rename a dataset or volume
    Rename {
        /// Full name
        dataset: String,
        /// New full name
        to: String,
    },
    /// List datasets and volumes; every property can be a column
    #[command(
        after_help = "Examples:\n  fastness dataset list tank -t volume -o name,volsize,compression -S used\n  fastness dataset list -Hp -o name,used"
    )]
    List(ListArgs),
    /// Set properties
    #[command(after_help = PROPERTIES)]
    Set {
        /// What to set, and then the full names of the datasets
        #[arg(value_name = "PROPERTY=VALUE... DATASET", required = true)]
        words: Vec<String>,
    },
    /// Show properties, and where their values come from
    #[command(after_help = PROPERTIES)]
    Get(GetArgs),
    /// Go back to the inherited value
    Inherit {
        /// Name
        property: String,
        /// Full names
        #[arg(required = true)]
        datasets: Vec<String>,
    },
}

/// Arguments of `fastness dataset create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Full name, such as tank/home
    dataset: String,
    /// Set a property of the dataset
    #[arg(short, value_name = "PROPERTY=VALUE")]
    options: Vec<String>,
    /// Create missing datasets above it, too
    #[arg(short, long)]
    parents: bool,
}

/// Arguments of `fastness dataset list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only this dataset and those below it
    dataset: Option<String>,
    /// Only those of these kinds: folder, volume, filesystem, receiving, snapshot (not shown without it)
    #[arg(short = 't', long = "type", value_name = "KINDS", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Only so many levels below: 0 is the dataset itself
    #[arg(short, long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// All levels below, as without it
    #[arg(short, long, conflicts_with = "depth")]
    recursive: bool,
    /// Print JSON: an array with all properties
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

/// Arguments of `fastness dataset get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Names, separated by commas, or `all`
    property: String,
    /// Full names
    #[arg(required = true)]
    datasets: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    listing: ListingArgs,
}

pub(crate) fn run(command: DatasetCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        DatasetCommand::Create(CreateArgs { dataset, options, parents }) => {
            let properties = assignments(&options)?;
            let name = dataset.clone();
            change(&dataset, &Request::CreateDataset { name, properties, with_parents: parents })
        }
        DatasetCommand::Destroy { dataset, recursive, dry_run } => {
            let name = dataset.clone();
            let request = Request::DestroyDataset { name, is_recursive: recursive, is_dry: dry_run };
            let report: DestroyedReport = ask(&dataset, &request)?;
            if dry_run {
                for name in &report.names {
                    writeln!(out, "would destroy {name}")?;
                }
                writeln!(out, "would free {}", short(report.reclaimed_bytes))?;
            }
            Ok(Outcome::Clean)
        }
        DatasetCommand::Rename { dataset, to } => {
            if pool_of(&dataset) != pool_of(&to) {
                return Err(refuse("a dataset cannot move to another pool"));
            }
            change(&dataset, &Request::RenameDataset { from: dataset.clone(), to })
        }
        DatasetCommand::List(args) => list(&args, out),
        DatasetCommand::Set { words } => {
            let (assignments, datasets) = assignments_first(&words)?;
            let values = assignments.into_iter().map(|(name, value)| (name, Some(value))).collect();
            set(datasets, values)
        }
        DatasetCommand::Inherit { property, datasets } => set(&datasets, vec![(property, None)]),
        DatasetCommand::Get(args) => get(&args, out),
    }
}

fn change(dataset: &str, request: &Request) -> Result<Outcome> {
    let () = ask(dataset, request)?;
    Ok(Outcome::Clean)
}

fn set(datasets: &[String], values: Vec<(String, Option<String>)>) -> Result<Outcome> {
    for name in datasets {
        change(name, &Request::SetProperties { name: name.clone(), values: values.clone() })?;
    }
    Ok(Outcome::Clean)
}

/// A dataset and those below it; without a name, all datasets of all running pools.
pub(crate) fn datasets(name: Option<&str>) -> Result<Vec<DatasetReport>> {
    reports(name, name.is_some_and(|name| name.contains('@')))
}

/// The same; if they are wanted, with the snapshots of all these, which come last.
pub(crate) fn reports(name: Option<&str>, with_snapshots: bool) -> Result<Vec<DatasetReport>> {
    let all: Vec<Vec<DatasetReport>> = ask_all(name.map(pool_of), &Request::Datasets)?;
    let mut all = all.concat();
    if with_snapshots {
        let snapshots: Vec<Vec<DatasetReport>> = ask_all(name.map(pool_of), &Request::Snapshots)?;
        all.extend(snapshots.concat());
    }
    inherit_user_properties(&mut all);
    if let Some(name) = name {
        let is_below = |of: &str| of.strip_prefix(name).is_some_and(|of| of.starts_with(['/', '@']));
        all.retain(|dataset| dataset.name == name || is_below(&dataset.name));
        if all.is_empty() {
            return Err(refuse(format!("dataset {name} does not exist")));
        }
    }
    Ok(all)
}

/// Makes snapshots, those of each pool in one request.
pub(crate) fn snapshot(snapshots: &[String]) -> Result<()> {
    for names in snapshots.chunk_by(|one, other| pool_of(one) == pool_of(other)) {
        let () = ask(&names[0], &Request::Snapshot { names: names.to_vec() })?;
    }
    Ok(())
}

/// Makes a volume or file system what a snapshot of it is.
pub(crate) fn rollback(snapshot: String, newer_too: bool) -> Result<()> {
    ask(&snapshot, &Request::Rollback { snapshot: snapshot.clone(), newer_too })
}

/// Volumes, or file systems, of all running pools, and their snapshots: what `wanted` names of `kind` and
/// "snapshot"; nothing: `kind` alone.
pub(crate) fn of_kind(kind: &str, wanted: &[String]) -> Result<Vec<DatasetReport>> {
    let is_wanted = |kind: &str| wanted.iter().any(|wanted| wanted == kind);
    let mut all = reports(None, is_wanted("snapshot"))?;
    let owners: BTreeSet<String> =
        all.iter().filter(|dataset| dataset.kind == kind).map(|dataset| dataset.name.clone()).collect();
    all.retain(|dataset| match dataset.name.split_once('@') {
        Some((owner, _)) => owners.contains(owner),
        None => dataset.kind == kind && (wanted.is_empty() || is_wanted(kind)),
    });
    Ok(all)
}

const KINDS: [&str; 5] = ["folder", "volume", "filesystem", "snapshot", "receiving"];

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Outcome> {
    if let Some(unknown) = args.kinds.iter().find(|kind| !KINDS.contains(&kind.as_str())) {
        return Err(refuse(format!("{unknown} is no kind of dataset: {}", KINDS.join(", "))));
    }
    let mut all = reports(args.dataset.as_deref(), args.kinds.iter().any(|kind| kind == "snapshot"))?;
    let top = args.dataset.as_deref().map_or(0, |name| name.matches('/').count());
    let is_near = |name: &str| args.depth.is_none_or(|depth| name.matches('/').count() <= top + depth);
    all.retain(|dataset| {
        (args.kinds.is_empty() || args.kinds.contains(&dataset.kind)) && is_near(&dataset.name)
    });
    add_ratios(&mut all, args.listing.named())?;
    if args.json {
        print_json(out, &all)?;
        return Ok(Outcome::Clean);
    }
    let listing = Listing::<DatasetReport> {
        shown: &[
            ("name", |dataset| Cell::text(&dataset.name)),
            ("kind", |dataset| Cell::text(&dataset.kind)),
            ("used", |dataset| Cell::Bytes(dataset.used_bytes)),
            ("size", |dataset| dataset.size_bytes.map_or(Cell::Absent, Cell::Bytes)),
        ],
        others: &[],
        more: &columns::cell,
        more_names: &columns::NAMES,
    };
    listing.write(out, &args.listing, all)?;
    Ok(Outcome::Clean)
}

fn get(args: &GetArgs, out: &mut dyn Write) -> Result<Outcome> {
    let wanted: Vec<_> = args.property.split(',').collect();
    let is_wanted = |name: &str| wanted == ["all"] || wanted.contains(&name);
    let mut found = Vec::new();
    for name in &args.datasets {
        found.push(datasets(Some(name))?.remove(0));
    }
    add_ratios(&mut found, wanted.iter().copied())?;
    if let Some(unknown) = wanted
        .iter()
        .find(|name| **name != "all" && found.iter().all(|dataset| columns::cell(dataset, name).is_none()))
    {
        return Err(refuse(format!("there is no property {unknown}; `all` shows those that exist")));
    }
    if args.json {
        found.iter_mut().for_each(|dataset| dataset.properties.retain(|property| is_wanted(&property.name)));
        print_json(out, &found)?;
        return Ok(Outcome::Clean);
    }
    let mut rows: Vec<Value> = found.iter().flat_map(columns::values).collect();
    if wanted != ["all"] {
        // In the order in which they were asked for; what a dataset does not have is shown as that.
        let one = |dataset: &DatasetReport, name: &&str| {
            let known = rows.iter().find(|row| row.of == dataset.name && row.property == *name);
            let absent = || Value {
                of: dataset.name.clone(),
                property: (*name).to_owned(),
                cell: Cell::Absent,
                source: "-".to_owned(),
            };
            known.cloned().unwrap_or_else(absent)
        };
        rows = found.iter().flat_map(|dataset| wanted.iter().map(move |name| one(dataset, name))).collect();
    }
    values(&args.listing, rows, out)
}
