//! Makes a report of results: chooses the crashes that show most, and says which stores they lack.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fastness_pm_model::Config;
use fastness_trace::Header;

use super::data::{
    FindingReport, HistoryReport, LineReport, OperationReport, PatternReport, RegionReport, Report,
    StateReport, StoreReport, Totals, VERSION, WitnessReport,
};
use crate::Result;
use crate::check::{Finding, FindingKind, Operation, States};
use crate::explain::{ExplainedLine, Kept, Pending, explain, patterns, pending_at};
use crate::generate::{CrashImages, Part};
use crate::run::open_trace;
use crate::trace::{Filter, hex, name, text};

const LINE_BYTES: u64 = 64;
/// Most states of a finding that get a witness, most lines of a witness, and most events of a line.
const WITNESSES_MAX: usize = 4;
const LINES_MAX: usize = 8;
const EVENTS_MAX: usize = 40;
/// Most bytes of a state, and of a difference.
const TEXT_MAX_BYTES: usize = 64 << 10;

/// What a report is about, and where it comes from.
pub struct Source<'a> {
    /// Name of the test.
    pub name: &'a str,
    /// The trace.
    pub trace: &'a Path,
    /// The machine.
    pub config: Config,
    /// Most bytes of PM.
    pub memory_max_bytes: u64,
    /// Says where an instruction comes from.
    pub symbols: &'a dyn Fn(u64, bool) -> Option<String>,
    /// The images.
    pub images: &'a CrashImages,
    /// Their states.
    pub states: &'a States,
    /// The operations.
    pub operations: &'a [Operation],
}

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
    };
    let operations = source.operations.iter().map(|operation| operation_report(source, &header, operation));
    let region = |region: &fastness_trace::Region| RegionReport {
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

/// Of a path its last part: where a test keeps its files is nobody's concern.
fn short_name(region: &fastness_trace::Region) -> String {
    region.name.rsplit('/').next().unwrap_or_default().to_owned()
}

fn ending(state: &crate::check::State) -> String {
    match state.write {
        Some(write) => format!("{}; a write to it {write}", state.ending),
        None => state.ending.to_string(),
    }
}

fn readable(text: &[u8]) -> String {
    let cut = &text[..text.len().min(TEXT_MAX_BYTES)];
    let mut readable = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < text.len() {
        readable.push_str(&format!("\n... {} bytes more\n", text.len() - cut.len()));
    }
    readable
}

/// An instruction, and where it comes from.
fn place(source: &Source<'_>, pc: Option<u64>, is_kernel: bool) -> String {
    let Some(pc) = pc else { return "an unknown instruction".to_owned() };
    match (source.symbols)(pc, is_kernel) {
        Some(symbol) => format!("{pc:#x} {symbol}"),
        None => format!("{pc:#x}"),
    }
}

fn operation_report(source: &Source<'_>, header: &Header, operation: &Operation) -> Result<OperationReport> {
    let points = &source.images.points;
    let event = |index: usize| points.get(index).map_or(0, |point| point.event);
    let expected = Expected::of(source, operation);
    let finding = |finding: &Finding| -> Result<FindingReport> {
        let suspects = expected.suspects(finding);
        let witnesses = suspects.iter().take(WITNESSES_MAX).map(|state| {
            let reference = match finding.kind {
                FindingKind::FinalStates | FindingKind::Atomicity => expected.nearest(*state),
                _ => None,
            };
            witness(source, header, operation, finding, *state, reference)
        });
        Ok(FindingReport {
            kind: finding.kind.name().to_owned(),
            letter: finding.kind.letter(),
            what: finding.kind.to_string(),
            states: names(source, &finding.states),
            witnesses: witnesses.collect::<Result<_>>()?,
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
        let complete = |point: usize| {
            let has_all = |image: &crate::generate::CrashImage| {
                let mut occurrences = image.occurrences.iter();
                occurrences.any(|found| found.point == point && found.part == Part::Everything)
            };
            let index = source.images.images.iter().position(has_all)?;
            Some(source.states.of_image[index])
        };
        let last = operation.points.end.saturating_sub(1);
        Expected { before: complete(operation.points.start), after: complete(last) }
    }

    /// The states of a finding that need a witness: those that are not expected, or else that before the operation.
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

/// The crash with this state that has lost least, at the failure points where the finding is.
fn witness(
    source: &Source<'_>,
    header: &Header,
    operation: &Operation,
    finding: &Finding,
    state: usize,
    reference: Option<usize>,
) -> Result<WitnessReport> {
    let images = &source.images;
    let points = match finding.kind {
        FindingKind::FinalStates => operation.points.end - 1..operation.points.end,
        _ => operation.points.clone(),
    };
    let complete: BTreeMap<usize, usize> = images
        .images
        .iter()
        .enumerate()
        .flat_map(|(index, image)| image.occurrences.iter().map(move |occurrence| (index, occurrence)))
        .filter(|(_, occurrence)| occurrence.part == Part::Everything && points.contains(&occurrence.point))
        .map(|(index, occurrence)| (occurrence.point, index))
        .collect();
    let mut best: Option<(u64, usize, usize)> = None;
    for index in &source.states.found[state].images {
        let image = &images.images[*index];
        for occurrence in image.occurrences.iter().filter(|occurrence| points.contains(&occurrence.point)) {
            let lost = complete.get(&occurrence.point).map_or(u64::MAX, |all| {
                let all = &images.images[*all].contents;
                let differs = all.memory.differences(&image.contents.memory, LINE_BYTES as usize);
                differs.iter().map(|range| (range.end - range.start) / LINE_BYTES).sum()
            });
            if best.is_none_or(|(least, ..)| lost < least) {
                best = Some((lost, *index, occurrence.point));
            }
        }
    }
    let (_, index, point) = best.unwrap_or((0, source.states.found[state].images[0], points.start));
    let image = &images.images[index];
    let event = images.points[point].event;
    let pending = pending_at(&mut open_trace(source.trace)?, source.config, source.memory_max_bytes, event)?;
    let lines = explain(&pending, &image.contents.memory).unwrap_or_default();
    let (mut lost, kept): (Vec<_>, Vec<_>) = lines.into_iter().partition(ExplainedLine::has_lost);
    let kept_lines = kept.len();
    let begin = images.points[operation.points.start].event;
    // What the operation itself has stored is the more likely culprit.
    lost.sort_by_key(|line| {
        !line.stores.iter().any(|(store, kept)| store.event >= begin && *kept != Kept::Whole)
    });
    let shown = |lines: Vec<ExplainedLine>, histories: usize| -> Result<Vec<LineReport>> {
        let lines = lines.into_iter().take(LINES_MAX).enumerate();
        lines
            .map(|(at, line)| {
                let mut report = line_report(source, header, &pending, line);
                if at < histories {
                    report.history = history(source, report.address, begin, event)?;
                }
                Ok(report)
            })
            .collect()
    };
    let difference = reference.map(|reference| difference(source, reference, state)).unwrap_or_default();
    Ok(WitnessReport {
        state: source.states.found[state].name.clone(),
        difference,
        expected: reference.map(|reference| source.states.found[reference].name.clone()),
        image: hex(&image.hash.0),
        event,
        at: event_text(source, event)?,
        lost: shown(lost, LINES_MAX)?,
        kept_lines,
        kept: shown(kept, 0)?,
    })
}

fn line_report(source: &Source<'_>, header: &Header, pending: &Pending, line: ExplainedLine) -> LineReport {
    let (address, region) = match pending.replay.layout().address_of(line.offset) {
        Some((address, region)) => (address, region.clone()),
        None => (line.offset, header.regions[0].clone()),
    };
    let stores = line.stores.into_iter().map(|(store, kept)| StoreReport {
        event: store.event,
        address: address + store.start as u64,
        data: hex(&store.data),
        non_temporal: store.is_non_temporal,
        fate: match kept {
            Kept::Whole => "kept",
            Kept::Part => "torn",
            Kept::Lost => "lost",
        }
        .to_owned(),
        at: place(source, store.pc, store.is_kernel),
        stack: store.stack.iter().map(|pc| place(source, Some(*pc), store.is_kernel)).collect(),
    });
    LineReport {
        offset: address - region.start,
        region: short_name(&region),
        address,
        flushed: line.flushed,
        stores: stores.collect(),
        history: Vec::new(),
    }
}

/// The last events before `end`, and from `begin` on, that concern a line.
fn history(source: &Source<'_>, address: u64, begin: u64, end: u64) -> Result<Vec<HistoryReport>> {
    let filter = Filter { line: Some(address), from: begin, count: None };
    let mut reader = open_trace(source.trace)?;
    let mut events = std::collections::VecDeque::new();
    while reader.count() < end {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        if filter.takes(number, &event) {
            if events.len() == EVENTS_MAX {
                events.pop_front();
            }
            events.push_back(HistoryReport {
                event: number,
                kind: name(&event).to_owned(),
                text: text(&event),
            });
        }
    }
    Ok(events.into())
}

fn event_text(source: &Source<'_>, wanted: u64) -> Result<String> {
    let mut reader = open_trace(source.trace)?;
    while reader.count() < wanted {
        if reader.next()?.is_none() {
            break;
        }
    }
    Ok(match reader.next()? {
        Some(event) => {
            let symbol = event.origin.pc.and_then(|pc| (source.symbols)(pc, event.origin.is_kernel));
            let symbol = symbol.map_or_else(String::new, |symbol| format!("  {symbol}"));
            format!("{}{symbol}", text(&event))
        }
        None => "the end of the trace".to_owned(),
    })
}

fn difference(source: &Source<'_>, expected: usize, state: usize) -> String {
    let found = &source.states.found;
    let (one, two) = (readable(&found[expected].state.text), readable(&found[state].state.text));
    let difference = similar::TextDiff::from_lines(&one, &two);
    let text = difference
        .unified_diff()
        .context_radius(2)
        .header(&found[expected].name, &found[state].name)
        .to_string();
    readable(text.as_bytes())
}
