//! What a program writes past the mount is counted by `fastness top`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{file, is_leased};
use crate::support::Bench;
use crate::{bench, program, root};

const OPTIONS: &str = "run --pm pm --size 4M --flush-ms 50 --dir dir --";
const BLOCK: usize = 4096;
const BLOCKS: u64 = 200;

/// Writes blocks whenever a line comes.
#[test]
fn program_that_writes_on_demand() {
    let Some(root) = root() else { return };
    let kept = file(&root.join("counted"));
    assert!(is_leased(&kept));
    let mut lines = std::io::stdin().lines();
    let mut out = std::io::stdout();
    writeln!(out, "\npid {}", std::process::id()).unwrap();
    for round in 1_u8.. {
        if lines.next().is_none() {
            return;
        }
        for block in 0..BLOCKS {
            kept.write_all_at(&[round; BLOCK], block * BLOCK as u64).unwrap();
        }
        writeln!(out, "wrote {round}").unwrap();
    }
}

/// Bytes that a process has written so far, by its own count.
fn counted(bench: &Bench, pid: u32) -> u64 {
    let line = format!("top --once --json --exact --interval 0.05 --pid {pid}");
    let report: Value = serde_json::from_str(&bench.ok(&line)).unwrap();
    let region = bench.path("pm");
    let rows = report["rows"].as_array().unwrap().iter();
    let own: Vec<_> = rows.filter(|row| row["region"]["path"].as_str() == region.to_str()).collect();
    assert!(own.iter().all(|row| row["source"] == "exact" && row["pid"] == pid), "{report}");
    own.iter().map(|row| row["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn top_counts_what_a_program_writes_past_the_mount() {
    let Some(bench) = bench() else { return };
    let mut child = program(&bench, OPTIONS, "preloaded::counted::program_that_writes_on_demand")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut tell = child.stdin.take().unwrap();
    let pid = says.find_map(|line| line.strip_prefix("pid ")?.parse().ok()).unwrap();
    let mut before = 0;
    for round in 1..4 {
        writeln!(tell, "go").unwrap();
        assert!(says.any(|line| line == format!("wrote {round}")));
        let now = counted(&bench, pid);
        let bytes = now - before;
        // The data; and for each block at most four lines of tags: its own, and those of what it replaces.
        let (data, lines) = (BLOCKS * BLOCK as u64, BLOCKS * 4 * 64);
        assert!((data..=data + lines).contains(&bytes), "round {round}: {bytes} bytes for {data}");
        before = now;
    }
    assert_eq!(counted(&bench, pid), before, "nothing is written, and nothing is counted");
    drop(tell);
    let began = Instant::now();
    assert!(child.wait().unwrap().success());
    // Its counters are those of nobody now.
    while bench.run(&format!("top --once --exact --pid {pid}")).status.code() != Some(8) {
        assert!(began.elapsed() < Duration::from_secs(20), "a process that has ended is shown");
    }
}
