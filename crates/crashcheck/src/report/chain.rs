//! The crashes of recoveries that follow a crash of the program.

use std::sync::Arc;

use super::cause_text::short;
use super::evidence::{lost_blocks, shrunk};
use super::lost::{Lost, Traced};
use super::recovery_data::RecoveryCrashReport;
use super::source::Source;
use crate::check::{Link, RecoveryCrashes, after_chain, write_files};
use crate::error::{Result, make_dir};
use crate::explain::pending_at;
use crate::generate::{Contents, Layout};
use crate::symbols::Symbols;
use crate::trace::{hex, open_trace};

/// What each crash of a chain has lost. Recoveries are traced again for that, the first of them that of
/// `contents`. The image that the last crash leaves is kept, if images are.
pub(super) fn chain(
    source: &Source<'_>,
    contents: &Contents,
    chain: &[Arc<Link>],
    state: usize,
) -> Result<Vec<RecoveryCrashReport>> {
    let Some((crashes, _)) = &source.in_recovery else { return Ok(Vec::new()) };
    let mut reports = Vec::new();
    let mut before = contents.clone();
    for (index, link) in chain.iter().enumerate() {
        let mut report = RecoveryCrashReport {
            event: link.event,
            image: hex(&link.image.0),
            lost_bytes: link.lost_bytes,
            ..RecoveryCrashReport::default()
        };
        // Without an image there is nothing to look into, from here on.
        let after = after_chain(&before, std::slice::from_ref(link));
        if let Some(after) = after.filter(|_| reports.len() == index) {
            let is_last = index + 1 == chain.len();
            if source.may_recover {
                explain(source, crashes, &before, &after, is_last.then_some(state), &mut report)?;
            }
            if is_last {
                report.kept_as = keep(source, crashes, &after, &report.image)?;
            }
            before = after;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// Traces the recovery of `before` again, and says what its crash has lost that leaves `after`; if that has a
/// wrong state, what of it is enough.
fn explain(
    source: &Source<'_>,
    crashes: &RecoveryCrashes<'_>,
    before: &Contents,
    after: &Contents,
    state: Option<usize>,
    report: &mut RecoveryCrashReport,
) -> Result<()> {
    let work = crashes.work.join("explained");
    make_dir(&work)?;
    let Some(trace) = crashes.tracer.trace(before, &work)?.path else { return Ok(()) };
    let event = report.event;
    let pending = pending_at(&mut open_trace(&trace)?, source.config, source.memory_max_bytes, event)?;
    let everything = pending.replay.everything();
    if everything.memory.len_bytes() != after.memory.len_bytes() {
        return Ok(());
    }
    let shrunk =
        state.map(|state| shrunk(source, &everything, after, &pending, state)).transpose()?.flatten();
    let image = shrunk.as_ref().map_or(after, |shrunk| &shrunk.contents);
    let mut reader = open_trace(&trace)?;
    let header = reader.header().clone();
    let own = Symbols::of(&mut reader)?;
    let own = |pc, _| own.find(pc);
    let symbols = if crashes.is_in_kernel { source.symbols } else { &own };
    let traced = Traced { trace: &trace, header: &header, symbols, begin: 0 };
    let Lost { lost, lost_by, at, after, .. } = Lost::of(traced, &pending, &image.memory, event)?;
    *report = RecoveryCrashReport {
        at,
        after,
        lost_by,
        is_enough_of: shrunk.as_ref().filter(|shrunk| shrunk.lost < shrunk.of).map(|shrunk| shrunk.of),
        lost,
        lost_blocks: lost_blocks(&everything, image),
        ..std::mem::take(report)
    };
    Ok(())
}

/// Writes an image into a folder, to be recovered again; says into which.
fn keep(
    source: &Source<'_>,
    crashes: &RecoveryCrashes<'_>,
    contents: &Contents,
    image: &str,
) -> Result<Option<String>> {
    let Some(folder) = crashes.keep else { return Ok(None) };
    let name = short(image);
    let folder = folder.join(name);
    make_dir(&folder)?;
    write_files(&Layout::of(open_trace(source.trace)?.header())?, contents, &folder)?;
    Ok(Some(name.to_owned()))
}
