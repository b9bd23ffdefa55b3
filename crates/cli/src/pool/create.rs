//! `fastness pool create`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_daemon::{
    Control, Node, NodeOptions, PoolSetting, VdevRequest, check_layout, check_new_regions, check_pool_name,
    control_socket, open_vdevs, run_dir, split_regions,
};
use fastness_store::{Consent, Device, ImportOptions, Pool, PoolError, Property, is_user_property};
use fastness_terminal::{Outcome, size};

use crate::error::{CliError, Context, Result, refuse};
use crate::made::Made;
use crate::pool::{PmArgs, assignments, list, vdevs};
use crate::start::{BoundArgs, Import};

pub(super) const EXAMPLES: &str = "\
Examples:
  fastness pool create tank /dev/sdb
  fastness pool create tank mirror /dev/sdb /dev/sdc
  fastness pool create tank mirror a b mirror c d --file-size 10G   files, created here
  fastness pool create tank /dev/sdb -O compression=lz4
  fastness pool create tank mirror /dev/sdb /dev/sdc log /dev/dax0.0
  fastness pool create tank /dev/sdb log mirror /dev/dax0.0 /dev/dax1.0
  fastness pool create tank rbd:volumes/tank@conf=/etc/ceph/ceph.conf log /dev/dax0.0
  fastness pool create tank disk --file-size 10G log /dev/shm/tank.log --emulate-pm
A background process then runs the pool; `fastness pool export tank` ends it.";

/// Arguments of `fastness pool create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Name of the pool
    pool: String,
    /// Vdevs: DEVICE... | mirror DEVICE... | log ...
    #[arg(required = true)]
    vdevs: Vec<String>,
    /// Create sparse files of this size for paths that do not exist
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    file_size: Option<u64>,
    /// Destroy the contents of the devices, and accept a name or vdevs that look like a mistake
    #[arg(short, long)]
    force: bool,
    /// Set a property of the root dataset
    #[arg(short = 'O', value_name = "PROPERTY=VALUE")]
    properties: Vec<String>,
    /// Set a property of the pool: autoexpand, autotrim, failmode, logdata
    #[arg(short = 'o', value_name = "PROPERTY=VALUE")]
    pool_properties: Vec<String>,
    /// Run the pool in this process, until Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Create the pool, and do not run it
    #[arg(long, conflicts_with = "foreground")]
    no_import: bool,
    #[command(flatten)]
    pm: PmArgs,
    #[command(flatten)]
    bounds: BoundArgs,
}

fn pool_settings(words: &[String]) -> Result<Vec<PoolSetting>> {
    let setting = |(name, value): (String, String)| {
        let none = || refuse(format!("a pool has no property {name}; -O sets properties of datasets"));
        PoolSetting::parse(&name, &value)?.ok_or_else(none)
    };
    assignments(words)?.into_iter().map(setting).collect()
}

pub(super) fn run(args: &CreateArgs, out: &mut dyn Write) -> Result<Outcome> {
    check_pool_name(&args.pool, args.force)?;
    if Control::is_alive(&control_socket(&run_dir()?, &args.pool)?) {
        return Err(refuse(format!("a pool called {} is running", args.pool)));
    }
    let pm = args.pm.to_use();
    let vdevs = vdevs::parse(&args.vdevs)?;
    check_layout(&vdevs, false, args.force)?;
    let (regions, requests) = split_regions(&vdevs, pm)?;
    if !regions.is_empty() && requests.iter().any(|vdev| vdev.is_log) {
        return Err(refuse("a log is either on persistent memory or on block devices, not on both"));
    }
    if !args.force {
        check_new_regions(&regions, pm)?;
    }
    make(args, &requests, &regions)?;
    let devices = requests.iter().flat_map(|request| &request.devices);
    let import = Import {
        name: args.pool.clone(),
        places: devices.map(PathBuf::from).collect(),
        is_forced: false,
        is_read_only: false,
        is_degraded: false,
        is_destroyed: false,
        new_name: None,
        is_quiet: false,
        log_paths: Vec::new(),
        consent: Consent::NONE,
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

/// Makes the pool, and exports it. If a step fails, there is no pool, and none of the files that were made
/// for it.
fn make(args: &CreateArgs, requests: &[VdevRequest], regions: &[String]) -> Result<()> {
    let (users, plain): (Vec<_>, Vec<_>) =
        assignments(&args.properties)?.into_iter().partition(|(name, _)| is_user_property(name));
    let plain = plain
        .into_iter()
        .map(|(name, value)| {
            let property: Property = name.parse()?;
            Ok((property, Some(property.parse(&value)?)))
        })
        .collect::<Result<Vec<_>, PoolError>>()?;
    let users: Vec<_> = users.into_iter().map(|(name, value)| (name, Some(value))).collect();
    let settings = pool_settings(&args.pool_properties)?;
    let mut created = Vec::new();
    {
        let specs = open_vdevs(requests, args.file_size, args.force, &mut created)?;
        let pool = Pool::create(&args.pool, &specs, args.bounds.options());
        // They are removed while they are open: no other process has them.
        let mut made = Made::default();
        created.iter().for_each(|path| made.add(path));
        let pool = pool.with_context(|| format!("cannot create pool {}", args.pool))?;
        set(&pool, &settings, &plain, &users).or_else(|error| unmake(&pool, &mut made, error))?;
        made.keep();
        pool.export()?;
    }
    if regions.is_empty() {
        return Ok(());
    }
    // The kernel may release them a moment after the pool above has closed them.
    let open = |path| Device::open_within(path, args.bounds.patience());
    let devices = requests.iter().flat_map(|request| &request.devices);
    let devices = devices.map(open).collect::<Result<Vec<_>, _>>()?;
    let options = NodeOptions { pool: args.bounds.options(), ..NodeOptions::default() };
    let node = Node::import(&devices, &ImportOptions::default(), options)?;
    let added = node.add_pm_log(regions, args.pm.to_use(), args.force);
    let mut made = Made::default();
    created.iter().for_each(|path| made.add(path));
    added.map_err(CliError::from).or_else(|error| unmake(&node.pool(), &mut made, error))?;
    made.keep();
    Ok(node.pool().export()?)
}

fn set(
    pool: &Pool,
    settings: &[PoolSetting],
    plain: &[(Property, Option<u64>)],
    users: &[(String, Option<String>)],
) -> Result<()> {
    if plain.is_empty() && users.is_empty() && settings.is_empty() {
        return Ok(());
    }
    let tx = pool.begin_tx()?;
    settings.iter().try_for_each(|setting| setting.set(pool, &tx))?;
    Ok(pool.dataset(&pool.name())?.set_all(&tx, plain, users)?)
}

/// A pool that is not what was asked for is destroyed; the error that says why is the one to report.
fn unmake(pool: &Pool, made: &mut Made, error: CliError) -> Result<()> {
    match pool.destroy() {
        Ok(()) => made.remove(),
        Err(_) => made.keep(),
    }
    Err(error)
}
