//! What status, iostat and the metrics say of mounts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use crate::{Mounted, mounted};

/// How many requests of a name the server of `tank` has answered.
pub fn operations(files: &Mounted, name: &str) -> u64 {
    let status = files.bench.json("status tank");
    let operations = status[0]["served"][0]["operations"].as_array().unwrap();
    let of = operations.iter().find(|of| of["operation"] == name);
    of.map_or(0, |of| of["ops"].as_u64().unwrap())
}

#[test]
fn counters_of_files() {
    let Some(files) = mounted("log pm --emulate-pm --pm-size 16M") else { return };
    let mut file = File::create(files.path("a")).unwrap();
    for _ in 0..3 {
        file.write_all(&[1; 4096]).unwrap();
        file.sync_all().unwrap();
    }
    // Durable when it returns, by itself: some kernels send an fsync after it, and some do not.
    const O_DSYNC: i32 = 0o10_000;
    let mut synchronous = File::options();
    synchronous.write(true).create(true).truncate(false).custom_flags(O_DSYNC);
    synchronous.open(files.path("b")).unwrap().write_all(&[2; 100]).unwrap();
    let io: serde_json::Value = serde_json::from_str(files.bench.ok("iostat --json").trim()).unwrap();
    let row = &io["volumes"][0];
    assert_eq!((&row["name"], &row["kind"]), (&"tank/home".into(), &"files".into()));
    assert_eq!((&row["write"]["bytes"], &row["sync_write"]["bytes"]), (&12288.into(), &100.into()));
    let flushes = row["flush"]["ops"].as_u64().unwrap();
    assert!([3, 4].contains(&flushes), "{flushes}");
    assert!(files.bench.ok("iostat").contains("files tank/home"));
    let request = |name: &str| {
        let requests = row["requests"].as_array().unwrap();
        requests.iter().find(|of| of["request"] == name).unwrap_or_else(|| panic!("{name}: {requests:?}"))
    };
    let (create, timed) = (request("create"), &request("write")["latencies"]);
    let timed: u64 = timed.as_array().unwrap().iter().map(|bucket| bucket["ops"].as_u64().unwrap()).sum();
    assert_eq!((create["ops"].as_u64(), timed), (Some(2), 4));
    let latencies = files.bench.ok("iostat -l");
    let line = |operation: &str| latencies.lines().find(|line| line.contains(operation)).unwrap();
    assert!(latencies.contains("p50") && latencies.contains("p99"));
    assert!(line("fuse write").contains("tank/home") && line("fuse create").contains("tank/home"));
    let of = |name: &str| operations(&files, name);
    assert_eq!((of("create"), of("write"), of("fsync")), (2, 4, flushes));
    assert!(files.bench.ok("status tank").contains(files.at.to_str().unwrap()));

    let text = files.bench.ok("metrics");
    for line in [
        "fastness_pool_state{pool=\"tank\",state=\"online\"} 1",
        "fastness_operations_total{pool=\"tank\",kind=\"files\",name=\"tank/home\",operation=\"write\"} 3",
        "fastness_operation_bytes_total{pool=\"tank\",kind=\"files\",name=\"tank/home\",operation=\"write\"} 12288",
        "fastness_mount_requests_total{pool=\"tank\",name=\"tank/home\",request=\"write\"} 4",
        "fastness_log_info{pool=\"tank\",kind=\"pmem\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    let request = "{pool=\"tank\",name=\"tank/home\",request=\"write\"}";
    assert!(text.contains(&format!("fastness_mount_request_seconds_count{request} 4")), "{text}");
    assert!(
        text.contains("fastness_operation_seconds_bucket{pool=\"tank\",kind=\"files\",name=\"tank/home\"")
    );
}

#[test]
fn space_is_told_truthfully() {
    let Some(files) = mounted("") else { return };
    let space = || rustix::fs::statvfs(&files.at).unwrap();
    let before = space();
    assert!(before.f_blocks >= before.f_bfree && before.f_bfree > 0 && before.f_namemax == 255);
    // Bytes that cannot be compressed.
    let mut rng = fastness_testkit::Rng(1);
    fs::write(files.path("a"), rng.bytes(32 << 20)).unwrap();
    files.bench.ok("pool sync tank");
    let used = (before.f_bfree - space().f_bfree) * space().f_frsize;
    assert!((32 << 20..48 << 20).contains(&used), "{used}");
    files.bench.ok("dataset set quota=64M tank/home");
    let total = space().f_blocks * space().f_frsize;
    assert_eq!(total, 64 << 20);
    let refused = fs::write(files.path("b"), rng.bytes(48 << 20)).unwrap_err();
    assert!([Some(28), Some(122)].contains(&refused.raw_os_error()), "{refused}");
    fs::remove_file(files.path("a")).unwrap();
    fs::remove_file(files.path("b")).unwrap();
    files.bench.ok("pool sync tank");
    fs::write(files.path("b"), rng.bytes(48 << 20)).unwrap();
    assert_eq!(files.check(), 0);
}
