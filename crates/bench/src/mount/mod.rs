//! `fastness bench mount`: a mounted file system beside a pass-through one, ext4, and its own other ways to
//! log, through the same system calls, turn by turn.
//!
//! Every server is a process of its own: `fastness up` with a pool in a file on the disk, and a pass-through
//! file system over tmpfs that makes nothing durable. The plain file system is that of the folder. Txgs sync
//! beside the turns, as they do for a user.

mod pass_through;
mod served;
mod work;

use served::Places;

pub use pass_through::serve_pass_through;

use crate::error::Result;
use crate::folder::Folder;
use crate::{Options, Row};

/// Runs the benchmark.
///
/// # Errors
/// If nothing can be mounted, or a system call fails.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let folder = Folder::new()?;
    work::rows(&Places::new(&folder)?, options)
}
