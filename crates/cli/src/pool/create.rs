//! `fastness pool create`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use fastness_daemon::{Control, control_socket, open_vdevs, run_dir};
use fastness_pool::{Pool, Property};

use crate::exit::{Outcome, refuse};
use crate::pool::{assignments, list, vdevs};
use crate::size;
use crate::start::{BoundArgs, Import};

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness pool create tank /dev/sdb
  fastness pool create tank mirror /dev/sdb /dev/sdc
  fastness pool create tank mirror a b mirror c d --file-size 10G   files, made here
  fastness pool create tank /dev/sdb -O compression=lz4
A process in the background then has the pool; `fastness pool export tank` ends it.";

/// Arguments of `fastness pool create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Name of the pool
    pool: String,
    /// Vdevs: DEVICE... | mirror DEVICE... | log ...
    #[arg(required = true)]
    vdevs: Vec<String>,
    /// Make files of this size (sparse) where a path does not exist
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    file_size: Option<u64>,
    /// Lose what is on the devices
    #[arg(short, long)]
    force: bool,
    /// Set a property of the root dataset
    #[arg(short = 'O', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// Have the pool in this process, until Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Make the pool and end; nobody has it then
    #[arg(long, conflicts_with = "foreground")]
    no_import: bool,
    #[command(flatten)]
    bounds: BoundArgs,
}

pub(super) fn run(args: &CreateArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    if Control::is_alive(&control_socket(&run_dir()?, &args.pool)) {
        return Err(refuse(format!("a pool called {} is running", args.pool)));
    }
    let requests = vdevs::parse(&args.vdevs)?;
    let properties = assignments(&args.properties)?
        .into_iter()
        .map(|(name, value)| {
            let property: Property = name.parse()?;
            Ok((property, property.parse(&value)?))
        })
        .collect::<Result<Vec<_>, fastness_pool::PoolError>>()?;
    {
        let specs = open_vdevs(&requests, args.file_size, args.force)?;
        let pool = Pool::create(&args.pool, &specs, args.bounds.options());
        let pool = pool.with_context(|| format!("cannot create pool {}", args.pool))?;
        if !properties.is_empty() {
            let tx = pool.begin_tx()?;
            let root = pool.dataset(&args.pool)?;
            for (property, value) in properties {
                root.set(&tx, property, Some(value))?;
            }
        }
        pool.export()?;
    }
    let places = requests.into_iter().flat_map(|request| request.devices).map(PathBuf::from).collect();
    let import = Import {
        name: args.pool.clone(),
        places,
        is_forced: false,
        is_read_only: false,
        is_degraded: false,
        bounds: args.bounds.clone(),
    };
    if args.foreground {
        return import.foreground(false, out);
    }
    if !args.no_import {
        list::show(out, &import.background()?)?;
    }
    Ok(Outcome::Clean)
}
