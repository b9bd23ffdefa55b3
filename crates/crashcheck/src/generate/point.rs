//! Failure points, and the images that were found at them.

use fastness_pm_model::ImageCount;

use crate::image::{Image, ImageHash};

/// Why there is a failure point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointKind {
    /// Just before a fence that makes something certain.
    Fence,
    /// Just before a flush ([`Pick::Fast`](super::Pick::Fast)).
    Flush,
    /// Just before a disk's completion that makes something certain.
    Completion,
    /// At the checkpoint of this number: an operation has ended, the next has not begun.
    Checkpoint(u64),
    /// The program has logged that an operation begins, or has its answer.
    Logged,
    /// The trace has ended.
    End,
}

/// A crash between two events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Number of the first event after the crash.
    pub event: u64,
    /// The last checkpoint before it.
    pub checkpoint: Option<u64>,
    /// Why there is one.
    pub kind: PointKind,
    /// Lines of PM with pending stores.
    pub dirty_lines: usize,
    /// Blocks of disks that are not certain.
    pub dirty_blocks: usize,
    /// All that are possible were taken; otherwise a heuristic or the bound has left some out.
    pub is_exhaustive: bool,
    /// The bound has left out images that the heuristics had chosen.
    pub is_cut: bool,
    /// How many are possible, at most, if some were left out.
    pub possible: Option<ImageCount>,
    /// Several media have something pending, or another one than is varied: no bound takes all mixes of them.
    pub is_mixed: bool,
}

/// How an image was made at a failure point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Nothing that was pending.
    Nothing,
    /// A part of it.
    Subset,
    /// Everything.
    Everything,
}

/// What a crash can leave: PM, and the disks.
#[derive(Debug, Clone)]
pub struct Contents {
    /// PM ([`Layout`](super::Layout)).
    pub memory: Image,
    /// Each disk, in the order of the header.
    pub disks: Vec<Image>,
}

impl Contents {
    /// Hash of all of it.
    pub fn hash(&self) -> ImageHash {
        if self.disks.is_empty() {
            return self.memory.hash();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.memory.hash().0);
        self.disks.iter().for_each(|disk| {
            hasher.update(&disk.hash().0);
        });
        ImageHash(*hasher.finalize().as_bytes())
    }
}
