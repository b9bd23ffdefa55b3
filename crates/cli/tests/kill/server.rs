//! The process that has the pool.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::plan::{Plan, Rng};
use crate::support::Bench;

/// Seconds; the last one is longer than any life.
const TXG_TIMEOUTS: [&str; 4] = ["0.1", "0.5", "2", "300"];

/// A pool in files, and the process that has it, if there is one.
pub struct Server {
    pub bench: Bench,
    child: Option<Child>,
}

impl Server {
    /// Creates the pool; it is not imported yet.
    pub fn new(plan: &Plan) -> Server {
        let bench = Bench::new();
        let size = std::env::var("FASTNESS_KILL_POOL_SIZE").unwrap_or_else(|_| "1G".to_owned());
        bench.ok(&plan.create(&size));
        Server { bench, child: None }
    }

    pub fn socket(&self, volume: usize) -> PathBuf {
        self.bench.path(&format!("v{volume}.sock"))
    }

    fn spawn(&self, rng: &mut Rng) -> Child {
        let drawn = rng.one_of(&TXG_TIMEOUTS).to_owned();
        let timeout = std::env::var("FASTNESS_KILL_TXG_TIMEOUT").unwrap_or(drawn);
        let folder = self.bench.text("");
        let line = format!("pool import tank -d {folder} --foreground --cache 16M --txg-timeout {timeout}");
        let log = OpenOptions::new().create(true).append(true).open(self.bench.path("server.log")).unwrap();
        self.bench.command(&line).stdout(Stdio::piped()).stderr(log).spawn().unwrap()
    }

    /// Starts it, and kills it at once.
    pub fn start_and_kill(&self, rng: &mut Rng, after: Duration) {
        let mut child = self.spawn(rng);
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it; how long it took to import the pool.
    pub fn start(&mut self, rng: &mut Rng) -> Duration {
        let begun = Instant::now();
        let mut child = self.spawn(rng);
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let took = begun.elapsed();
        if !said.contains("is imported") {
            let status = child.wait().unwrap();
            panic!("the pool is not imported: {status}, {said}\n{}", self.log());
        }
        self.child = Some(child);
        took
    }

    /// The steps of the import, and how long they took.
    pub fn steps(&self) -> Vec<(String, Duration)> {
        let status = self.bench.json("status tank");
        let steps = status[0]["import"]["steps"].as_array().cloned().unwrap_or_default();
        let step = |step: &serde_json::Value| {
            let elapsed = Duration::from_micros(step["elapsed_us"].as_u64()?);
            Some((step["step"].as_str()?.to_owned(), elapsed))
        };
        steps.iter().filter_map(step).collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// SIGKILL, if it is there still, and waits for its end.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until it has ended by itself; whether it did so without an error.
    pub fn wait(&mut self) -> bool {
        self.child.take().expect("it runs").wait().unwrap().success()
    }

    /// The latest lines that it wrote.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.bench.path("server.log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal_later(pid: u32, signal: Signal, after: Duration) -> JoinHandle<()> {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    std::thread::spawn(move || {
        std::thread::sleep(after);
        // It was not waited for yet, so the number is still its own, even if it has ended.
        kill_process(pid, signal).expect("a child");
    })
}

/// SIGKILL, after a time.
pub fn kill_later(pid: u32, after: Duration) -> JoinHandle<()> {
    signal_later(pid, Signal::KILL, after)
}

/// SIGTERM, after a time that is waited for.
pub fn terminate_later(pid: u32, after: Duration) {
    signal_later(pid, Signal::TERM, after).join().expect("a signal");
}
