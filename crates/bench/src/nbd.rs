//! `fastness bench nbd`: a volume over NBD beside `nbdkit memory`, through the same client, turn by turn.
//!
//! Both servers are processes of their own on a Unix socket: `fastness up` with a pool in a file, and
//! nbdkit with its defaults, with its bytes in memory. Without nbdkit there is nothing to compare with; the
//! rows say so.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fastness_nbd::wire::{command, command_flag};
use fastness_nbd::{Client, Endpoint, Request};

use crate::error::{Context, Result, foreign, wrong};
use crate::folder::Folder;
use crate::measure::{by_turns, time_ns};
use crate::{Options, Row};

/// What is written and read of a volume.
const SPAN_BYTES: u64 = 32 << 20;
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Requests of a turn.
const REQUESTS: u64 = 1000;
const START: Duration = Duration::from_secs(10);

/// Where request `index` goes: visits all blocks, in an order that no cache predicts.
pub(crate) fn place(index: u64) -> u64 {
    (index * 2_654_435_761) % (SPAN_BYTES / BLOCK_BYTES) * BLOCK_BYTES
}

/// A server that is killed when its handle is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) client: Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its contents are not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(command: &mut Command, socket: PathBuf, export: &str) -> Result<Server> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut child = Some(child);
        let since = Instant::now();
        let endpoint = Endpoint::Unix(socket);
        let mut client = loop {
            match Client::connect(&endpoint, export) {
                Ok(client) => break client,
                Err(error) if since.elapsed() > START => {
                    child.take().map(|mut child| child.kill());
                    return Err(foreign(error)).context("the server did not start");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        for offset in (0..SPAN_BYTES).step_by(1 << 20) {
            // No holes on either side.
            client.write(offset, &vec![0xa5; 1 << 20], false).map_err(foreign)?;
        }
        Ok(Server { child: child.take().expect("a child that was not killed"), client })
    }

    /// `REQUESTS` requests with `depth` of them in flight.
    fn turn(&mut self, (kind, flags): (u16, u16), depth: u64) -> Result<()> {
        let payload = vec![7; if kind == command::WRITE { BLOCK_BYTES as usize } else { 0 }];
        for index in 0..REQUESTS + depth {
            if index >= depth {
                self.answer()?;
            }
            if index < REQUESTS {
                let request =
                    Request { kind, flags, offset: place(index), length: BLOCK_BYTES, payload: &payload };
                self.client.send(&request).map_err(foreign)?;
            }
        }
        Ok(())
    }

    /// Number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self) -> Result<()> {
        loop {
            let chunk = self.client.receive_chunk(|_| BLOCK_BYTES).map_err(foreign)?;
            if chunk.error != 0 {
                return Err(wrong(format!("a request failed with error {}", chunk.error)));
            }
            if chunk.is_done {
                return Ok(());
            }
        }
    }
}

/// A server of a volume; `name` is that of its pool, `options` go to `fastness up`.
pub(crate) fn ours(folder: &Folder, name: &str, options: &[&str]) -> Result<Server> {
    let mut command = folder.up(name, "64M", options)?;
    let socket = folder.join(name).join("volume.sock");
    Server::start(&mut command, socket, &format!("{name}/volume")).context("`fastness up`")
}

fn theirs(folder: &Folder) -> Result<Server> {
    let socket = folder.join("nbdkit.sock");
    let mut command = Command::new("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket).args(["memory", "64M"]);
    Server::start(&mut command, socket, "")
}

/// Runs the benchmark.
///
/// # Errors
/// If our server does not start, or a request fails.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    rows(&Folder::new()?, options)
}

fn rows(folder: &Folder, options: Options) -> Result<Vec<Row>> {
    let mut plain = ours(folder, "bench", &[])?;
    let mut theirs = theirs(folder).ok();
    let turns = if options.quick { 41 } else { 201 };
    let mut rows = Vec::new();
    for (name, kind) in [("write", command::WRITE), ("read", command::READ)] {
        for depth in [1, 32] {
            let what = Work { name, kind, flags: 0, depth, goals: (1.1, 1.0) };
            rows.push(row(&mut plain, theirs.as_mut(), &what, turns)?);
        }
    }
    drop(plain);
    let mut logged = ours(folder, "logged", &["--emulate-pm"])?;
    for depth in [1, 32] {
        let name = "FUA write with a log in emulated PM (a mapped file)";
        let what = Work { name, kind: command::WRITE, flags: command_flag::FUA, depth, goals: (1.15, 1.0) };
        rows.push(row(&mut logged, theirs.as_mut(), &what, turns)?);
    }
    Ok(rows)
}

/// The requests to both servers.
struct Work {
    name: &'static str,
    kind: u16,
    flags: u16,
    depth: u64,
    /// Of latencies at most, and of requests a second at least.
    goals: (f64, f64),
}

fn row(ours: &mut Server, theirs: Option<&mut Server>, work: &Work, turns: usize) -> Result<Row> {
    let &Work { name, kind, flags, depth, goals } = work;
    let name = format!("NBD {name} 4 KiB, queue depth {depth}, volume");
    let medium = "a volume with its pool in a file; nbdkit: memory".to_owned();
    let Some(theirs) = theirs else {
        let name = format!("{name} (nbdkit is not installed: nothing to compare with)");
        return Ok(Row { name, medium, threads: 1, ..Row::default() });
    };
    let pair = by_turns(
        turns,
        REQUESTS as usize,
        || time_ns(|| ours.turn((kind, flags), depth)),
        || time_ns(|| theirs.turn((kind, flags), depth)),
    )?;
    let median = |values: &[f64]| crate::measure::Spread::of(values.to_vec()).median;
    let (our_ns, their_ns) = (median(&pair.a), median(&pair.b));
    // At depth 1 latencies are compared, at depth 32 requests a second.
    let (ratio, goal) = if depth == 1 {
        (pair.ratio(), (goals.0, "at most"))
    } else {
        (crate::measure::Pair { a: pair.b.clone(), b: pair.a.clone() }.ratio(), (goals.1, "at least"))
    };
    let (value, unit, theirs) = match depth {
        1 => (our_ns / 1e3, "us", format!("nbdkit memory, {:.1} us", their_ns / 1e3)),
        _ => (1e9 / our_ns, "requests/s", format!("nbdkit memory, {:.0}", 1e9 / their_ns)),
    };
    Ok(Row {
        name,
        value: Some(value),
        unit,
        baseline: Some(theirs),
        medium,
        ..Row::ratio(ratio, Some(goal))
    })
}
