//! What the program says of durability, after what decides it has changed.

mod support;

use std::os::unix::fs::FileExt;

use support::Bench;

const UP: &str = "demo --size 64M";

fn status(bench: &Bench, key: &str) -> String {
    let output = bench.run("status --json");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    status[0][key].as_str().unwrap_or_default().to_owned()
}

#[test]
fn after_a_log_was_given_up_nothing_says_that_flushed_writes_are_there() {
    let bench = Bench::new();
    let emulated = format!("{UP} --emulate-pm --txg-timeout 300");
    let up = bench.up(&emulated);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    client.write(0, &vec![7; 8 << 20], false).unwrap();
    client.flush().unwrap();
    up.kill();
    std::fs::remove_file(bench.path("demo/pm.log")).unwrap();
    let refused = bench.fails(&format!("up {emulated}"), 7);
    assert!(refused.contains("not here") && refused.contains("--drop-log"), "{refused}");
    let up = bench.up(&format!("{UP} --drop-log"));
    assert!(
        up.said.contains("without its log: flushed writes") && up.said.contains("are lost"),
        "{}",
        up.said
    );
    let found = status(&bench, "found");
    assert!(!found.contains("every flushed write"));
    for line in ["status demo", "pool status demo"] {
        let said = bench.ok(line);
        assert!(said.contains(&found), "{line}: {said}");
    }
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    assert_eq!(client.read(0, 4096).unwrap(), [0; 4096]);
    drop(client);
    assert_eq!(up.interrupt(), Some(0));
    // An export has everything.
    assert!(bench.up(UP).said.contains("exported cleanly"));
}

#[test]
fn volumes_that_ignore_flushes_are_named() {
    let bench = Bench::new();
    let up = bench.up(UP);
    assert!(status(&bench, "after_process_crash").starts_with("every flushed write"));
    bench.ok("dataset set sync=disabled demo/volume");
    for key in ["after_process_crash", "not_flushed"] {
        let words = status(&bench, key);
        assert!(words.contains("transaction group") && !words.contains("every"), "{key}: {words}");
    }
    bench.ok("volume create demo/other 1M");
    assert!(status(&bench, "after_process_crash").contains("sync=disabled (demo/volume)"));
    bench.ok("pool scrub demo --wait");
    up.kill();
    let said = bench.up(UP).said.clone();
    assert!(said.contains("not of volumes with sync=disabled (demo/volume)"), "{said}");
}

#[test]
fn a_pool_with_blocks_that_have_no_right_copy_is_no_pool_online() {
    let bench = Bench::new();
    let up = bench.up(UP);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    let data: Vec<u8> = (0..4u32 << 20).map(|at| (at / 4096 * 37 + at % 251) as u8).collect();
    client.write(0, &data, false).unwrap();
    client.flush().unwrap();
    drop(client);
    assert_eq!(up.interrupt(), Some(0));
    // A stray write to the wrong device.
    let path = bench.path("demo/pool.img");
    let bytes = std::fs::read(&path).unwrap();
    let is_data = |at: &usize| bytes[*at..].starts_with(&data[..4096]);
    let at = (0..bytes.len()).step_by(4096).find(is_data).expect("the first block, as it was written");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xa5; 64 << 10], at as u64).unwrap();
    let up = bench.up(UP);
    assert_eq!(status(&bench, "state"), "online");
    bench.ok_or_found("pool scrub demo --wait");
    assert_eq!(status(&bench, "state"), "damaged");
    let listed = bench.run("pool status");
    assert_eq!(listed.status.code(), Some(1), "{listed:?}");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("no right copy"), "{listed:?}");
    assert_eq!(bench.run("status").status.code(), Some(1));
    // The next process knows it as well, and where.
    up.kill();
    let up = bench.up(UP);
    assert_eq!(status(&bench, "state"), "damaged");
    let listed = String::from_utf8(bench.run("pool status -v").stdout).unwrap();
    assert!(listed.contains("demo/volume  "), "{listed}");
    // Written again, it is whole; a scrub knows.
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    client.write(0, &data, false).unwrap();
    client.flush().unwrap();
    bench.ok_or_found("pool scrub demo --wait");
    assert_eq!((status(&bench, "state").as_str(), bench.run("status").status.code()), ("online", Some(0)));
    drop(client);
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn an_ordinary_file_is_not_called_fast() {
    let bench = Bench::new();
    // Not in memory, where the pools of tests are.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plain = folder.path().join("plain");
    std::fs::File::create(&plain).unwrap().set_len(16 << 20).unwrap();
    let up = bench.up(&format!("{UP} --pm {}", plain.display()));
    assert!(up.said.contains("wait until its disk has them"), "{}", up.said);
    assert!(!up.said.contains("microseconds") && !up.said.contains("disk's cache"), "{}", up.said);
    assert_eq!(up.interrupt(), Some(0));
}
