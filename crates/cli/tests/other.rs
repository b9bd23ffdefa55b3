//! Commands other than those of the log.

use std::process::{Command, Output};

use fastness_crashcheck_trace::{Header, Region, Writer};

fn fastness(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fastness")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn help_lists_the_exit_codes_and_examples() {
    let help = fastness(&["--help"]);
    assert!(help.status.success() && stdout(&help).contains("Exit codes:"));
    for command in ["create", "write", "recover", "dump"] {
        assert!(stdout(&fastness(&["log", command, "--help"])).contains("Examples:"), "{command}");
    }
    assert_eq!(fastness(&["log", "frobnicate"]).status.code(), Some(2));
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&fastness(&["completions", shell])).contains("recover"), "{shell}");
    }
}

/// The crash tester is a program, too; its tests are those of `crates/crashcheck-cli`.
#[test]
fn the_crash_tester_is_a_command() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../crashcheck/litmus/basics.json");
    assert!(fastness(&["crashcheck", "litmus", file]).status.success());
    let missing = fastness(&["crashcheck", "litmus", "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let help = stdout(&fastness(&["crashcheck", "run", "--help"]));
    assert!(help.contains("\n  fastness crashcheck run "), "{help}");
}

/// What ends the tester's programs if it is killed is started with this program's arguments for that.
#[test]
fn the_guard_of_the_crash_tester_runs_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let region = Region { name: "pm".to_owned(), start: 0, len_bytes: 64 };
    let header = Header { tool: "test".to_owned(), regions: vec![region], devices: Vec::new() };
    let trace = Writer::new(Vec::new(), &header).unwrap().finish().unwrap();
    std::fs::write(dir.path().join("empty.trace"), trace).unwrap();
    // The recovery looks for the guard among the programs that its tester has started.
    let look = "for _ in 1 2 3 4 5; do for at in /proc/[0-9]*; do grep -qz guard $at/cmdline 2>/dev/null && \
        grep -q \"^PPid:.$PPID$\" $at/status 2>/dev/null && tr '\\0' ' ' <$at/cmdline >guard && exit; done; \
        sleep 1; done";
    std::fs::write(dir.path().join("look.sh"), look).unwrap();
    let mut tester = Command::new(env!("CARGO_BIN_EXE_fastness"));
    tester.args(["crashcheck", "analyze", "empty.trace", "--recover", "sh look.sh"]);
    let done = tester.current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!said.contains("unrecognized"), "{said}");
    let guard = std::fs::read_to_string(dir.path().join("guard")).unwrap_or_default();
    assert!(guard.ends_with("crashcheck guard "), "{guard:?}, {said}");
}
