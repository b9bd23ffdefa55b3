//! Which crash images of a trace to generate.

use std::collections::BTreeSet;

use fastness_pm_model::Config;

use super::outline::Outline;

/// Where crashes are, and how many of their images are taken.
///
/// A failure point with at most [`images_per_point`](Self::images_per_point) images gets all of them,
/// whatever the other options are. At other points the heuristics leave images out, and the
/// [`Point`](super::Point) says so.
#[derive(Debug, Clone)]
pub struct Options {
    /// The machine.
    pub config: Config,
    /// Where the test begins, and where its operations end ([`outline`](super::outline())).
    pub outline: Outline,
    /// Which images of a failure point.
    pub pick: Pick,
    /// Most images of PM, and most of the disks, of one failure point; the one without and the one with
    /// everything come on top.
    pub images_per_point: usize,
    /// Seed of what is chosen at random.
    pub seed: u64,
    /// How consecutive non-temporal stores to a line may be lost.
    pub non_temporal: NonTemporal,
    /// Most bytes of PM.
    pub memory_max_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            config: Config::default(),
            outline: Outline::default(),
            pick: Pick::Subsets,
            images_per_point: 256,
            seed: 0,
            non_temporal: NonTemporal::default(),
            memory_max_bytes: 16 << 30,
        }
    }
}

/// Which images of a failure point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// With part of what is pending: finds ordering bugs.
    Subsets,
    /// With everything that is pending alone, at flushes too, once for each stack: finds logic bugs, fast.
    /// Without stacks, once for each address of the instruction.
    Fast,
}

/// How consecutive non-temporal stores to a line may be lost, if there are too many images to take all.
#[derive(Debug, Clone, Default)]
pub enum NonTemporal {
    /// All of them or none.
    #[default]
    Whole,
    /// In part as well, at failure points just before these events; elsewhere as whole.
    PartialAt(BTreeSet<u64>),
    /// In part as well, everywhere.
    Partial,
}

impl NonTemporal {
    pub(super) fn is_whole_at(&self, event: u64) -> bool {
        match self {
            NonTemporal::Whole => true,
            NonTemporal::PartialAt(events) => !events.contains(&event),
            NonTemporal::Partial => false,
        }
    }
}
