//! `fastness bench`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use fastness_bench::{
    BENCHMARKS, Options, draw_ratios, render_json, render_table, report_from_inside, serve_pass_through,
    serve_plain,
};

use crate::error::{Context, Result, refuse};
use crate::exit::Outcome;

const EXAMPLES: &str = "\
Benchmarks: prb (the PM log), lwb (the block log), pool, nbd (volumes beside nbdkit), sync-write,
fs (files in process), mount (files through the kernel), responder (a cache in front of a directory),
crashcheck (images and traces).
Examples:
  fastness bench prb --quick
  fastness bench prb --json > prb.json
  fastness bench prb --svg prb.svg
  FASTNESS_BENCH_DIR=/srv fastness bench pool
Two things are compared by turns in one run; figures from different runs are not comparable.
Exit code 1 if a goal is missed.";

/// Arguments of `fastness bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// The benchmark
    name: String,
    /// Finish within 30 s: fewer turns, no sweeps
    #[arg(long)]
    quick: bool,
    /// Print JSON: an array with an object for each row
    #[arg(long)]
    json: bool,
    /// Draw the ratios as SVG into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
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
    let rows = benchmark(Options { quick: args.quick })?;
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
