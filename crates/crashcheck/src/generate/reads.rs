//! The heuristic of reads: lines that a recovery does not read need no images of their own.
//!
//! A recovery reads validity marks first, and the data that they guard only if they are set. So of thousands
//! of pending lines only those are varied that the recovery reads. Which lines these are depends on the
//! image: a recovery of the one with everything misses lines that an image with less would make it read (a
//! mark that is being cleared). Therefore the lines are those that a recovery reads
//! - of the image with everything,
//! - of the image with nothing that is pending, and
//! - of the images of both kinds at the failure point before.
//!
//! Source: PM file systems dissertation, 8.4.1 (Suvi-Reads), which takes the first and the last of the former
//! kind.

use std::collections::{BTreeSet, HashMap};

use super::point::Contents;
use crate::Result;
use crate::image::ImageHash;

/// Determines what a recovery reads.
pub trait Recovery {
    /// Runs the recovery on a copy of `contents`, and reads everything that is reachable then. Returns the
    /// lines of PM, by number, that were read before the recovery itself had stored to them.
    ///
    /// # Errors
    /// A recovery that cannot be run at all; one that fails is not an error here.
    fn lines_read(&mut self, contents: &Contents) -> Result<BTreeSet<u64>>;
}

/// Most lines that are kept of images, in all: what one point leaves is often what the next one begins with.
const KNOWN_LINES_MAX: usize = 1 << 20;

/// Results for the last images.
pub(super) struct Reads<'a> {
    recovery: &'a mut dyn Recovery,
    known: HashMap<ImageHash, BTreeSet<u64>>,
    known_lines: usize,
    before: BTreeSet<u64>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(recovery: &'a mut dyn Recovery) -> Reads<'a> {
        Reads { recovery, known: HashMap::new(), known_lines: 0, before: BTreeSet::new() }
    }

    /// The lines to vary at a point with these images.
    pub(super) fn lines(&mut self, nothing: &Contents, everything: &Contents) -> Result<BTreeSet<u64>> {
        let mut lines = self.of(everything)?;
        lines.append(&mut self.of(nothing)?);
        let before = std::mem::replace(&mut self.before, lines.clone());
        lines.extend(before);
        Ok(lines)
    }

    fn of(&mut self, contents: &Contents) -> Result<BTreeSet<u64>> {
        let hash = contents.hash();
        if let Some(lines) = self.known.get(&hash) {
            return Ok(lines.clone());
        }
        let lines = self.recovery.lines_read(contents)?;
        // An image without any takes room, too.
        self.known_lines += lines.len() + 1;
        if self.known_lines > KNOWN_LINES_MAX {
            self.known.clear();
            self.known_lines = lines.len() + 1;
        }
        self.known.insert(hash, lines.clone());
        Ok(lines)
    }
}
