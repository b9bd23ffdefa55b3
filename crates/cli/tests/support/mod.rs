//! The program with folders of its own, so that tests neither see nor disturb pools of others.
#![allow(dead_code, unreachable_pub)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fastness_nbd::{Client, Endpoint};
use serde_json::Value;
use tempfile::TempDir;

mod stranger;
#[allow(unused_imports, reason = "not every test is an ordinary user")]
pub use stranger::STRANGER;

pub struct Bench {
    pub dir: TempDir,
}

impl Bench {
    /// In memory where there is some: what survives a kill is the same, and no test waits for a disk. Or in
    /// `FASTNESS_TEST_DIR`.
    pub fn new() -> Bench {
        let dir = match std::env::var_os("FASTNESS_TEST_DIR") {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()),
        };
        Bench { dir: dir.unwrap() }
    }

    /// The same, for tests that mount as root; `None`, and said, where that is not possible.
    #[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
    pub fn for_mounts() -> Option<Bench> {
        let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        let obstacle = match rustix::process::geteuid().is_root() {
            false => Some("only root can mount without fusermount3"),
            true => fuse.is_err().then_some("/dev/fuse cannot be opened"),
        };
        if let Some(why) = obstacle {
            println!("SKIPPED: {why}");
            return None;
        }
        Some(Bench::new())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `line` is split at blanks. `FASTNESS_PROGRAM` is another program than the one that was just built.
    pub fn command(&self, line: &str) -> Command {
        let program = std::env::var_os("FASTNESS_PROGRAM");
        let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_fastness").into()));
        command
            .args(line.split_whitespace())
            .current_dir(self.dir.path())
            .env("FASTNESS_RUN_DIR", self.path("run"))
            .env("FASTNESS_STATE_DIR", self.path("state"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that succeeds; what it printed.
    pub fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Unmounts what no test uses. A process that a test beside this one starts has open files of this one
    /// until it runs its program, so the mount may be in use for a moment.
    pub fn unmount(&self, what: &str) {
        unmounted_by(what, "is in use", || self.run(&format!("fs unmount {what}")));
    }

    /// The same from outside, with the tool of the system.
    pub fn unmount_by_tool(&self, name: &str) {
        unmounted_by(name, "busy", || Command::new("umount").arg(self.path(name)).output().unwrap());
    }

    /// Runs a command that succeeds or finds something; what it printed.
    pub fn ok_or_found(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.code().is_some_and(|code| code < 2), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails with this exit code; what it said.
    pub fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Waits until a pool runs.
    pub fn wait_for(&self, pool: &str) {
        let begun = Instant::now();
        while self.run(&format!("status {pool}")).status.code() != Some(0) {
            assert!(begun.elapsed() < Duration::from_secs(60), "pool {pool} does not run");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// `fastness up` in the folder `name`, when it serves.
    pub fn up(&self, arguments: &str) -> Up {
        self.up_with_files(&format!("{arguments} --no-mount"))
    }

    /// The same, with its file system mounted.
    pub fn up_with_files(&self, arguments: &str) -> Up {
        let mut child = self
            .command(&format!("up {arguments}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !said.contains("Ctrl-C exports") {
            if stdout.read_line(&mut said).unwrap() == 0 {
                panic!("up ended: {said} {:?}", child.wait_with_output());
            }
        }
        Up { child, said }
    }

    /// A client of a volume at a socket in the folder.
    pub fn client(&self, socket: &str, volume: &str) -> Client {
        connect(&self.path(socket), volume)
    }
}

impl Drop for Bench {
    /// Ends what a failed test left running.
    fn drop(&mut self) {
        let Ok(output) = self.command("pool list --json").output() else { return };
        let pools: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        for pool in pools.as_array().into_iter().flatten() {
            if let Some(name) = pool["name"].as_str() {
                self.run(&format!("pool export {name} --force"));
            }
        }
    }
}

/// Unmounts until it says no more that the mount is in use.
fn unmounted_by(what: &str, in_use: &str, mut unmount: impl FnMut() -> Output) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let output = unmount();
        if output.status.success() {
            return;
        }
        let is_in_use = String::from_utf8_lossy(&output.stderr).contains(in_use);
        assert!(is_in_use && Instant::now() < end, "{what}: {output:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn connect(socket: &Path, volume: &str) -> Client {
    Client::connect(&Endpoint::Unix(socket.to_owned()), volume).unwrap()
}

/// A running `fastness up`.
pub struct Up {
    pub child: Child,
    pub said: String,
}

impl Up {
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ctrl-C; the exit code.
    pub fn interrupt(self) -> Option<i32> {
        self.end_by("INT")
    }

    /// Sends a signal; the exit code.
    pub fn end_by(mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
