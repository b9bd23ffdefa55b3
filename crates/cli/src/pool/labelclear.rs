//! `fastness pool labelclear`: devices that are to belong to no pool any more.

use std::path::PathBuf;

use clap::Args;
use fastness_daemon::clear_labels;
use fastness_terminal::Outcome;

use crate::error::Result;

pub(super) const MORE: &str = "\
Only the labels are overwritten, nothing else; `pool import -D` does not find the pool after that. A region of a log in
persistent memory has none: `pool remove` takes it out of a pool.";

/// Arguments of `fastness pool labelclear`.
#[derive(Debug, Args)]
pub(crate) struct LabelClearArgs {
    /// Devices that no running pool has
    #[arg(required = true)]
    devices: Vec<PathBuf>,
    /// Also devices of a pool that could still be imported; without them it cannot be
    #[arg(short, long)]
    force: bool,
}

pub(super) fn run(args: &LabelClearArgs) -> Result<Outcome> {
    args.devices.iter().try_for_each(|device| clear_labels(device, args.force))?;
    Ok(Outcome::Clean)
}
