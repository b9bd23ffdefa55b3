//! `fastness bench mount`: a mounted file system beside a pass-through one, ext4, and its own other ways to
//! log, through the same system calls, turn by turn.
//!
//! Every server is a process of its own: `fastness up` with a pool in a file on the disk, and a pass-through
//! file system over tmpfs that makes nothing durable. The plain file system is that of the folder. Txgs sync
//! beside the turns, as they do for a user.

mod pass_through;
mod served;
mod work;

use std::path::PathBuf;

use served::Places;

pub use pass_through::serve_pass_through;

use crate::error::{Context, Result};
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If nothing can be mounted, or a system call fails.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let parent = std::env::var_os("FASTNESS_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("fastness-bench-mount-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let rows = Places::new(&folder).and_then(|places| work::rows(&places, options));
    // What is left then is for the user to see.
    let _ = std::fs::remove_dir_all(&folder);
    rows
}
