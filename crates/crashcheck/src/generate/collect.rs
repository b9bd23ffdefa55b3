//! All images of a small trace, for tests.

use std::collections::HashMap;

use super::point::{Contents, Part, Point};
use super::sink::Sink;
use crate::Result;
use crate::image::ImageHash;

/// That an image is possible at a failure point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occurrence {
    /// Index of the point.
    pub(crate) point: usize,
    /// What the image has of what was pending there.
    pub(crate) part: Part,
}

/// A crash image, and where it is possible.
#[derive(Debug, Clone)]
pub(crate) struct CrashImage {
    pub(crate) contents: Contents,
    pub(crate) hash: ImageHash,
    /// Where it was found; once for each point.
    pub(crate) occurrences: Vec<Occurrence>,
}

/// The crash images of a trace: points with the number of their distinct images, and images in the order in
/// which they were found.
#[derive(Debug, Default)]
pub(crate) struct CrashImages {
    pub(crate) points: Vec<(Point, usize)>,
    pub(crate) images: Vec<CrashImage>,
    by_hash: HashMap<ImageHash, usize>,
}

impl Sink for CrashImages {
    fn begin(&mut self, point: &Point, _: &Contents) -> Result<()> {
        self.points.push((point.clone(), 0));
        Ok(())
    }

    fn image(&mut self, contents: Contents, part: Part, _: bool) -> Result<()> {
        let point = self.points.len() - 1;
        let hash = contents.hash();
        let index = *self.by_hash.entry(hash).or_insert_with(|| {
            self.images.push(CrashImage { contents, hash, occurrences: Vec::new() });
            self.images.len() - 1
        });
        let occurrences = &mut self.images[index].occurrences;
        if occurrences.last().is_none_or(|last| last.point != point) {
            occurrences.push(Occurrence { point, part });
            self.points[point].1 += 1;
        }
        Ok(())
    }

    fn end(&mut self, point: &Point) -> Result<()> {
        self.points.last_mut().unwrap().0 = point.clone();
        Ok(())
    }
}
