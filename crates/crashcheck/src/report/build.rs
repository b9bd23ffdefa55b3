//! Makes a report of results: chooses the crashes that show most, and says which stores they lack.

use std::collections::BTreeSet;

use fastness_crashcheck_trace::Header;

use super::cause::cause_reports;
use super::data::{FindingReport, OperationReport, RegionReport, Report, StateReport, Totals, VERSION};
use super::evidence::evidence;
use super::hints::hints;
use super::left_out::left_out;
use super::recovery_data::RecoveryTotals;
use super::source::{Source, difference_again, ending, readable};
use crate::Result;
use crate::check::{Finding, FindingKind, Operation};
use crate::trace::{open_trace, short_name};

/// Makes the report.
///
/// # Errors
/// Those of the trace.
pub fn build(source: &Source<'_>) -> Result<Report> {
    let header = open_trace(source.trace)?.header().clone();
    let Source { counts, passed, states, .. } = source;
    let totals = Totals {
        events: source.events,
        points: counts.points,
        exhaustive_points: counts.exhaustive_points,
        cut_points: counts.cut_points,
        images: passed.images,
        unreached_images: passed.unreached,
        stopped_by: passed.stop.map(|stop| stop.to_string()),
        forgotten_images: source.forgotten,
    };
    let operations = source.operations.iter().map(|operation| operation_report(source, &header, operation));
    let region = |region: &fastness_crashcheck_trace::Region| RegionReport {
        name: short_name(region).to_owned(),
        start: region.start,
        len_bytes: region.len_bytes,
    };
    let state = |(index, found): (usize, &crate::check::Found)| StateReport {
        name: found.name.clone(),
        ending: ending(states.state(index)),
        text: readable(&states.state(index).text),
        images: found.images as usize,
        is_regular: found.is_regular,
        is_in_recovery: found.is_in_recovery,
    };
    let mut report = Report {
        version: VERSION,
        name: source.name.to_owned(),
        tracer: header.tool.clone(),
        regions: header.regions.iter().map(region).collect(),
        totals,
        left_out: left_out(source)?,
        in_recovery: source.in_recovery.as_ref().map(|(crashes, counts)| RecoveryTotals {
            depth: crashes.depth,
            per_point: crashes.per_point,
            recoveries: counts.recoveries,
            idle: counts.idle,
            incomplete: counts.incomplete,
            points: counts.points,
            cut_points: counts.cut_points,
            images: counts.images,
            unreached: counts.unreached,
            stopped_by: counts.stop.map(|stop| stop.to_string()),
            left_out_states: counts.left_out_states,
        }),
        causes: Vec::new(),
        operations: operations.collect::<Result<_>>()?,
        states: states.found().iter().enumerate().map(state).collect(),
        patterns: hints(source),
    };
    report.causes = cause_reports(std::slice::from_ref(&report));
    // What has shown itself to matter comes first.
    let places: Vec<&String> = report.causes.iter().flat_map(|cause| &cause.places).collect();
    report.patterns.sort_by_key(|hint| !places.iter().any(|place| hint.is_by(place)));
    Ok(report)
}

fn operation_report(source: &Source<'_>, header: &Header, operation: &Operation) -> Result<OperationReport> {
    let finding = |finding: &Finding| -> Result<FindingReport> {
        let evidence = finding.crashes.iter().map(|(state, crash)| {
            let reference = match finding.kind {
                FindingKind::FinalStates | FindingKind::Atomicity | FindingKind::InRecovery => {
                    nearest(operation, *state)
                }
                _ => None,
            };
            let mut evidence = evidence(source, header, operation, crash, *state, reference)?;
            if finding.kind == FindingKind::NotDeterministic {
                evidence.difference = difference_again(source, *state);
                evidence.expected = Some(evidence.state.clone());
            }
            Ok(evidence)
        });
        Ok(FindingReport {
            kind: finding.kind.name().to_owned(),
            letter: finding.kind.letter(),
            what: finding.kind.to_string(),
            states: names(source, &finding.states),
            evidence: evidence.collect::<Result<_>>()?,
            states_without_evidence: finding.states_without_crash,
        })
    };
    Ok(OperationReport {
        from: operation.from,
        to: operation.to,
        events: operation.events,
        states: names(source, &operation.states),
        final_states: names(source, &operation.final_states),
        in_recovery: names(source, &operation.in_recovery),
        findings: operation.findings.iter().map(finding).collect::<Result<_>>()?,
    })
}

fn names(source: &Source<'_>, states: &BTreeSet<usize>) -> Vec<String> {
    states.iter().map(|state| source.states.found()[*state].name.clone()).collect()
}

/// What a state of an operation is compared with: the state after it, or that before, if nothing is lost.
fn nearest(operation: &Operation, state: usize) -> Option<usize> {
    operation.after.or(operation.before).filter(|expected| *expected != state)
}
