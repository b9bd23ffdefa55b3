//! What an import replayed.

use fastness_pool::DatasetKind;
use fastness_prb::SideRepairs;

/// What an import replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Datasets with records.
    pub datasets: u64,
    /// Records that were applied.
    pub records: u64,
    /// Of these, the ones whose data was not in the log but in the pool.
    pub indirect: u64,
    /// Records that were given up: damaged ones, and those after them.
    pub dropped: u64,
    /// Damaged logs of which a part was given up.
    pub damaged: u64,
    /// The log was missing, and was given up.
    pub is_forgotten: bool,
    /// What was copied from one side of a mirror of regions to the other.
    pub sides: SideRepairs,
    /// Datasets of unknown kinds: they cannot be opened, and what is in their logs stays there.
    pub unknown: Vec<(String, DatasetKind)>,
}
