//! Who writes how much to which region: the words that exact counters and samples share.
//!
//! ```text
//! exact    from the counters that processes of Fastness publish
//! rates    two looks, and what happened between them
//! ```

mod exact;
mod rates;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

pub use exact::{exact, known_regions};
pub use rates::{Flow, flows, totals_by_region};

/// A region, for people and to tell it from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RegionName {
    /// What it is, in words.
    pub kind: String,
    /// The file or device; none of anonymous memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// NUMA node of its memory, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

impl RegionName {
    /// The file or device; otherwise what it is.
    pub fn short(&self) -> String {
        self.path.as_ref().map_or_else(|| self.kind.clone(), |path| path.display().to_string())
    }
}

/// A region that somebody has said to be one, though its file does not look like it: emulated PM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRegion {
    /// Number of the file's device.
    pub device: u64,
    /// Number of the file.
    pub inode: u64,
    /// The file.
    pub name: Arc<RegionName>,
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The process counts itself.
    Exact,
    /// Samples of its store instructions.
    Sampled,
}

/// What a thread has written to a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The process.
    pub pid: u32,
    /// The thread; none: those that have ended, together.
    pub thread: Option<u32>,
    /// The region.
    pub region: Arc<RegionName>,
    /// Bytes so far.
    pub bytes: u64,
    /// Copies so far; samples do not tell.
    pub writes: Option<u64>,
    /// Where that comes from.
    pub source: Source,
}
