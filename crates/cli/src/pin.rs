//! `fastness pin`: threads that overload a region share a few CPUs.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use fastness_daemon::run_dir;
use fastness_efficiency::Machine;
use fastness_efficiency::accounting::{Flow, RegionName, flows};
use fastness_efficiency::pin::{Action, Load, PinRule, Pins, Policy, Refused, ThreadId};
use fastness_pmem::counters::start_time_of;
use fastness_pmem::model::ONE_MODULE;
use fastness_pmem::{cpu_list, cpus_of_node};
use fastness_terminal::size::{self, short};
use fastness_terminal::{Outcome, note};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Context, Result, refuse};
use crate::top::{SourceArgs, Sources, interval};

const EXAMPLES: &str = "\
Examples:
  fastness pin --cores 2
  fastness pin --cpus 14,15 --threshold 2G
A region is saturated if more threads than there are CPUs for it write to it, and all together at least
--threshold a second. From then on its writers run on these CPUs only; one that stops writing is released, and so
are all of them once no more write than there are CPUs. SIGINT, SIGTERM and SIGHUP end it: every thread gets back
the CPUs that it had, unless it has chosen others itself. After kill -9 threads stay pinned until the next
`fastness pin`. Threads of other users take root.";

/// Arguments of `fastness pin`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PinArgs {
    /// The CPUs, as in 2,4-7
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<Cpus>,
    /// So many CPUs of the region's NUMA node, its last ones [default: as many writers as one PM module can
    /// serve]
    #[arg(long, value_name = "N", conflicts_with = "cpus")]
    cores: Option<usize>,
    /// Bytes a second from which on a region is saturated [default: nine tenths of what one PM module serves
    /// when it is overloaded]
    #[arg(long, value_name = "RATE", value_parser = size::parse)]
    threshold: Option<u64>,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2)]
    interval: f64,
    #[command(flatten)]
    sources: SourceArgs,
}

#[derive(Debug, Clone)]
struct Cpus(Vec<usize>);

fn cpus(text: &str) -> std::result::Result<Cpus, String> {
    let list = cpu_list(text).filter(|cpus| !cpus.is_empty());
    list.map(Cpus).ok_or_else(|| "not a list of CPUs such as 2,4-7".to_owned())
}

/// How often a signal is looked for.
const PATIENCE: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &PinArgs, out: &mut dyn Write) -> Result<Outcome> {
    let interval = interval(args.interval)?;
    let rule = args.rule()?;
    // Before anything is pinned.
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, is_over.clone()).context("cannot wait for signals")?;
    }
    let folder = run_dir()?;
    let (pins, given_back) =
        Pins::recorded(&folder).with_context(|| format!("cannot record pins in {}", folder.display()))?;
    if given_back > 0 {
        writeln!(out, "released {given_back} threads that a process has left pinned which was killed")?;
    }
    let machine = Machine::default();
    let mut sources = Sources::open(&machine, &args.sources)?;
    let mut pinning = Pinning { policy: Policy::new(rule), pins, refused: BTreeMap::new() };
    let threshold = short(rule.threshold_bytes_per_s as u64);
    writeln!(out, "a region is saturated at {threshold}/s from more than {} threads", rule.cores)?;
    out.flush()?;
    let (mut before, mut at) = (sources.look()?, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        let due = at + interval;
        while Instant::now() < due && !is_over.load(Ordering::Relaxed) {
            sources.wait_until(&machine, due.min(Instant::now() + PATIENCE))?;
        }
        let now = sources.look()?;
        let round = flows(&before, &now, at.elapsed().as_secs_f64());
        (before, at) = (now, Instant::now());
        pinning.round(&round, args, out)?;
        out.flush()?;
    }
    let released = pinning.pins.release_all();
    writeln!(out, "released {released} threads")?;
    Ok(Outcome::Clean)
}

impl PinArgs {
    fn rule(&self) -> Result<PinRule> {
        let of_device = PinRule::of_device(&ONE_MODULE);
        let cores = self.cpus.as_ref().map(|cpus| cpus.0.len()).or(self.cores).unwrap_or(of_device.cores);
        let threshold = self.threshold.map_or(of_device.threshold_bytes_per_s, |rate| rate as f64);
        if cores == 0 || threshold < 1.0 {
            return Err(refuse("--cores and --threshold are at least 1"));
        }
        Ok(PinRule { cores, threshold_bytes_per_s: threshold })
    }

    /// The CPUs for a region.
    fn cpus_for(&self, region: &RegionName, cores: usize) -> Vec<usize> {
        if let Some(cpus) = &self.cpus {
            return cpus.0.clone();
        }
        let mut near = cpus_of_node(region.numa_node);
        if near.is_empty() {
            let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
            near = cpu_list(&online).unwrap_or_default();
        }
        near.split_off(near.len().saturating_sub(cores))
    }
}

struct Pinning {
    policy: Policy,
    pins: Pins,
    /// Threads that could not be pinned: they are not tried again.
    refused: BTreeMap<ThreadId, ()>,
}

impl Pinning {
    fn round(&mut self, flows: &[Flow], args: &PinArgs, out: &mut dyn Write) -> Result<()> {
        let left: Vec<ThreadId> = self.pins.threads().filter(|thread| self.pins.has_left(*thread)).collect();
        for thread in left {
            // It has ended, or has chosen its CPUs itself: it is its own from now on.
            self.pins.release(thread);
            self.policy.forget(thread);
            self.refused.insert(thread, ());
        }
        self.refused.retain(|thread, ()| start_time_of(thread.thread) == Some(thread.start_time));
        let loads: Vec<Load> = flows.iter().filter_map(load).collect();
        let loads: Vec<Load> =
            loads.into_iter().filter(|load| !self.refused.contains_key(&load.thread)).collect();
        let cores = self.policy.rule().cores;
        for action in self.policy.decide(&loads) {
            match action {
                Action::Pin(thread, region) => {
                    let cpus = args.cpus_for(&region, cores);
                    self.pin(thread, &region, &cpus, out)?;
                }
                Action::Release(thread) => {
                    if self.pins.release(thread) {
                        writeln!(out, "released thread {}", thread.thread)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn pin(
        &mut self,
        thread: ThreadId,
        region: &RegionName,
        cpus: &[usize],
        out: &mut dyn Write,
    ) -> Result<()> {
        let number = thread.thread;
        match self.pins.pin(thread, cpus) {
            Ok(()) => writeln!(out, "pinned thread {number} to CPUs {cpus:?}: {}", region.short())?,
            Err(why) => {
                self.policy.forget(thread);
                self.refused.insert(thread, ());
                if !matches!(why, Refused::Gone) {
                    note(format_args!("fastness: thread {number} is not pinned: {why}"));
                }
            }
        }
        Ok(())
    }
}

/// What counts of a row: a thread that lives, of another process.
fn load(flow: &Flow) -> Option<Load> {
    let number = flow.thread.filter(|_| flow.pid != std::process::id())?;
    let thread = ThreadId { thread: number, start_time: start_time_of(number)? };
    Some(Load { thread, region: flow.region.clone(), bytes_per_s: flow.bytes_per_s })
}
