//! Crashes during recovery.
//!
//! Motivation: power can fail again while a recovery runs, and often does. A recovery that replays a log
//! twice, or that empties the log before what it has replayed is durable, leaves after that what no crash of
//! the program itself does.
//!
//! Design: the recovery of a crash image is traced as the program was, and the crash images of its trace are
//! made by the same rules ([`generate`](crate::generate)), with a bound of their own. Each is recovered as
//! well, and that recovery traced in turn, as deep as asked ([`Explorer`]). What comes of it is joined with
//! the crash of the program: whatever failure point can leave the first image can leave this, too. So the
//! result for an image is kept, not for a crash: the states beyond its own, each with the shortest chain of
//! crashes that leads there.
//!
//! A recovery that stores nothing to PM cannot crash into anything new. One that fails is a finding by
//! itself, and is not looked into. No image is recovered twice, whichever chain leads to it ([`once`]).

mod explore;
mod once;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::losses::Losses;
use super::state::State;
use super::stream::Stop;
use crate::Result;
use crate::generate::Contents;
use crate::image::ImageHash;

pub(crate) use explore::{Explorer, Here};

/// Traces the recovery of an image.
pub trait TraceRecovery: Sync {
    /// Runs the recovery on a copy of `contents`, and records what it does to PM. `work` is an empty folder,
    /// or has what an earlier call left there.
    ///
    /// # Errors
    /// A recovery that cannot be run at all.
    fn trace(&self, contents: &Contents, work: &Path) -> Result<RecoveryTrace>;
}

/// What a traced recovery has left.
#[derive(Debug, Clone)]
pub struct RecoveryTrace {
    /// Its trace, in the folder that was given; none if there is none that can be read.
    pub path: Option<PathBuf>,
    /// It has all that the recovery did.
    pub is_whole: bool,
}

/// Which crashes during recovery there are, and where they are made.
#[derive(Clone, Copy)]
pub struct RecoveryCrashes<'a> {
    /// How many crashes of recoveries follow each other, at least 1.
    pub depth: usize,
    /// Most images of a failure point of a recovery.
    pub per_point: usize,
    /// Traces recoveries.
    pub tracer: &'a dyn TraceRecovery,
    /// Recoveries are code of the kernel that is traced, and have its symbols; otherwise their traces name
    /// the programs that have them.
    pub is_in_kernel: bool,
    /// Temporary files.
    pub work: &'a Path,
    /// Where the images are kept that findings are about, each in a folder named by its hash; none: nowhere.
    pub keep: Option<&'a Path>,
}

/// One crash of a recovery.
#[derive(Debug)]
pub struct Link {
    /// It comes before this event of the trace of the recovery.
    pub event: u64,
    /// Hash of the image that it leaves.
    pub image: ImageHash,
    /// Bytes of the lines that it lacks of what was there just before.
    pub lost_bytes: u64,
    /// How it differs from the image that was being recovered; none if that is too much to be kept.
    pub changes: Option<Losses>,
}

/// A state that crashes in the recovery of an image lead to, and the image's own recovery does not.
#[derive(Debug, Clone)]
pub(crate) struct Beyond {
    pub(crate) state: Arc<State>,
    /// The crash of the recovery of the image, then that of the recovery of what this leaves, and so on.
    pub(crate) chain: Vec<Arc<Link>>,
}

impl Beyond {
    /// For comparison: a short chain, and little lost, says most.
    fn size(&self) -> (usize, u64) {
        (self.chain.len(), lost_bytes(&self.chain))
    }
}

/// What the crashes of a chain have lost.
pub(super) fn lost_bytes(chain: &[Arc<Link>]) -> u64 {
    chain.iter().fold(0, |sum, link| sum.saturating_add(link.lost_bytes))
}

/// The image that a chain of crashes leaves, beginning with the recovery of `contents`; none if too much is
/// different to be kept.
pub fn after_chain(contents: &Contents, chain: &[Arc<Link>]) -> Option<Contents> {
    let mut contents = contents.clone();
    for link in chain {
        link.changes.as_ref()?.apply(&mut contents);
    }
    Some(contents)
}

/// What there was, in numbers; distinct contents are counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Recoveries that were traced.
    pub recoveries: usize,
    /// Those of them that store nothing to PM.
    pub idle: usize,
    /// Recoveries of which there is no trace, or a part: what comes later was not tested.
    pub incomplete: usize,
    /// Failure points of recoveries.
    pub points: usize,
    /// Those with more images than were made.
    pub cut_points: usize,
    /// Crash images of recoveries.
    pub images: usize,
    /// Images that were not recovered, and recoveries that were not traced.
    pub unreached: usize,
    /// Why.
    pub stop: Option<Stop>,
    /// States that were left out, because an image had too many.
    pub left_out_states: usize,
}

#[cfg(test)]
mod tests;
