//! What an administrator does by mistake: each ends with a clear answer, and nothing is lost.

#![allow(unreachable_pub, missing_debug_implementations)]

#[path = "mistakes/hour.rs"]
mod hour;
#[path = "mistakes/items.rs"]
mod items;
mod support;
#[path = "mistakes/table.rs"]
mod table;

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use support::Bench;

const BUSY: i32 = 4;

fn pool(vdevs: &str) -> Bench {
    let bench = Bench::new();
    bench.ok(&format!("pool create tank {vdevs} --file-size 64M"));
    bench
}

#[test]
fn what_clients_use_is_not_taken_from_them() {
    let bench = pool("a");
    bench.ok("volume create tank/v 8M");
    bench.ok("volume serve tank/v --socket v.sock");
    let mut client = bench.client("v.sock", "tank/v");
    client.write(0, &[7; 4096], true).unwrap();
    let commands = ["pool export tank", "pool destroy tank", "volume unserve tank/v"];
    for line in commands.into_iter().chain(["volume resize tank/v 4M --shrink"]) {
        let said = bench.fails(line, BUSY);
        assert!(
            said.contains("1 client at nbd+unix:///tank/v") && said.contains("--force"),
            "{line}: {said}"
        );
        let would = bench.run(&format!("{line} --dry-run"));
        let said = String::from_utf8_lossy(&would.stdout);
        assert_eq!(would.status.code(), Some(1), "{line}: {said}");
        assert!(said.starts_with("would ") && said.contains("in use: 1 client"), "{line}: {said}");
    }
    let said = String::from_utf8(bench.run("pool destroy tank -n").stdout).unwrap();
    assert!(said.contains("1 volume and 0 file systems"), "{said}");
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    // To grow it takes nothing from anyone.
    bench.ok("volume resize tank/v 16M");
    bench.ok("volume unserve tank/v -f");
    assert!(client.read(0, 4096).is_err());
    bench.ok("volume serve tank/v --socket v.sock");
    let mut client = bench.client("v.sock", "tank/v");
    bench.ok("volume resize tank/v 4M --shrink --force");
    bench.ok("pool export tank -f");
    assert!(client.read(0, 4096).is_err());
    bench.ok("pool import tank");
    let mut client = bench.client("v.sock", "tank/v");
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    drop(client);
    assert_eq!(bench.ok("pool export tank --dry-run").lines().count(), 1);
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    let _client = bench.client("v.sock", "tank/v");
    bench.ok("pool destroy tank --force");
    assert!(bench.fails("pool import tank", 3).contains("tank"));
}

#[test]
fn those_who_leave_have_a_moment() {
    let bench = pool("a");
    bench.ok("volume create tank/v 8M");
    bench.ok("volume serve tank/v --socket v.sock");
    for _ in 0..5 {
        let client = bench.client("v.sock", "tank/v");
        let leaves = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            drop(client);
        });
        bench.ok("volume unserve tank/v");
        bench.ok("volume serve tank/v --socket v.sock");
        leaves.join().unwrap();
    }
}

#[test]
fn files_in_use_are_not_taken_from_programs() {
    let Some(bench) = Bench::for_mounts() else { return };
    bench.ok("pool create tank a --file-size 64M");
    bench.ok("fs create tank/home");
    fs::create_dir(bench.path("at")).unwrap();
    bench.ok("fs mount tank/home at");
    fs::write(bench.path("at/file"), "text").unwrap();
    let open = File::open(bench.path("at/file")).unwrap();
    for line in ["pool export tank", "pool destroy tank", "pool export tank"] {
        assert!(bench.fails(line, BUSY).contains("files at"), "{line}");
    }
    drop(open);
    // A program that is there, without an open file.
    let mut program = Command::new("sleep");
    let mut program = program.arg("60").current_dir(bench.path("at")).stdout(Stdio::null()).spawn().unwrap();
    bench.fails("pool destroy tank", BUSY);
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(fs::read_to_string(bench.path("at/file")).unwrap(), "text");
    bench.ok("pool export tank -n");
    bench.ok("pool export tank -n");
    assert_eq!(fs::read_to_string(bench.path("at/file")).unwrap(), "text", "to look unmounts nothing");
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert_eq!(fs::read_to_string(bench.path("at/file")).unwrap(), "text");
}

#[test]
fn a_terminal_that_closes_exports_the_pool_unless_that_was_to_be_ignored() {
    let bench = Bench::new();
    let up = bench.up("demo --size 64M");
    assert_eq!(up.end_by("HUP"), Some(0));
    assert!(bench.up("demo --size 64M").said.contains("exported cleanly"));
    // As under `nohup`.
    let ignored = bench.command("up demo --size 64M --no-mount");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(ignored.get_program()).args(ignored.get_args());
    shell.envs(ignored.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = shell.current_dir(bench.dir.path()).stdout(Stdio::null()).spawn().unwrap();
    bench.wait_for("demo");
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(200));
    bench.ok("status demo");
    bench.ok("pool export demo");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn labels_are_cleared_only_where_that_is_meant() {
    let bench = pool("a");
    let path = |name: &str| bench.dir.path().join(name);
    // A pool that runs has its devices.
    for line in ["pool labelclear a", "pool labelclear -f a"] {
        assert!(bench.fails(line, BUSY).contains("in use"), "{line}");
    }
    bench.ok("pool export tank");
    let said = bench.fails("pool labelclear a", 3);
    assert!(said.contains("pool tank") && said.contains("--force"), "{said}");
    bench.ok("pool import tank -d a");
    bench.ok("pool destroy tank -f");
    bench.ok("pool labelclear a");
    bench.fails("pool import -D tank -d a", 3);
    assert!(bench.fails("pool labelclear a", 3).contains("no label"), "a second time");
    // What is on no device of a pool stays as it is.
    let text = vec![b'x'; 16 << 20];
    fs::write(path("other"), &text).unwrap();
    bench.fails("pool labelclear -f other", 3);
    assert_eq!(fs::read(path("other")).unwrap(), text);
    // An exported pool's device, by force.
    bench.ok("pool create tank a");
    bench.ok("pool export tank");
    bench.ok("pool labelclear --force a");
    bench.fails("pool import tank -d a", 3);
}
