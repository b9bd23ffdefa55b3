//! What `top` prints.

use std::io::Write;

use fastness_efficiency::accounting::{Flow, Source, totals_by_region};
use fastness_efficiency::sampler::Tally;
use fastness_terminal::size::short;
use serde::Serialize;

use super::Sources;
use crate::error::Result;
use crate::table::table as print;

const COLUMNS: [(&str, bool); 8] = [
    ("PID", true),
    ("THREAD", true),
    ("NAME", false),
    ("REGION", false),
    ("B/s", true),
    ("WRITES/s", true),
    ("WRITTEN", true),
    ("BY", false),
];

pub(super) fn table(out: &mut dyn Write, flows: &[Flow], sources: &Sources) -> Result<()> {
    for (region, (bytes_per_s, threads)) in totals_by_region(flows) {
        let (short_name, kind) = (region.short(), &region.kind);
        writeln!(out, "{short_name} ({kind}): {}/s from {threads} threads", short(bytes_per_s as u64))?;
    }
    let rows = flows.iter().map(|flow| {
        vec![
            flow.pid.to_string(),
            flow.thread.map_or_else(|| "ended".to_owned(), |thread| thread.to_string()),
            name(flow.pid, flow.thread),
            flow.region.short(),
            short(flow.bytes_per_s as u64),
            flow.writes_per_s.map_or_else(|| "-".to_owned(), |writes| format!("{writes:.0}")),
            short(flow.bytes),
            match flow.source {
                Source::Exact => "count",
                Source::Sampled => "samples",
            }
            .to_owned(),
        ]
    });
    print(out, &COLUMNS, rows.collect())?;
    match sources.sampling() {
        Ok((event, tally)) => writeln!(out, "samples: {event}: {}", words(&tally))?,
        Err(why) => writeln!(out, "no samples: {why}")?,
    }
    writeln!(out)?;
    Ok(())
}

fn words(tally: &Tally) -> String {
    let mut words = format!("{} stores to regions, {} elsewhere", tally.stores, tally.elsewhere);
    for (count, what) in [
        (tally.lost, "lost: a longer --period, or more --buffer-pages"),
        (tally.unsized_stores, "of a size that is not known, and in no sum"),
        (tally.undecoded, "could not be decoded"),
        (tally.flushes, "flushes"),
        (tally.throttled, "times stopped by the kernel"),
    ] {
        if count > 0 {
            words += &format!("; {count} {what}");
        }
    }
    words
}

/// The thread's name, or the process's; a name may contain anything.
pub(crate) fn name(pid: u32, thread: Option<u32>) -> String {
    let path = thread
        .map_or_else(|| format!("/proc/{pid}/comm"), |thread| format!("/proc/{pid}/task/{thread}/comm"));
    let name = std::fs::read_to_string(path).unwrap_or_else(|_| "-".to_owned());
    name.trim_end().chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[derive(Serialize)]
struct Report<'a> {
    seconds: f64,
    rows: Vec<Named<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<Samples>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_samples: Option<&'a str>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: String,
    #[serde(flatten)]
    flow: &'a Flow,
}

#[derive(Serialize)]
struct Samples {
    event: String,
    #[serde(flatten)]
    tally: Tally,
}

pub(super) fn json(out: &mut dyn Write, flows: &[Flow], seconds: f64, sources: &Sources) -> Result<()> {
    let rows = flows.iter().map(|flow| Named { name: name(flow.pid, flow.thread), flow });
    let sampling = sources.sampling();
    let report = Report {
        seconds,
        rows: rows.collect(),
        no_samples: sampling.as_ref().err().copied(),
        samples: sampling.ok().map(|(event, tally)| Samples { event, tally }),
    };
    writeln!(out, "{}", serde_json::to_string(&report)?)?;
    Ok(())
}
