//! File systems of a pool, mounted, as programs use them.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.
//! `FASTNESS_FILES_ROUNDS` is the number of kills of each pool, `FASTNESS_FILES_SEED` their seed:
//! `scripts/soak-files` sets them.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

#[path = "mounts/differential.rs"]
mod differential;
#[path = "mounts/direct.rs"]
mod direct;
#[path = "mounts/folders.rs"]
mod folders;
#[path = "mounts/handles.rs"]
mod handles;
#[path = "mounts/kill.rs"]
mod kill;
#[path = "mounts/life.rs"]
mod life;
#[path = "mounts/lifetimes.rs"]
mod lifetimes;
#[path = "mounts/locks.rs"]
mod locks;
#[path = "mounts/mapping.rs"]
mod mapping;
#[path = "mounts/mappings.rs"]
mod mappings;
#[path = "mounts/offline.rs"]
mod offline;
#[path = "mounts/permissions.rs"]
mod permissions;
#[path = "mounts/points.rs"]
mod points;
#[path = "mounts/snapshots.rs"]
mod snapshots;
mod support;
#[path = "mounts/suspended.rs"]
mod suspended;
#[path = "mounts/tools.rs"]
mod tools;
#[path = "mounts/use.rs"]
mod used;
#[path = "mounts/waiting.rs"]
mod waiting;
#[path = "mounts/watch.rs"]
mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::Bench;

/// A pool with a file system that is mounted in the folder; what is left of mounts goes with it.
pub struct Mounted {
    pub bench: Bench,
    pub at: PathBuf,
}

impl Drop for Mounted {
    /// The folder cannot be removed with the mount of a dead server in it.
    fn drop(&mut self) {
        detach_below(self.bench.dir.path());
    }
}

fn detach_below(folder: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    for point in points.filter(|point| point.starts_with(folder)) {
        // What cannot be unmounted is left: the test itself has its result.
        let _ = Command::new("umount").arg("-l").arg(point).status();
    }
}

/// A folder for mounts, unless nothing can be mounted.
pub fn bench() -> Option<Mounted> {
    let bench = Bench::for_mounts()?;
    let at = bench.path("at");
    std::fs::create_dir(&at).unwrap();
    Some(Mounted { bench, at })
}

/// The same, with a pool `tank` and its file system `tank/home`, mounted.
pub fn mounted(log: &str) -> Option<Mounted> {
    let mounted = bench()?;
    mounted.bench.ok(&format!("pool create tank disk --file-size 256M {log}"));
    mounted.bench.ok("fs create tank/home --mount at");
    Some(mounted)
}

impl Mounted {
    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// The process of pool `tank` ends at once.
    pub fn kill(&self) {
        let pool = serde_json::from_str::<serde_json::Value>(&self.bench.ok_or_found("status tank --json"));
        let pid = pool.unwrap()[0]["pid"].as_i64().unwrap();
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Everything in the file system's tables fits together; how many files have no name.
    pub fn check(&self) -> u64 {
        self.bench.json("fs check tank/home")["without_name"].as_u64().unwrap()
    }
}

fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

pub const LOGS: [&str; 2] = ["", "log pm --emulate-pm --pm-size 16M"];
