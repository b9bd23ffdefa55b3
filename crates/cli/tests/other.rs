//! Commands other than those of the log.

use std::process::{Command, Output};

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

#[test]
fn litmus_files_are_judged() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../crashcheck/litmus/basics.json");
    let judged = fastness(&["crashcheck", "litmus", file]);
    assert!(judged.status.success(), "{judged:?}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&fastness(&["crashcheck", "litmus", "--json", file]))).unwrap();
    assert_eq!(json["ok"], true);
    let missing = fastness(&["crashcheck", "litmus", "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(3));
}
