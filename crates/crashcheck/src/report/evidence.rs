//! Evidence of a finding: a crash that shows it, and what it has lost.

use fastness_crashcheck_trace::Header;

use super::chain::chain;
use super::data::{BlocksReport, EvidenceReport};
use super::lost::{LINES_MAX, Lost, Traced};
use super::source::{Source, difference};
use crate::Result;
use crate::check::{Crash, Operation, Shrunk};
use crate::explain::{Pending, pending_at};
use crate::generate::Contents;
use crate::trace::{hex, open_trace};

const BLOCK_BYTES: u64 = 512;

/// What a crash with this state has lost, and crashes of recoveries after it.
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
    // With less lost the recovery would do something else.
    let shrunk = match crash.in_recovery.is_empty() {
        true => shrunk(source, &everything, &contents, &pending, state)?,
        false => None,
    };
    let in_recovery = match crash.losses.is_some() {
        true => chain(source, &contents, &crash.in_recovery, state)?,
        false => Vec::new(),
    };
    let contents = shrunk.as_ref().map_or(&contents, |shrunk| &shrunk.contents);
    let traced = Traced { trace: source.trace, header, symbols: source.symbols, begin: operation.events.0 };
    let Lost { lost, lost_by, kept_lines, kept, at, after } =
        Lost::of(traced, &pending, &contents.memory, event)?;
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
        kept,
        in_recovery,
    })
}

/// A crash there that has lost less. Where lines depend on each other there may be no crash that leaves such
/// a mix; a recovery that says something else each time cannot say which are enough.
pub(super) fn shrunk(
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

/// Where the disks of an image differ from those with everything that was pending.
pub(super) fn lost_blocks(all: &Contents, image: &Contents) -> Vec<BlocksReport> {
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
