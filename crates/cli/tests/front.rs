//! `fastness responder mount`: what programs see of a directory with a cache in front of it.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

#[path = "front/attributes.rs"]
mod attributes;
#[path = "front/backing.rs"]
mod backing;
#[path = "front/contents.rs"]
mod contents;
#[path = "front/many.rs"]
mod many;
#[path = "mounts/mapping.rs"]
#[allow(dead_code, reason = "of other tests")]
mod mapping;
#[path = "front/open.rs"]
mod open;
#[path = "front/permissions.rs"]
mod permissions;
mod support;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::Bench;

/// The directory `dir`, mounted at `at`, with a flush every minute: only what is asked for reaches it.
pub struct Mounted {
    pub bench: Bench,
    server: Option<Child>,
}

impl Drop for Mounted {
    /// What a failed test left.
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        let at = self.bench.path("at");
        let _ = Command::new("umount").arg("-l").arg(at).stderr(Stdio::null()).status();
    }
}

/// A folder with a directory that is not mounted yet.
pub fn folder() -> Option<Mounted> {
    let bench = Bench::for_mounts()?;
    for name in ["at", "dir"] {
        fs::create_dir(bench.path(name)).unwrap();
        fs::set_permissions(bench.path(name), Permissions::from_mode(0o777)).unwrap();
    }
    // Other users pass through it.
    fs::set_permissions(bench.dir.path(), Permissions::from_mode(0o755)).unwrap();
    Some(Mounted { bench, server: None })
}

pub fn mounted() -> Option<Mounted> {
    let mut mounted = folder()?;
    mounted.mount("");
    Some(mounted)
}

impl Mounted {
    pub fn mount(&mut self, options: &str) {
        let line = format!("responder mount dir at --pm pm --size 8M --flush-ms 60000 {options}");
        self.mount_by(self.bench.command(&line));
    }

    pub fn mount_by(&mut self, mut command: Command) {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("Ctrl-C")), "{:?}", child.wait_with_output());
        self.server = Some(child);
    }

    /// A name as programs see it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.bench.path("at").join(name)
    }

    /// The same past the cache.
    pub fn below(&self, name: &str) -> PathBuf {
        self.bench.path("dir").join(name)
    }

    pub fn server(&mut self) -> &mut Child {
        self.server.as_mut().unwrap()
    }

    pub fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(self.server()), signal).unwrap();
    }

    /// It is unmounted and ends. A program that another test is about to start may have a file open for a
    /// moment.
    pub fn interrupted(&mut self) -> Output {
        self.signal(Signal::INT);
        self.ended_soon()
    }

    /// As [`Self::ended`], for a server that should not take long.
    pub fn ended_soon(&mut self) -> Output {
        let begun = Instant::now();
        while self.server().try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_mins(1), "it does not end");
            sleep(Duration::from_millis(10));
        }
        self.ended()
    }

    /// How it ended, and what it said.
    pub fn ended(&mut self) -> Output {
        self.server.take().unwrap().wait_with_output().unwrap()
    }

    /// The server ends at once, and a recovery does what it could not.
    pub fn kill_and_recover(&mut self) {
        self.signal(Signal::KILL);
        self.ended();
        self.bench.ok("responder recover pm");
    }
}
