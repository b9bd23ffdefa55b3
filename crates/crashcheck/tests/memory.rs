//! The memory of an analysis does not grow with the number of its crash images.
//!
//! Alone in its process: what the process has needed at most is measured.

use std::io::Write;
use std::path::Path;

use fastness_crashcheck::Result;
use fastness_crashcheck::check::State;
use fastness_crashcheck::generate::Contents;
use fastness_crashcheck::process::Ending;
use fastness_crashcheck::report::Report;
use fastness_crashcheck::run::{Analysis, ImagesConfig, Limits};
use fastness_crashcheck::trace::record;
use fastness_pm_model::{Op, Trace};

const LINES: u64 = 16;
const IMAGES_OF_A_ROUND: usize = 1 << LINES;

/// Recovers in this process: the sum of all first bytes, up to a multiple.
fn sum(contents: &Contents) -> Result<State> {
    let mut page = [0; 4096];
    let mut sum = 0;
    for at in (0..contents.memory.len_bytes()).step_by(page.len()) {
        contents.memory.read(at, &mut page);
        sum += page.iter().step_by(64).filter(|byte| **byte != 0).count();
    }
    let text = format!("{}\n", sum / 4).into_bytes();
    Ok(State { ending: Ending::Code(0), text, write: None })
}

/// Rounds of stores to 16 lines each, with 65,536 images each.
fn trace(file: &Path, rounds: u64) {
    let mut ops = Vec::new();
    for round in 0..rounds {
        let lines = round * LINES..(round + 1) * LINES;
        ops.extend(lines.clone().map(|line| Op::store(line * 64, [1; 8])));
        ops.extend(lines.map(|line| Op::clwb(line * 64)));
        ops.push(Op::sfence());
    }
    let bytes = record(
        &Trace { initial: vec![0; (rounds * LINES * 64).max(64 << 10) as usize], ops },
        "pm",
        Vec::new(),
    )
    .unwrap();
    std::fs::write(file, bytes).unwrap();
}

fn analyzed(file: &Path) -> Report {
    let images = ImagesConfig { per_point: IMAGES_OF_A_ROUND, shrink: 8, ..ImagesConfig::default() };
    let analysis = Analysis {
        name: "many",
        trace: file,
        images: &images,
        extract: &sum,
        recovery: None,
        oracles: Vec::new(),
        has_prefix_oracle: false,
        has_operations: false,
        must_be_atomic: true,
        in_recovery: None,
        threads: 2,
        exclude: &[],
        symbols: &|_, _| None,
        deadline: None,
        limits: Limits::default(),
        progress: &|_| {},
    };
    analysis.run().unwrap()
}

/// The most that this process has had in memory so far.
fn most_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// How many rounds; `FASTNESS_CRASHCHECK_ROUNDS` has more.
fn rounds() -> u64 {
    let rounds = std::env::var("FASTNESS_CRASHCHECK_ROUNDS");
    rounds.map_or(8, |rounds| rounds.parse().expect("FASTNESS_CRASHCHECK_ROUNDS is a number"))
}

#[test]
fn eight_times_the_images_take_no_more_than_their_hashes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    trace(&file, 1);
    assert_eq!(analyzed(&file).totals.images, IMAGES_OF_A_ROUND);
    let before = most_mib();
    // All of them together would be 340 MiB.
    assert!(before < 100, "{before} MiB for the images of one point");
    let rounds = rounds();
    trace(&file, rounds);
    let report = analyzed(&file);
    let after = most_mib();
    let images = report.totals.images;
    writeln!(std::io::stderr(), "{IMAGES_OF_A_ROUND} images: {before} MiB; {images} images: {after} MiB")
        .unwrap();
    assert_eq!(report.totals.images, rounds as usize * (IMAGES_OF_A_ROUND - 1) + 1);
    assert_eq!(report.totals.exhaustive_points, report.totals.points);
    assert!(!report.is_clean(), "half of a round is a state of its own");
    // 32 bytes for an image that is known, in a table that is half empty, while it is copied to a larger one.
    // Beyond two generations of them it is no more, however many there are.
    assert!(after < before + 12 * rounds.min(20), "{before} MiB, then {after} MiB");
    assert!(after < 512, "{after} MiB");
}
