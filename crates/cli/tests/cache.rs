//! `fastness cache`: a file with a write cache in front, served, killed and recovered.
//!
//! The clients are those of `kill.rs`: several connections, several requests in flight on each, of 512 bytes
//! to 4 MiB, that overlap, with zeroes, trims and reads; after each kill every sector is read and judged by
//! `fastness-history`. `FASTNESS_CACHE_SEED` is the seed, `FASTNESS_CACHE_ROUNDS` the number of kills of each
//! cache.

#![allow(unreachable_pub, dead_code, missing_debug_implementations)]

#[path = "kill/connection.rs"]
mod connection;
#[path = "cache/exported.rs"]
mod exported;
#[path = "cache/mirror.rs"]
mod mirror;
#[path = "cache/mistakes.rs"]
mod mistakes;
#[path = "kill/plan.rs"]
mod plan;
#[path = "kill/program.rs"]
mod program;
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use connection::Connection;
use fastness_history::{Clock, End, History, Operation, What};
use fastness_nbd::Client;
use plan::Rng;
use program::Program;
use support::Bench;

const ORIGIN_BYTES: u64 = 24 << 20;

/// A cache of a file, and perhaps its process. The file is not in memory: there its block would be a page.
struct Served {
    bench: Bench,
    disk: tempfile::TempDir,
    child: Option<Child>,
    /// The region by which it is called.
    region: &'static str,
}

impl Served {
    fn new(region: &str) -> Served {
        Served::with(&format!("--pm pm --size {region}"))
    }

    fn with(regions: &str) -> Served {
        let bench = Bench::new();
        fs::create_dir(bench.path("run")).unwrap();
        let served = Served { bench, disk: tempfile::tempdir().unwrap(), child: None, region: "pm" };
        fs::File::create(served.origin()).unwrap().set_len(ORIGIN_BYTES).unwrap();
        let origin = served.origin().display().to_string();
        served.bench.ok(&format!("cache create {regions} --origin {origin}"));
        served
    }

    fn origin(&self) -> PathBuf {
        self.disk.path().join("origin")
    }

    fn serve(&mut self, options: &str) {
        let line = format!("cache serve {} --socket socket {options}", self.region);
        let mut child = self.bench.command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "{:?}", child.wait());
        self.child = Some(child);
    }

    fn client(&self) -> Client {
        self.bench.client("socket", "origin")
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it with a signal; the exit code.
    fn signal(&mut self, signal: &str) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Looks at every sector, through the cache or in the file itself.
fn look(history: &mut History, seed: u64, mut read: impl FnMut(u64) -> Vec<u8>) {
    history.restart();
    for offset in (0..ORIGIN_BYTES).step_by(1 << 20) {
        let findings = history.look((offset / 512) as u32, &read(offset));
        assert!(findings.is_empty(), "FASTNESS_CACHE_SEED={seed}: {findings:#?}");
    }
}

fn killed_again_and_again(
    regions: &str,
    options: &str,
    seed: u64,
    mut while_it_is_down: impl FnMut(&mut Served, &mut Rng),
) {
    let seed = number("FASTNESS_CACHE_SEED").unwrap_or(seed);
    let mut rng = Rng::of(&[seed]);
    let mut served = Served::with(regions);
    let mut history = History::new(seed as u32, 0, ORIGIN_BYTES);
    let (clock, mut next, mut acknowledged, mut in_log) = (Arc::<Clock>::default(), 0, 0, 0);
    let mut operations: Vec<Operation> = Vec::new();
    for round in 0..number("FASTNESS_CACHE_ROUNDS").unwrap_or(8) {
        // At times it is killed while it starts, and brings the log to the origin.
        while rng.percent(30) {
            let line = format!("cache serve {} --socket socket", served.region);
            let mut child = served.bench.command(&line).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(rng.time(100, 60_000));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        served.serve(options);
        let mut client = served.client();
        if round > 0 {
            look(&mut history, seed, |offset| client.read(offset, 1 << 20).unwrap());
        }
        let connections: Vec<_> = (0..3)
            .filter_map(|at| {
                next += 1;
                let program = Program::new(Rng::of(&[seed, round, at]), ORIGIN_BYTES, 512);
                let place = (&clock, history.place(0));
                Connection::start(&served.bench.path("socket"), "origin", place, next, program, true)
            })
            .collect();
        std::thread::sleep(rng.time(20_000, 400_000));
        match rng.percent(80) {
            true => served.kill(),
            false => assert_eq!(served.signal("-TERM"), Some(0)),
        }
        operations.extend(connections.into_iter().flat_map(Connection::join));
        // What a read without a reply would have seen is not known.
        operations.retain(|operation| operation.what != What::Read(Vec::new()));
        let is_change = |operation: &&Operation| !matches!(operation.what, What::Read(_) | What::Flush);
        let done = operations.iter().filter(is_change);
        acknowledged += done.filter(|operation| matches!(operation.end, End::Acknowledged(_))).count();
        let findings = history.add(std::mem::take(&mut operations));
        assert!(findings.is_empty(), "FASTNESS_CACHE_SEED={seed}: {findings:#?}");
        let status = served.bench.run(&format!("cache status {} --json", served.region));
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        in_log += status["dirty_blocks"].as_u64().unwrap();
        while_it_is_down(&mut served, &mut rng);
    }
    assert!(acknowledged > 100 && in_log > 0, "{acknowledged} changes, {in_log} in the log after kills");
    served.bench.ok(&format!("cache detach {}", served.region));
    let bytes = fs::read(served.origin()).unwrap();
    look(&mut history, seed, |offset| bytes[offset as usize..][..1 << 20].to_vec());
}

#[test]
fn a_killed_cache_loses_nothing_that_was_acknowledged() {
    killed_again_and_again("--pm pm --size 16M", "--flush-ms 5000", 1, |_, _| ());
}

#[test]
fn nor_does_one_whose_log_is_always_full() {
    killed_again_and_again("--pm pm --size 2M", "--writers 2", 2, |_, _| ());
}

#[test]
fn the_life_of_a_cache() {
    let mut served = Served::new("4M");
    let bench = &served.bench;
    let (origin, moved) = (served.origin().display().to_string(), served.disk.path().join("moved"));
    let moved = moved.display();
    assert_eq!(fs::metadata(bench.path("pm")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(bench.fails(&format!("cache create --pm pm --origin {origin}"), 3).contains("already"));
    assert!(
        bench.fails(&format!("cache create --pm other --origin {origin}"), 3).contains("belongs to cache")
    );
    assert!(!bench.path("other").exists());
    assert!(bench.fails("cache create --pm other --origin nothing", 3).contains("does not exist"));
    served.serve("--flush-ms 600000");
    let mut client = served.client();
    client.write(8192, &[7; 4096], false).unwrap();
    let bench = &served.bench;
    let live = bench.json("cache status pm");
    assert_eq!(
        (&live["pid"], &live["dirty_blocks"]),
        (&served.child.as_ref().unwrap().id().into(), &1.into())
    );
    assert!(bench.fails("cache detach pm", 4).contains("served"));
    assert!(
        bench.fails("cache serve pm", 4).contains("use") || bench.fails("cache serve pm", 4).contains("open")
    );
    let flushed = bench.json("cache flush pm");
    assert_eq!((&flushed["dirty_blocks"], &flushed["written_back_bytes"]), (&0.into(), &4096.into()));
    assert_eq!(fs::read(served.origin()).unwrap()[8192], 7);
    client.write(0, &[9; 512], true).unwrap();
    served.kill();

    // What the log has is shown, and stays until somebody brings it to the origin.
    let bench = &served.bench;
    let inspected = bench.json("cache status pm");
    assert_eq!((inspected["pid"].is_null(), &inspected["dirty_blocks"]), (true, &1.into()));
    let file = fs::OpenOptions::new().write(true).open(served.origin()).unwrap();
    file.set_len(ORIGIN_BYTES * 2).unwrap();
    assert!(bench.fails("cache serve pm", 3).contains("detach the cache before its origin is made longer"));
    file.set_len(ORIGIN_BYTES).unwrap();
    fs::rename(served.origin(), served.disk.path().join("moved")).unwrap();
    assert!(bench.fails("cache flush pm", 3).contains("does not exist"));
    assert!(bench.ok(&format!("cache flush pm --origin {moved}")).contains("1 changes in the log"));
    assert_eq!(fs::read(served.disk.path().join("moved")).unwrap()[0], 9);
    bench.ok(&format!("cache detach pm --origin {moved}"));
    assert!(bench.fails("cache status pm", 3).contains("no cache"));
    bench.ok(&format!("cache create --pm other --size 4M --origin {moved}"));
}

/// A copy of the region that was made before the last use holds what the origin has seen replaced.
#[test]
fn an_older_copy_of_the_region_is_refused() {
    let mut served = Served::new("4M");
    served.serve("--flush-ms 600000");
    served.client().write(0, &[1; 512], false).unwrap();
    served.kill();
    fs::copy(served.bench.path("pm"), served.bench.path("copy")).unwrap();
    served.bench.ok("cache flush pm");
    served.serve("");
    served.client().write(0, &[2; 512], false).unwrap();
    assert_eq!(served.signal("-INT"), Some(0));
    let said = served.bench.fails("cache flush copy", 3);
    assert!(said.contains("newer copy of this region"), "{said}");
    assert_eq!(fs::read(served.origin()).unwrap()[0], 2);
    served.bench.ok("cache flush pm");
}

/// One that is cut short fails; what was acknowledged stays in the region, and gets there once it is whole.
#[test]
fn an_origin_that_fails_costs_nothing() {
    let mut served = Served::new("4M");
    served.serve("");
    let mut client = served.client();
    let origin = fs::OpenOptions::new().write(true).open(served.origin()).unwrap();
    // A file that is cut under the cache grows when it is written; reads past its end fail.
    origin.set_len(4096).unwrap();
    assert!(client.read(1 << 20, 4096).is_err(), "the origin does not have it");
    client.write(1 << 20, &[5; 4096], false).unwrap();
    assert_eq!(client.read(1 << 20, 4096).unwrap(), [5; 4096]);
    origin.set_len(ORIGIN_BYTES).unwrap();
    client.write(2 << 20, &[6; 4096], false).unwrap();
    assert_eq!(served.signal("-INT"), Some(0));
    let bytes = fs::read(served.origin()).unwrap();
    assert_eq!((bytes[1 << 20], bytes[2 << 20]), (5, 6));
}

#[test]
fn a_service_manager_is_told() {
    let mut served = Served::new("4M");
    let manager = std::os::unix::net::UnixDatagram::bind(served.bench.path("manager")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = served.bench.command("cache serve pm --tcp 127.0.0.1:0");
    let child =
        command.env("NOTIFY_SOCKET", served.bench.path("manager")).stdout(Stdio::null()).spawn().unwrap();
    served.child = Some(child);
    let mut bytes = [0; 32];
    let len = manager.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"READY=1");
    assert_eq!(served.signal("-TERM"), Some(0));
}
