//! Arguments of `fastness cache`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fastness_terminal::size;

use crate::access::AccessArgs;

/// What writes do while the log is full and the origin takes nothing.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum WhenFullArg {
    /// They wait for the origin
    Wait,
    /// They fail, with "no space"
    Fail,
}

/// Arguments of `fastness cache create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Persistent memory: a devdax device, or a file on a DAX file system; a file is made if it is not there.
    /// Given twice, the cache is a mirror: either region has everything
    #[arg(long, value_name = "REGION", required = true)]
    pub(crate) pm: Vec<PathBuf>,
    /// Use an ordinary file as if it were persistent memory: it survives the process, but not the power
    #[arg(long)]
    pub(crate) emulate_pm: bool,
    /// Size of the file, when it is made
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    pub(crate) size: u64,
    /// The block device or file that the cache is in front of
    #[arg(long, value_name = "PATH")]
    pub(crate) origin: PathBuf,
    /// Make a cache although the region has one, or the origin belongs to one: what that holds is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// Where the rest of a cache is.
#[derive(Debug, Args)]
pub(crate) struct OtherArgs {
    /// The other side of a mirror, if it is not where it was
    #[arg(long, value_name = "REGION")]
    pub(crate) pm: Option<PathBuf>,
}

/// How the cache of a region is taken up.
#[derive(Debug, Args)]
pub(crate) struct TakeUpArgs {
    /// The origin, if it is not where it was
    #[arg(long, value_name = "PATH")]
    pub(crate) origin: Option<PathBuf>,
    /// Go on with REGION alone although the other side of the mirror is not there and may be newer
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Take up the cache although its origin does not confirm that they belong together
    #[arg(long)]
    pub(crate) force: bool,
    /// Give up what depends on missing or damaged entries of the log
    #[arg(long)]
    pub(crate) drop_tail: bool,
}

/// Arguments of `fastness cache serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The region
    pub(crate) region: PathBuf,
    #[command(flatten)]
    pub(crate) other: OtherArgs,
    #[command(flatten)]
    pub(crate) take_up: TakeUpArgs,
    /// Use an ordinary file as if it were persistent memory: it survives the process, but not the power
    #[arg(long)]
    pub(crate) emulate_pm: bool,
    /// Path of a Unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "tcp")]
    pub(crate) socket: Option<PathBuf>,
    /// Address and port; without TLS, a loopback address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) tcp: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// What writes do while the log is full and the origin takes nothing
    #[arg(long, value_name = "WHAT", default_value = "wait")]
    pub(crate) when_full: WhenFullArg,
    /// Threads that may write to the region at a time: 2 to 4 for each module
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) writers: u32,
    /// Milliseconds that a change may stay in the log alone while the origin has nothing else to do
    #[arg(long, value_name = "MS", default_value = "50", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    pub(crate) flush_ms: u64,
}

/// Arguments of `fastness cache status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    #[command(flatten)]
    pub(crate) other: OtherArgs,
}

/// A region, and how what is known of it is shown.
#[derive(Debug, Args)]
pub(crate) struct RegionArgs {
    /// The region
    pub(crate) region: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of commands that write to the origin.
#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    #[command(flatten)]
    pub(crate) region: RegionArgs,
    #[command(flatten)]
    pub(crate) other: OtherArgs,
    #[command(flatten)]
    pub(crate) take_up: TakeUpArgs,
}

/// Arguments of `fastness cache attach`.
#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The region of the cache
    pub(crate) region: PathBuf,
    /// The new region; a file is made if it is not there
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) take_up: TakeUpArgs,
    /// Use an ordinary file as if it were persistent memory: it survives the process, but not the power
    #[arg(long)]
    pub(crate) emulate_pm: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `fastness cache detach-side`.
#[derive(Debug, Args)]
pub(crate) struct DetachSideArgs {
    /// The region that stays
    pub(crate) region: PathBuf,
    /// The region that leaves, whether it is there or not; it holds nothing afterwards
    pub(crate) side: PathBuf,
    #[command(flatten)]
    pub(crate) take_up: TakeUpArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
