//! Starting a process for a pool whose last one was killed a moment ago: the kernel gives its devices back a
//! little later.

#![allow(clippy::print_stdout, reason = "a measurement has something to say")]

mod support;
#[path = "restart/time.rs"]
mod time;

use std::fs::File;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use support::Bench;

/// A pool that is not imported, on files in folder `disks`, besides something else.
fn pool(vdevs: &str) -> Bench {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("disks")).unwrap();
    bench.ok(&format!("pool create tank {vdevs} --file-size 64M --no-import"));
    std::fs::write(bench.path("disks/other"), vec![7; 16 << 20]).unwrap();
    bench
}

/// Another one has the file, as a process that was killed does.
fn lock(bench: &Bench, name: &str) -> File {
    let file = File::open(bench.path(name)).unwrap();
    file.lock().unwrap();
    file
}

fn for_a_moment(file: File) -> JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(file);
    })
}

#[test]
fn a_device_in_a_folder_is_waited_for() {
    let bench = pool("disks/a");
    let lock = for_a_moment(lock(&bench, "disks/a"));
    bench.ok("pool import tank -d disks");
    lock.join().unwrap();
}

/// With one side alone the import would be refused, or degraded.
#[test]
fn a_side_of_a_mirror_in_a_folder_is_waited_for() {
    let bench = pool("mirror disks/a disks/b");
    let lock = for_a_moment(lock(&bench, "disks/b"));
    bench.ok("pool import tank -d disks");
    lock.join().unwrap();
    assert_eq!(bench.json("status tank")[0]["state"], "online");
}

/// It takes more than half a second, so the user is told why, also without a terminal.
#[test]
fn a_long_wait_is_told() {
    for line in ["pool import tank -d disks", "up demo"] {
        let bench = pool("disks/a");
        std::fs::create_dir(bench.path("demo")).unwrap();
        std::fs::hard_link(bench.path("disks/a"), bench.path("demo/pool.img")).unwrap();
        let lock = lock(&bench, "disks/a");
        let waiting = bench.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1000));
        drop(lock);
        bench.wait_for("tank");
        bench.ok("pool export tank");
        let output = waiting.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("waiting for") && said.contains("in use by another process"), "{line}: {said}");
    }
}

#[test]
fn an_import_says_for_programs_how_long_its_steps_took() {
    let bench = pool("disks/a");
    let lock = for_a_moment(lock(&bench, "disks/a"));
    let report: Value = serde_json::from_str(&bench.ok("pool import tank -d disks --json")).unwrap();
    lock.join().unwrap();
    assert_eq!(report["name"], "tank");
    let steps = report["import"]["steps"].as_array().unwrap();
    let elapsed_us = |step: &Value| step["elapsed_us"].as_u64().unwrap();
    assert_eq!(steps[0]["step"], "devices");
    // They were in use for as long as this.
    assert!(elapsed_us(&steps[0]) > 100_000, "{steps:?}");
    assert_eq!(elapsed_us(&report["import"]), steps.iter().map(elapsed_us).sum::<u64>());
    assert!(bench.ok("status").contains("imported in"));
}

#[test]
fn a_pool_that_is_in_use_elsewhere_is_busy_and_not_missing() {
    let bench = pool("disks/a");
    let _lock = lock(&bench, "disks/a");
    for places in ["disks", "disks/a"] {
        let said = bench.fails(&format!("pool import tank -d {places} --wait 1"), 4);
        assert!(said.trim().ends_with("disks/a") && said.contains("in use by another process"), "{said}");
    }
}

/// Its process is there and answers, so that waiting for its devices is pointless: this ends, whatever the
/// time to wait.
#[test]
fn a_pool_that_runs_is_refused_at_once() {
    let bench = pool("disks/a");
    bench.ok("pool import tank -d disks");
    for line in ["pool import tank -d disks --wait 100000", "pool import tank --foreground --wait 100000"] {
        assert!(bench.fails(line, 4).contains("already running, as process"), "{line}");
    }
}

/// What is in use and not of the pool does not matter.
#[test]
fn others_in_the_folder_may_be_in_use() {
    let bench = pool("mirror disks/a disks/b");
    let _lock = lock(&bench, "disks/other");
    bench.ok("pool import tank -d disks");
}
