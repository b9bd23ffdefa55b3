//! A pool whose file cannot be written for a while: what clients see, and how it goes on.

mod support;

use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use fastness_nbd::ClientError;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use support::Bench;

const EIO: u32 = 5;
const SOCKET: &str = "disk.sock";
/// The log: blocks of the pool, or a region.
const LOGS: [&str; 2] = ["", "log pm --emulate-pm --pm-size 16M"];

/// A pool in a file, served by a process that takes a write beyond its limit for an error, as of a disk.
fn bench(log: &str) -> Bench {
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_fastness");
    let line = format!("trap '' XFSZ; exec {program} pool create tank disk --file-size 64M {log}");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(bench.dir.path());
    command.env("FASTNESS_RUN_DIR", bench.path("run")).env("FASTNESS_STATE_DIR", bench.path("state"));
    assert!(command.output().unwrap().status.success());
    bench.ok("volume create tank/disk 32M -b 4K");
    bench.ok(&format!("volume serve tank/disk --socket {}", bench.text(SOCKET)));
    bench
}

fn status(bench: &Bench) -> (String, u64, i32) {
    let pools: serde_json::Value =
        serde_json::from_str(&bench.ok_or_found("pool status tank --json")).unwrap();
    let pool = pools[0].clone();
    let number = |name: &str| pool[name].as_i64().unwrap();
    (pool["state"].as_str().unwrap().to_owned(), number("waiting") as u64, number("pid") as i32)
}

/// Lets every write of the process fail, and with it the pool: blocks of a log fail at once, a region does
/// not notice.
fn fail_disk(bench: &Bench, log: &str) {
    break_disk(bench, true);
    if !log.is_empty() {
        bench.client(SOCKET, "tank/disk").write(31 * 4096, &[9; 4096], false).unwrap();
        assert!(!bench.run("pool sync tank").status.success());
    }
}

/// Lets every write of the process fail, or none.
fn break_disk(bench: &Bench, is_broken: bool) {
    let pid = Pid::from_raw(status(bench).2).unwrap();
    let now = rustix::process::getrlimit(Resource::Fsize);
    let limit = Rlimit { current: is_broken.then_some(0), maximum: now.maximum };
    prlimit(Some(pid), Resource::Fsize, limit).unwrap();
}

fn write(bench: &Bench, at: u64, byte: u8) -> JoinHandle<Result<(), ClientError>> {
    let mut client = bench.client(SOCKET, "tank/disk");
    std::thread::spawn(move || client.write(at * 4096, &[byte; 4096], true))
}

fn wait_for_waiting(bench: &Bench) {
    for _ in 0..600 {
        if status(bench).1 > 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("no request waits");
}

fn read(bench: &Bench, at: u64) -> u8 {
    bench.client(SOCKET, "tank/disk").read(at * 4096, 4096).unwrap()[4095]
}

#[test]
fn writes_wait_until_the_pool_was_cleared_or_fail_as_it_was_told() {
    LOGS.into_iter().for_each(writes_wait_or_fail);
}

fn writes_wait_or_fail(log: &str) {
    let bench = bench(log);
    assert!(bench.ok("pool get failmode tank").contains("wait"));
    write(&bench, 0, 1).join().unwrap().unwrap();
    bench.client(SOCKET, "tank/disk").write(4096, &[2; 4096], false).unwrap();
    fail_disk(&bench, log);
    let waiting = write(&bench, 2, 3);
    wait_for_waiting(&bench);
    assert_eq!(status(&bench).0, "suspended");
    std::thread::sleep(Duration::from_secs(1));
    let told = bench.ok_or_found("status");
    // On the terminal of `up`, too.
    assert!(told.contains("  pool tank is suspended: "), "{told}");
    assert!(told.contains("fastness pool clear tank"), "{told}");
    let refused = bench.run("pool clear tank");
    assert!(!refused.status.success() && !waiting.is_finished());
    break_disk(&bench, false);
    bench.ok("pool clear tank");
    waiting.join().unwrap().unwrap();
    assert_eq!([0, 1, 2].map(|at| read(&bench, at)), [1, 2, 3]);
    assert_eq!(status(&bench).0, "online");

    bench.ok("pool set failmode=continue tank");
    assert_eq!(bench.json("pool get failmode tank")[0]["value"], "continue");
    fail_disk(&bench, log);
    assert!(matches!(write(&bench, 3, 4).join().unwrap(), Err(ClientError::Failed(EIO))));
    break_disk(&bench, false);
    bench.ok("pool clear tank");
    write(&bench, 4, 5).join().unwrap().unwrap();
    // There is nothing to resume, and no counter to be cleared.
    bench.ok("pool clear tank");

    // More devices for a pool that is suspended: it goes on with them, if its own are back.
    std::fs::File::create(bench.path("more")).unwrap().set_len(64 << 20).unwrap();
    std::fs::File::create(bench.path("slow")).unwrap().set_len(64 << 20).unwrap();
    fail_disk(&bench, log);
    assert!(write(&bench, 5, 6).join().unwrap().is_err());
    assert!(!bench.run("pool add tank log slow").status.success(), "a log has to wait");
    assert!(!bench.run("pool add tank more").status.success(), "the disk is not back");
    assert_eq!(status(&bench).0, "suspended");
    break_disk(&bench, false);
    bench.ok("pool add tank more");
    assert_eq!(status(&bench).0, "online");
    assert!(bench.ok("pool status tank").contains("more"));
    write(&bench, 6, 7).join().unwrap().unwrap();
    assert_eq!([0, 1, 2, 4, 6].map(|at| read(&bench, at)), [1, 2, 3, 5, 7]);
    bench.fails("pool set failmode=maybe tank", 3);
    bench.ok("pool export tank");
}

#[test]
fn an_export_or_a_kill_ends_the_waiting_and_loses_nothing_that_was_flushed() {
    for (is_killed, log) in [(false, LOGS[0]), (true, LOGS[0]), (false, LOGS[1]), (true, LOGS[1])] {
        let bench = bench(log);
        write(&bench, 0, 1).join().unwrap().unwrap();
        fail_disk(&bench, log);
        let waiting = write(&bench, 1, 2);
        wait_for_waiting(&bench);
        if is_killed {
            rustix::process::kill_process(
                Pid::from_raw(status(&bench).2).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
        } else {
            bench.fails("pool export tank --force", 8);
        }
        assert!(waiting.join().unwrap().is_err(), "not told that it was done");
        bench.ok("pool import tank");
        assert_eq!(read(&bench, 0), 1);
        assert!([0, 2].contains(&read(&bench, 1)));
        bench.ok("pool export tank");
    }
}
