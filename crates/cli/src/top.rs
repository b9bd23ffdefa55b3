//! `fastness top`: which processes and threads write how much to which region.

mod show;
mod sources;

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use fastness_efficiency::Machine;
use fastness_efficiency::accounting::{Written, flows};
use fastness_efficiency::sampler::PERIOD;
use fastness_terminal::Outcome;

use crate::error::{Result, refuse};
pub(crate) use sources::{SourceArgs, Sources};

const EXAMPLES: &str = "\
Examples:
  fastness top                     every second, until Ctrl-C
  fastness top --once              one table, over one second
  fastness top --pid 4711 --json   one process, an object a line
  fastness top --sampled --period 4999
Processes of Fastness, and programs under `fastness run`, count what they write to PM themselves (exact). Of all
others, samples of store instructions tell, where the CPU has them: stores that stay in a CPU cache and later
ones to the same line count as well. docs/guide/top.md says what either sees.
Exit code 8 if nothing counts and nothing can be sampled, 3 if --sampled cannot be had: the message says what is
missing.";

/// Arguments of `fastness top`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    /// Print one table, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Seconds between two tables
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) fn run(args: &TopArgs, out: &mut dyn Write) -> Result<Outcome> {
    let interval = interval(args.interval)?;
    let machine = Machine::default();
    let mut sources = Sources::open(&machine, &args.sources)?;
    let mut before: Vec<Written> = sources.look()?;
    let mut at = Instant::now();
    loop {
        sources.wait_until(&machine, at + interval)?;
        let now = sources.look()?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        let flows = flows(&before, &now, seconds);
        if args.json {
            show::json(out, &flows, seconds, &sources)?;
        } else {
            show::table(out, &flows, &sources)?;
        }
        out.flush()?;
        before = now;
        if args.once {
            return Ok(Outcome::Clean);
        }
    }
}

/// A number of seconds from a command line.
pub(crate) fn interval(seconds: f64) -> Result<Duration> {
    const BOUNDS: std::ops::RangeInclusive<f64> = 0.01..=86_400.0;
    if BOUNDS.contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(refuse(format!("an interval is 0.01 to 86400 seconds, not {seconds}")))
}

/// The period of the sampler, if nothing else is said.
pub(crate) const fn default_period() -> u64 {
    PERIOD
}
