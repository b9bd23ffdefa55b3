//! Regions that hold something else, origins with odd names or in other places, processes that are stopped.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Served;
use crate::support::Bench;

/// Whatever is in a file or a region that is no cache stays there, unless that is forced.
#[test]
fn a_region_that_holds_something_else_is_left_alone() {
    let bench = Bench::new();
    fs::create_dir(bench.path("run")).unwrap();
    fs::write(bench.path("disk"), vec![0; 1 << 20]).unwrap();
    let text = b"word of it, ".repeat(4096 * 64);
    fs::write(bench.path("thesis"), &text).unwrap();
    let said = bench.fails("cache create --pm thesis --origin disk", 3);
    assert!(said.contains("the region is not empty"), "{said}");
    assert_eq!(fs::read(bench.path("thesis")).unwrap(), text);
    bench.ok("log create log --size 4M");
    let log = fs::read(bench.path("log")).unwrap();
    assert!(bench.fails("cache create --pm log --origin disk", 3).contains("the region is not empty"));
    assert_eq!(fs::read(bench.path("log")).unwrap(), log);
    bench.ok("cache create --pm log --origin disk --force");
    // What is left of a cache that was detached is in nobody's way, and neither is an empty file, which a
    // process leaves that is killed when it makes one.
    bench.ok("cache detach log");
    bench.ok("cache create --pm log --origin disk");
    bench.ok("cache detach log");
    fs::write(bench.path("left"), b"").unwrap();
    bench.ok("cache create --pm left --size 2M --origin disk");
    assert_eq!(fs::metadata(bench.path("left")).unwrap().len(), 2 << 20);
}

/// The address that is shown is one that clients understand.
#[test]
fn names_with_blanks_and_signs_are_escaped_in_the_address() {
    let bench = Bench::new();
    fs::create_dir(bench.path("run")).unwrap();
    fs::write(bench.path("my disk?100%.img"), vec![0; 1 << 20]).unwrap();
    let create = bench.command("cache create --pm pm --size 2M --origin").arg("my disk?100%.img").output();
    assert!(create.unwrap().status.success());
    let mut served = Served { bench, disk: tempfile::tempdir().unwrap(), child: None, region: "pm" };
    served.serve("");
    let uri = served.bench.json("cache status pm")["uri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("nbd+unix:///my%20disk%3F100%25.img?socket=/"), "{uri}");
    served.bench.client("socket", "my disk?100%.img").write(0, &[7; 4096], false).unwrap();
    // As libnbd reads it, where it is installed.
    if let Ok(info) = Command::new("nbdinfo").args(["--size", &uri]).output() {
        assert_eq!(String::from_utf8_lossy(&info.stdout).trim(), "1048576", "{info:?}");
    }
    assert_eq!(served.signal("-TERM"), Some(0));
}

#[test]
fn an_origin_that_was_moved_is_called_by_its_name_of_now() {
    let mut served = Served::new("2M");
    let moved = served.disk.path().join("moved");
    fs::rename(served.origin(), &moved).unwrap();
    let option = format!("--origin {}", moved.display());
    let name = moved.canonicalize().unwrap().display().to_string();
    served.serve(&option);
    assert_eq!(served.bench.json("cache status pm")["origin"], name.as_str());
    served.bench.client("socket", "moved").write(0, &[7; 512], false).unwrap();
    assert_eq!(served.signal("-TERM"), Some(0));
    let said = served.bench.ok(&format!("cache detach pm {option}"));
    assert!(said.starts_with(&format!("{name} has everything")), "{said}");
}

/// Nobody waits for ever for a process that is stopped.
#[test]
fn a_process_that_is_stopped_is_told_from_one_that_serves() {
    let mut served = Served::new("2M");
    served.serve("");
    let pid = served.child.as_ref().unwrap().id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    let began = Instant::now();
    let asked: Vec<_> = ["status", "flush", "detach"]
        .iter()
        .map(|what| {
            let mut command = served.bench.command(&format!("cache {what} pm"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in asked {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("has not answered for 10 s"), "{said}");
    }
    assert!(began.elapsed().as_secs() >= 9, "it had its chance");
    signal("-CONT");
    served.bench.ok("cache flush pm");
    assert_eq!(served.signal("-TERM"), Some(0));
}
