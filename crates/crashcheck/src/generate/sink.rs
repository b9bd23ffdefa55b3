//! Who gets the crash images of a trace, one after another.

use std::ops::ControlFlow;

use super::point::{Contents, Part, Point};
use crate::error::{CheckError, Result};

/// Takes failure points and their images, in order. No image is kept for it: a trace can have more than
/// memory holds.
pub trait Sink {
    /// A failure point begins; how many images it has, and whether they are all, is not known yet.
    /// `everything` is its image with all that is pending.
    ///
    /// # Errors
    /// What ends the generation.
    fn begin(&mut self, point: &Point, everything: &Contents) -> Result<()>;

    /// An image of this point. It may have had the same one before: the first has the part that counts,
    /// and it has non-temporal stores only if all have.
    ///
    /// # Errors
    /// What ends the generation.
    fn image(&mut self, contents: Contents, part: Part, has_non_temporal: bool) -> Result<()>;

    /// Nothing that comes is recovered any more: which images are chosen does not matter.
    fn is_over(&mut self) -> bool {
        false
    }

    /// The point ends; it is complete but for the number of images, which a sink counts.
    ///
    /// # Errors
    /// What ends the generation.
    fn end(&mut self, point: &Point) -> Result<()>;
}

/// A sink behind visitors, which can stop but not fail.
pub(super) struct Out<'a> {
    sink: &'a mut dyn Sink,
    failed: Option<CheckError>,
}

impl<'a> Out<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Out<'a> {
        Out { sink, failed: None }
    }

    pub(super) fn sink(&mut self) -> &mut dyn Sink {
        self.sink
    }

    /// Hands an image over; breaks if that has failed.
    pub(super) fn add(&mut self, contents: Contents, part: Part, has_nt: bool) -> ControlFlow<()> {
        match self.sink.image(contents, part, has_nt) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }

    /// The failure that made a visitor break.
    pub(super) fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}
