//! `fastness bench`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_bench::{
    BENCHMARKS, Options, Row, draw_ratios, render_json, render_table, report_from_inside, serve_pass_through,
    serve_plain,
};
use fastness_efficiency::{ByteSource, Idle, Machine, Meter, RunCost, Session};
use fastness_terminal::Outcome;

use crate::cost::MeasureArgs;
use crate::error::{Context, Result, refuse};

const EXAMPLES: &str = "\
Benchmarks: prb (the PM log), overload (more writers than a model of a PM device can serve),
lwb (the block log), pool, nbd (volumes beside nbdkit), sync-write, fs (files in process),
mount (files through the kernel), cache (a write cache in front of a disk), responder (a cache in front of a
directory), crashcheck (images and traces).
Examples:
  fastness bench prb --quick
  fastness bench prb --json > prb.json
  fastness bench prb --svg prb.svg
  fastness bench prb --quick --cost
  FASTNESS_BENCH_DIR=/srv fastness bench pool
Two things are compared by turns in one run; figures from different runs are not comparable.
With --cost, the last rows are what the whole machine has spent on the benchmark, for each GiB that was copied to
PM or given to write, floors and preparations too (`fastness cost`); the machine has to be idle before.
Exit code 1 if a goal is missed.";

/// Arguments of `fastness bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The benchmark
    name: String,
    /// Finish within a minute on an idle machine: fewer turns, no sweeps
    #[arg(long)]
    quick: bool,
    /// Print JSON: an array with an object for each row
    #[arg(long)]
    json: bool,
    /// Draw the ratios as SVG into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Measure CPU time and energy of the whole machine, too
    #[arg(long)]
    cost: bool,
    #[command(flatten)]
    measure: MeasureArgs,
    /// For `mount`: be the file system that is compared with
    #[arg(long, hide = true, num_args = 2, value_names = ["DIR", "MOUNT_POINT"])]
    serve_pass_through: Vec<PathBuf>,
    /// For `responder`: the same
    #[arg(long, hide = true, num_args = 2, value_names = ["DIR", "MOUNT_POINT"])]
    serve_plain: Vec<PathBuf>,
    /// For `responder`: be the program under `fastness run` in this directory
    #[arg(long, hide = true, value_name = "DIR")]
    inside: Option<PathBuf>,
}

pub(crate) fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<Outcome> {
    if let [dir, mount_point] = &args.serve_pass_through[..] {
        serve_pass_through(dir, mount_point)?;
        return Ok(Outcome::Clean);
    }
    if let [dir, mount_point] = &args.serve_plain[..] {
        serve_plain(dir, mount_point)?;
        return Ok(Outcome::Clean);
    }
    if let Some(dir) = &args.inside {
        write!(out, "{}", report_from_inside(dir, Options { quick: args.quick })?)?;
        return Ok(Outcome::Clean);
    }
    let Some((name, benchmark)) = BENCHMARKS.iter().find(|(name, _)| *name == args.name) else {
        let names: Vec<_> = BENCHMARKS.iter().map(|(name, _)| *name).collect();
        return Err(refuse(format!(
            "no benchmark is called {}; the benchmarks are: {}",
            args.name,
            names.join(", ")
        )));
    };
    if args.measure.names_a_meter() && !args.cost {
        return Err(refuse("--meter is for --cost"));
    }
    let costs = if args.cost { Some(Costs::begin(&args.measure)?) } else { None };
    let mut rows = benchmark(Options { quick: args.quick })?;
    if let Some(costs) = costs {
        rows.extend(costs.end()?);
    }
    if args.json {
        writeln!(out, "{}", render_json(&rows))?;
    } else {
        write!(out, "{}", render_table(name, &rows))?;
    }
    if let Some(path) = &args.svg {
        draw_ratios(path, name, &rows).with_context(|| format!("cannot draw {}", path.display()))?;
    }
    let missed = rows.iter().any(|row| row.met == Some(false));
    Ok(if missed { Outcome::Found } else { Outcome::Clean })
}

/// What the machine spends meanwhile.
struct Costs {
    idle: Idle,
    meter: Meter,
    session: Session,
    copied_before: u64,
}

impl Costs {
    fn begin(args: &MeasureArgs) -> Result<Costs> {
        let (machine, meter) = (Machine::default(), args.meter()?);
        let idle = Idle::measure(&machine, &meter, args.idle_rule())?;
        let session = Session::start(&machine, &meter, ByteSource::OwnCalls, args.cut())?;
        Ok(Costs { idle, meter, session, copied_before: fastness_pmem::copied_bytes() })
    }

    fn end(self) -> Result<[Row; 2]> {
        let copied = fastness_pmem::copied_bytes() - self.copied_before;
        let run = self.session.finish(copied)?;
        Ok(rows_of(&RunCost::of(&self.idle, &self.meter, &ByteSource::OwnCalls, &run), copied))
    }
}

fn rows_of(cost: &RunCost, copied_bytes: u64) -> [Row; 2] {
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    let written = gib(cost.bytes.unwrap_or_default().saturating_sub(copied_bytes));
    let (busy, seconds, copied) = (cost.cores.busy(), cost.counted_seconds, gib(copied_bytes));
    let row = |name: String, value: Option<f64>, unit: &'static str| Row {
        name,
        value,
        unit: if value.is_some() { unit } else { "" },
        medium: "the whole machine".to_owned(),
        threads: 1,
        ..Row::default()
    };
    let of = format!(
        "the whole benchmark: CPU cost ({busy:.2} CPUs in use for {seconds:.1} s; {copied:.2} GiB copied to PM, \
         {written:.2} GiB given to write)"
    );
    let why = cost.no_energy.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    let energy = format!("the whole benchmark: energy cost{why}");
    [row(of, cost.cpu_s_per_gib, "s/GiB"), row(energy, cost.joules_per_gib, "J/GiB")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_are_not_known_are_rows_without_a_value_and_with_the_reason() {
        let cost = RunCost {
            bytes: Some(3 << 30),
            cpu_s_per_gib: Some(1.5),
            no_energy: Some("no meter: none found".to_owned()),
            ..RunCost::default()
        };
        let [cpu, energy] = rows_of(&cost, 2 << 30);
        assert!(cpu.name.contains("2.00 GiB copied to PM, 1.00 GiB given to write"), "{}", cpu.name);
        assert_eq!((cpu.value, cpu.unit, energy.value), (Some(1.5), "s/GiB", None));
        assert!(energy.name.ends_with("energy cost (no meter: none found)"), "{}", energy.name);
    }
}
