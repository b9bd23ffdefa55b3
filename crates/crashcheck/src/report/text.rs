//! A report for a terminal.

use std::fmt::Write as _;

use super::cause_text::{Show, write_causes};
use super::data::{LeftOutReport, OperationReport, Report};
use super::hints::SHOWN;
use super::left_out::SHOWN as CUT_POINTS;
use super::place::without_callers;

/// The report: causes first, the smallest witness of each in full.
pub fn text(report: &Report) -> String {
    text_with(report, Show::default())
}

/// The report, or more of it.
pub fn text_with(report: &Report, show: Show) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write(report, show, &mut out);
    out
}

fn write(report: &Report, show: Show, out: &mut String) -> std::fmt::Result {
    let totals = &report.totals;
    writeln!(
        out,
        "test {}: {} events, {} failure points, {} crash images, {} states",
        report.name,
        totals.events,
        totals.points,
        totals.images,
        report.states.len()
    )?;
    let left_out = totals.points - totals.exhaustive_points;
    if left_out > 0 {
        write!(out, "  {left_out} of the failure points have more images than were generated")?;
        match totals.cut_points {
            0 => writeln!(out, " (heuristics)")?,
            cut => writeln!(out, "; {cut} of them reached the limit")?,
        }
    }
    if let Some(left_out) = &report.left_out {
        write_left_out(left_out, show, out)?;
    }
    if totals.unreached_images > 0 {
        let why = totals.stopped_by.as_deref().unwrap_or("the budget was used up");
        writeln!(out, "  {why}: {} crash images were not recovered", totals.unreached_images)?;
    }
    if totals.forgotten_images > 0 {
        let forgotten = totals.forgotten_images;
        writeln!(
            out,
            "  {forgotten} images were forgotten to save memory, and recovered again if they came again"
        )?;
    }
    for (index, line) in report.in_recovery.iter().flat_map(|totals| totals.lines()).enumerate() {
        writeln!(out, "{}{line}", if index == 0 { "  " } else { "    " })?;
    }
    if !report.is_clean() {
        writeln!(out)?;
        write_causes(std::slice::from_ref(report), show, out)?;
    }
    for operation in &report.operations {
        writeln!(out)?;
        write_operation(report, operation, out)?;
    }
    write_hints(report, show, out)?;
    let wrong = report.operations.iter().filter(|operation| !operation.findings.is_empty()).count();
    writeln!(out)?;
    match wrong {
        0 => writeln!(out, "{}: ok", report.name),
        wrong => writeln!(
            out,
            "{}: {wrong} of {} operations are not crash-consistent",
            report.name,
            report.operations.len()
        ),
    }
}

fn write_left_out(left_out: &LeftOutReport, show: Show, out: &mut String) -> std::fmt::Result {
    writeln!(out, "    {}", left_out.whole())?;
    left_out.steps().iter().try_for_each(|step| writeln!(out, "    {step}"))?;
    let shown = if show.all { usize::MAX } else { CUT_POINTS };
    for point in left_out.largest.iter().take(shown) {
        writeln!(
            out,
            "    {}: before event {}, {}",
            point.counts(),
            point.event,
            without_callers(&point.at)
        )?;
    }
    Ok(())
}

fn write_hints(report: &Report, show: Show, out: &mut String) -> std::fmt::Result {
    if !report.patterns.is_empty() {
        writeln!(out, "\nhints from the trace, what matters most first:")?;
    }
    let shown = if show.all { usize::MAX } else { SHOWN };
    for hint in report.patterns.iter().take(shown) {
        let address = hint.first_address.map_or_else(String::new, |address| format!(", {address:#x}"));
        let instructions = match hint.instructions {
            0 | 1 => String::new(),
            several => format!(" ({several} instructions)"),
        };
        writeln!(
            out,
            "  {} times {} ({}), first event {}{address}\n      by {}{instructions}",
            hint.count,
            hint.kind,
            hint.meaning(),
            hint.first_event,
            hint.at
        )?;
    }
    let more = report.patterns.len().saturating_sub(shown);
    if more > 0 {
        writeln!(out, "  ... {more} more (--all shows them, --exclude leaves some out)")
    } else {
        Ok(())
    }
}

fn write_operation(report: &Report, operation: &OperationReport, out: &mut String) -> std::fmt::Result {
    let verdict = if operation.findings.is_empty() { "ok" } else { "FAILED" };
    let (first, last) = operation.events;
    writeln!(out, "{} (events {first} to {last}): {verdict}", operation.name())?;
    let named = |names: &[String]| {
        let named = names.iter().map(|name| {
            let state = report.states.iter().find(|state| state.name == *name);
            let is_regular = state.is_some_and(|state| state.is_regular);
            format!("{name}{}", if is_regular { "" } else { "*" })
        });
        named.collect::<Vec<_>>().join(" ")
    };
    writeln!(out, "  states {}", named(&operation.states))?;
    if !operation.final_states.is_empty() {
        writeln!(out, "  after it {}", named(&operation.final_states))?;
    }
    if !operation.in_recovery.is_empty() {
        writeln!(out, "  only after a crash during recovery {}", operation.in_recovery.join(" "))?;
    }
    if operation
        .states
        .iter()
        .any(|name| report.states.iter().any(|state| state.name == *name && !state.is_regular))
    {
        writeln!(out, "  (* only after a crash that lost something)")?;
    }
    for finding in &operation.findings {
        let unseen = match finding.states_without_evidence {
            0 => String::new(),
            more => format!(" (and {more} more states that were not looked into)"),
        };
        writeln!(out, "  {}: {}{unseen}", finding.letter, finding.what)?;
    }
    Ok(())
}

/// A table of several tests, after table 10.1 of the source: a line each, a letter for each kind of finding.
pub fn table(reports: &[Report]) -> String {
    let width = reports.iter().map(|report| report.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for report in reports {
        let mut letters: Vec<char> = report
            .operations
            .iter()
            .flat_map(|operation| &operation.findings)
            .map(|finding| finding.letter)
            .collect();
        letters.sort_unstable();
        letters.dedup();
        let verdict = if letters.is_empty() { "ok".to_owned() } else { letters.into_iter().collect() };
        let _ = writeln!(
            out,
            "{:width$}  {verdict:4}  {:>6} images  {:>4} states",
            report.name,
            report.totals.images,
            report.states.len()
        );
    }
    out.push_str("ok: atomic, one final state. A: not atomic, S: several final states, W: cannot be written to, E: the recovery fails,\nC: it crashes, O: rejected by the oracle, N: another state when recovered again, R: only after a crash during recovery.\n");
    out
}
