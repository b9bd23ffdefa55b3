//! Causes and what shows them, for a terminal.

use std::fmt::Write as _;

use super::cause::{Cause, CauseKind, Witness, causes};
use super::data::{EvidenceReport, LineReport, OperationReport, Report, StoreReport};
use super::place::{blamed, without_callers};
use super::recovery_data::RecoveryCrashReport;

/// Witnesses of a cause that are shown as a line each.
const WITNESSES_MAX: usize = 8;
/// Tests or operations of a cause that are named.
const NAMES_MAX: usize = 20;
/// Parts of a line that are shown.
const RUNS_MAX: usize = 8;
/// Causes that are shown.
const CAUSES_MAX: usize = 30;

/// How much a terminal shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Show {
    /// All witnesses of a cause in full, and all hints.
    pub all: bool,
}

/// The causes of what these reports have found; nothing if they have found nothing.
pub fn causes_text(reports: &[Report], show: Show) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write_causes(reports, show, &mut out);
    out
}

pub(super) fn write_causes(reports: &[Report], show: Show, out: &mut String) -> std::fmt::Result {
    let causes = causes(reports);
    if causes.is_empty() {
        return Ok(());
    }
    let witnesses: usize = causes.iter().map(|cause| cause.witnesses.len()).sum();
    writeln!(out, "{}, shown by {}:", counted(causes.len(), "cause"), counted(witnesses, "crash"))?;
    let shown = if show.all { usize::MAX } else { CAUSES_MAX };
    for (index, cause) in causes.iter().enumerate().take(shown) {
        write_cause(index + 1, cause, reports.len() > 1, show, out)?;
    }
    if causes.len() > shown {
        writeln!(out, "\n... {} more (--all)", counted(causes.len() - shown, "cause"))?;
    }
    Ok(())
}

/// A number of things.
fn counted(number: usize, what: &str) -> String {
    match (number, what.ends_with('h')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{number} {what}es"),
        (_, false) => format!("{number} {what}s"),
    }
}

fn write_cause(
    number: usize,
    cause: &Cause<'_>,
    has_tests: bool,
    show: Show,
    out: &mut String,
) -> std::fmt::Result {
    let letters: String = cause.letters().into_iter().collect();
    let operations = cause.operations();
    let witnesses = counted(cause.witnesses.len(), "crash");
    let of = counted(operations.len(), "operation");
    writeln!(out, "\n{number}. {letters}, {witnesses} in {of}: {}", cause.key.kind.meaning())?;
    cause.lines().iter().try_for_each(|line| writeln!(out, "     {line}"))?;
    if cause.lacks_callers() {
        writeln!(
            out,
            "     (it stores for others, and its callers are not known: --stacks records them where there are frame pointers)"
        )?;
    }
    let mut named = if has_tests { tests(&operations) } else { names(&operations) };
    let more = named.len().saturating_sub(NAMES_MAX);
    named.truncate(NAMES_MAX);
    let more = if more > 0 && !show.all { format!(", and {more} more") } else { String::new() };
    writeln!(out, "   in {}{more}", named.join(", "))?;
    for (index, witness) in cause.witnesses.iter().enumerate() {
        if index == 1 && !show.all {
            writeln!(out, "\n   and {} more:", counted(cause.witnesses.len() - 1, "crash"))?;
        }
        match index {
            0 => write_witness(witness, has_tests, out)?,
            _ if show.all => write_witness(witness, has_tests, out)?,
            index if index <= WITNESSES_MAX => write_line_of(witness, cause, has_tests, out)?,
            _ => {
                writeln!(out, "     ... (--all shows all of them in full)")?;
                break;
            }
        }
    }
    Ok(())
}

fn names(operations: &[(&str, &OperationReport)]) -> Vec<String> {
    operations.iter().map(|(_, operation)| operation.name()).collect()
}

/// The tests, in order, with the number of their operations.
fn tests(operations: &[(&str, &OperationReport)]) -> Vec<String> {
    let of_a_test = operations.chunk_by(|one, two| one.0 == two.0).map(|of| match of {
        [(test, _)] => (*test).to_owned(),
        several => format!("{} ({} operations)", several[0].0, several.len()),
    });
    of_a_test.collect()
}

/// Where a witness was seen.
pub(super) fn seen(witness: &Witness<'_>, has_tests: bool) -> String {
    let letters: String = witness.letters.iter().collect();
    let test = if has_tests { format!("{}, ", witness.report.name) } else { String::new() };
    format!("{test}{}, {letters}", witness.operation.name())
}

fn write_witness(witness: &Witness<'_>, has_tests: bool, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n   {}:", seen(witness, has_tests))?;
    write_evidence(witness.report, witness.evidence, out)
}

fn write_line_of(
    witness: &Witness<'_>,
    cause: &Cause<'_>,
    has_tests: bool,
    out: &mut String,
) -> std::fmt::Result {
    let EvidenceReport { state, event, .. } = witness.evidence;
    let others: Vec<&str> = witness.places.difference(&cause.key.places).map(String::as_str).collect();
    let others = match (cause.key.kind, others.is_empty()) {
        (CauseKind::LostStores | CauseKind::LostInRecovery, false) => {
            format!("; loses {} as well", others.join(", "))
        }
        _ => String::new(),
    };
    let then = then_before(&witness.evidence.in_recovery);
    writeln!(out, "     {}: state {state}, before event {event}{then}{others}", seen(witness, has_tests))
}

/// Where recoveries crash after a crash of the program, in words that follow it.
pub(super) fn then_before(in_recovery: &[RecoveryCrashReport]) -> String {
    in_recovery.iter().fold(String::new(), |then, crash| {
        format!("{then}, then of its recovery before event {}", crash.event)
    })
}

fn write_evidence(report: &Report, evidence: &EvidenceReport, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "    state {}, after a crash just before event {}: {}",
        evidence.state,
        evidence.event,
        without_callers(&evidence.at)
    )?;
    for crash in &evidence.in_recovery {
        writeln!(
            out,
            "    then one of its recovery, just before event {} of that: {}",
            crash.event,
            without_callers(&crash.at)
        )?;
    }
    if let Some(state) =
        report.states.iter().find(|state| state.name == evidence.state && state.ending != "ended well")
    {
        writeln!(out, "    the recovery {}", state.ending)?;
    }
    let text = match (&evidence.expected, report.states.iter().find(|state| state.name == evidence.state)) {
        (Some(_), _) => &evidence.difference,
        (None, Some(state)) => &state.text,
        (None, None) => "",
    };
    text.lines().take(30).try_for_each(|line| writeln!(out, "      {line}"))?;
    if text.lines().count() > 30 {
        writeln!(out, "      ...")?;
    }
    match evidence.lost.is_empty() && evidence.lost_blocks.is_empty() {
        true if evidence.left_out_bytes > 0 => {
            writeln!(out, "    lost: {} bytes, too many to be kept and shown", evidence.left_out_bytes)?;
        }
        true if !evidence.in_recovery.is_empty() => {
            writeln!(out, "    the crash of the program has lost nothing")?;
        }
        true => writeln!(out, "    nothing was lost: the program leaves this even if everything is flushed")?,
        false => writeln!(out, "    lost{}:", evidence.enough())?,
    }
    evidence.lost.iter().try_for_each(|line| write_line(line, true, out))?;
    for blocks in &evidence.lost_blocks {
        writeln!(out, "      {blocks}")?;
    }
    if !evidence.lost.is_empty() && evidence.kept_lines > 0 {
        writeln!(out, "    kept, out of {} other pending lines:", evidence.kept_lines)?;
        evidence.kept.iter().take(3).try_for_each(|line| write_line(line, false, out))?;
    }
    writeln!(out, "    image {}", short(&evidence.image))?;
    evidence.in_recovery.iter().try_for_each(|crash| write_recovery(crash, out))
}

/// The beginning of a hash: what an image is called.
pub(super) fn short(image: &str) -> &str {
    &image[..16.min(image.len())]
}

fn write_recovery(crash: &RecoveryCrashReport, out: &mut String) -> std::fmt::Result {
    match &crash.after {
        _ if !crash.lost.is_empty() || !crash.lost_blocks.is_empty() => {
            writeln!(out, "    the crash of its recovery has lost{}:", crash.enough())?;
        }
        _ if crash.lost_bytes > 0 => {
            writeln!(out, "    the crash of its recovery has lost {} bytes", crash.lost_bytes)?;
        }
        Some(after) => {
            writeln!(out, "    the crash of its recovery has lost nothing; the last store is by {after}")?;
        }
        None => writeln!(out, "    the crash of its recovery has lost nothing")?,
    }
    crash.lost.iter().try_for_each(|line| write_line(line, true, out))?;
    crash.lost_blocks.iter().try_for_each(|blocks| writeln!(out, "      {blocks}"))?;
    let kept = crash.kept_as.as_ref().map_or_else(String::new, |name| format!(", kept in {name}"));
    writeln!(out, "    image {}{kept}", short(&crash.image))
}

fn write_line(line: &LineReport, with_flush: bool, out: &mut String) -> std::fmt::Result {
    write!(out, "      line {:#x} of {}", line.offset, line.region)?;
    match (line.flushed, with_flush) {
        (_, false) => writeln!(out)?,
        (0, _) => writeln!(out, ", never flushed")?,
        (flushed, _) if flushed == line.stores.len() => writeln!(out, ", flushed but not fenced")?,
        (flushed, _) => writeln!(out, ", its first {flushed} stores flushed but not fenced")?,
    }
    // A copy of a line is eight stores by one function.
    let is_one = |one: &StoreReport, two: &StoreReport| {
        let of =
            |store: &StoreReport| (store.fate.clone(), store.non_temporal, blamed(&store.at, &store.stack));
        of(one) == of(two)
    };
    let runs: Vec<&[StoreReport]> = line.stores.chunk_by(is_one).collect();
    for run in runs.iter().take(RUNS_MAX) {
        write_store(&run[0], out)?;
        match run {
            [_, other] => write_store(other, out)?,
            [_, .., last] => writeln!(
                out,
                "        {:5} and {} more to {:#x}, up to event {}, by the same",
                last.fate,
                run.len() - 1,
                last.address,
                last.event
            )?,
            _ => {}
        }
    }
    let more: usize = runs.iter().skip(RUNS_MAX).map(|run| run.len()).sum();
    if more > 0 { writeln!(out, "        ... {more} more") } else { Ok(()) }
}

fn write_store(store: &StoreReport, out: &mut String) -> std::fmt::Result {
    let name = if store.non_temporal { "ntstore" } else { "store" };
    let data = if store.data.len() > 32 { format!("{}...", &store.data[..32]) } else { store.data.clone() };
    writeln!(
        out,
        "        {:5} event {} {name} {:#x} {data}  at {}",
        store.fate, store.event, store.address, store.at
    )?;
    store.stack.iter().take(6).try_for_each(|frame| writeln!(out, "              from {frame}"))
}
