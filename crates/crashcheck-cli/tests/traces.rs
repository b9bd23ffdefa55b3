//! Commands that run nothing: traces, litmus files, help.

use std::process::{Command, Output};

use fastness_crashcheck_trace::{Event, FenceKind, FlushKind, Header, Kind, Region, Writer};

fn crashcheck(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crashcheck")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Help is that of `fastness crashcheck`, too.
#[test]
fn help_manuals_and_completions_are_those_of_this_program() {
    let help = crashcheck(&["--help"]);
    assert!(help.status.success() && stdout(&help).contains("Exit codes:"), "{help:?}");
    for command in ["run", "analyze", "fs", "report", "images", "explain", "litmus"] {
        let help = stdout(&crashcheck(&[command, "--help"]));
        assert!(help.contains(&format!("\n  crashcheck {command} ")), "{help}");
        assert!(!help.contains("fastness crashcheck"), "{help}");
    }
    let help = stdout(&crashcheck(&["trace", "show", "--help"]));
    assert!(help.contains("\n  crashcheck trace show "), "{help}");
    let page = stdout(&crashcheck(&["man"]));
    assert!(page.contains(".TH crashcheck") && !page.contains("fastness crashcheck"), "{page}");
    assert!(stdout(&crashcheck(&["completions", "bash"])).contains("_crashcheck()"));
    assert_eq!(crashcheck(&["frobnicate"]).status.code(), Some(2));
}

#[test]
fn litmus_files_are_judged() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../crashcheck/litmus/basics.json");
    let judged = crashcheck(&["litmus", file]);
    assert!(judged.status.success(), "{judged:?}");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&crashcheck(&["litmus", "--json", file]))).unwrap();
    assert_eq!(json["ok"], true);
    let missing = crashcheck(&["litmus", "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn traces_are_shown_and_go_to_vinter_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let region = Region { name: "pm".to_owned(), start: 0x1000, len_bytes: 4096 };
    let header = Header { tool: "test".to_owned(), regions: vec![region], devices: Vec::new() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let store = |address| Kind::Store { address, data: b"hello", is_non_temporal: true, is_atomic64: false };
    let flush = Kind::Flush { kind: FlushKind::Clwb, address: 0x1080 };
    for kind in [store(0x1000), store(0x1080), flush, Kind::Fence(FenceKind::Sfence)] {
        writer.push(&Event::of(kind)).unwrap();
    }
    let trace = writer.finish().unwrap();
    std::fs::write(path("run.trace"), &trace).unwrap();
    let show = |more: &[&str]| stdout(&crashcheck(&[&["trace", "show"], more].concat()));
    let run = path("run.trace");
    let text = show(&[&run]);
    assert!(
        text.contains("ntstore      0x1000 +5 68656c6c6f") && text.contains("0x1000..0x2000  pm"),
        "{text}"
    );
    let line = show(&[&run, "--line", "0x10bf"]);
    assert!(
        !line.contains("0x1000 ") && line.contains("clwb         0x1080") && line.contains("sfence"),
        "{line}"
    );
    let lines: Vec<serde_json::Value> =
        show(&[&run, "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[2]["address"]), (5, &0x1080.into()));
    assert_eq!(show(&[&run, "--json", "--from", "1", "--count", "2"]).lines().count(), 3);
    let ok = |arguments: &[&str]| {
        let done = crashcheck(&[&["trace"], arguments].concat());
        assert!(done.status.success(), "{done:?}");
    };
    ok(&["to-vinter", &run, &path("vinter")]);
    ok(&["from-vinter", &path("vinter"), &path("again"), "--size", "4096"]);
    assert!(show(&[&path("again")]).contains("ntstore      0x80 +5"), "relative to the region");
    assert_eq!(crashcheck(&["trace", "to-vinter", &run, &path("vinter")]).status.code(), Some(10));
    // What is before a cut is shown, and where the cut is.
    std::fs::write(path("cut"), &trace[..trace.len() - 30]).unwrap();
    let cut = crashcheck(&["trace", "show", &path("cut")]);
    assert_eq!(cut.status.code(), Some(6));
    assert!(String::from_utf8(cut.stderr).unwrap().contains("cut off at offset"));
    let no_trace = crashcheck(&["trace", "show", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert_eq!(no_trace.status.code(), Some(3));
}
