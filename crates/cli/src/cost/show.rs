//! Reports of costs for people.

use std::io::{self, Write};

use fastness_efficiency::{Report, RunCost};
use fastness_terminal::fields;

use crate::table::table;

/// Stolen time from this share of the CPUs on is worth a word.
const STOLEN: f64 = 0.02;

pub(super) fn report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let watts = report.idle_watts.map_or(String::new(), |watts| format!(", {watts:.1} W"));
    let idle = format!(
        "{:.1} % of {} CPUs in use, over {:.1} s{watts}",
        report.idle_percent, report.cpus, report.idle_seconds
    );
    match &report.runs[..] {
        [run] if run.value.is_none() => fields(out, &rows(report, run, idle))?,
        runs => {
            fields(out, &[("idle", idle), ("energy", energy_source(report, runs.first()))])?;
            writeln!(out)?;
            each(out, runs)?;
        }
    }
    if report.runs.iter().any(|run| run.cores.steal > STOLEN * report.cpus) {
        writeln!(
            out,
            "The hypervisor gave CPUs to others meanwhile: the time is longer than on a machine alone."
        )?;
    }
    if report.runs.iter().any(|run| run.no_bytes.is_some()) {
        writeln!(
            out,
            "Bytes that pass by read and write (mmap, io_uring, libaio) are not seen: give them with --bytes SIZE, \
             or count those of a device with --bytes device:NAME."
        )?;
    }
    Ok(())
}

fn rows<'a>(report: &Report, run: &RunCost, idle: String) -> Vec<(&'a str, String)> {
    let (cores, bytes) = (&run.cores, run.bytes.unwrap_or_default());
    let counted = if run.is_cut {
        format!(
            "{:.1} s, {:.1} s of it counted: without its beginning and its end",
            run.seconds, run.counted_seconds
        )
    } else {
        format!("{:.1} s: too short to cut off its beginning and its end, all of it counts", run.seconds)
    };
    let moved = match &run.no_bytes {
        Some(why) => why.clone(),
        None => format!("{:.2} GiB, {}", bytes as f64 / (1_u64 << 30) as f64, run.bytes_from),
    };
    let in_use = format!(
        "{:.2} (user {:.2}, system {:.2}, irq {:.2}, softirq {:.2})",
        cores.busy(),
        cores.user,
        cores.system,
        cores.irq,
        cores.softirq
    );
    vec![
        ("idle", idle),
        ("run", counted),
        ("bytes", moved),
        ("speed", figure(run.gib_per_s, "GiB/s", "not known without bytes")),
        ("CPUs in use", in_use),
        ("CPU cost", figure(run.cpu_s_per_gib, "s/GiB", "not known without bytes")),
        ("energy", energy_source(report, Some(run))),
        ("power over idle", figure(run.watts_over_idle, "W", no_meter(run))),
        ("energy cost", figure(run.joules_per_gib, "J/GiB", no_meter(run))),
    ]
}

fn each(out: &mut dyn Write, runs: &[RunCost]) -> io::Result<()> {
    let columns = [
        ("FOR", false),
        ("s", true),
        ("GiB/s", true),
        ("CPUs", true),
        ("USER", true),
        ("SYSTEM", true),
        ("IRQ", true),
        ("SOFTIRQ", true),
        ("CPU s/GiB", true),
        ("W OVER IDLE", true),
        ("J/GiB", true),
    ];
    let number = |value: Option<f64>, missing: &str| match value {
        Some(value) => format!("{value:.2}"),
        None => missing.to_owned(),
    };
    let row = |run: &RunCost| {
        let cores = &run.cores;
        vec![
            run.value.clone().unwrap_or_default(),
            format!("{:.1}", run.seconds),
            number(run.gib_per_s, "no bytes"),
            format!("{:.2}", cores.busy()),
            format!("{:.2}", cores.user),
            format!("{:.2}", cores.system),
            format!("{:.2}", cores.irq),
            format!("{:.2}", cores.softirq),
            number(run.cpu_s_per_gib, "no bytes"),
            number(run.watts_over_idle, no_meter(run)),
            number(run.joules_per_gib, no_meter(run)),
        ]
    };
    table(out, &columns, runs.iter().map(row).collect())
}

fn figure(value: Option<f64>, unit: &str, missing: &str) -> String {
    value.map_or(missing.to_owned(), |value| format!("{value:.3} {unit}"))
}

fn energy_source(report: &Report, run: Option<&RunCost>) -> String {
    let why = run.and_then(|run| run.no_energy.clone());
    why.or_else(|| report.meter.clone()).unwrap_or_else(|| "no meter".to_owned())
}

fn no_meter(run: &RunCost) -> &'static str {
    match &run.no_energy {
        Some(why) if why.starts_with("no meter") => "no meter",
        Some(_) => "the meter failed",
        None => "no bytes",
    }
}
