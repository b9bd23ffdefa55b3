//! A log on two regions of persistent memory, as an operator has it: lost sides, what the program says,
//! replacing.

mod support;

use std::os::unix::fs::FileExt;

use serde_json::Value;
use support::Bench;

/// A pool with a mirrored log and a volume that is served.
fn mirrored() -> Bench {
    served("mirror pm1 pm2")
}

/// A pool with a log in these regions, with further options, and a volume that is served.
fn served(log: &str) -> Bench {
    let bench = Bench::new();
    bench.ok(&format!("pool create tank disk --file-size 96M log {log} --emulate-pm --pm-size 16M"));
    bench.ok("volume create tank/v 8M -b 4K");
    bench.ok(&format!("volume serve tank/v --socket {}", bench.text("v.sock")));
    bench
}

/// Kills the process that has the pool.
fn kill(bench: &Bench) {
    let pid = bench.ok_or_degraded("status")[0]["pid"].as_u64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // Until it is gone, it may break off in the middle of an answer.
    while bench.run("status --json").stdout.trim_ascii() != b"[]" {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

trait Degraded {
    /// What `line --json` says; the exit code is 0 or, if the pool needs attention, 1.
    fn ok_or_degraded(&self, line: &str) -> Value;
}

impl Degraded for Bench {
    fn ok_or_degraded(&self, line: &str) -> Value {
        let output = self.run(&format!("{line} --json"));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn regions(bench: &Bench) -> Vec<(String, String)> {
    let status = bench.ok_or_degraded("status");
    let regions = status[0]["log"]["regions"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let name = |path: String| path.rsplit('/').next().unwrap().to_owned();
    regions.map(|region| (name(text(&region["path"])), text(&region["state"]))).collect()
}

fn named(regions: &[(&str, &str)]) -> Vec<(String, String)> {
    regions.iter().map(|(path, state)| ((*path).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn a_region_that_is_lost_costs_nothing_and_is_replaced() {
    for lost in ["pm1", "pm2"] {
        let bench = mirrored();
        assert_eq!(regions(&bench), named(&[("pm1", "online"), ("pm2", "online")]));
        let mut client = bench.client("v.sock", "tank/v");
        for block in 0..50_u64 {
            client.write(block * 4096, &[block as u8 + 1; 4096], true).unwrap();
        }
        drop(client);
        kill(&bench);
        std::fs::remove_file(bench.path(lost)).unwrap();
        // Offline, it says so before anything is changed.
        let found = bench.run("log verify tank");
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found.status.code(), Some(1), "{found:?}");
        assert!(text.contains("degraded") && text.contains("tank/v"), "{text}");
        bench.ok("log dump tank");
        bench.ok("pool import tank");
        let mut client = bench.client("v.sock", "tank/v");
        for block in 0..50_u64 {
            assert_eq!(client.read(block * 4096, 4096).unwrap(), [block as u8 + 1; 4096], "block {block}");
        }
        assert!(regions(&bench).contains(&(lost.to_owned(), "out".to_owned())));
        let said = bench.run("status");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.status.code(), Some(1), "degraded");
        assert!(text.contains("degraded") && text.contains("pool replace"), "{text}");
        let shown = bench.ok("log show tank");
        assert!(shown.contains(", out)") && shown.contains(", online)"), "{shown}");
        bench.ok(&format!("pool replace tank {} {}", bench.text(lost), bench.text("pm3")));
        client.write(0, b"on both sides again", true).unwrap();
        assert_eq!(bench.json("status")[0]["state"], "online");
        assert_eq!(regions(&bench).len(), 2);
        drop(client);
        kill(&bench);
        bench.ok("log verify tank");
        // The side that stayed may go now.
        std::fs::remove_file(bench.path(if lost == "pm1" { "pm2" } else { "pm1" })).unwrap();
        bench.ok("pool import tank");
        let mut client = bench.client("v.sock", "tank/v");
        assert_eq!(client.read(0, 19).unwrap(), b"on both sides again");
        assert_eq!(client.read(49 * 4096, 4096).unwrap(), [50; 4096]);
    }
}

#[test]
fn a_damaged_side_is_told_although_nothing_is_lost() {
    let bench = mirrored();
    let mut client = bench.client("v.sock", "tank/v");
    for block in 0..20_u64 {
        client.write(block * 4096, &[7; 4096], true).unwrap();
    }
    drop(client);
    kill(&bench);
    bench.ok("log verify tank");
    // In the middle of the entries of every chunk.
    let file = std::fs::File::options().write(true).open(bench.path("pm2")).unwrap();
    for chunk in 0..15_u64 {
        file.write_all_at(&[0x5a; 64], 16384 + (chunk << 20) + 6000).unwrap();
    }
    let found = bench.run("log verify tank");
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(String::from_utf8_lossy(&found.stdout).contains("damage of one side"), "{found:?}");
    assert!(String::from_utf8_lossy(&found.stderr).contains("nothing is lost"), "{found:?}");
    bench.ok("pool import tank");
    let mut client = bench.client("v.sock", "tank/v");
    for block in 0..20_u64 {
        assert_eq!(client.read(block * 4096, 4096).unwrap(), [7; 4096]);
    }
}

/// Overwrites a part of every 4 KiB of a region that is in use, beyond its superblock.
fn damage_in_use(bench: &Bench, region: &str) {
    let file = std::fs::File::options().write(true).open(bench.path(region)).unwrap();
    for at in (16384 + 600..8 << 20).step_by(4096) {
        file.write_all_at(&[0x5a; 64], at).unwrap();
    }
}

#[test]
fn a_region_that_does_not_give_back_what_only_it_has_is_blamed_and_the_disk_is_not() {
    let bench = served("pm1 -o logdata=pm");
    let mut client = bench.client("v.sock", "tank/v");
    client.write(0, &[7; 4096], true).unwrap();
    damage_in_use(&bench, "pm1");
    assert!(client.read(0, 4096).is_err());
    assert_eq!(regions(&bench), named(&[("pm1", "faulty")]), "before any sync");
    let said = String::from_utf8(bench.run("status").stdout).unwrap();
    assert!(said.contains("does not hold what is written to it"), "{said}");
    bench.run("pool sync tank");
    assert!(client.read(0, 4096).is_err(), "never what was there before");
    let status = &bench.ok_or_degraded("status")[0];
    assert_eq!(status["state"], "damaged");
    let side = &status["vdevs"][0]["devices"][0];
    assert_eq!(
        (&side["checksum_errors"], &side["read_errors"]),
        (&Value::from(0), &Value::from(0)),
        "{side}"
    );
    client.write(0, &[8; 4096], true).unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [8; 4096]);
}

#[test]
fn a_side_that_does_not_give_back_a_block_is_told_and_the_other_gives_it() {
    let bench = mirrored();
    bench.ok("pool set logdata=pm tank");
    let mut client = bench.client("v.sock", "tank/v");
    client.write(0, &[7; 4096], true).unwrap();
    damage_in_use(&bench, "pm1");
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    assert_eq!(regions(&bench), named(&[("pm1", "faulty"), ("pm2", "online")]));
}

#[test]
fn sides_are_attached_detached_and_found_elsewhere() {
    let bench = Bench::new();
    bench.ok("pool create tank disk --file-size 96M log pm1 --emulate-pm --pm-size 16M");
    let (pm1, pm2) = (bench.text("pm1"), bench.text("pm2"));
    bench.ok(&format!("pool attach tank {pm1} {pm2}"));
    assert_eq!(regions(&bench), named(&[("pm1", "online"), ("pm2", "online")]));
    assert!(bench.fails(&format!("pool attach tank {pm1} {}", bench.text("pm3")), 3).contains("two regions"));
    bench.ok("pool export tank");
    std::fs::rename(&pm1, bench.path("moved")).unwrap();
    let moved = bench.text("moved");
    bench.ok(&format!("pool import tank --log {moved}"));
    assert_eq!(regions(&bench), named(&[("moved", "online"), ("pm2", "online")]));
    bench.ok(&format!("pool detach tank {pm2}"));
    assert_eq!(regions(&bench), named(&[("moved", "online")]));
    assert!(bench.fails(&format!("pool detach tank {moved}"), 3).contains("remove it instead"));
    bench.ok(&format!("pool remove tank {moved}"));
    assert_eq!(bench.json("status")[0]["log"]["kind"], "lwb");
    bench.ok(&format!("pool add tank log mirror {} {} --emulate-pm --pm-size 16M", pm2, bench.text("pm4")));
    assert_eq!(regions(&bench).len(), 2);
    // Both sides gone is what it was for one.
    bench.ok("pool export tank");
    std::fs::remove_file(&pm2).unwrap();
    std::fs::remove_file(bench.path("pm4")).unwrap();
    assert!(bench.fails("pool import tank", 7).contains("log device"));
    bench.ok("pool import tank --missing-log");
    for line in ["log pm5 log pm6", "log mirror pm5 pm6 pm7"] {
        bench.fails(&format!("pool create other disk2 --file-size 96M {line} --emulate-pm"), 3);
    }
}

#[test]
fn the_table_of_devices_has_the_regions_of_the_log() {
    let bench = mirrored();
    let lines = |text: String| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let table = lines(bench.ok("pool status tank"));
    assert!(table.contains(&vec!["log".to_owned(), "mirror".to_owned()]), "{table:?}");
    for region in ["pm1", "pm2"] {
        let row = table.iter().find(|row| row.first() == Some(&bench.text(region))).unwrap();
        assert_eq!(row[1..6], ["online", "-", "-", "0", "-"], "{region}");
        assert!(row[6..].join(" ").contains("file"), "{row:?}");
    }
    bench.ok("pool detach tank pm2");
    let table = lines(bench.ok("pool status tank"));
    let row = table
        .iter()
        .find(|row| row.first().is_some_and(|word| word == "log") && row[1].starts_with('/'))
        .unwrap();
    assert_eq!(row[1..3], [bench.text("pm1"), "online".to_owned()]);
}
