//! Programs under `fastness run` whose reads and writes do not go through the mount, and programs beside
//! them whose do.
//!
//! These tests mount as root, and are skipped, with the reason, where that is not possible.

#![allow(unreachable_pub, missing_docs, missing_debug_implementations)]
// The program calls the C library as programs do.
#![allow(unsafe_code)]

mod preloaded;
mod support;

use std::process::Command;
use std::sync::Once;

use support::Bench;

/// Tells this test's own program where to work.
const ROOT: &str = "FASTNESS_PRELOAD_TEST";
const OPTIONS: &str = "run --pm pm --size 4M --flush-ms 20 --dir dir --";

/// The library, which no test of its own builds.
fn build_library() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "-p", "fastness-preload"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    });
}

pub fn bench() -> Option<Bench> {
    let bench = Bench::for_mounts()?;
    build_library();
    std::fs::create_dir(bench.path("dir")).unwrap();
    Some(bench)
}

/// Runs a test of this file as a program over the directory.
pub fn program(bench: &Bench, options: &str, name: &str) -> Command {
    let mut command = bench.command(options);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ROOT, bench.path("dir"));
    command
}

pub fn passes(bench: &Bench, name: &str) {
    let output = program(bench, OPTIONS, name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said} {output:?}");
    let status = bench.json("responder status pm");
    assert_eq!((&status["dirty_chunks"], &status["orphaned_chunks"]), (&0.into(), &0.into()), "{status}");
}

/// The directory, in the program.
pub fn root() -> Option<std::path::PathBuf> {
    std::env::var_os(ROOT).map(Into::into)
}
