//! What a crash image has lost of the stores of a trace, and what comes before and after them.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

use fastness_crashcheck_trace::{Header, Kind};

use super::data::{HistoryReport, LineReport, StoreReport};
use super::place::blamed;
use super::source::place;
use crate::Result;
use crate::explain::{ExplainedLine, Kept, Pending, explain};
use crate::image::Image;
use crate::symbols::{Find, caller};
use crate::trace::{Filter, hex, name, open_trace, short_name, text};

/// Most lines and parts of disks, and most events of a line.
pub(super) const LINES_MAX: usize = 8;
const EVENTS_MAX: usize = 40;

/// A trace, and how it is read.
#[derive(Clone, Copy)]
pub(super) struct Traced<'a> {
    pub(super) trace: &'a Path,
    pub(super) header: &'a Header,
    pub(super) symbols: &'a Find<'a>,
    /// What is looked into begins with this event.
    pub(super) begin: u64,
}

/// What an image has lost.
pub(super) struct Lost {
    pub(super) lost: Vec<LineReport>,
    /// The places of all stores that are lost.
    pub(super) lost_by: Vec<String>,
    /// How many lines were pending, and are there.
    pub(super) kept_lines: usize,
    /// Some of these.
    pub(super) kept: Vec<LineReport>,
    /// The first event after the crash.
    pub(super) at: String,
    /// Where the last store to PM before it comes from.
    pub(super) after: Option<String>,
}

impl Lost {
    /// What an image lacks that a crash just before an event leaves.
    pub(super) fn of(traced: Traced<'_>, pending: &Pending, image: &Image, event: u64) -> Result<Lost> {
        let begin = traced.begin;
        let lines = explain(pending, image).unwrap_or_default();
        let (mut lost, kept): (Vec<_>, Vec<_>) = lines.into_iter().partition(ExplainedLine::has_lost);
        let kept_lines = kept.len();
        // What the operation itself has stored is the more likely culprit.
        lost.sort_by_key(|line| {
            !line.stores.iter().any(|(store, kept)| store.event >= begin && *kept != Kept::Whole)
        });
        let lost_by = lost_by(traced, &lost);
        let shown = |lines: Vec<ExplainedLine>| -> Vec<LineReport> {
            lines.into_iter().take(LINES_MAX).map(|line| line_report(traced, pending, line)).collect()
        };
        let mut lost = shown(lost);
        let Ended { at, after } = histories(traced, &mut lost, event)?;
        Ok(Lost { lost, lost_by, kept_lines, kept: shown(kept), at, after })
    }
}

/// Where the stores come from that were lost, each place once.
fn lost_by(traced: Traced<'_>, lines: &[ExplainedLine]) -> Vec<String> {
    let stores = lines.iter().flat_map(|line| &line.stores).filter(|(_, kept)| *kept != Kept::Whole);
    let places: BTreeSet<String> =
        stores.map(|(store, _)| blame(traced, store.pc, store.is_kernel, &store.stack)).collect();
    places.into_iter().collect()
}

fn callers(traced: Traced<'_>, stack: &[u64], is_kernel: bool) -> Vec<String> {
    stack.iter().map(|address| caller(traced.symbols, *address, is_kernel)).collect()
}

fn blame(traced: Traced<'_>, pc: Option<u64>, is_kernel: bool, stack: &[u64]) -> String {
    blamed(&place(traced.symbols, pc, is_kernel), &callers(traced, stack, is_kernel))
}

fn line_report(traced: Traced<'_>, pending: &Pending, line: ExplainedLine) -> LineReport {
    let (address, region) = match pending.replay.layout().address_of(line.offset) {
        Some((address, region)) => (address, region.clone()),
        None => (line.offset, traced.header.regions[0].clone()),
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
        at: place(traced.symbols, store.pc, store.is_kernel),
        stack: callers(traced, &store.stack, store.is_kernel),
    });
    LineReport {
        offset: address - region.start,
        region: short_name(&region).to_owned(),
        address,
        flushed: line.flushed,
        stores: stores.collect(),
        history: Vec::new(),
    }
}

/// How the part of a trace ends that a crash leaves.
struct Ended {
    /// The first event after it.
    at: String,
    /// Where the last store to PM before it comes from.
    after: Option<String>,
}

/// Gives lines their histories: the last events before `end`, and of what is looked into, that concern each.
/// A trace may have millions of events: it is read once.
fn histories(traced: Traced<'_>, lines: &mut [LineReport], end: u64) -> Result<Ended> {
    let Traced { trace, header, symbols, begin } = traced;
    let is_pm = |address| {
        header.regions.iter().any(|region| (region.start..region.start + region.len_bytes).contains(&address))
    };
    let mut last_store = None;
    let filters: Vec<Filter> =
        lines.iter().map(|line| Filter { line: Some(line.address), from: begin, count: None }).collect();
    let mut histories = vec![VecDeque::new(); lines.len()];
    let mut reader = open_trace(trace)?;
    while reader.count() < end {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        if let Kind::Store { address, .. } | Kind::Rmw { address, .. } = event.kind
            && is_pm(address)
        {
            let origin = &event.origin;
            let stack = origin.stack.unwrap_or_default().to_vec();
            last_store = Some((origin.pc, origin.is_kernel, stack));
        }
        let mut shown = None;
        for (history, _) in
            histories.iter_mut().zip(&filters).filter(|(_, filter)| filter.takes(number, &event))
        {
            if history.len() == EVENTS_MAX {
                history.pop_front();
            }
            let kind = || name(&event).to_owned();
            let shown = shown.get_or_insert_with(|| HistoryReport {
                event: number,
                kind: kind(),
                text: text(&event, symbols),
            });
            history.push_back(shown.clone());
        }
    }
    lines.iter_mut().zip(histories).for_each(|(line, history)| line.history = history.into());
    let at = match reader.next()? {
        Some(event) => text(&event, symbols),
        None => "the end of the trace".to_owned(),
    };
    let after = last_store.map(|(pc, is_kernel, stack)| blame(traced, pc, is_kernel, &stack));
    Ok(Ended { at, after })
}
