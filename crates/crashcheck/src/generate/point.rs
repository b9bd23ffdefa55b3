//! Failure points, and the images that were found at them.

use std::collections::HashMap;

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
    /// Distinct images that were taken here.
    pub images: usize,
    /// All that are possible were taken; otherwise a heuristic or the bound has left some out.
    pub is_exhaustive: bool,
    /// The bound has left out images that the heuristics had chosen.
    pub is_cut: bool,
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

/// That an image is possible at a failure point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// Index of the point.
    pub point: usize,
    /// What the image has of what was pending there.
    pub part: Part,
    /// It has a non-temporal store that no fence had completed.
    pub has_non_temporal: bool,
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

/// A crash image, and where it is possible.
#[derive(Debug, Clone)]
pub struct CrashImage {
    /// What it is.
    pub contents: Contents,
    /// Its hash.
    pub hash: ImageHash,
    /// Where it was found; once for each point.
    pub occurrences: Vec<Occurrence>,
}

/// The crash images of a trace.
#[derive(Debug, Default)]
pub struct CrashImages {
    /// Failure points in the order of the trace.
    pub points: Vec<Point>,
    /// Distinct images in the order in which they were found.
    pub images: Vec<CrashImage>,
    by_hash: HashMap<ImageHash, usize>,
    /// For each point its image with everything.
    complete: Vec<Option<usize>>,
}

impl CrashImages {
    /// Notes an image of the last point.
    pub(super) fn add(&mut self, contents: Contents, part: Part, has_non_temporal: bool) {
        let Some(point) = self.points.len().checked_sub(1) else { return };
        let hash = contents.hash();
        let occurrence = Occurrence { point, part, has_non_temporal };
        let index = *self.by_hash.entry(hash).or_insert_with(|| {
            self.images.push(CrashImage { contents, hash, occurrences: Vec::new() });
            self.images.len() - 1
        });
        if part == Part::Everything {
            self.complete.resize(point + 1, None);
            self.complete[point] = Some(index);
        }
        let occurrences = &mut self.images[index].occurrences;
        match occurrences.last_mut() {
            Some(last) if last.point == point => {
                // The same bytes in another way: the smaller part counts.
                last.has_non_temporal &= has_non_temporal;
                last.part = if last.part == Part::Subset { part } else { last.part };
            }
            _ => {
                occurrences.push(occurrence);
                self.points[point].images += 1;
            }
        }
    }

    /// Keeps the images that were chosen; says how many are gone. The points that had them are not exhaustive
    /// any more.
    pub fn keep(&mut self, is_kept: impl Fn(&CrashImage) -> bool) -> usize {
        let before = self.images.len();
        let mut new_index = vec![None; before];
        let mut kept = Vec::new();
        for (index, image) in std::mem::take(&mut self.images).into_iter().enumerate() {
            if is_kept(&image) {
                new_index[index] = Some(kept.len());
                kept.push(image);
                continue;
            }
            for occurrence in &image.occurrences {
                let point = &mut self.points[occurrence.point];
                point.images -= 1;
                point.is_exhaustive = false;
            }
        }
        self.images = kept;
        self.by_hash = self.images.iter().enumerate().map(|(index, image)| (image.hash, index)).collect();
        self.complete.iter_mut().for_each(|complete| *complete = complete.and_then(|index| new_index[index]));
        before - self.images.len()
    }

    /// Index of the image of a point that has everything that was pending there.
    pub fn complete_at(&self, point: usize) -> Option<usize> {
        self.complete.get(point).copied().flatten()
    }
}
