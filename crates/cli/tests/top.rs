//! `fastness top` and `fastness pin`: this process writes, and the program looks at it.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastness_pmem::counters::publish_with;
use fastness_pmem::{Medium, MsyncMode, NoSum, OpenOptions, Region};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::Bench;

/// The folders of all tests: what this process writes is published there.
fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    fn run_dir() -> Option<PathBuf> {
        Some(BENCH.get()?.path("run"))
    }
    BENCH.get_or_init(|| {
        let bench = Bench::new();
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(bench.path("run")).unwrap();
        publish_with(run_dir);
        bench
    })
}

/// Threads that write to a region of their own, a little at a time, until they are told to stop or to pause.
struct Writers {
    path: PathBuf,
    threads: Vec<JoinHandle<()>>,
    numbers: Vec<u32>,
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    may_write: Arc<AtomicBool>,
}

const BLOCK: usize = 4096;

fn writers(name: &str, count: usize) -> Writers {
    let path = bench().path(name);
    let options = OpenOptions::new().msync(MsyncMode::Never);
    let mut rest = Region::create_file(&path, (count * BLOCK) as u64, &options).unwrap().into_range();
    let (bytes, is_over, may_write) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default(), Arc::new(AtomicBool::new(true)));
    let began = Arc::new(AtomicU32::new(0));
    let (mut threads, mut hears) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (mut range, other) = rest.split_at(BLOCK).unwrap();
        rest = other;
        let (bytes, is_over, may_write, began) =
            (bytes.clone(), is_over.clone(), may_write.clone(), began.clone());
        let (says, hear) = std::sync::mpsc::channel();
        hears.push(hear);
        threads.push(std::thread::spawn(move || {
            says.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                if may_write.load(Ordering::Relaxed) {
                    range.copy(0, &[1; BLOCK], BLOCK, &mut NoSum);
                    bytes.fetch_add(BLOCK as u64, Ordering::Relaxed);
                    began.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }));
    }
    let numbers = hears.into_iter().map(|hear| hear.recv().unwrap()).collect();
    Writers { path, threads, numbers, bytes, is_over, may_write }
}

impl Writers {
    fn cpus(&self) -> Vec<String> {
        self.numbers.iter().map(|number| cpus_of(*number)).collect()
    }

    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.bytes.load(Ordering::Relaxed)
    }
}

fn cpus_of(thread: u32) -> String {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The rows of a region in a report, and the report.
fn rows(output: &Output, path: &Path) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["region"]["path"].as_str() == path.to_str()).cloned().collect()
}

#[test]
fn what_threads_write_is_shown_to_the_byte() {
    let bench = bench();
    let writers = writers("shown.pm", 3);
    let me = std::process::id();
    let line = format!("top --once --json --exact --interval 0.5 --pid {me}");
    let shown = rows(&bench.run(&line), &writers.path);
    assert_eq!(shown.len(), 3, "{shown:?}");
    for row in &shown {
        assert_eq!((&row["source"], &row["pid"]), (&"exact".into(), &me.into()));
        assert!(writers.numbers.contains(&(row["thread"].as_u64().unwrap() as u32)), "{row}");
        assert!(row["bytes_per_s"].as_f64().unwrap() > 0.0 && row["writes_per_s"].as_f64().unwrap() > 0.0);
    }
    let table = text(&bench.run(&format!("top --once --interval 0.2 --pid {me}")).stdout);
    for words in ["shown.pm (", "from 3 threads", "WRITES/s", "count", "samples"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let path = writers.path.clone();
    let written = writers.stop();
    // A thread has given its count back only after it has ended for its joiner, so: until it is there.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let shown = rows(&bench.run(&line.replace("0.5", "0.05")), &path);
        let sum: u64 = shown.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
        if sum == written && shown.len() == 1 && shown[0]["thread"].is_null() {
            break;
        }
        assert!(Instant::now() < deadline, "{sum} of {written}: {shown:?}");
    }
}

/// Nobody publishes here.
#[test]
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
fn without_a_source_it_says_what_is_missing() {
    let bench = Bench::new();
    let exact = bench.run("top --once --exact");
    assert_eq!(exact.status.code(), Some(8), "{exact:?}");
    assert!(text(&exact.stderr).contains("no process publishes counters in"), "{exact:?}");
    let refused = bench.run("top --once --exact --sampled");
    assert_eq!(refused.status.code(), Some(2));
    for wrong in ["--period 7", "--buffer-pages 3", "--interval 0"] {
        let output = bench.run(&format!("top --once {wrong}"));
        // The period and the buffer are those of an event: where there is none, that is said.
        assert!(matches!(output.status.code(), Some(3 | 8)), "{wrong}: {output:?}");
    }
    let sampled = bench.run("top --once --interval 0.1 --sampled");
    if sampled.status.success() {
        println!("SKIPPED: this machine samples stores: {}", text(&sampled.stdout));
        return;
    }
    assert_eq!(sampled.status.code(), Some(3), "{sampled:?}");
    let why = text(&sampled.stderr);
    let named = ["IBS", "PEBS", "mem-stores", "perf_event_paranoid"];
    assert!(named.iter().any(|name| why.contains(name)), "{why}");
    let either = bench.run("top --once");
    assert_eq!(either.status.code(), Some(8));
    assert!(named.iter().any(|name| text(&either.stderr).contains(name)), "{either:?}");
}

/// `fastness pin`, and what it prints.
struct Pinning {
    child: Child,
}

impl Pinning {
    fn start(options: &str) -> Pinning {
        let mut command = bench().command(&format!(
            "pin --exact --cores 1 --interval 0.05 --pid {} {}",
            std::process::id(),
            if options.is_empty() { "--threshold 1K" } else { options }
        ));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("saturated")), "{:?}", child.wait());
        std::thread::spawn(move || lines.for_each(drop));
        Pinning { child }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{signal:?}");
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One test, since pinning takes any thread of this process that writes.
#[test]
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
fn writers_share_a_cpu_until_they_stop_or_pinning_ends() {
    let writers = writers("pinned.pm", 3);
    let had = cpus_of(writers.numbers[0]);
    if !had.contains(['-', ',']) {
        println!("SKIPPED: one CPU");
        return;
    }
    let all = |cpus: &dyn Fn(&str) -> bool| writers.cpus().iter().all(|of| cpus(of));
    let is_one = |of: &str| !of.contains(['-', ',']);

    let pinning = Pinning::start("");
    until("all writers are pinned", || all(&is_one));
    writers.may_write.store(false, Ordering::Relaxed);
    until("released when they stop", || all(&|of| of == had));
    writers.may_write.store(true, Ordering::Relaxed);
    until("pinned again", || all(&is_one));
    pinning.end(Signal::TERM);
    assert!(all(&|of| of == had), "given back what they had: {:?}", writers.cpus());

    // A process that is killed gives nothing back; the next one does, whether it pins or not.
    let pinning = Pinning::start("");
    until("all writers are pinned", || all(&is_one));
    let one = Pinning::start("--threshold 1T");
    assert!(all(&is_one), "those of a process that lives are its own");
    one.end(Signal::TERM);
    pinning.kill();
    assert!(all(&is_one), "nobody has given it back");
    let next = Pinning::start("--threshold 1T");
    until("what was left is given back", || all(&|of| of == had));
    next.end(Signal::TERM);
    let records = fs::read_dir(bench().path("run"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("pins."));
    assert_eq!(records.count(), 0, "no record is left");

    // One of them chooses its CPU itself meanwhile: that stays.
    let pinning = Pinning::start("");
    until("all writers are pinned", || all(&is_one));
    let pinned = cpus_of(writers.numbers[0]);
    let other = had.split([',', '-']).find(|cpu| *cpu != pinned).unwrap();
    let mut set = rustix::thread::CpuSet::new();
    set.set(other.parse().unwrap());
    let thread = Pid::from_raw(writers.numbers[0] as i32);
    rustix::thread::sched_setaffinity(thread, &set).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(cpus_of(writers.numbers[0]), other);
    pinning.end(Signal::INT);
    assert_eq!(cpus_of(writers.numbers[0]), other);
    assert!(writers.cpus()[1..].iter().all(|of| *of == had), "{:?}", writers.cpus());
    writers.stop();
}
