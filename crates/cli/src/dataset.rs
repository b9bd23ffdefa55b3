//! `fastness dataset`: names and their properties.

use std::io::Write;

use clap::{Args, Subcommand};
use fastness_daemon::{DatasetReport, Request};

use crate::connect::{ask, ask_all, pool_of, print_json};
use crate::error::{Result, refuse};
use crate::exit::Outcome;
use crate::pool::assignments;
use crate::size::short;
use crate::table::table;

const PROPERTIES: &str = "\
Properties:
  sync           standard | always | disabled   when synchronous writes are acknowledged
  logbias        latency | throughput           what the log is optimised for
  recordsize     512 to 1M                      block of new files
  volblocksize   512 to 1M                      block of a volume, fixed when it is created
  compression    off | lz4 | zstd               of new blocks
  readonly       off | on                       refuse changes
  quota          SIZE | none                    most space for a dataset and those below it
  reservation    SIZE | none                    space kept free for it
All but the last two and volblocksize are inherited.
Examples:
  fastness dataset set compression=lz4 tank/logs
  fastness dataset get all tank/logs";

/// Commands on datasets.
#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Create a dataset
    #[command(after_help = PROPERTIES)]
    Create(CreateArgs),
    /// Destroy a dataset or volume
    Destroy {
        /// Full name
        dataset: String,
        /// Destroy everything below it, too
        #[arg(short, long)]
        recursive: bool,
    },
    /// Rename a dataset or volume
    Rename {
        /// Full name
        dataset: String,
        /// New full name
        to: String,
    },
    /// List datasets and volumes
    List(ListArgs),
    /// Set a property
    #[command(after_help = PROPERTIES)]
    Set {
        /// What to set
        #[arg(value_name = "PROPERTY=VALUE")]
        assignment: String,
        /// Full names
        #[arg(required = true)]
        datasets: Vec<String>,
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
    /// Print JSON: an array with all properties
    #[arg(long)]
    json: bool,
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
}

pub(crate) fn run(command: DatasetCommand, out: &mut dyn Write) -> Result<Outcome> {
    match command {
        DatasetCommand::Create(CreateArgs { dataset, options, parents }) => {
            let properties = assignments(&options)?;
            let name = dataset.clone();
            change(&dataset, &Request::CreateDataset { name, properties, with_parents: parents })
        }
        DatasetCommand::Destroy { dataset, recursive } => {
            let name = dataset.clone();
            change(&dataset, &Request::DestroyDataset { name, is_recursive: recursive })
        }
        DatasetCommand::Rename { dataset, to } => {
            if pool_of(&dataset) != pool_of(&to) {
                return Err(refuse("a dataset cannot move to another pool"));
            }
            change(&dataset, &Request::RenameDataset { from: dataset.clone(), to })
        }
        DatasetCommand::List(args) => list(&args, out),
        DatasetCommand::Set { assignment, datasets } => {
            let (property, value) = assignments(&[assignment])?.remove(0);
            set(&datasets, &property, Some(&value))
        }
        DatasetCommand::Inherit { property, datasets } => set(&datasets, &property, None),
        DatasetCommand::Get(args) => get(&args, out),
    }
}

fn change(dataset: &str, request: &Request) -> Result<Outcome> {
    let () = ask(dataset, request)?;
    Ok(Outcome::Clean)
}

fn set(datasets: &[String], property: &str, value: Option<&str>) -> Result<Outcome> {
    for name in datasets {
        let (property, value) = (property.to_owned(), value.map(str::to_owned));
        change(name, &Request::SetProperty { name: name.clone(), property, value })?;
    }
    Ok(Outcome::Clean)
}

/// A dataset and those below it; without a name, all datasets of all running pools.
pub(crate) fn datasets(name: Option<&str>) -> Result<Vec<DatasetReport>> {
    let all: Vec<Vec<DatasetReport>> = ask_all(name.map(pool_of), &Request::Datasets)?;
    let mut all = all.concat();
    if let Some(name) = name {
        let below = format!("{name}/");
        all.retain(|dataset| dataset.name == name || dataset.name.starts_with(&below));
        if all.is_empty() {
            return Err(refuse(format!("dataset {name} does not exist")));
        }
    }
    Ok(all)
}

fn list(args: &ListArgs, out: &mut dyn Write) -> Result<Outcome> {
    let all = datasets(args.dataset.as_deref())?;
    if args.json {
        print_json(out, &all)?;
        return Ok(Outcome::Clean);
    }
    let row = |dataset: &DatasetReport| {
        vec![
            dataset.name.clone(),
            dataset.kind.clone(),
            short(dataset.used_bytes),
            dataset.size_bytes.map_or_else(|| "-".to_owned(), short),
        ]
    };
    let columns = [("NAME", false), ("KIND", false), ("USED", true), ("SIZE", true)];
    table(out, &columns, all.iter().map(row).collect())?;
    Ok(Outcome::Clean)
}

fn get(args: &GetArgs, out: &mut dyn Write) -> Result<Outcome> {
    let wanted: Vec<_> = args.property.split(',').collect();
    let is_wanted = |name: &str| wanted == ["all"] || wanted.contains(&name);
    let mut found = Vec::new();
    for name in &args.datasets {
        let mut dataset = datasets(Some(name))?.remove(0);
        dataset.properties.retain(|property| is_wanted(&property.name));
        found.push(dataset);
    }
    if let Some(unknown) = wanted.iter().find(|name| {
        **name != "all"
            && found.iter().all(|dataset| dataset.properties.iter().all(|property| property.name != **name))
    }) {
        return Err(refuse(format!("there is no property {unknown}; `all` shows those that exist")));
    }
    if args.json {
        print_json(out, &found)?;
        return Ok(Outcome::Clean);
    }
    let rows = found.iter().flat_map(|dataset| {
        let row = |property: &fastness_daemon::PropertyReport| {
            vec![dataset.name.clone(), property.name.clone(), property.value.clone(), property.source.clone()]
        };
        dataset.properties.iter().map(row)
    });
    let columns = [("NAME", false), ("PROPERTY", false), ("VALUE", false), ("SOURCE", false)];
    table(out, &columns, rows.collect())?;
    Ok(Outcome::Clean)
}
