//! Makes a report of results: chooses the crashes that show most, and says which stores they lack.

use std::collections::BTreeSet;

use fastness_crashcheck_trace::Header;

use super::data::{
    FindingReport, OperationReport, PatternReport, RegionReport, Report, StateReport, Totals, VERSION,
};
use super::evidence::evidence;
use super::source::{Source, place, readable, short_name};
use crate::Result;
use crate::check::{Finding, FindingKind, Operation};
use crate::explain::patterns;
use crate::trace::open_trace;

/// Most states of a finding that get evidence.
const EVIDENCE_MAX: usize = 4;

/// Makes the report.
///
/// # Errors
/// Those of the trace.
pub fn build(source: &Source<'_>) -> Result<Report> {
    let mut reader = open_trace(source.trace)?;
    let header = reader.header().clone();
    let patterns = patterns(&mut reader)?;
    let Source { images, states, .. } = source;
    let points = &images.points;
    let totals = Totals {
        events: reader.count(),
        points: points.len(),
        exhaustive_points: points.iter().filter(|point| point.is_exhaustive).count(),
        cut_points: points.iter().filter(|point| point.is_cut).count(),
        images: images.images.len(),
        unreached_images: source.unreached,
    };
    let operations = source.operations.iter().map(|operation| operation_report(source, &header, operation));
    let region = |region: &fastness_crashcheck_trace::Region| RegionReport {
        name: short_name(region),
        start: region.start,
        len_bytes: region.len_bytes,
    };
    let pattern = |pattern: crate::explain::Pattern| PatternReport {
        kind: pattern.kind.name().to_owned(),
        what: pattern.kind.meaning().to_owned(),
        at: place(source, pattern.pc, false),
        count: pattern.count,
        first_event: pattern.first_event,
        first_address: pattern.first_address,
    };
    let state = |found: &crate::check::Found| StateReport {
        name: found.name.clone(),
        ending: ending(&found.state),
        text: readable(&found.state.text),
        images: found.images.len(),
        is_regular: found.is_regular,
    };
    Ok(Report {
        version: VERSION,
        name: source.name.to_owned(),
        tracer: header.tool.clone(),
        regions: header.regions.iter().map(region).collect(),
        totals,
        operations: operations.collect::<Result<_>>()?,
        states: states.found.iter().map(state).collect(),
        patterns: patterns.into_iter().map(pattern).collect(),
    })
}

fn ending(state: &crate::check::State) -> String {
    match state.write {
        Some(write) => format!("{}; a write to it {write}", state.ending),
        None => state.ending.to_string(),
    }
}

fn operation_report(source: &Source<'_>, header: &Header, operation: &Operation) -> Result<OperationReport> {
    let points = &source.images.points;
    let event = |index: usize| points.get(index).map_or(0, |point| point.event);
    let expected = Expected::of(source, operation);
    let finding = |finding: &Finding| -> Result<FindingReport> {
        let suspects = expected.suspects(finding);
        let evidence = suspects.iter().take(EVIDENCE_MAX).map(|state| {
            let reference = match finding.kind {
                FindingKind::FinalStates | FindingKind::Atomicity => expected.nearest(*state),
                _ => None,
            };
            evidence(source, header, operation, finding, *state, reference)
        });
        Ok(FindingReport {
            kind: finding.kind.name().to_owned(),
            letter: finding.kind.letter(),
            what: finding.kind.to_string(),
            states: names(source, &finding.states),
            evidence: evidence.collect::<Result<_>>()?,
        })
    };
    Ok(OperationReport {
        from: operation.from,
        to: operation.to,
        events: (event(operation.points.start), event(operation.points.end.saturating_sub(1))),
        states: names(source, &operation.states),
        final_states: names(source, &operation.final_states),
        findings: operation.findings.iter().map(finding).collect::<Result<_>>()?,
    })
}

fn names(source: &Source<'_>, states: &BTreeSet<usize>) -> Vec<String> {
    states.iter().map(|state| source.states.found[*state].name.clone()).collect()
}

/// The states that an operation begins and ends with if nothing is lost.
struct Expected {
    before: Option<usize>,
    after: Option<usize>,
}

impl Expected {
    fn of(source: &Source<'_>, operation: &Operation) -> Expected {
        let complete = |point| source.images.complete_at(point).map(|index| source.states.of_image[index]);
        let last = operation.points.end.saturating_sub(1);
        Expected { before: complete(operation.points.start), after: complete(last) }
    }

    /// The states of a finding that need evidence: those that are not expected, or else that before the
    /// operation.
    fn suspects(&self, finding: &Finding) -> Vec<usize> {
        let is_expected = |state: &usize| Some(*state) == self.before || Some(*state) == self.after;
        if !matches!(finding.kind, FindingKind::FinalStates | FindingKind::Atomicity) {
            return finding.states.iter().copied().collect();
        }
        let others: Vec<usize> = finding.states.iter().copied().filter(|state| !is_expected(state)).collect();
        if !others.is_empty() {
            return others;
        }
        finding.states.iter().copied().filter(|state| Some(*state) != self.after).collect()
    }

    /// What a state is compared with.
    fn nearest(&self, state: usize) -> Option<usize> {
        self.after.or(self.before).filter(|expected| *expected != state)
    }
}
