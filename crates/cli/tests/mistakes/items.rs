//! Mistakes that take more than one command.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use fastness_nbd::{Client, Endpoint};
use serde_json::Value;

use crate::support::{Bench, STRANGER};

const INVALID: i32 = 3;
const BUSY: i32 = 4;
const DENIED: i32 = 12;
const IN_USE: i32 = 13;

fn pool(vdevs: &str) -> Bench {
    let bench = Bench::new();
    bench.ok(&format!("pool create tank {vdevs} --file-size 64M"));
    bench
}

fn guid(bench: &Bench, pool: &str) -> String {
    bench.json(&format!("pool status {pool}"))[0]["guid"].as_str().unwrap().to_owned()
}

/// The pools that an import would find, with their states.
fn found(bench: &Bench, options: &str) -> Vec<(String, String)> {
    let found = bench.json(&format!("pool import -d . {options}"));
    let text = |pool: &Value, key: &str| pool[key].as_str().unwrap().to_owned();
    found.as_array().unwrap().iter().map(|pool| (text(pool, "name"), text(pool, "state"))).collect()
}

fn named(pools: &[(&str, &str)]) -> Vec<(String, String)> {
    pools.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

#[test]
fn a_destroyed_pool_is_listed_and_comes_back_until_it_is_overwritten() {
    let bench = pool("mirror a b");
    bench.ok("volume create tank/v 8M");
    bench.ok("volume serve tank/v --socket v.sock");
    bench.client("v.sock", "tank/v").write(0, &[7; 4096], false).unwrap();
    bench.ok("pool destroy tank");
    assert_eq!(found(&bench, ""), []);
    assert_eq!(found(&bench, "-D"), named(&[("tank", "destroyed")]));
    let listed = bench.ok("pool import -D -d .");
    assert!(listed.contains("destroyed") && listed.contains("/a"), "{listed}");
    let said = bench.fails("pool import tank", INVALID);
    assert!(said.contains("destroyed") && said.contains("import -D tank"), "{said}");
    bench.ok("pool import -D tank");
    assert_eq!(bench.client("v.sock", "tank/v").read(0, 4096).unwrap(), [7; 4096]);
    bench.ok("pool destroy tank");
    // Its devices are free: for the taking, without force. What is left comes back by consent.
    bench.ok("pool create new a");
    assert!(bench.fails("pool import -D tank -d b", 7).contains("--degraded"));
    bench.ok("pool import -D tank -d b --degraded");
    assert_eq!(bench.client("v.sock", "tank/v").read(0, 4096).unwrap(), [7; 4096]);
    bench.ok("pool destroy tank");
    bench.ok("pool add new b");
    assert_eq!(found(&bench, "-D"), []);
}

#[test]
fn a_refused_destroy_ends_nothing() {
    let bench = pool("a");
    bench.ok("pool export tank");
    bench.ok("pool import tank --read-only");
    let before = bench.json("pool status tank")[0]["pid"].clone();
    for line in ["pool destroy tank", "pool destroy tank --force"] {
        assert!(bench.fails(line, INVALID).contains("tank is read-only"), "{line}");
    }
    assert_eq!(bench.json("pool status tank")[0]["pid"], before);
    bench.ok("pool export tank");
    bench.ok("pool import tank");
}

#[test]
fn a_volume_that_is_renamed_while_it_is_served_is_reachable_as_it_is_shown() {
    let bench = pool("a");
    bench.ok("volume create tank/v 8M");
    bench.ok("volume serve tank/v --socket v.sock");
    let mut before = bench.client("v.sock", "tank/v");
    bench.ok("dataset rename tank/v tank/w");
    assert!(bench.ok("volume list").contains("nbd+unix:///tank/w?socket="));
    bench.client("v.sock", "tank/w").write(0, &[9; 512], true).unwrap();
    bench.client("v.sock", "");
    // The old name may be that of another volume by now.
    let endpoint = Endpoint::Unix(bench.path("v.sock"));
    assert!(Client::connect(&endpoint, "tank/v").is_err());
    assert_eq!(before.read(0, 512).unwrap(), [9; 512]);
}

#[test]
fn what_up_makes_is_for_its_user_alone() {
    let bench = Bench::new();
    let up = bench.up("data/demo --size 64M --emulate-pm --pm-size 16M");
    let mode = |name: &str| fs::metadata(bench.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("data/demo"), mode("data/demo/pool.img"), mode("data/demo/pm.log")),
        (0o700, 0o600, 0o600)
    );
    assert_eq!(up.interrupt(), Some(0));
    bench.ok("pool create tank a --file-size 64M --no-import");
    assert_eq!(mode("a"), 0o600);
}

#[test]
fn a_failed_up_leaves_a_pool_as_it_was() {
    let bench = Bench::new();
    assert_eq!(bench.up("demo --size 64M").interrupt(), Some(0));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    bench.fails(&format!("up demo --size 64M --no-mount --tcp {address}"), IN_USE);
    // After the import: a region that cannot be.
    bench.fails("up demo --size 64M --no-mount --pm demo", INVALID);
    let up = bench.up("demo --size 64M");
    assert!(up.said.contains("exported cleanly"), "{}", up.said);
}

#[test]
fn up_says_that_its_pool_was_destroyed() {
    let bench = Bench::new();
    let up = bench.up("demo --size 64M");
    bench.client("demo/volume.sock", "demo/volume").write(0, &[7; 512], true).unwrap();
    bench.ok("pool destroy demo");
    drop(up);
    let said = bench.fails("up demo --no-mount", INVALID);
    assert!(said.contains("import -D demo -d") && said.contains("remove"), "{said}");
    bench.ok("pool import -D demo -d demo");
    bench.ok("pool export demo");
    let _up = bench.up("demo");
    assert_eq!(bench.client("demo/volume.sock", "demo/volume").read(0, 512).unwrap(), [7; 512]);
}

#[test]
fn folders_of_one_name_need_not_clash() {
    let bench = Bench::new();
    let first = bench.up("one/data --size 64M");
    let said = bench.fails("up two/data --size 64M --no-mount", BUSY);
    assert!(said.contains("one/data/pool.img") && said.contains("--name"), "{said}");
    assert!(!bench.path("two/data").exists());
    let second = bench.up("two/data --size 64M --name other");
    bench.ok("status data");
    bench.ok("status other");
    assert!(bench.fails("up one/data --no-mount", BUSY).contains("already running"));
    assert!(bench.fails("up two/data --no-mount --name other", BUSY).contains("already running"));
    assert_eq!((second.interrupt(), first.interrupt()), (Some(0), Some(0)));
    // It keeps its name, and an existing pool takes another.
    let second = bench.up("two/data");
    bench.ok("status other");
    let first = bench.up("one/data --name third");
    bench.client("one/data/volume.sock", "third/volume");
    assert_eq!((second.interrupt(), first.interrupt()), (Some(0), Some(0)));
}

#[test]
fn a_pool_is_imported_by_its_guid_and_under_another_name() {
    let bench = pool("a");
    let guid = guid(&bench, "tank");
    bench.ok("volume create tank/v 8M");
    bench.ok("volume serve tank/v --socket v.sock");
    bench.client("v.sock", "tank/v").write(0, &[7; 512], true).unwrap();
    bench.ok("pool export tank");
    let shown = bench.ok(&format!("pool import {guid} -d ."));
    assert!(shown.contains("tank") && shown.contains("online"), "{shown}");
    assert!(bench.fails(&format!("pool import {guid}"), BUSY).contains("already running, as pool tank"));
    bench.ok("pool export tank");
    assert!(bench.fails("pool import tank a/b", INVALID).contains("a/b"));
    bench.ok("pool import tank lake -N");
    assert_eq!(bench.json("dataset list")[1]["name"], "lake/v");
    assert!(!bench.path("v.sock").exists(), "-N serves nothing");
    bench.ok("pool export lake");
    bench.ok("pool import lake");
    assert_eq!(bench.client("v.sock", "lake/v").read(0, 512).unwrap(), [7; 512]);
    bench.ok("pool create pond b --file-size 64M");
    for name in ["lake", "pond"] {
        bench.ok(&format!("pool export {name}"));
    }
    assert_eq!(bench.json("pool import -a").as_array().unwrap().len(), 2);
    let output = bench.run("pool import");
    assert!(String::from_utf8_lossy(&output.stderr).contains("running already: lake, pond"), "{output:?}");
}

#[test]
fn a_side_that_is_offline_is_not_called_missing_and_counters_are_cleared() {
    let bench = pool("mirror a b");
    let device = |name: &str, key: &str| {
        let output = bench.run("pool status tank --json");
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let devices = status[0]["vdevs"][0]["devices"].as_array().unwrap().clone();
        let is_it = |device: &&Value| Path::new(device["path"].as_str().unwrap()).ends_with(name);
        devices.iter().find(is_it).unwrap()[key].clone()
    };
    // By the last part of its path.
    bench.ok("pool offline tank a");
    assert_eq!(device("a", "state"), "offline");
    let output = bench.run("pool status tank");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("a is offline: bring it back with `fastness pool online tank"), "{said}");
    assert!(bench.fails("pool offline tank b", BUSY).contains("no other side of its mirror has everything"));
    bench.ok("pool online tank a --wait");
    assert_eq!(device("a", "state"), "online");
    bench.ok("volume create tank/v 8M");
    bench.ok("volume serve tank/v --socket v.sock");
    let data: Vec<u8> = (0..4u32 << 20).map(|at| (at / 4096 * 37 + at % 251) as u8).collect();
    bench.client("v.sock", "tank/v").write(0, &data, false).unwrap();
    bench.ok("pool sync tank");
    let file = fs::File::options().read(true).write(true).open(bench.path("a")).unwrap();
    file.write_all_at(&[0xa5; 8 << 20], 1 << 20).unwrap();
    bench.ok_or_found("pool scrub tank --wait");
    assert!(device("a", "checksum_errors").as_u64() > Some(0));
    bench.ok("pool clear tank b");
    assert!(device("a", "checksum_errors").as_u64() > Some(0), "only of that device");
    bench.ok("pool clear tank");
    assert_eq!((device("a", "checksum_errors"), device("a", "healed")), (0.into(), 0.into()));
    let said = bench.ok("pool status tank");
    assert!(!said.contains("made errors"), "{said}");
}

#[test]
fn a_region_of_a_log_is_no_device_with_damaged_labels() {
    let bench = pool("a log pm --emulate-pm --pm-size 16M");
    bench.ok("log create records --size 16M");
    bench.ok("pool export tank");
    let output = bench.run("pool import -d .");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{output:?}");
}

#[test]
fn what_a_user_may_not_do_has_an_exit_code_of_its_own() {
    let Some(bench) = Bench::for_mounts() else { return };
    fs::create_dir(bench.path("home")).unwrap();
    std::os::unix::fs::chown(bench.path("home"), Some(STRANGER), Some(STRANGER)).unwrap();
    fs::create_dir(bench.path("theirs")).unwrap();
    fs::write(bench.path("theirs/disk"), vec![0; 16 << 20]).unwrap();
    for path in ["theirs", "theirs/disk"] {
        fs::set_permissions(bench.path(path), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let program = bench.text("programs/fastness");
    for line in ["up ../theirs/new --no-mount", "pool create tank ../theirs/disk"] {
        let arguments: Vec<&str> = std::iter::once(&*program).chain(line.split(' ')).collect();
        let output = bench.as_stranger(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(DENIED), "{line}: {said}");
        assert!(said.contains("theirs") && said.contains("owner and mode"), "{line}: {said}");
    }
}
