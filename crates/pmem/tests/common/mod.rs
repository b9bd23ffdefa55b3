//! What several test files need.
#![allow(dead_code, unreachable_pub)]

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use fastness_pmem::{Kernel, OpenOptions, PmRange, Region, Summer, WriteMethod};

/// Collects the blocks it is handed.
#[derive(Default)]
pub struct Collector {
    pub blocks: Vec<Vec<u8>>,
}

impl Summer for Collector {
    fn update(&mut self, block: &[u8]) {
        self.blocks.push(block.to_vec());
    }
}

/// Bytes that differ from their neighbours and from zero.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 31 + seed * 17) % 251 + 1) as u8).collect()
}

pub fn with_kernel(kernel: Kernel) -> OpenOptions {
    OpenOptions::new().write_method(WriteMethod::Exactly(kernel))
}

pub fn anonymous(len_bytes: u64, kernel: Kernel) -> PmRange {
    Region::anonymous_with(len_bytes, &with_kernel(kernel)).unwrap().into_range()
}

/// A directory on the file system of the build, which is rarely in memory.
pub fn disk_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[allow(clippy::print_stderr)]
pub fn skipped(what: &str, why: &dyn std::fmt::Display) {
    eprintln!("SKIPPED: {what}: {why}");
}

const CHILD: &str = "FASTNESS_PMEM_TEST_CHILD";

/// In a child started by [`run_child`]: the path that it was given.
pub fn child_path() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Runs one test of this binary again, as a child process.
pub fn run_child(test: &str, path: &std::path::Path) -> ExitStatus {
    run_child_under(&[], test, path).unwrap()
}

/// As [`run_child`], started by another program, which is given the child's command line.
pub fn run_child_under(starter: &[&str], test: &str, path: &std::path::Path) -> std::io::Result<ExitStatus> {
    let program = std::env::current_exe().unwrap();
    let mut command = match starter {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, path).status()
}
