//! The parts of a report about crashes during recovery.

use serde::{Deserialize, Serialize};

use super::data::{BlocksReport, LineReport};

/// How far crashes during recovery were tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryTotals {
    /// How many crashes of recoveries follow each other.
    pub depth: usize,
    /// Most images of a failure point of a recovery.
    pub per_point: usize,
    /// Recoveries that were traced; one for each of the distinct images that have one which ends well.
    pub recoveries: usize,
    /// Those of them that store nothing to PM, and so have nothing to lose.
    pub idle: usize,
    /// Recoveries of which there is no trace, or a part: what comes later was not tested.
    pub incomplete: usize,
    /// Failure points of recoveries.
    pub points: usize,
    /// Those with more images than were made.
    pub cut_points: usize,
    /// Distinct crash images of recoveries; crashes of the program may leave some of them as well.
    pub images: usize,
    /// Images that were not recovered, and recoveries that were not traced.
    pub unreached: usize,
    /// Why they were not.
    pub stopped_by: Option<String>,
    /// States that were left out, because the recovery of one image had too many.
    pub left_out_states: usize,
}

impl RecoveryTotals {
    /// In lines; what was left out is said.
    pub(super) fn lines(&self) -> Vec<String> {
        let images = |of: usize| if of == 1 { "image" } else { "images" };
        let mut lines = vec![format!(
            "crashes during recovery, {} deep: {} recoveries traced, {} of which store nothing; {} failure points, \
             {} crash {}",
            self.depth,
            self.recoveries,
            self.idle,
            self.points,
            self.images,
            images(self.images)
        )];
        if self.cut_points > 0 {
            lines.push(format!(
                "{} of these failure points have more images than were generated (--recovery-per-point {})",
                self.cut_points, self.per_point
            ));
        }
        if self.incomplete > 0 {
            lines.push(format!(
                "{} of these recoveries could not be traced to their end: what they do later was not tested",
                self.incomplete
            ));
        }
        if self.unreached > 0 {
            let why = self.stopped_by.as_deref().unwrap_or("the budget was used up");
            lines.push(format!("{why}: {} of these images and recoveries were not reached", self.unreached));
        }
        if self.left_out_states > 0 {
            lines.push(format!(
                "{} states of recoveries with very many of them were left out",
                self.left_out_states
            ));
        }
        lines
    }
}

/// A crash of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryCrashReport {
    /// Number of the first event after it, in the trace of the recovery.
    pub event: u64,
    /// What was being done: the event itself. Empty, as all but the image is, if the recovery could not be
    /// traced again.
    pub at: String,
    /// The place of the recovery's last store before it.
    pub after: Option<String>,
    /// The places of all stores that are lost.
    pub lost_by: Vec<String>,
    /// Number of lines of PM and blocks of disks that the image lacks, if those below are enough for
    /// the state.
    pub is_enough_of: Option<usize>,
    /// Lines of which something was lost.
    pub lost: Vec<LineReport>,
    /// Parts of disks that were lost.
    #[serde(default)]
    pub lost_blocks: Vec<BlocksReport>,
    /// How many bytes of lines and blocks it lacks in all.
    pub lost_bytes: u64,
    /// Hash of the image that it leaves, in hex.
    pub image: String,
    /// Name of the folder with that image, if it was kept.
    pub kept_as: Option<String>,
}

impl RecoveryCrashReport {
    /// Printed after "lost".
    pub(super) fn enough(&self) -> String {
        let of = |of| format!(" (enough for this state; the image lacks {of} lines in all)");
        self.is_enough_of.map_or_else(String::new, of)
    }
}
