//! A report as one page of HTML that needs nothing else.

use std::fmt::Write as _;

use super::cause::{Cause, causes};
use super::cause_text::{seen, then_before};
use super::data::{EvidenceReport, HistoryReport, LeftOutReport, LineReport, PatternReport, Report};
use super::hints::SHOWN;
use super::junit::escaped;
use super::recovery_data::RecoveryCrashReport;

const STYLE: &str = "\
:root{color-scheme:light dark;--ok:#1a7f37;--bad:#cf222e;--dim:#6e7781;--box:#8882}
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}
pre{background:var(--box);padding:.6rem;overflow:auto;font-size:13px}
table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
.ok{color:var(--ok)}.bad{color:var(--bad)}.dim{color:var(--dim)}.plus{color:var(--ok)}.minus{color:var(--bad)}
code{font-size:13px}details{margin:.4rem 0 .4rem 1rem}summary{cursor:pointer}svg text{font:11px monospace;fill:currentColor}";

/// The page.
pub fn html(report: &Report) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    let name = escaped(&report.name);
    let verdict =
        if report.is_clean() { "<span class=ok>ok</span>" } else { "<span class=bad>failed</span>" };
    writeln!(out, "<!doctype html>\n<html lang=en><meta charset=utf-8><title>crash test: {name}</title>")?;
    writeln!(out, "<style>{STYLE}</style>\n<h1>{name}: {verdict}</h1>")?;
    let totals = &report.totals;
    writeln!(
        out,
        "<p>{} events, {} failure points ({} with all their images, {} cut off by the bound), {} crash images, {} states.\
         <br><span class=dim>{}</span></p>",
        totals.events,
        totals.points,
        totals.exhaustive_points,
        totals.cut_points,
        totals.images,
        report.states.len(),
        escaped(&report.tracer)
    )?;
    if let Some(left_out) = &report.left_out {
        write_left_out(left_out, out)?;
    }
    if totals.unreached_images > 0 {
        let why = totals.stopped_by.as_deref().unwrap_or("the budget was used up");
        let (why, count) = (escaped(why), totals.unreached_images);
        writeln!(out, "<p>{count} crash images were not recovered: {why}.</p>")?;
    }
    if totals.forgotten_images > 0 {
        let forgotten = totals.forgotten_images;
        writeln!(out, "<p>{forgotten} images were forgotten, and recovered again if they came again.</p>")?;
    }
    for line in report.in_recovery.iter().flat_map(|totals| totals.lines()) {
        writeln!(out, "<p>{}.</p>", escaped(&line))?;
    }
    write_causes(&causes(std::slice::from_ref(report)), out)?;
    writeln!(
        out,
        "<h2>Operations</h2>\n<table><tr><th>operation<th>events<th>states<th>after it<th>result</tr>"
    )?;
    for operation in &report.operations {
        let (first, last) = operation.events;
        let result = match operation.findings.is_empty() {
            true => "<span class=ok>ok</span>".to_owned(),
            false => {
                let what = operation.findings.iter().map(|finding| escaped(&finding.what));
                format!("<span class=bad>{}</span>", what.collect::<Vec<_>>().join("<br>"))
            }
        };
        writeln!(
            out,
            "<tr><td>{}<td>{first} to {last}<td>{}<td>{}<td>{result}</tr>",
            operation.name(),
            in_recovery(&operation.states, &operation.in_recovery),
            links(&operation.final_states)
        )?;
    }
    writeln!(out, "</table>")?;
    write_patterns(report, out)?;
    write_states(report, out)?;
    writeln!(out, "</html>")
}

/// What was left out, closed.
fn write_left_out(left_out: &LeftOutReport, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "<details><summary>{} failure points have more images; {}</summary>",
        left_out.points,
        escaped(&left_out.whole())
    )?;
    left_out.steps().iter().try_for_each(|step| writeln!(out, "<p>{}</p>", escaped(step)))?;
    writeln!(out, "<table><tr><th>event<th>images<th>what comes next</tr>")?;
    for point in &left_out.largest {
        let at = escaped(&point.at);
        writeln!(out, "<tr><td>{}<td>{}<td><code>{at}</code></tr>", point.event, point.counts())?;
    }
    writeln!(out, "</table></details>")
}

/// Links to states, with those that only crashes during recovery lead to.
fn in_recovery(states: &[String], in_recovery: &[String]) -> String {
    match in_recovery.is_empty() {
        true => links(states),
        false => format!("{}; only after a crash during recovery {}", links(states), links(in_recovery)),
    }
}

fn links(names: &[String]) -> String {
    let links = names.iter().map(|name| format!("<a href=\"#{0}\">{0}</a>", escaped(name)));
    links.collect::<Vec<_>>().join(" ")
}

/// Causes, the worst first; the smallest witness of each is open.
fn write_causes(causes: &[Cause<'_>], out: &mut String) -> std::fmt::Result {
    if causes.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Causes</h2>")?;
    for cause in causes {
        let letters: String = cause.letters().into_iter().collect();
        let lines: Vec<String> = cause.lines().iter().map(|line| escaped(line)).collect();
        let (crashes, operations) = (cause.witnesses.len(), cause.operations().len());
        writeln!(
            out,
            "<h3 class=bad>{letters}: {}</h3>\n<pre>{}</pre>\n<p>Crashes that show it: {crashes}; operations: {operations}.</p>",
            escaped(cause.key.kind.meaning()),
            lines.join("\n")
        )?;
        for (index, witness) in cause.witnesses.iter().enumerate() {
            let open = if index == 0 { " open" } else { "" };
            let name = escaped(&seen(witness, false));
            writeln!(
                out,
                "<details{open}><summary>{name}, state {}</summary>",
                escaped(&witness.evidence.state)
            )?;
            write_evidence(witness.evidence, out)?;
            writeln!(out, "</details>")?;
        }
    }
    Ok(())
}

fn write_evidence(evidence: &EvidenceReport, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "<p>State {} after a crash just before event {}{}: <code>{}</code></p>",
        links(std::slice::from_ref(&evidence.state)),
        evidence.event,
        then_before(&evidence.in_recovery),
        escaped(&evidence.at)
    )?;
    if !evidence.difference.is_empty() {
        writeln!(out, "<pre>")?;
        for line in evidence.difference.lines() {
            let class = match line.as_bytes().first() {
                Some(b'+') => "plus",
                Some(b'-') => "minus",
                _ => "same",
            };
            writeln!(out, "<span class={class}>{}</span>", escaped(line))?;
        }
        writeln!(out, "</pre>")?;
    }
    match evidence.lost.is_empty() && evidence.lost_blocks.is_empty() {
        true if evidence.left_out_bytes > 0 => {
            writeln!(out, "<p>Lost: {} bytes, too many to be kept and shown.</p>", evidence.left_out_bytes)
        }
        true if !evidence.in_recovery.is_empty() => {
            writeln!(out, "<p>The crash of the program has lost nothing.</p>")
        }
        true => {
            writeln!(out, "<p>Nothing was lost: the program leaves this even if everything is flushed.</p>")
        }
        false => writeln!(out, "<p>Lost{}:</p>", evidence.enough()),
    }?;
    evidence.lost.iter().try_for_each(|line| write_line(line, true, out))?;
    for blocks in &evidence.lost_blocks {
        writeln!(out, "<p>{blocks}</p>")?;
    }
    if evidence.kept_lines > 0 {
        writeln!(out, "<p>Kept, out of {} other pending lines:</p>", evidence.kept_lines)?;
        evidence.kept.iter().try_for_each(|line| write_line(line, false, out))?;
    }
    writeln!(out, "<p class=dim>image <code>{}</code></p>", escaped(&evidence.image))?;
    evidence.in_recovery.iter().try_for_each(|crash| write_recovery(crash, out))
}

fn write_recovery(crash: &RecoveryCrashReport, out: &mut String) -> std::fmt::Result {
    let (at, after) = (escaped(&crash.at), crash.after.as_deref().map(escaped));
    writeln!(out, "<p>Then its recovery crashes, before event {}: <code>{at}</code></p>", crash.event)?;
    match after {
        _ if crash.lost_bytes > 0 => {
            writeln!(out, "<p>Lost then, {} bytes{}:</p>", crash.lost_bytes, crash.enough())?;
        }
        Some(after) => writeln!(out, "<p>Nothing is lost then; the last store is by {after}.</p>")?,
        None => writeln!(out, "<p>Nothing is lost then.</p>")?,
    }
    crash.lost.iter().try_for_each(|line| write_line(line, true, out))?;
    crash.lost_blocks.iter().try_for_each(|blocks| writeln!(out, "<p>{blocks}</p>"))?;
    let kept = crash.kept_as.as_ref().map_or_else(String::new, |name| format!(", kept in {}", escaped(name)));
    writeln!(out, "<p class=dim>image <code>{}</code>{kept}</p>", escaped(&crash.image))
}

fn write_line(line: &LineReport, is_open: bool, out: &mut String) -> std::fmt::Result {
    let open = if is_open { " open" } else { "" };
    writeln!(
        out,
        "<details{open}><summary>line {:#x} of {}</summary><table>",
        line.offset,
        escaped(&line.region)
    )?;
    for store in &line.stores {
        let class = if store.fate == "kept" { "ok" } else { "bad" };
        let kind = if store.non_temporal { "ntstore" } else { "store" };
        let stack = store
            .stack
            .iter()
            .fold(String::new(), |stack, frame| format!("{stack}<br>from {}", escaped(frame)));
        writeln!(
            out,
            "<tr><td class={class}>{}<td>event {}<td><code>{kind} {:#x}</code><td><code>{}</code><td><code>{}{stack}</code></tr>",
            escaped(&store.fate),
            store.event,
            store.address,
            escaped(&store.data),
            escaped(&store.at)
        )?;
    }
    writeln!(out, "</table>")?;
    if !line.history.is_empty() {
        write_time_line(&line.history, out)?;
        writeln!(out, "<pre>")?;
        line.history
            .iter()
            .try_for_each(|event| writeln!(out, "{:>8}  {}", event.event, escaped(&event.text)))?;
        writeln!(out, "</pre>")?;
    }
    writeln!(out, "</details>")
}

/// Stores, flushes and fences of a line, each in a row of its own, from left to right.
fn write_time_line(history: &[HistoryReport], out: &mut String) -> std::fmt::Result {
    const STEP: usize = 22;
    let row = |kind: &str| match kind {
        "store" | "ntstore" | "movdir64b" | "rmw" | "initial" => 0,
        "clwb" | "clflushopt" | "clflush" | "wbinvd" => 1,
        "sfence" | "mfence" | "lfence" | "lock" => 2,
        _ => 3,
    };
    let colours = ["#0969da", "#9a6700", "#1a7f37", "#8250df"];
    let width = 80 + history.len() * STEP;
    writeln!(out, "<svg width={width} height=96 role=img>")?;
    for (index, name) in ["stores", "flushes", "fences", "others"].iter().enumerate() {
        let y = 18 + index * 22;
        writeln!(
            out,
            "<text x=0 y={}>{name}</text><line x1=62 x2={width} y1={y} y2={y} stroke=#8884 />",
            y + 4
        )?;
    }
    for (index, event) in history.iter().enumerate() {
        let (row, x) = (row(&event.kind), 72 + index * STEP);
        let title = escaped(&format!("{} {}", event.event, event.text));
        let (y, colour) = (18 + row * 22, colours[row]);
        writeln!(out, "<circle cx={x} cy={y} r=6 fill=\"{colour}\"><title>{title}</title></circle>")?;
    }
    writeln!(out, "</svg>")
}

fn write_patterns(report: &Report, out: &mut String) -> std::fmt::Result {
    if report.patterns.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h2>Hints from the trace</h2>\n<p>What matters most comes first.</p>")?;
    let (first, others) = report.patterns.split_at(SHOWN.min(report.patterns.len()));
    write_hints(first, out)?;
    if !others.is_empty() {
        writeln!(out, "<details><summary>{} more</summary>", others.len())?;
        write_hints(others, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

fn write_hints(hints: &[PatternReport], out: &mut String) -> std::fmt::Result {
    writeln!(out, "<table><tr><th>what<th>times<th>instructions<th>first event<th>by</tr>")?;
    for hint in hints {
        writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td><code>{}</code></tr>",
            escaped(&hint.meaning()),
            hint.count,
            hint.instructions,
            hint.first_event,
            escaped(&hint.at)
        )?;
    }
    writeln!(out, "</table>")
}

fn write_states(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "<h2>States</h2>")?;
    for state in &report.states {
        let name = escaped(&state.name);
        let kind = match (state.is_regular, state.is_in_recovery) {
            (true, _) => "",
            (false, true) => ", only after a crash during recovery",
            (false, false) => ", only after a crash that lost something",
        };
        writeln!(
            out,
            "<details id=\"{name}\"><summary>{name}: {} images{kind}; the recovery {}</summary><pre>{}</pre></details>",
            state.images,
            escaped(&state.ending),
            escaped(&state.text)
        )?;
    }
    Ok(())
}
