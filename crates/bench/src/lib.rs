//! Benchmarks of the stack: programs, never timed tests.
//!
//! Machines are shared and noisy, so two things are compared only within one run, turn by turn, and the
//! result is a ratio with its interval. Every job has a floor: the same bytes moved by the plainest loop.
//! The medium is named in every row; memory that stands in for PM is *emulated PM*.

mod cache;
mod crashcheck;
mod error;
mod folder;
mod fs;
mod histogram;
mod lwb;
mod measure;
mod medium;
mod mount;
mod nbd;
mod operations;
mod options;
mod overload;
mod pm_device;
mod pmemlog;
mod pool;
mod prb;
mod report;
mod responder;
mod server;
mod svg;
mod sync_write;
mod usage;
mod vhost_user;

use fastness_base::AnyError;

pub use mount::serve_pass_through;
pub use operations::OPERATIONS;
pub use options::Options;
pub use pm_device::PmDevice;
pub use report::{Row, render_json, render_table};
pub use responder::{report_from_inside, serve_plain};
pub use svg::draw_ratios;

/// A benchmark by name.
///
/// # Errors
/// Whatever prevents the measurement; a missed goal is not an error.
pub type Benchmark = fn(Options) -> Result<Vec<Row>, AnyError>;

/// Runs one of [`OPERATIONS`] so many times, for a tool that counts instructions.
///
/// # Errors
/// There is no such operation or no room, or the pool reports an error.
pub fn repeat(operation: &str, count: u64) -> Result<(), AnyError> {
    operations::repeat(operation, count)
}

/// The benchmarks, by the name that the command line knows.
pub const BENCHMARKS: &[(&str, Benchmark)] = &[
    ("prb", prb::run),
    ("overload", overload::run),
    ("pool", pool::run),
    ("nbd", nbd::run),
    ("vhost-user", vhost_user::run),
    ("lwb", lwb::run),
    ("sync-write", sync_write::run),
    ("fs", fs::run),
    ("mount", mount::run),
    ("cache", cache::run),
    ("responder", responder::run),
    ("crashcheck", crashcheck::run),
];
