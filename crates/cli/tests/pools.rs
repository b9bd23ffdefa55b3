//! Pools, datasets and volumes on the command line.

#[path = "pools/columns.rs"]
mod columns;
#[path = "pools/grow.rs"]
mod grow;
#[path = "pools/lists.rs"]
mod lists;
mod support;
#[path = "pools/thick.rs"]
mod thick;
#[path = "pools/trim.rs"]
mod trim;

use std::os::unix::fs::{FileExt, PermissionsExt};

use serde_json::Value;
use support::Bench;

/// A pool of two mirrored files.
fn mirror() -> Bench {
    let bench = Bench::new();
    bench.ok("pool create tank mirror a b --file-size 64M");
    bench
}

fn device<'a>(status: &'a Value, name: &str) -> &'a Value {
    let devices =
        status[0]["vdevs"].as_array().unwrap().iter().flat_map(|vdev| vdev["devices"].as_array().unwrap());
    devices.into_iter().find(|device| device["path"].as_str().unwrap().ends_with(name)).unwrap()
}

#[test]
fn a_pool_is_made_given_back_and_imported_again_with_what_it_served() {
    let bench = mirror();
    bench.ok("volume create tank/disk 32M -b 4K");
    let uri = bench.ok(&format!("volume serve tank/disk --socket {}", bench.text("disk.sock")));
    assert_eq!(uri.trim(), format!("nbd+unix:///tank/disk?socket={}", bench.text("disk.sock")));
    bench.client("disk.sock", "tank/disk").write(0, b"kept", true).unwrap();
    bench.ok("pool export tank");
    assert!(!bench.path("disk.sock").exists());
    assert!(bench.fails("volume list tank", 2).contains("unexpected"));
    let said = bench.fails("dataset list tank", 11);
    assert!(said.contains("not running") && said.contains("pool import"), "{said}");
    let found = bench.ok(&format!("pool import -d {}", bench.text("")));
    assert!(found.contains("tank") && found.contains("exported"), "{found}");
    bench.ok("pool import tank");
    assert_eq!(bench.client("disk.sock", "tank/disk").read(0, 4).unwrap(), b"kept");
    bench.ok("volume unserve tank/disk");
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert!(!bench.path("disk.sock").exists());
}

#[test]
fn the_control_socket_is_for_its_owner_and_survives_nonsense() {
    use std::io::{Read, Write};
    let bench = mirror();
    let path = bench.path("run/tank.control");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for nonsense in [
        &b"\xff\xfe\n"[..],
        b"{}\n",
        b"{\"command\":\"no such\"}\n",
        b"{\"command\":\"serve\"}\n",
        b"[[[[[[[[\n",
    ] {
        let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
        socket.write_all(nonsense).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("\"failed\"") && answer.contains("invalid"), "{answer}");
    }
    let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    // Longer than any request may be; the daemon breaks off.
    let _ = socket.write_all(&vec![b'x'; 2 << 20]);
    bench.ok("pool status tank");
}

#[test]
fn datasets_have_properties_that_are_inherited() {
    let bench = mirror();
    bench.ok("dataset create tank/a -o compression=lz4");
    bench.ok("dataset create -p tank/a/b/c");
    bench.ok("volume create tank/a/v 1G");
    let get = bench.ok("dataset get compression,quota tank/a/b/c");
    assert!(get.contains("lz4") && get.contains("inherited from tank/a"), "{get}");
    bench.ok("dataset set compression=zstd tank/a/b tank/a/v");
    assert!(bench.ok("dataset get compression tank/a/b/c").contains("inherited from tank/a/b"));
    bench.ok("dataset inherit compression tank/a/b");
    assert!(bench.ok("dataset get compression tank/a/b/c").contains("lz4"));
    bench.ok("dataset rename tank/a/b tank/moved");
    let names: Vec<_> =
        bench.json("dataset list").as_array().unwrap().iter().map(|set| set["name"].clone()).collect();
    assert_eq!(names, ["tank", "tank/a", "tank/a/v", "tank/moved", "tank/moved/c"]);
    for (line, code) in [
        ("dataset create tank/a", 3),
        ("dataset create nowhere/a", 11),
        ("dataset create tank/x/y", 3),
        ("dataset set compression=gzip tank/a", 3),
        ("dataset set volblocksize=8K tank/a/v", 3),
        ("dataset get nonsense tank/a", 3),
        ("dataset destroy tank/a", 3),
        ("dataset rename tank/a tank/a/b", 3),
        ("volume create tank/odd 1000", 3),
        ("volume resize tank/a/v 1M", 3),
        ("volume serve tank/a", 3),
    ] {
        bench.fails(line, code);
    }
    bench.ok("volume resize tank/a/v 2G");
    bench.ok("volume resize tank/a/v 1M --shrink");
    bench.ok("volume serve tank/a/v");
    assert!(bench.fails("dataset destroy -r tank/a", 4).contains("unserve"));
    bench.ok("volume unserve tank/a/v");
    bench.ok("dataset destroy -r tank/a");
    assert_eq!(bench.json("dataset list").as_array().unwrap().len(), 3);
    assert_eq!(bench.json("pool check")["is_clean"], true);
}

#[test]
fn a_damaged_side_is_healed_and_counted_by_a_scrub() {
    let bench = mirror();
    bench.ok("volume create tank/disk 16M -b 4K");
    bench.ok(&format!("volume serve tank/disk --socket {}", bench.text("disk.sock")));
    let mut client = bench.client("disk.sock", "tank/disk");
    for block in 0..256u64 {
        client.write(block * 4096, &vec![block as u8 ^ 0x5a; 4096], false).unwrap();
    }
    bench.ok("pool sync tank");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(bench.path("a")).unwrap();
    // Everything between the labels.
    file.write_all_at(&vec![0xab; (64 << 20) - (600 << 10)], 300 << 10).unwrap();
    let report = bench.run("pool scrub tank --wait");
    assert_eq!(report.status.code(), Some(1), "{report:?}");
    let status = bench.json("pool status tank");
    let healed = device(&status, "/a")["healed"].as_u64().unwrap();
    assert!(healed > 256, "{status}");
    assert_eq!(device(&status, "/b")["checksum_errors"], 0);
    assert_eq!(status[0]["job"]["lost"], Value::Array(Vec::new()));
    bench.ok("pool scrub tank --wait");
    for block in 0..256u64 {
        assert_eq!(client.read(block * 4096, 4096).unwrap(), vec![block as u8 ^ 0x5a; 4096]);
    }
}

#[test]
fn devices_come_and_go() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M");
    bench.ok("volume create tank/disk 16M -b 4K");
    bench.ok(&format!("volume serve tank/disk --socket {}", bench.text("disk.sock")));
    let mut client = bench.client("disk.sock", "tank/disk");
    let data: Vec<u8> = (0..8 << 20).map(|at: u32| (at ^ at >> 11) as u8).collect();
    client.write(0, &data, false).unwrap();
    client.flush().unwrap();
    for name in ["b", "c", "d", "log"] {
        std::fs::File::create(bench.path(name)).unwrap().set_len(64 << 20).unwrap();
    }
    std::fs::File::create(bench.path("small")).unwrap().set_len(16 << 20).unwrap();
    let (a, b) = (bench.text("a"), bench.text("b"));
    bench.ok(&format!("pool attach tank {a} {b} --wait"));
    bench.ok(&format!("pool detach tank {a}"));
    assert!(bench.fails(&format!("pool detach tank {b}"), 4).contains("no other side"));
    bench.ok(&format!("pool replace tank {b} {} --wait", bench.text("c")));
    bench.ok(&format!("pool add tank {} log {}", bench.text("d"), bench.text("log")));
    assert!(bench.fails(&format!("pool remove tank {}", bench.text("d")), 3).contains("log devices"));
    bench.ok(&format!("pool remove tank {}", bench.text("log")));
    assert!(
        bench
            .fails(&format!("pool attach tank {} {}", bench.text("c"), bench.text("small")), 3)
            .contains("needs")
    );
    assert!(bench.fails(&format!("pool attach tank {} /nowhere", bench.text("c")), 3).contains("/nowhere"));
    let said = bench.fails(&format!("pool add tank {}", bench.text("c")), 4);
    assert!(said.contains("in use") || said.contains("another"), "{said}");
    assert_eq!(client.read(0, 8 << 20).unwrap(), data);
    drop(client);
    bench.ok("pool export tank");
    bench.ok("pool import tank");
    assert!(bench.client("disk.sock", "tank/disk").read(0, 8 << 20).unwrap() == data);
    assert_eq!(bench.json("pool check")["is_clean"], true);
    bench.ok("pool export tank");
    // The devices that left are free, the others are not given to another pool by mistake.
    bench.ok(&format!("pool create other {a}"));
    assert!(bench.fails(&format!("pool create third {}", bench.text("c")), 3).contains("pool tank"));
    std::fs::remove_file(bench.path("d")).unwrap();
    let said = bench.fails(&format!("pool import tank -d {}", bench.text("c")), 7);
    assert!(said.contains("/d"), "{said}");
    bench.ok("pool destroy other");
    assert!(!bench.ok(&format!("pool import -d {a}")).contains("other"));
}

#[test]
fn a_degraded_pool_says_so_and_is_repaired() {
    let bench = mirror();
    bench.ok("volume create tank/disk 16M");
    bench.ok("pool export tank");
    std::fs::rename(bench.path("b"), bench.path("gone")).unwrap();
    assert!(bench.fails("pool import tank", 7).contains("degraded"));
    bench.ok("pool import tank --degraded");
    let output = bench.run("pool status tank");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("degraded") && text.contains("missing") && text.contains("pool replace"), "{text}");
    std::fs::File::create(bench.path("new")).unwrap().set_len(64 << 20).unwrap();
    let status: Value = serde_json::from_slice(&bench.run("pool status --json").stdout).unwrap();
    let guid = device(&status, "/b")["guid"].as_str().unwrap().to_owned();
    bench.ok(&format!("pool replace tank {guid} {} --wait", bench.text("new")));
    assert!(bench.ok("pool status tank").contains("online"));
    // The old side comes back too late.
    bench.ok("pool export tank");
    std::fs::rename(bench.path("gone"), bench.path("b")).unwrap();
    let found = bench.ok(&format!("pool import -d {}", bench.text("")));
    assert_eq!(found.lines().filter(|line| line.contains("tank")).count(), 1, "{found}");
    bench.ok(&format!("pool import tank -d {}", bench.text("")));
    assert!(bench.ok("pool status tank").contains("online"));
}

#[test]
fn a_side_goes_offline_and_comes_back_elsewhere() {
    let bench = mirror();
    bench.ok("volume create tank/disk 16M -b 4K");
    bench.ok(&format!("volume serve tank/disk --socket {}", bench.text("disk.sock")));
    let mut client = bench.client("disk.sock", "tank/disk");
    let (a, b) = (bench.text("a"), bench.text("b"));
    client.write(0, &[1; 1 << 20], true).unwrap();
    bench.ok(&format!("pool offline tank {b}"));
    assert!(bench.fails(&format!("pool offline tank {a}"), 4).contains("no other side"));
    client.write(0, &[2; 1 << 20], true).unwrap();
    assert_eq!(bench.run("pool status tank").status.code(), Some(1));
    std::fs::rename(&b, bench.path("moved")).unwrap();
    assert!(bench.fails(&format!("pool online tank {b}"), 3).contains("/b"));
    // Another device of the pool is not this one.
    std::fs::copy(&a, bench.path("copy")).unwrap();
    bench.fails(&format!("pool online tank {b} --path {}", bench.text("copy")), 3);
    bench.ok(&format!("pool online tank {b} --path {} --wait", bench.text("moved")));
    assert_eq!(bench.run("pool status tank").status.code(), Some(0));
    bench.ok(&format!("pool offline tank {a}"));
    client.write(1 << 20, &[3; 4096], true).unwrap();
    assert_eq!(client.read(0, 1 << 20).unwrap(), vec![2; 1 << 20]);
    bench.ok(&format!("pool online tank {a} --wait"));
    assert_eq!(bench.run("pool scrub tank --wait").status.code(), Some(0));
}

#[test]
fn a_log_changes_its_kind_and_its_devices() {
    let bench = mirror();
    let kind = || bench.json("status")[0]["log"]["kind"].as_str().unwrap().to_owned();
    bench.ok("volume create tank/disk 8M -b 4K");
    bench.ok(&format!("volume serve tank/disk --socket {}", bench.text("disk.sock")));
    let mut client = bench.client("disk.sock", "tank/disk");
    let mut offset = 0;
    let mut write = || {
        offset += 4096;
        client.write(offset, b"acknowledged", true).unwrap();
    };
    write();
    assert_eq!(kind(), "lwb");
    bench.ok(&format!("pool add tank log {} --emulate-pm --pm-size 16M", bench.text("pm")));
    write();
    assert_eq!(kind(), "pmem");
    std::fs::write(bench.path("log"), []).unwrap();
    std::fs::File::options().write(true).open(bench.path("log")).unwrap().set_len(64 << 20).unwrap();
    let said = bench.fails(&format!("pool add tank log {}", bench.text("log")), 3);
    assert!(said.contains("one kind"), "{said}");
    // It is found again where it was; or elsewhere, if it is said where.
    bench.ok("pool export tank --force");
    std::fs::rename(bench.path("pm"), bench.path("pm2")).unwrap();
    let said = bench.fails("pool import tank", 7);
    assert!(said.contains("log device"), "{said}");
    bench.ok(&format!("pool import tank --log {}", bench.text("pm2")));
    assert_eq!(kind(), "pmem");
    bench.ok(&format!("pool remove tank {}", bench.text("pm2")));
    assert_eq!(kind(), "lwb");
    bench.ok(&format!("pool add tank log {}", bench.text("log")));
    let status = bench.ok("pool status tank");
    assert!(status.contains("a device for logs"), "{status}");
    let mut client = bench.client("disk.sock", "tank/disk");
    client.write(0, b"acknowledged", true).unwrap();
    bench.ok(&format!("pool remove tank {}", bench.text("log")));
    client.write(4096, b"acknowledged", true).unwrap();
    assert!(bench.fails(&format!("pool remove tank {}", bench.text("a")), 3).contains("holds data"));
    bench.ok("pool export tank --force");
    bench.ok("pool import tank");
    let mut client = bench.client("disk.sock", "tank/disk");
    for block in 0..3 {
        assert_eq!(client.read(block * 4096, 12).unwrap(), b"acknowledged");
    }
    bench.ok("pool check tank");
}

#[test]
fn a_pool_is_made_with_a_log_and_imported_without_it_only_if_told() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M log pm --emulate-pm --pm-size 16M");
    assert_eq!(bench.json("status")[0]["log"]["regions"][0]["emulates"].as_bool(), Some(true));
    bench.ok("pool export tank");
    std::fs::remove_file(bench.path("pm")).unwrap();
    bench.fails("pool import tank", 7);
    bench.ok("pool import tank --read-only");
    bench.ok("pool export tank");
    bench.ok("pool import tank --missing-log");
    assert_eq!(bench.json("status")[0]["log"]["kind"].as_str(), Some("lwb"));
    let blocks = Bench::new();
    blocks.ok("pool create tank a log b --file-size 64M");
    blocks.ok("pool export tank");
    std::fs::remove_file(blocks.path("b")).unwrap();
    let said = blocks.fails("pool import tank", 7);
    assert!(said.contains("/b"), "{said}");
    blocks.ok("pool import tank --missing-log");
}

#[test]
fn a_disk_from_before_its_log_is_refused_by_the_region_that_it_does_not_know() {
    let bench = Bench::new();
    bench.ok("pool create tank a --file-size 64M --no-import");
    let copy = std::fs::read(bench.path("a")).unwrap();
    bench.ok("pool import tank -d a");
    bench.ok("pool add tank log pm --emulate-pm --pm-size 16M");
    bench.ok("pool export tank");
    std::fs::write(bench.path("a"), copy).unwrap();
    // The region's place is known, given, or in the folder.
    for line in ["pool import tank", "pool import tank -d a --log pm", "pool import tank -d ."] {
        let said = bench.fails(line, 6);
        for word in ["region", "/pm", "become durable", "a copy from earlier", "/a"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    bench.ok("pool import tank -d . --missing-log");
    let found = bench.json("status")[0]["found"].as_str().unwrap().to_owned();
    assert!(found.contains("as it was earlier"), "{found}");
}

#[test]
fn what_no_socket_or_file_can_be_called_is_refused_before_anything_is_made() {
    let bench = Bench::new();
    let name = "x".repeat(108);
    for line in ["pool create NAME a --file-size 64M", "up NAME", "pool import NAME -d .", "status NAME"] {
        let said = bench.fails(&line.replace("NAME", &name), 3);
        assert!(said.contains("too long a name") && said.contains("FASTNESS_RUN_DIR"), "{line}: {said}");
        assert!(!bench.path("a").exists() && !bench.path(&name).join("pool.img").exists(), "{line}");
    }
    bench.ok("pool create tank a --file-size 64M log pm --emulate-pm --pm-size 16M");
    bench.ok("volume create -p tank/x/y 1M");
    bench.ok("volume create tank/x:y 1M");
    assert_ne!(bench.ok("volume serve tank/x/y"), bench.ok("volume serve tank/x:y"));
    for words in [
        &["pool", "create", "other", ""][..],
        &["pool", "add", "tank", "log", ""],
        &["pool", "attach", "tank", "a", ""],
        &["pool", "replace", "tank", "a", ""],
        &["pool", "remove", "tank", ""],
        &["pool", "online", "tank", "a", "--path", ""],
        &["volume", "serve", "tank/x/y", "--socket", ""],
    ] {
        let output = bench.command("").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{words:?}: {output:?}");
    }
    for word in ["online", "offline"] {
        let said = bench.fails(&format!("pool {word} tank {}", bench.text("pm")), 3);
        assert!(said.contains("region of the log") && said.contains("pool replace tank"), "{said}");
    }
}

#[test]
fn devices_with_something_on_them_need_force() {
    let bench = Bench::new();
    let file = std::fs::File::create(bench.path("disk")).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&[0x53, 0xef], 0x438).unwrap();
    let line = format!("pool create tank {}", bench.text("disk"));
    assert!(bench.fails(&line, 3).contains("ext4"));
    bench.ok(&format!("{line} --force"));
    for line in [
        "pool create tank x --file-size 64M",
        "pool create bad/name x --file-size 64M",
        "pool create t mirror",
    ] {
        bench.fails(line, 3);
    }
}

#[test]
fn manual_pages_and_completions_are_made() {
    let bench = Bench::new();
    bench.ok(&format!("man --dir {}", bench.text("man")));
    for page in ["fastness.1", "fastness-up.1", "fastness-pool-create.1", "fastness-volume-serve.1"] {
        let text = std::fs::read_to_string(bench.path("man").join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains("fastness"), "{page}");
    }
    assert!(bench.ok("completions bash").contains("iostat"));
}
