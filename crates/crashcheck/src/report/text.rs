//! A report for a terminal.

use std::fmt::Write as _;

use super::data::{EvidenceReport, FindingReport, LineReport, OperationReport, Report};

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
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
    for operation in &report.operations {
        writeln!(out)?;
        write_operation(report, operation, out)?;
    }
    if !report.patterns.is_empty() {
        writeln!(out, "\nhints from the trace:")?;
    }
    for pattern in &report.patterns {
        let address = pattern.first_address.map_or_else(String::new, |address| format!(", {address:#x}"));
        writeln!(
            out,
            "  {} times {} ({}), first event {}{address}\n      by {}",
            pattern.count, pattern.kind, pattern.what, pattern.first_event, pattern.at
        )?;
    }
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

/// The name of an operation: the checkpoints around it.
pub(super) fn operation_name(operation: &OperationReport) -> String {
    match (operation.from, operation.to) {
        (Some(from), Some(to)) => format!("checkpoint {from} to {to}"),
        (Some(from), None) => format!("after checkpoint {from}"),
        (None, Some(to)) => format!("before checkpoint {to}"),
        (None, None) => "the whole run".to_owned(),
    }
}

fn write_operation(report: &Report, operation: &OperationReport, out: &mut String) -> std::fmt::Result {
    let verdict = if operation.findings.is_empty() { "ok" } else { "FAILED" };
    let (first, last) = operation.events;
    writeln!(out, "{} (events {first} to {last}): {verdict}", operation_name(operation))?;
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
    if operation
        .states
        .iter()
        .any(|name| report.states.iter().any(|state| state.name == *name && !state.is_regular))
    {
        writeln!(out, "  (* only after a crash that lost something)")?;
    }
    operation.findings.iter().try_for_each(|finding| write_finding(report, finding, out))
}

fn write_finding(report: &Report, finding: &FindingReport, out: &mut String) -> std::fmt::Result {
    writeln!(out, "  {}: {}", finding.letter, finding.what)?;
    for evidence in &finding.evidence {
        write_evidence(report, evidence, out)?;
    }
    Ok(())
}

fn write_evidence(report: &Report, evidence: &EvidenceReport, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "\n    state {}, after a crash just before event {}: {}",
        evidence.state, evidence.event, evidence.at
    )?;
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
        true => writeln!(out, "    nothing was lost: the program leaves this even if everything is flushed")?,
        false => writeln!(out, "    lost{}:", evidence.enough())?,
    }
    evidence.lost.iter().try_for_each(|line| write_line(line, true, out))?;
    for blocks in &evidence.lost_blocks {
        writeln!(out, "      {} bytes at {:#x} of disk {}", blocks.len_bytes, blocks.offset, blocks.disk)?;
    }
    if !evidence.lost.is_empty() && evidence.kept_lines > 0 {
        writeln!(out, "    kept, out of {} other pending lines:", evidence.kept_lines)?;
        evidence.kept.iter().take(3).try_for_each(|line| write_line(line, false, out))?;
    }
    writeln!(out, "    image {}", &evidence.image[..16.min(evidence.image.len())])
}

fn write_line(line: &LineReport, with_flush: bool, out: &mut String) -> std::fmt::Result {
    write!(out, "      line {:#x} of {}", line.offset, line.region)?;
    match (line.flushed, with_flush) {
        (_, false) => writeln!(out)?,
        (0, _) => writeln!(out, ", never flushed")?,
        (flushed, _) if flushed == line.stores.len() => writeln!(out, ", flushed but not fenced")?,
        (flushed, _) => writeln!(out, ", its first {flushed} stores flushed but not fenced")?,
    }
    for store in line.stores.iter().take(8) {
        let name = if store.non_temporal { "ntstore" } else { "store" };
        let data =
            if store.data.len() > 32 { format!("{}...", &store.data[..32]) } else { store.data.clone() };
        writeln!(
            out,
            "        {:5} event {} {name} {:#x} {data}  at {}",
            store.fate, store.event, store.address, store.at
        )?;
        store.stack.iter().take(6).try_for_each(|frame| writeln!(out, "              from {frame}"))?;
    }
    if line.stores.len() > 8 {
        writeln!(out, "        ... {} more", line.stores.len() - 8)?;
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
    out.push_str("ok: atomic, one final state. A: not atomic, S: several final states, W: cannot be written to, E: the recovery fails,\nC: it crashes, O: rejected by the oracle, N: another state when recovered again.\n");
    out
}
