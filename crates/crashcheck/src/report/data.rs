//! The parts of a report.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::recovery_data::{RecoveryCrashReport, RecoveryTotals};

/// Version of the JSON.
pub const VERSION: u32 = 1;

/// All that a test has shown. The same trace, options and recovery give the same report, but for times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the test.
    pub name: String,
    /// Which tracer.
    pub tracer: String,
    /// What was persistent memory.
    pub regions: Vec<RegionReport>,
    /// The extent of the test.
    pub totals: Totals,
    /// What was left out, if some failure points have more images than were made.
    #[serde(default)]
    pub left_out: Option<LeftOutReport>,
    /// Crashes during recovery, if they were tested.
    #[serde(default)]
    pub in_recovery: Option<RecoveryTotals>,
    /// Why states are wrong; the worst first.
    #[serde(default)]
    pub causes: Vec<CauseReport>,
    /// The operations of the test, in order.
    pub operations: Vec<OperationReport>,
    /// Each state that a crash can lead to, in the order in which they were found.
    pub states: Vec<StateReport>,
    /// What the trace hints at: what matters most comes first.
    pub patterns: Vec<PatternReport>,
}

impl Report {
    /// Whether nothing is wrong; hints do not count.
    pub fn is_clean(&self) -> bool {
        self.operations.iter().all(|operation| operation.findings.is_empty())
    }
}

/// A range of persistent memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionReport {
    /// Path of a file, or what else names it.
    pub name: String,
    /// Its first address in the trace.
    pub start: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
}

/// The extent of the test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Events of the trace.
    pub events: u64,
    /// Failure points.
    pub points: usize,
    /// Those of which all images were taken.
    pub exhaustive_points: usize,
    /// Those where the bound has left out some that the heuristics wanted.
    pub cut_points: usize,
    /// Distinct crash images, each of which was recovered.
    pub images: usize,
    /// Further ones that were not.
    #[serde(default)]
    pub unreached_images: usize,
    /// Why they were not.
    #[serde(default)]
    pub stopped_by: Option<String>,
    /// Images whose hashes were forgotten, to bound memory: one that came again after that was recovered and
    /// counted again.
    #[serde(default)]
    pub forgotten_images: u64,
}

/// Images that were left out, and what they would cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutReport {
    /// Failure points with such.
    pub points: u64,
    /// How many images they have that were not made, at most: some are the same at several points.
    pub images: u64,
    /// The logarithm of that to base 2, where it does not fit.
    pub images_log2: u32,
    /// How long a recovery took: the time that passed, by their number.
    pub recovery: Measured,
    /// Bounds with which more points would have all their images.
    pub steps: Vec<StepReport>,
    /// The points with the most images; these first.
    pub largest: Vec<CutPointReport>,
}

/// A bound for the images of a failure point, and what it would cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// For `--per-point`.
    pub per_point: u64,
    /// Points of which all images would be made.
    pub points: u64,
    /// Recoveries that these need more, at most.
    pub images: u64,
}

/// A failure point with images that were left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPointReport {
    /// Number of the first event after the crash.
    pub event: u64,
    /// The event.
    pub at: String,
    /// How many images there were.
    pub used: usize,
    /// How many are possible, saturating.
    pub possible: u64,
    /// The logarithm of that to base 2, rounded.
    pub possible_log2: u32,
    /// The bound has left out some; otherwise it was the heuristics, or mixes of media.
    pub is_cut: bool,
    /// PM and disks have something pending, of which not all mixes are made, whatever the bound.
    pub is_mixed: bool,
}

/// Microseconds. Different in each run: reports that differ in it alone are equal.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Measured(pub u64);

impl PartialEq for Measured {
    fn eq(&self, _: &Measured) -> bool {
        true
    }
}

impl Eq for Measured {}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The checkpoint before it.
    pub from: Option<u64>,
    /// The checkpoint after it.
    pub to: Option<u64>,
    /// Numbers of the events between which it lies.
    pub events: (u64, u64),
    /// Names of the states that a crash during it can lead to.
    pub states: Vec<String>,
    /// Those after it; empty if it is not known to have ended.
    pub final_states: Vec<String>,
    /// Those that only a crash during recovery leads to, after a crash during it, or after it.
    #[serde(default)]
    pub in_recovery: Vec<String>,
    /// What is wrong with it; the worst first.
    pub findings: Vec<FindingReport>,
}

impl OperationReport {
    /// Its name: the checkpoints around it.
    pub fn name(&self) -> String {
        match (self.from, self.to) {
            (Some(from), Some(to)) => format!("checkpoint {from} to {to}"),
            (Some(from), None) => format!("after checkpoint {from}"),
            (None, Some(to)) => format!("before checkpoint {to}"),
            (None, None) => "the whole run".to_owned(),
        }
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingReport {
    /// For programs: `atomicity`, `final-states`, ...
    pub kind: String,
    /// For tables: `A`, `S`, ...
    pub letter: char,
    /// For people.
    pub what: String,
    /// Names of the states that show it.
    pub states: Vec<String>,
    /// Images that show it; not one for each state if there are many.
    pub evidence: Vec<EvidenceReport>,
    /// How many more states are wrong, of which no image was looked at: they may have other causes.
    #[serde(default)]
    pub states_without_evidence: usize,
}

/// Why states are wrong: what findings of operations and tests have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseReport {
    /// `kernel-crash`, `lost-stores`, `not-kept`, `recovery` or `logic`.
    pub kind: String,
    /// For people; places follow.
    pub what: String,
    /// Letters of its findings, the worst first.
    pub letters: String,
    /// Functions and lines.
    pub places: Vec<String>,
    /// The functions of the kernel that crashed; what the recovery said, without numbers, if places are none,
    /// or say too little.
    pub said: Vec<String>,
    /// What shows it: that which has lost least is first.
    pub witnesses: Vec<WitnessReport>,
}

/// A crash that shows a cause: evidence of an operation, by its image and state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessReport {
    /// Name of the test.
    pub test: String,
    /// Name of the operation.
    pub operation: String,
    /// Letters of the findings that have it.
    pub letters: String,
    /// Name of the state.
    pub state: String,
    /// Number of the first event after the crash.
    pub event: u64,
    /// Hash of the crash image, in hex.
    pub image: String,
    /// Those of the images that crashes of recoveries leave after that.
    #[serde(default)]
    pub in_recovery: Vec<String>,
    /// All that it needs to be lost.
    pub places: Vec<String>,
}

/// A crash that leads to a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceReport {
    /// Name of the state.
    pub state: String,
    /// How it differs from the state that was expected, line by line; empty where there is none to compare
    /// with.
    pub difference: String,
    /// Name of the state that was expected: the state itself where the same image, recovered again, shows
    /// another one, and `difference` is between the two.
    pub expected: Option<String>,
    /// Hash of the crash image, in hex.
    pub image: String,
    /// Number of the first event after the crash.
    pub event: u64,
    /// What was being done: the event itself.
    pub at: String,
    /// The place of the last store before the crash, if nothing is lost.
    #[serde(default)]
    pub after: Option<String>,
    /// The places of all stores that are lost; functions that copy for others have that of their caller, if
    /// it is known.
    #[serde(default)]
    pub lost_by: Vec<String>,
    /// Number of lines of PM and blocks of disks that the image lacks, if those below are enough for the
    /// state; none if they are all that it lacks, or less was not tried.
    #[serde(default)]
    pub is_enough_of: Option<usize>,
    /// Lines of which something was lost.
    pub lost: Vec<LineReport>,
    /// Parts of disks that are lacking, compared with a crash that loses nothing.
    pub lost_blocks: Vec<BlocksReport>,
    /// Bytes of lines and blocks that it lacks, if these are too many to be kept and shown; then those above
    /// are none.
    #[serde(default)]
    pub left_out_bytes: u64,
    /// How many lines were pending at the crash, and are as the program has left them.
    pub kept_lines: usize,
    /// Some of these.
    pub kept: Vec<LineReport>,
    /// Then the recovery crashes, and the recovery of what this leaves, and so on.
    #[serde(default)]
    pub in_recovery: Vec<RecoveryCrashReport>,
}

impl EvidenceReport {
    /// Printed after "lost".
    pub(super) fn enough(&self) -> String {
        let of = |of| format!(" (enough for this state; the image lacks {of} lines and blocks in all)");
        self.is_enough_of.map_or_else(String::new, of)
    }
}

/// A part of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlocksReport {
    /// Which disk of the trace, from 0.
    pub disk: usize,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

impl fmt::Display for BlocksReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} of disk {}", self.len_bytes, self.offset, self.disk)
    }
}

/// A cache line with stores that were pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineReport {
    /// Name of its region.
    pub region: String,
    /// Its first byte, in the region.
    pub offset: u64,
    /// Its address in the trace.
    pub address: u64,
    /// Number of its stores, the first ones, that a flush under way covers.
    pub flushed: usize,
    /// Its pending stores, in program order.
    pub stores: Vec<StoreReport>,
    /// Its events since the operation began; only the last ones if there are many.
    pub history: Vec<HistoryReport>,
}

/// An event that concerns a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// Its number.
    pub event: u64,
    /// `store`, `clwb`, `sfence`, ...
    pub kind: String,
    /// As a line of text.
    pub text: String,
}

/// A pending store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Number of the event.
    pub event: u64,
    /// Its address in the trace.
    pub address: u64,
    /// What was stored, in hex.
    pub data: String,
    /// Past the caches.
    pub non_temporal: bool,
    /// `kept`, `lost`, or `torn`.
    pub fate: String,
    /// The instruction, and where it comes from if that is known.
    pub at: String,
    /// Return addresses, innermost first.
    pub stack: Vec<String>,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReport {
    /// Its name.
    pub name: String,
    /// How the recovery ended.
    pub ending: String,
    /// What it printed; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Number of images of the program's crashes that have it.
    pub images: usize,
    /// A program that does not crash can have it.
    pub is_regular: bool,
    /// Only a crash during recovery leads to it.
    #[serde(default)]
    pub is_in_recovery: bool,
}

/// What the trace hints at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternReport {
    /// For programs.
    pub kind: String,
    /// For people.
    pub what: String,
    /// The functions and lines of its instructions.
    pub at: String,
    /// How many instructions.
    #[serde(default)]
    pub instructions: usize,
    /// Whether the recovery reads what is missing; none if that is not known.
    #[serde(default)]
    pub is_read: Option<bool>,
    /// How often.
    pub count: u64,
    /// Number of the first such event.
    pub first_event: u64,
    /// Its address, if it has one.
    pub first_address: Option<u64>,
}
