//! What is said of a write cache.

use std::io::Write;
use std::time::Duration;

use fastness_front::block::Report;
use fastness_terminal::{Outcome, fields, size};

use crate::connect::print_json;
use crate::error::Result;

/// Shows a report; the outcome says whether somebody has to do something.
pub(crate) fn print(out: &mut dyn Write, is_json: bool, report: &Report) -> Result<Outcome> {
    if is_json {
        print_json(out, report)?;
    } else {
        say(out, report)?;
    }
    Ok(if report.has_trouble() { Outcome::Found } else { Outcome::Clean })
}

pub(crate) fn say(out: &mut dyn Write, report: &Report) -> Result<()> {
    let mut rows = vec![
        (
            "region",
            format!("{} ({}, {})", report.region, report.region_kind, size::show(report.region_bytes)),
        ),
        ("origin", format!("{} ({})", report.origin, size::show(report.origin_bytes))),
    ];
    for (at, side) in report.sides.iter().enumerate() {
        let state = match &side.out {
            Some(why) => format!("out: {why}"),
            None if side.faults > 0 => {
                format!("in use, but did not have what the other side has ({} times)", side.faults)
            }
            None => "in use".to_owned(),
        };
        rows.push((["first side", "second side"][at.min(1)], format!("{}: {state}", side.region)));
    }
    rows.extend(report.uri.iter().map(|uri| ("served at", uri.clone())));
    rows.extend(report.found.iter().map(|found| ("found", found.clone())));
    let unit = if report.pid.is_some() { "blocks of 4 KiB" } else { "changes" };
    let log = format!("{} of {} of log", size::short(report.log_bytes), size::short(report.capacity_bytes));
    rows.push(("not in the origin", format!("{} {unit}, {log}", report.dirty_blocks)));
    if report.dirty_ranges > 0 {
        rows.push(("", format!("and {} long ranges of zeroes", report.dirty_ranges)));
    }
    if report.writes + report.reads > 0 {
        let pause = Duration::from_nanos(report.write_ns_max).as_secs_f64() * 1000.0;
        let text = format!(
            "{}, {}; the longest took {pause:.1} ms, {} were delayed, {} found the log full",
            report.writes,
            size::short(report.written_bytes),
            report.delays,
            report.stops
        );
        rows.push(("writes", text));
        let text = format!(
            "{}; {} from the log, {} from the origin",
            report.reads,
            size::short(report.log_read_bytes),
            size::short(report.origin_read_bytes)
        );
        rows.push(("reads", text));
        let text = format!(
            "{} in {} writes and {} flushes",
            size::short(report.written_back_bytes),
            report.written_back_runs,
            report.write_backs
        );
        rows.push(("written back", text));
    }
    rows.extend(report.failure.iter().map(|why| ("the origin fails", why.clone())));
    if report.is_late() {
        rows.push(("the origin", format!("has not answered for {} s", report.write_back_ms / 1000)));
    }
    if report.is_region_failed {
        rows.push(("the region fails", "nothing is acknowledged any more".to_owned()));
    }
    rows.extend(report.last_error.iter().map(|why| ("last failed request", why.clone())));
    rows.push(("after a process crash", report.after_process_crash.clone()));
    rows.push(("after a power cut", report.after_power_cut.clone()));
    rows.extend(report.notice.iter().map(|text| ("note", text.clone())));
    Ok(fields(out, &rows)?)
}
