//! Why states are wrong, and all crashes that show the same.
//!
//! Motivation: one bug fails in many operations and tests, and each of its crashes takes a page. Who mends a
//! program wants to see each place to be mended once.
//!
//! What the cause of a crash's state is:
//! 1. It crashed the kernel that recovered it: the function and the call trace, whatever was lost.
//! 2. It came after a crash during recovery: the places of the stores that this has lost, or, if it has lost
//!    nothing, of the last store before it.
//! 3. Something was lost: the places in the source of the stores whose loss is enough for the state. If these
//!    are helpers like `memcpy` alone, without a known caller, or blocks of disks, what the recovery said
//!    counts as well.
//! 4. Nothing was lost, and the recovery failed or says something else each time: what it said.
//! 5. Nothing was lost: the last store before the crash.
//!
//! A state for which several stores must be lost is gone when one of them is durable. So crashes join the
//! cause whose places are a part of theirs.

use std::collections::BTreeSet;

use super::data::{
    BlocksReport, CauseReport, EvidenceReport, FindingReport, OperationReport, Report, StateReport,
    WitnessReport,
};
use super::place::is_helper;
use crate::guest::KernelCrash;

/// Lines of a recovery's output that tell it from others.
const SAID_LINES_MAX: usize = 3;
/// Letters of findings, the worst first.
const LETTERS: &str = "CEWNOSAR";

/// What causes have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CauseKind {
    /// The kernel that recovered has crashed.
    KernelCrash,
    /// Stores were lost.
    LostStores,
    /// Stores of a recovery were lost, when it crashed.
    LostInRecovery,
    /// A recovery crashed, and lost nothing.
    StoppedRecovery,
    /// What was lost is not known.
    NotKept,
    /// Nothing was lost, and the recovery failed.
    Recovery,
    /// Nothing was lost, and the recovery ended well.
    Logic,
}

impl CauseKind {
    /// For programs.
    fn name(self) -> &'static str {
        match self {
            CauseKind::KernelCrash => "kernel-crash",
            CauseKind::LostStores => "lost-stores",
            CauseKind::LostInRecovery => "lost-in-recovery",
            CauseKind::StoppedRecovery => "stopped-recovery",
            CauseKind::NotKept => "not-kept",
            CauseKind::Recovery => "recovery",
            CauseKind::Logic => "logic",
        }
    }

    /// For people; places follow.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            CauseKind::KernelCrash => "the recovery crashes its kernel in",
            CauseKind::LostStores => "a crash loses what is stored by",
            CauseKind::LostInRecovery => "a crash of the recovery loses what it stores by",
            CauseKind::StoppedRecovery => {
                "a crash of the recovery loses nothing, and comes after its store by"
            }
            CauseKind::NotKept => "a crash loses too much to be shown",
            CauseKind::Recovery => "nothing is lost, and the recovery fails",
            CauseKind::Logic => "nothing is lost: what is there after a store by",
        }
    }
}

/// What tells one cause from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: CauseKind,
    /// Functions and lines.
    pub(super) places: BTreeSet<String>,
    /// What the recovery said, where places do not say enough.
    pub(super) said: Vec<String>,
}

/// A crash that shows a cause.
pub(super) struct Witness<'a> {
    pub(super) report: &'a Report,
    pub(super) operation: &'a OperationReport,
    /// Letters of the findings that it is evidence of.
    pub(super) letters: BTreeSet<char>,
    pub(super) evidence: &'a EvidenceReport,
    /// What it needs.
    pub(super) places: BTreeSet<String>,
}

/// A cause, and all that shows it.
pub(super) struct Cause<'a> {
    pub(super) key: Key,
    /// That which has lost least is first.
    pub(super) witnesses: Vec<Witness<'a>>,
}

impl Key {
    fn of(report: &Report, finding: &FindingReport, evidence: &EvidenceReport) -> Key {
        let state = report.states.iter().find(|state| state.name == evidence.state);
        let key = |kind, places: BTreeSet<String>, said| Key { kind, places, said };
        if finding.letter == 'C'
            && let Some(trace) = state.and_then(|state| KernelCrash::functions_of(&state.text))
        {
            return Key { kind: CauseKind::KernelCrash, places: BTreeSet::new(), said: trace };
        }
        let said = || said(finding, evidence, state);
        let lost = |kind, stores: &[String], blocks: &[BlocksReport]| {
            let has_meaning = stores.iter().any(|place| !is_helper(place));
            let disks = blocks.iter().map(|blocks| format!("writes to disk {}", blocks.disk));
            let places: BTreeSet<_> = stores.iter().cloned().chain(disks).collect();
            let is_any = !places.is_empty();
            is_any.then(|| key(kind, places, if has_meaning { Vec::new() } else { said() }))
        };
        if let Some(last) = evidence.in_recovery.last() {
            let stopped =
                || key(CauseKind::StoppedRecovery, last.after.iter().cloned().collect(), Vec::new());
            return lost(CauseKind::LostInRecovery, &last.lost_by, &last.lost_blocks).unwrap_or_else(stopped);
        }
        if evidence.left_out_bytes > 0 {
            return key(CauseKind::NotKept, BTreeSet::new(), said());
        }
        if let Some(key) = lost(CauseKind::LostStores, &evidence.lost_by, &evidence.lost_blocks) {
            return key;
        }
        match state.is_some_and(|state| state.ending != "ended well") || finding.letter == 'N' {
            true => key(CauseKind::Recovery, BTreeSet::new(), said()),
            false => key(CauseKind::Logic, evidence.after.iter().cloned().collect(), Vec::new()),
        }
    }

    /// Whether mending this mends the other: the other is only there if this is lost, too.
    fn covers(&self, other: &Key) -> bool {
        let is_lost = |key: &Key| {
            matches!(key.kind, CauseKind::LostStores | CauseKind::LostInRecovery) && key.said.is_empty()
        };
        is_lost(self) && self.kind == other.kind && is_lost(other) && self.places.is_subset(&other.places)
    }
}

/// What the recovery said, or for a state of a recovery that ended well the letter, without what is
/// different each time.
fn said(finding: &FindingReport, evidence: &EvidenceReport, state: Option<&StateReport>) -> Vec<String> {
    let Some(state) = state else { return Vec::new() };
    if finding.letter == 'N' {
        let is_changed = |line: &&str| {
            line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---")
        };
        return first_lines(evidence.difference.lines().filter(is_changed));
    }
    if state.ending == "ended well" {
        return vec![finding.what.clone()];
    }
    let mut said = vec![format!("the recovery {}", state.ending)];
    said.extend(first_lines(state.text.lines()));
    said
}

fn first_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lines = lines.map(str::trim).filter(|line| !line.is_empty()).map(folded);
    let mut said: Vec<String> = Vec::new();
    for line in lines {
        if said.len() == SAID_LINES_MAX {
            break;
        }
        if !said.contains(&line) {
            said.push(line);
        }
    }
    said
}

/// A line with `#` for each number, and for what looks like an address or a hash. A single digit in a word is
/// part of a name: `EXT4`, `pmem0`.
fn folded(line: &str) -> String {
    let mut out = String::new();
    for word in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (word, after) = word.split_at(word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
        let is_hash = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
        let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
        if is_hash || is_number || word.starts_with("0x") {
            out.push('#');
        } else {
            out.push_str(&without_numbers(word));
        }
        out.push_str(after);
    }
    out
}

/// A word with `#` for two digits and more.
fn without_numbers(word: &str) -> String {
    let letters: Vec<char> = word.chars().collect();
    let runs = letters.chunk_by(|one, two| one.is_ascii_digit() == two.is_ascii_digit());
    let part = |run: &[char]| match run {
        [first, _, ..] if first.is_ascii_digit() => "#".to_owned(),
        run => run.iter().collect(),
    };
    runs.map(part).collect()
}

/// The causes of all findings of these reports; the worst first.
pub(super) fn causes<'a>(reports: &'a [Report]) -> Vec<Cause<'a>> {
    let mut causes: Vec<Cause<'a>> = Vec::new();
    for report in reports {
        for operation in &report.operations {
            for finding in &operation.findings {
                for evidence in &finding.evidence {
                    add(
                        &mut causes,
                        Key::of(report, finding, evidence),
                        report,
                        operation,
                        finding,
                        evidence,
                    );
                }
            }
        }
    }
    let mut causes = joined(causes);
    causes.iter_mut().for_each(|cause| cause.witnesses.sort_by_key(|witness| witness.evidence.size()));
    causes.sort_by_key(|cause| (rank(cause), std::cmp::Reverse(cause.witnesses.len())));
    causes
}

fn add<'a>(
    causes: &mut Vec<Cause<'a>>,
    key: Key,
    report: &'a Report,
    operation: &'a OperationReport,
    finding: &FindingReport,
    evidence: &'a EvidenceReport,
) {
    let index = causes.iter().position(|cause| cause.key == key).unwrap_or_else(|| {
        causes.push(Cause { key: key.clone(), witnesses: Vec::new() });
        causes.len() - 1
    });
    let witnesses = &mut causes[index].witnesses;
    // A state can be wrong in several ways.
    let same = witnesses.iter_mut().find(|witness| {
        std::ptr::eq(witness.operation, operation)
            && (&witness.evidence.image, &witness.evidence.state) == (&evidence.image, &evidence.state)
    });
    match same {
        Some(witness) => drop(witness.letters.insert(finding.letter)),
        None => {
            let letters = BTreeSet::from([finding.letter]);
            witnesses.push(Witness { report, operation, letters, evidence, places: key.places });
        }
    }
}

/// Lets each cause join the one with the fewest places that covers it.
fn joined(mut causes: Vec<Cause<'_>>) -> Vec<Cause<'_>> {
    causes.sort_by_key(|cause| (cause.key.places.len(), std::cmp::Reverse(cause.witnesses.len())));
    let mut kept: Vec<Cause<'_>> = Vec::new();
    for cause in causes {
        match kept.iter_mut().find(|other| other.key.covers(&cause.key)) {
            Some(other) => other.witnesses.extend(cause.witnesses),
            None => kept.push(cause),
        }
    }
    kept
}

fn rank(cause: &Cause<'_>) -> usize {
    let rank = |letter: &char| LETTERS.find(*letter).unwrap_or(LETTERS.len());
    cause.letters().iter().map(rank).min().unwrap_or(LETTERS.len())
}

impl Cause<'_> {
    /// Of all its findings; the worst first.
    pub(super) fn letters(&self) -> Vec<char> {
        let all: BTreeSet<char> = self.witnesses.iter().flat_map(|witness| witness.letters.clone()).collect();
        let mut all: Vec<char> = all.into_iter().collect();
        all.sort_by_key(|letter| LETTERS.find(*letter).unwrap_or(LETTERS.len()));
        all
    }

    /// The tests and operations that show it, in the order of the reports, each once.
    pub(super) fn operations(&self) -> Vec<(&str, &OperationReport)> {
        let mut operations: Vec<(&str, &OperationReport)> = Vec::new();
        for witness in &self.witnesses {
            if !operations.iter().any(|(_, operation)| std::ptr::eq(*operation, witness.operation)) {
                operations.push((&witness.report.name, witness.operation));
            }
        }
        operations.sort_by_key(|(test, operation)| (*test, operation.events.0));
        operations
    }

    /// It is all by code that copies for others, and these are not known.
    pub(super) fn lacks_callers(&self) -> bool {
        !self.key.places.is_empty() && self.key.places.iter().all(|place| is_helper(place))
    }

    /// What it is, in lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.key.places.iter().chain(&self.key.said).cloned().collect()
    }
}

impl EvidenceReport {
    /// For comparison: how much there is to be understood.
    fn size(&self) -> (usize, u64, usize, usize, u64) {
        let lost =
            |line: &super::data::LineReport| line.stores.iter().filter(|store| store.fate != "kept").count();
        let lines = self.lost.len() + self.lost_blocks.len();
        (self.in_recovery.len(), self.left_out_bytes, lines, self.lost.iter().map(lost).sum(), self.event)
    }
}

/// The causes as data.
pub fn cause_reports(reports: &[Report]) -> Vec<CauseReport> {
    let witness = |witness: &Witness<'_>| WitnessReport {
        test: witness.report.name.clone(),
        operation: witness.operation.name(),
        letters: witness.letters.iter().collect(),
        state: witness.evidence.state.clone(),
        event: witness.evidence.event,
        image: witness.evidence.image.clone(),
        in_recovery: witness.evidence.in_recovery.iter().map(|crash| crash.image.clone()).collect(),
        places: witness.places.iter().cloned().collect(),
    };
    let cause = |cause: Cause<'_>| CauseReport {
        kind: cause.key.kind.name().to_owned(),
        what: cause.key.kind.meaning().to_owned(),
        letters: cause.letters().into_iter().collect(),
        witnesses: cause.witnesses.iter().map(witness).collect(),
        places: cause.key.places.into_iter().collect(),
        said: cause.key.said,
    };
    causes(reports).into_iter().map(cause).collect()
}

#[cfg(test)]
mod tests;
