//! How many images were left out, at which failure points.

use std::collections::BTreeSet;

use fastness_pm_model::ImageCount;

/// Points that are kept, those with the most images.
const POINTS_MAX: usize = 200;
/// Sizes of points by their logarithm; the last one is for all that have more.
const SIZES: usize = 64;

/// A failure point of which images were left out. Ordered by how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutPoint {
    /// How many images a crash there can leave, at most.
    pub possible: ImageCount,
    /// The event that comes next.
    pub event: u64,
    /// How many different ones were made.
    pub used: usize,
    /// The bound has left out some that the heuristics wanted.
    pub is_cut: bool,
    /// PM and disks have something pending, of which not all mixes are made, whatever the bound.
    pub is_mixed: bool,
}

/// All such points, in numbers, and the largest of them.
#[derive(Debug, Clone)]
pub struct LeftOut {
    largest: BTreeSet<CutPoint>,
    /// By the logarithm, rounded up: points, and their images.
    sizes: [(u64, u64); SIZES],
    points: u64,
    /// Images of all, saturating.
    images: u64,
    log2_max: u32,
}

impl Default for LeftOut {
    fn default() -> LeftOut {
        LeftOut { largest: BTreeSet::new(), sizes: [(0, 0); SIZES], points: 0, images: 0, log2_max: 0 }
    }
}

impl LeftOut {
    /// Notes a point.
    pub(super) fn note(&mut self, point: CutPoint) {
        self.points += 1;
        let left = point.possible.images.saturating_sub(point.used as u64);
        self.images = self.images.saturating_add(left);
        self.log2_max = self.log2_max.max(point.possible.log2);
        let is_over = point.is_mixed || point.possible.images > 1 << (SIZES - 2);
        let size = point.possible.images.checked_next_power_of_two().map_or(u32::MAX, u64::ilog2);
        let (points, images) = &mut self.sizes[if is_over { SIZES - 1 } else { size as usize }];
        *points += 1;
        *images = images.saturating_add(left);
        self.largest.insert(point);
        if self.largest.len() > POINTS_MAX {
            self.largest.pop_first();
        }
    }

    /// The points with the most images, these first.
    pub fn largest(&self) -> impl Iterator<Item = &CutPoint> {
        self.largest.iter().rev()
    }

    /// How many images all points have left out; if that is astronomic, the logarithm of the largest point.
    pub fn images(&self) -> ImageCount {
        let log2 = if self.images == u64::MAX { self.log2_max } else { self.images.max(1).ilog2() };
        ImageCount { log2, images: self.images }
    }

    /// Bounds that would take all images of more points: the bound, how many points that is, and the images
    /// that these have left out. Each is 16 times the one before, up to 2^24.
    pub fn steps(&self, per_point: usize) -> Vec<(u64, u64, u64)> {
        let from = (per_point.max(1) as u64).next_power_of_two().ilog2();
        let mut steps: Vec<(u64, u64, u64)> = Vec::new();
        for size in (from..=24).step_by(4).skip(1) {
            let of = &self.sizes[..=size as usize];
            let (points, images) =
                of.iter().fold((0, 0_u64), |sum, one| (sum.0 + one.0, sum.1.saturating_add(one.1)));
            if points > steps.last().map_or(0, |step| step.1) {
                steps.push((1 << size, points, images));
            }
        }
        steps
    }

    /// How many points there are.
    pub fn points(&self) -> u64 {
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(event: u64, log2: u32, used: usize) -> CutPoint {
        let images = 1_u64.checked_shl(log2).unwrap_or(u64::MAX);
        CutPoint { possible: ImageCount { log2, images }, event, used, is_cut: true, is_mixed: false }
    }

    #[test]
    fn the_largest_points_are_kept_and_all_are_counted() {
        let mut left_out = LeftOut::default();
        (0..500).for_each(|event| left_out.note(point(event, 9 + (event % 4) as u32, 12)));
        let largest: Vec<_> = left_out.largest().collect();
        assert_eq!((largest.len(), largest[0].possible.images), (POINTS_MAX, 1 << 12));
        assert!(largest.iter().all(|point| point.possible.log2 > 10));
        assert_eq!(left_out.points(), 500);
        let all = 125 * (512 + 1024 + 2048 + 4096) - 500 * 12;
        assert_eq!(left_out.images(), ImageCount { log2: 19, images: all });
        left_out.note(point(7, 203, 258));
        assert_eq!(left_out.images(), ImageCount { log2: 203, images: u64::MAX });
    }

    #[test]
    fn a_larger_bound_takes_all_images_of_more_points() {
        let mut left_out = LeftOut::default();
        for (log2, used) in [(10, 256), (10, 256), (16, 256), (40, 256), (300, 256)] {
            left_out.note(point(1, log2, used));
        }
        // The first step has those of at most 4,096 images.
        assert_eq!(
            left_out.steps(256),
            [(1 << 12, 2, 2 * (1024 - 256)), (1 << 16, 3, 2 * 768 + 65536 - 256)]
        );
        assert_eq!(left_out.steps(1 << 24), []);
        // No bound takes all mixes of PM and disks.
        let mut left_out = LeftOut::default();
        left_out.note(CutPoint { is_mixed: true, ..point(1, 10, 2) });
        assert_eq!((left_out.steps(256), left_out.images().images), (Vec::new(), 1022));
        // Not a power of two: it is rounded up.
        let mut left_out = LeftOut::default();
        left_out.note(CutPoint { possible: ImageCount { log2: 12, images: 4097 }, ..point(1, 12, 0) });
        assert_eq!(left_out.steps(256)[0].0, 1 << 16);
    }
}
