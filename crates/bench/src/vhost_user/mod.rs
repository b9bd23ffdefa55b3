//! `fastness bench vhost-user`: a volume as a virtual machine's disk beside the same volume over NBD.
//!
//! One server process serves one volume at two sockets; one process uses both by turns, as a client of NBD
//! and as a front end with a queue in shared memory. No hypervisor is in between, so its cost is in neither
//! figure. A guest that sleeps is called through a descriptor, as NBD's client is by its socket; one that
//! looks burns a CPU, as a hypervisor does that polls for a halted guest.

mod guest;
mod work;

use std::time::{Duration, Instant};

use crate::error::{Context, Result, ensure};
use crate::folder::Folder;
use crate::histogram::Histogram;
use crate::measure::{Pair, Spread, by_turns};
use crate::nbd::{self, Server};
use crate::usage::Usage;
use crate::{Options, Row};
use guest::{DEPTH_MAX, Guest, Wait};
use work::{Disk, Kind, OverNbd, in_flight, one_by_one};

/// Requests of a turn.
const REQUESTS: u64 = 1000;
/// Requests of a turn in which a client pauses, and how long it does.
const RARE: u64 = 100;
const PAUSE: Duration = Duration::from_millis(1);
const MEDIUM: &str = "a pool in a file, its log in emulated PM (a mapped file)";
/// Of latencies at most, of requests a second at least.
const LATENCY_GOAL: f64 = 0.4;
const RATE_GOAL: f64 = 3.0;

/// Runs the benchmark.
///
/// # Errors
/// If the server does not start, or a request fails.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let folder = Folder::new()?;
    let mut pair = Sides::start(&folder)?;
    let turns = if options.quick { 31 } else { 201 };
    let mut rows = Vec::new();
    for wait in [Wait::Sleep, Wait::Look] {
        let durable = Work { name: "write 4 KiB, durable", kinds: &[Kind::Write], is_durable: true };
        let flushed =
            Work { name: "write 4 KiB, then flush", kinds: &[Kind::Write, Kind::Flush], is_durable: false };
        for work in [&durable, &flushed] {
            rows.extend(pair.latency(work, wait, turns)?);
        }
        rows.extend(pair.rate(wait, turns)?);
    }
    rows.push(pair.rare(if options.quick { 5 } else { 31 })?);
    Ok(rows)
}

/// One operation: requests, each after the answer to the one before.
struct Work {
    name: &'static str,
    kinds: &'static [Kind],
    is_durable: bool,
}

/// What both sides used in their turns.
#[derive(Default)]
struct Used {
    guest: Usage,
    nbd: Usage,
}

/// The server, and both connections to it.
struct Sides {
    nbd: Server,
    guest: Guest,
    /// This process and the server.
    processes: [u32; 2],
}

impl Sides {
    fn start(folder: &Folder) -> Result<Sides> {
        let nbd = nbd::ours(folder, "bench", &["--emulate-pm"])?;
        let socket = folder.join("machine.sock");
        let mut serve = folder.program()?;
        serve.args(["volume", "serve", "bench/volume", "--vhost-user"]).arg(&socket);
        let served = serve.output().context("cannot run this program")?;
        ensure!(
            served.status.success(),
            "no socket for a machine: {}",
            String::from_utf8_lossy(&served.stderr)
        );
        let processes = [std::process::id(), nbd.process()];
        Ok(Sides { guest: Guest::connect(&socket)?, nbd, processes })
    }

    /// Both sides by turns of `count` operations: times of one operation, and what all turns used.
    fn by_turns(
        &mut self,
        (wait, is_durable): (Wait, bool),
        (turns, count): (usize, u64),
        work: impl Fn(&mut dyn Disk, bool) -> Result<()>,
    ) -> Result<(Pair, Used)> {
        let Sides { nbd, guest, processes } = self;
        guest.set(wait, is_durable)?;
        let mut nbd = OverNbd { server: nbd, is_durable };
        let mut used = Used::default();
        let turn = |sum: &mut Usage, disk: &mut dyn Disk, is_guest| {
            let before = Usage::of(processes)?;
            let begun = Instant::now();
            work(disk, is_guest)?;
            let ns = begun.elapsed().as_nanos() as f64;
            sum.add(Usage::of(processes)?.since(before));
            Ok(ns)
        };
        let pair = by_turns(
            turns,
            count as usize,
            || turn(&mut used.guest, guest, true),
            || turn(&mut used.nbd, &mut nbd, false),
        )?;
        let operations = (turns as u64 + 1) as f64 * count as f64;
        for side in [&mut used.guest, &mut used.nbd] {
            (side.cpu_ns, side.switches) = (side.cpu_ns / operations, side.switches / operations);
        }
        Ok((pair, used))
    }

    fn latency(&mut self, work: &Work, wait: Wait, turns: usize) -> Result<Vec<Row>> {
        let latencies = [std::cell::RefCell::default(), std::cell::RefCell::default()];
        let (pair, used) = self.by_turns((wait, work.is_durable), (turns, REQUESTS), |disk, is_guest| {
            let all: &std::cell::RefCell<Histogram> = &latencies[usize::from(is_guest)];
            one_by_one(disk, work.kinds, REQUESTS, &mut all.borrow_mut())
        })?;
        let [nbd, guest] = latencies.map(std::cell::RefCell::into_inner);
        let name = format!("{}, queue depth 1, {}", work.name, waits(wait));
        let percentiles = format!("p50 {:.1} us, p99 {:.1} us", us(&nbd, 0.5), us(&nbd, 0.99));
        let row = Row {
            name: format!("vhost-user, {name}: p50 (p99 {:.1} us)", us(&guest, 0.99)),
            value: Some(us(&guest, 0.5)),
            unit: "us",
            baseline: Some(format!("the same volume over NBD, {percentiles}")),
            p50_ns: Some(guest.quantile(0.5) as f64),
            p99_ns: Some(guest.quantile(0.99) as f64),
            medium: MEDIUM.to_owned(),
            ..Row::ratio(pair.ratio(), Some((LATENCY_GOAL, "at most")))
        };
        Ok(vec![row, cost(&name, &used)])
    }

    fn rate(&mut self, wait: Wait, turns: usize) -> Result<Vec<Row>> {
        let (pair, used) = self.by_turns((wait, true), (turns, REQUESTS), |disk, _| {
            in_flight(disk, Kind::Write, REQUESTS, DEPTH_MAX.into())
        })?;
        let name = format!("write 4 KiB, durable, queue depth {DEPTH_MAX}, {}", waits(wait));
        let rate = |times: &[f64]| 1e9 / Spread::of(times.to_vec()).median;
        let ratio = Pair { a: pair.b.clone(), b: pair.a.clone() }.ratio();
        let row = Row {
            name: format!("vhost-user, {name}"),
            value: Some(rate(&pair.a)),
            unit: "requests/s",
            baseline: Some(format!("the same volume over NBD, {:.0}", rate(&pair.b))),
            medium: MEDIUM.to_owned(),
            ..Row::ratio(ratio, Some((RATE_GOAL, "at least")))
        };
        Ok(vec![row, cost(&name, &used)])
    }

    /// A guest that writes now and then: what the looks in vain cost.
    fn rare(&mut self, turns: usize) -> Result<Row> {
        let (_, used) = self.by_turns((Wait::Sleep, true), (turns, RARE), |disk, _| {
            for _ in 0..RARE {
                one_by_one(disk, &[Kind::Write], 1, &mut Histogram::default())?;
                std::thread::sleep(PAUSE);
            }
            Ok(())
        })?;
        Ok(cost(&format!("write 4 KiB, durable, one each {PAUSE:?}, {}", waits(Wait::Sleep)), &used))
    }
}

fn waits(wait: Wait) -> &'static str {
    match wait {
        Wait::Sleep => "the guest sleeps",
        Wait::Look => "the guest looks",
    }
}

fn us(latencies: &Histogram, share: f64) -> f64 {
    latencies.quantile(share) as f64 / 1e3
}

/// What an operation costs, whatever it waits for.
fn cost(name: &str, used: &Used) -> Row {
    let text =
        |usage: &Usage| format!("{:.1} us, {:.2} context switches", usage.cpu_ns / 1e3, usage.switches);
    Row {
        name: format!(
            "CPU time of it, client and server: {name} ({:.2} context switches)",
            used.guest.switches
        ),
        value: Some(used.guest.cpu_ns / 1e3),
        unit: "us",
        ratio: Some(used.guest.cpu_ns / used.nbd.cpu_ns),
        baseline: Some(format!("over NBD, {}", text(&used.nbd))),
        medium: MEDIUM.to_owned(),
        threads: 1,
        ..Row::default()
    }
}
