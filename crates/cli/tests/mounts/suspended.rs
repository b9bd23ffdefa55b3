//! A pool that is suspended under a mount.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::{LOGS, Mounted, bench};

/// A pool in a file, served by a process that takes a write beyond its limit for an error, as of a disk.
pub fn pool(log: &str) -> Option<Mounted> {
    let files = bench()?;
    let program = files.bench.command("").get_program().to_owned();
    let line = format!("trap '' XFSZ; exec \"$0\" pool create tank disk --file-size 64M {log}");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).arg(program).current_dir(files.bench.dir.path());
    command.env("FASTNESS_RUN_DIR", files.bench.path("run"));
    command.env("FASTNESS_STATE_DIR", files.bench.path("state"));
    assert!(command.output().unwrap().status.success());
    files.bench.ok("fs create tank/home --mount at");
    Some(files)
}

pub fn status(files: &Mounted) -> serde_json::Value {
    let pools = files.bench.ok_or_found("status tank --json");
    serde_json::from_str::<serde_json::Value>(&pools).unwrap()[0].clone()
}

/// Lets every write of the process to its disk fail, or none.
pub fn break_disk(files: &Mounted, is_broken: bool) {
    let pid = Pid::from_raw(status(files)["pid"].as_i64().unwrap() as i32).unwrap();
    let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
    prlimit(Some(pid), Resource::Fsize, Rlimit { current: is_broken.then_some(0), maximum }).unwrap();
}

pub fn suspend(files: &Mounted) {
    break_disk(files, true);
    // The next txg meets the error.
    let _ = fs::write(files.path("unsynced"), "kept");
    assert!(!files.bench.run("pool sync tank").status.success());
    assert_eq!(status(files)["state"], "suspended");
}

/// Another program, which waits in the mount.
pub fn program(files: &Mounted, line: &str) -> Child {
    Command::new("sh").args(["-c", line]).current_dir(&files.at).stderr(Stdio::null()).spawn().unwrap()
}

pub fn wait_for_waiting(files: &Mounted, count: u64) {
    let begun = Instant::now();
    while status(files)["waiting"].as_u64().unwrap() < count {
        assert!(begun.elapsed() < Duration::from_secs(30), "no request waits");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn requests_wait_until_the_pool_was_cleared() {
    LOGS.into_iter().for_each(waits);
}

fn waits(log: &str) {
    let Some(files) = pool(log) else { return };
    let open = File::create(files.path("open")).unwrap();
    (&open).write_all(b"before").unwrap();
    open.sync_all().unwrap();
    fs::create_dir(files.path("other")).unwrap();
    suspend(&files);
    let mut waiting = program(&files, "printf new > created");
    wait_for_waiting(&files, 1);
    assert!(waiting.try_wait().unwrap().is_none());
    // A signal ends a program that waits; in another directory, because the kernel changes each one at a
    // time.
    let mut killed = program(&files, "exec touch other/never");
    wait_for_waiting(&files, 2);
    kill_process(Pid::from_child(&killed), Signal::KILL).unwrap();
    killed.wait().unwrap();
    break_disk(&files, false);
    files.bench.ok("pool clear tank");
    assert!(waiting.wait().unwrap().success());
    let created = fs::read_to_string(files.path("created"));
    assert_eq!(created.unwrap_or_else(|error| panic!("{error}: {}", status(&files)["events"])), "new");
    let kept = fs::read_to_string(files.path("unsynced"));
    assert_eq!(kept.unwrap_or_else(|error| panic!("{log} {error}: {}", status(&files)["events"])), "kept");
    // The file that was open all the while goes on.
    (&open).write_all(b" after").unwrap();
    open.sync_all().unwrap();
    assert_eq!(fs::read_to_string(files.path("open")).unwrap(), "before after");
    drop(open);
    assert_eq!(files.check(), 0);
    assert_eq!(status(&files)["state"], "online");
}

#[test]
fn a_suspended_pool_is_unmounted_by_force_and_exported() {
    let Some(files) = pool("") else { return };
    fs::write(files.path("durable"), "text").unwrap();
    files.bench.ok("pool sync tank");
    suspend(&files);
    let mut waiting = program(&files, "printf new > created");
    wait_for_waiting(&files, 1);
    let said = files.bench.fails("fs unmount tank/home", 4);
    assert!(said.contains("suspended"), "{said}");
    let said = files.bench.fails("fs unmount tank/home --force", 8);
    assert!(said.contains("is unmounted, and the next import mounts it again"), "{said}");
    assert!(!waiting.wait().unwrap().success());
    files.bench.fails("pool export tank", 8);
    files.bench.ok("pool import tank");
    assert_eq!(fs::read_to_string(files.path("durable")).unwrap(), "text");
    assert_eq!(files.check(), 0);
}

#[test]
fn an_export_of_a_suspended_pool_ends_the_programs_that_wait() {
    let Some(files) = pool("") else { return };
    suspend(&files);
    let mut waiting = program(&files, "printf new > created");
    wait_for_waiting(&files, 1);
    files.bench.fails("pool export tank --force", 8);
    assert!(!waiting.wait().unwrap().success());
}

/// The commit of a change is what waits: the change itself is made once, and its program succeeds.
#[test]
fn a_change_is_made_once_with_sync_always() {
    let Some(files) = pool("") else { return };
    files.bench.ok("dataset set sync=always tank/home");
    fs::create_dir(files.path("before")).unwrap();
    break_disk(&files, true);
    let mut waiting = program(&files, "exec mkdir made");
    wait_for_waiting(&files, 1);
    assert!(waiting.try_wait().unwrap().is_none(), "nothing is durable yet");
    break_disk(&files, false);
    files.bench.ok("pool clear tank");
    assert!(waiting.wait().unwrap().success());
    assert!(files.path("made").is_dir() && files.path("before").is_dir());
    assert_eq!(files.check(), 0);
}
