//! Evidence of a finding: a crash that shows it, and what it has lost.

use std::collections::{BTreeSet, VecDeque};

use fastness_crashcheck_trace::{Header, Kind};

use super::data::{BlocksReport, EvidenceReport, HistoryReport, LineReport, StoreReport};
use super::place::blamed;
use super::source::{Source, difference, place};
use crate::Result;
use crate::check::{Crash, Operation, Shrunk};
use crate::explain::{ExplainedLine, Kept, Pending, explain, pending_at};
use crate::generate::Contents;
use crate::trace::{Filter, hex, name, open_trace, short_name, text};

const BLOCK_BYTES: u64 = 512;
/// Most lines and parts of disks, and most events of a line.
const LINES_MAX: usize = 8;
const EVENTS_MAX: usize = 40;

/// What a crash with this state has lost.
pub(super) fn evidence(
    source: &Source<'_>,
    header: &Header,
    operation: &Operation,
    crash: &Crash,
    state: usize,
    reference: Option<usize>,
) -> Result<EvidenceReport> {
    let event = crash.event;
    let pending = pending_at(&mut open_trace(source.trace)?, source.config, source.memory_max_bytes, event)?;
    let everything = pending.replay.everything();
    let mut contents = everything.clone();
    if let Some(losses) = &crash.losses {
        losses.apply(&mut contents);
    }
    let shrunk = shrunk(source, &everything, &contents, &pending, state)?;
    let contents = shrunk.as_ref().map_or(&contents, |shrunk| &shrunk.contents);
    let lines = explain(&pending, &contents.memory).unwrap_or_default();
    let (mut lost, kept): (Vec<_>, Vec<_>) = lines.into_iter().partition(ExplainedLine::has_lost);
    let kept_lines = kept.len();
    let begin = operation.events.0;
    // What the operation itself has stored is the more likely culprit.
    lost.sort_by_key(|line| {
        !line.stores.iter().any(|(store, kept)| store.event >= begin && *kept != Kept::Whole)
    });
    let lost_by = lost_by(source, &lost);
    let shown = |lines: Vec<ExplainedLine>| -> Vec<LineReport> {
        lines.into_iter().take(LINES_MAX).map(|line| line_report(source, header, &pending, line)).collect()
    };
    let mut lost = shown(lost);
    let Ended { at, after } = histories(source, header, &mut lost, begin, event)?;
    let lost_blocks = lost_blocks(&everything, contents);
    let has_lost = !lost.is_empty() || !lost_blocks.is_empty() || crash.losses.is_none();
    let difference = reference.map(|reference| difference(source, reference, state)).unwrap_or_default();
    let name = |state: usize| source.states.found()[state].name.clone();
    Ok(EvidenceReport {
        state: name(state),
        difference,
        expected: reference.map(name),
        image: hex(&crash.image.0),
        event,
        at,
        after: after.filter(|_| !has_lost),
        lost_by,
        is_enough_of: shrunk.as_ref().filter(|shrunk| shrunk.lost < shrunk.of).map(|shrunk| shrunk.of),
        lost,
        lost_blocks,
        left_out_bytes: if crash.losses.is_none() { crash.lost_bytes } else { 0 },
        kept_lines,
        kept: shown(kept),
    })
}

/// A crash there that has lost less. Where lines depend on each other there may be no crash that leaves such
/// a mix; a recovery that says something else each time cannot say which are enough.
fn shrunk(
    source: &Source<'_>,
    everything: &Contents,
    image: &Contents,
    pending: &Pending,
    state: usize,
) -> Result<Option<Shrunk>> {
    let is_same_again = source.states.again(state).is_none();
    if pending.replay.machine().has_order_across_lines() || !is_same_again {
        return Ok(None);
    }
    source.shrink.run(everything, image, source.states.state(state)).map(Some)
}

fn lost_blocks(all: &Contents, image: &Contents) -> Vec<BlocksReport> {
    let disks = all.disks.iter().zip(&image.disks).enumerate();
    let blocks = disks.flat_map(|(disk, (all, image))| {
        let ranges = all.differences(image, BLOCK_BYTES as usize).into_iter();
        ranges.map(move |range| BlocksReport {
            disk,
            offset: range.start,
            len_bytes: range.end - range.start,
        })
    });
    blocks.take(LINES_MAX).collect()
}

/// Where the stores come from that were lost, each place once.
fn lost_by(source: &Source<'_>, lines: &[ExplainedLine]) -> Vec<String> {
    let stores = lines.iter().flat_map(|line| &line.stores).filter(|(_, kept)| *kept != Kept::Whole);
    let places: BTreeSet<String> =
        stores.map(|(store, _)| blame(source, store.pc, store.is_kernel, &store.stack)).collect();
    places.into_iter().collect()
}

fn blame(source: &Source<'_>, pc: Option<u64>, is_kernel: bool, stack: &[u64]) -> String {
    let stack: Vec<String> = stack.iter().map(|pc| place(source, Some(*pc), is_kernel)).collect();
    blamed(&place(source, pc, is_kernel), &stack)
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

/// Gives lines their histories: the last events before `end`, and from `begin` on, that concern each. A trace
/// may have millions of events: it is read once.
fn histories(
    source: &Source<'_>,
    header: &Header,
    lines: &mut [LineReport],
    begin: u64,
    end: u64,
) -> Result<Ended> {
    let is_pm = |address| {
        header.regions.iter().any(|region| (region.start..region.start + region.len_bytes).contains(&address))
    };
    let mut last_store = None;
    let filters: Vec<Filter> =
        lines.iter().map(|line| Filter { line: Some(line.address), from: begin, count: None }).collect();
    let mut histories = vec![VecDeque::new(); lines.len()];
    let mut reader = open_trace(source.trace)?;
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
                text: text(&event, source.symbols),
            });
            history.push_back(shown.clone());
        }
    }
    lines.iter_mut().zip(histories).for_each(|(line, history)| line.history = history.into());
    let at = match reader.next()? {
        Some(event) => text(&event, source.symbols),
        None => "the end of the trace".to_owned(),
    };
    let after = last_store.map(|(pc, is_kernel, stack)| blame(source, pc, is_kernel, &stack));
    Ok(Ended { at, after })
}
