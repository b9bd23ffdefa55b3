//! `fastness up`, as a newcomer uses it.

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use support::Bench;

const UP: &str = "demo --size 64M";

#[test]
fn a_volume_is_served_and_what_was_flushed_survives_a_kill() {
    let bench = Bench::new();
    let up = bench.up(UP);
    assert!(up.said.contains("made just now"), "{}", up.said);
    assert!(up.said.contains("after a power cut      nothing") || !up.said.contains("tmpfs"), "{}", up.said);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    assert_eq!(client.hello().size_bytes, 64 << 20);
    client.write(4096, b"flushed", false).unwrap();
    client.flush().unwrap();
    up.kill();
    let up = bench.up(UP);
    assert!(up.said.contains("after a crash"), "{}", up.said);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    assert_eq!(client.read(4096, 7).unwrap(), b"flushed");
    drop(client);
    assert_eq!(up.interrupt(), Some(0));
    let up = bench.up(UP);
    assert!(up.said.contains("exported cleanly"), "{}", up.said);
}

#[test]
fn status_and_iostat_say_what_happens() {
    let bench = Bench::new();
    let up = bench.up(UP);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    client.write(0, &[7; 4096], false).unwrap();
    client.flush().unwrap();
    client.write(4096, &[7; 4096], true).unwrap();
    let status = &bench.json("status")[0];
    assert_eq!((status["name"].as_str(), status["state"].as_str()), (Some("demo"), Some("online")));
    assert_eq!(status["pid"].as_u64(), Some(u64::from(up.child.id())));
    assert_eq!(status["served"][0]["clients"].as_u64(), Some(1));
    let text = bench.ok("status");
    assert!(text.contains("demo/volume") && text.contains("after a power cut"), "{text}");
    let io: serde_json::Value = serde_json::from_str(&bench.ok("iostat --json")).unwrap();
    let volume = &io["volumes"][0];
    assert_eq!((volume["write"]["ops"].as_u64(), volume["write"]["bytes"].as_u64()), (Some(1), Some(4096)));
    assert_eq!(volume["flush"]["ops"].as_u64(), Some(1));
    assert_eq!(volume["sync_write"]["ops"].as_u64(), Some(1));
    assert_eq!(volume["sync_write"]["latencies"][0]["ops"].as_u64(), Some(1));
    assert!(io["devices"][0]["flush"]["ops"].as_u64() > Some(0));
    let latencies = bench.ok("iostat -l");
    assert!(latencies.contains("p99.9") && latencies.contains("sync write"), "{latencies}");
    assert!(bench.ok("iostat -w").contains("up to"));
    assert!(bench.ok("iostat 1 2").matches("volume demo/volume").count() == 2);
    let listed = bench.json("dataset list");
    assert_eq!(listed[1]["size_bytes"].as_u64(), Some(64 << 20));
}

#[test]
fn a_second_up_in_the_same_folder_is_refused() {
    let bench = Bench::new();
    let _up = bench.up(UP);
    let said = bench.fails(&format!("up {UP}"), 4);
    assert!(said.contains("demo is already running"), "{said}");
    // Of another user, say: it cannot be asked.
    std::fs::remove_file(bench.path("run/demo.control")).unwrap();
    let said = bench.fails(&format!("up {UP} --wait 0"), 4);
    assert!(said.contains("pool.img"), "{said}");
}

#[test]
fn half_a_pool_file_is_made_anew() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("demo")).unwrap();
    std::fs::write(bench.path("demo/pool.img.new"), b"half").unwrap();
    let _up = bench.up(UP);
    assert!(!bench.path("demo/pool.img.new").exists());
}

#[test]
fn a_file_that_is_no_pool_is_not_touched() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("demo")).unwrap();
    let other = vec![7; 16 << 20];
    std::fs::write(bench.path("demo/pool.img"), &other).unwrap();
    let said = bench.fails(&format!("up {UP}"), 3);
    assert!(said.contains("no device of a pool"), "{said}");
    assert!(std::fs::read(bench.path("demo/pool.img")).unwrap() == other);
}

#[test]
fn a_name_that_no_pool_can_have_leaves_nothing() {
    let bench = Bench::new();
    let said =
        String::from_utf8(bench.command("up --size 64M").arg("with blank").output().unwrap().stderr).unwrap();
    assert!(said.contains("with blank"), "{said}");
    assert!(!bench.path("with blank/pool.img").exists());
}

#[test]
fn a_logged_flush_waits_for_no_txg_and_survives_a_kill() {
    let bench = Bench::new();
    let up = bench.up(&format!("{UP} --emulate-pm --pm-size 16M --txg-timeout 600"));
    assert!(up.said.contains("take microseconds"), "{}", up.said);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    let before = bench.json("status")[0]["synced_txg"].as_u64();
    client.write(4096, b"flushed", false).unwrap();
    client.flush().unwrap();
    client.write(9000, b"with FUA", true).unwrap();
    let status = &bench.json("status")[0];
    assert_eq!(status["synced_txg"].as_u64(), before);
    let (kind, total) = (&status["log"]["kind"], &status["log"]["total"]);
    assert_eq!(kind.as_str(), Some("pmem"));
    assert_eq!((total["records"].as_u64(), total["fallbacks"].as_u64()), (Some(2), Some(0)));
    up.kill();
    // The pool has the log from now on, whether it is asked for or not.
    let up = bench.up(UP);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    assert_eq!(client.read(4096, 7).unwrap(), b"flushed");
    assert_eq!(client.read(9000, 8).unwrap(), b"with FUA");
    let events = bench.ok("status");
    assert!(events.contains("2 logged changes"), "{events}");
    assert_eq!(up.interrupt(), Some(0));
}

#[test]
fn an_import_says_how_far_the_replay_is_and_then_that_it_is_ready() {
    let bench = Bench::new();
    let up = bench.up(&format!("{UP} --emulate-pm --pm-size 16M --txg-timeout 600"));
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    (0..40).for_each(|block| client.write(block * 4096, &[7; 4096], true).unwrap());
    up.kill();
    let import = "pool import demo -d demo/pool.img --foreground --announce";
    let mut import = bench.command(import).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(import.stdout.take().unwrap()).lines();
    let said = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut steps: Vec<Value> = Vec::new();
    for said in said {
        if said["ready"] == "demo" {
            break;
        }
        steps.push(said["importing"].clone());
    }
    let replaying = |step: &&Value| step["about"] == "demo/volume";
    let replay = steps.iter().find(replaying).expect("a volume that is replayed");
    assert_eq!((replay["done_records"].as_u64(), replay["total_records"].as_u64()), (Some(0), Some(40)));
    let mut names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    names.dedup();
    let all = ["devices", "pool", "log", "claim", "replay", "sync", "serve"];
    assert_eq!(names, all);
    let told = &bench.json("status")[0]["import"]["steps"];
    let told: Vec<_> = told.as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(told, all);
    bench.ok("pool export demo");
    assert!(import.wait().unwrap().success());
    assert!(bench.ok("pool import demo -d demo/pool.img").contains("demo"), "in the background");
    bench.ok("pool export demo");
}

#[test]
fn a_pool_without_its_log_is_refused_unless_told() {
    let bench = Bench::new();
    let up = bench.up(&format!("{UP} --emulate-pm --pm-size 16M"));
    up.kill();
    std::fs::rename(bench.path("demo/pm.log"), bench.path("elsewhere")).unwrap();
    let said = bench.fails(&format!("up {UP}"), 7);
    assert!(said.contains("log device") && said.contains("acknowledged"), "{said}");
    std::fs::write(bench.path("demo/pm.log"), vec![0; 16 << 20]).unwrap();
    assert!(bench.fails(&format!("up {UP}"), 6).contains("no log"), "a log of zeroes");
    std::fs::remove_file(bench.path("demo/pm.log")).unwrap();
    let up = bench.up(&format!("{UP} --drop-log"));
    assert!(up.said.contains("blocks on the pool's own devices"), "{}", up.said);
    up.kill();
    bench.up(UP);
}

#[test]
fn without_persistent_memory_a_flush_waits_for_log_blocks_and_survives_a_kill() {
    let bench = Bench::new();
    let up = bench.up(&format!("{UP} --txg-timeout 600"));
    assert!(up.said.contains("wait for a flush"), "{}", up.said);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    // The first one makes the chain of blocks, with a txg.
    client.write(0, b"first", true).unwrap();
    let before = bench.json("status")[0]["synced_txg"].as_u64();
    client.write(4096, b"flushed", false).unwrap();
    client.flush().unwrap();
    client.write(9000, b"with FUA", true).unwrap();
    let status = &bench.json("status")[0];
    assert_eq!(status["synced_txg"].as_u64(), before, "a txg was waited for");
    assert_eq!(status["log"]["kind"].as_str(), Some("lwb"));
    up.kill();
    let _up = bench.up(UP);
    let mut client = bench.client("demo/volume.sock", "demo/volume");
    assert_eq!(client.read(0, 5).unwrap(), b"first");
    assert_eq!(client.read(4096, 7).unwrap(), b"flushed");
    assert_eq!(client.read(9000, 8).unwrap(), b"with FUA");
}

/// Every byte below a folder's files, to see that nothing changed.
fn contents(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files.into_iter().map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn the_log_of_a_pool_that_does_not_run_can_be_read_and_checked() {
    for (options, kind) in [("--emulate-pm --pm-size 16M", "pmem"), ("", "lwb")] {
        let bench = Bench::new();
        let up = bench.up(&format!("{UP} {options} --txg-timeout 600"));
        let mut client = bench.client("demo/volume.sock", "demo/volume");
        client.write(0, b"makes the chain", true).unwrap();
        bench.ok("pool sync");
        for block in 1..9u64 {
            client.write(block * 4096, &vec![block as u8; 4096], true).unwrap();
        }
        let shown = bench.ok("log show");
        assert!(shown.contains(kind) && shown.contains("demo/volume"), "{shown}");
        let log = &bench.json("log show")[0]["log"];
        if kind == "pmem" {
            assert_eq!(log["volumes"][0]["counters"]["records"], 9);
            let entries = shown.split("regions: ").nth(1).and_then(|rest| rest.split(' ').next());
            // A log that is idle for a moment adds entries that count the others.
            assert!(entries.is_some_and(|count| count.parse::<u64>().unwrap() >= 9), "{shown}");
            assert_eq!(log["medium_counters"]["chunk_waits"], 0);
        }
        assert_eq!(log["volumes"][0]["causes"], serde_json::json!([]));
        assert!(bench.fails("log verify demo -d demo", 3).contains("running"));
        up.kill();
        let before = contents(&bench.path("demo"));
        let verified = bench.ok("log verify demo -d demo");
        assert!(verified.contains("demo/volume") && verified.contains('8'), "{verified}");
        let dumped = bench.ok("log dump demo -d demo");
        assert!(dumped.contains("4096 bytes at 32768"), "{dumped}");
        for line in bench.ok("log dump demo -d demo --json").lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        assert!(contents(&bench.path("demo")) == before, "looking changed something");
        // A byte of the fifth record; of blocks, the last place is that of the log.
        let file = bench.path(if kind == "pmem" { "demo/pm.log" } else { "demo/pool.img" });
        let mut bytes = std::fs::read(&file).unwrap();
        // A block has something of its own in each sector.
        let run = if kind == "pmem" { 4096 } else { 400 };
        let at = bytes.windows(run).rposition(|data| data.iter().all(|byte| *byte == 5)).unwrap();
        // For kind pmem also of the entry's header, before the record's head of 64 bytes: the chunk then ends
        // early.
        let header_byte = (kind == "pmem").then(|| at - 64 - 256 + 8);
        for byte in std::iter::once(at + 100).chain(header_byte) {
            bytes[byte] ^= 1;
            std::fs::write(&file, &bytes).unwrap();
            bytes[byte] ^= 1;
            let verified = bench.run("log verify demo -d demo");
            assert_eq!(verified.status.code(), Some(1), "{verified:?}");
            if Some(byte) == header_byte {
                let said = String::from_utf8(verified.stdout).unwrap();
                assert!(said.contains(" follows at "), "{said}");
                assert!(bench.ok("log dump demo -d demo").contains(" follows at "));
                assert!(bench.ok("log dump demo -d demo --json").contains(" follows at "));
            }
            let said = bench.fails(&format!("up {UP}"), 6);
            assert!(said.contains("claimed"), "{said}");
        }
        bench.up(&format!("{UP} --drop-log")).kill();
    }
}

/// A terminal sends a signal to a whole group of processes, and a parent passes it on.
#[test]
fn a_signal_that_comes_twice_in_a_row_exports_the_pool() {
    let bench = Bench::new();
    for _ in 0..3 {
        let mut up = bench.up(UP);
        let client = bench.client("demo/volume.sock", "demo/volume");
        let pid = up.child.id();
        let kill = format!("kill -INT {pid}; kill -TERM {pid}; kill -INT {pid}");
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert_eq!(up.child.wait().unwrap().code(), Some(0));
        drop(client);
    }
    let up = bench.up(UP);
    assert!(up.said.contains("exported cleanly"), "{}", up.said);
}

#[test]
fn of_several_that_make_a_pool_in_one_folder_one_does() {
    let bench = Bench::new();
    for round in 0..3 {
        let start = |_| {
            let mut command = bench.command(&format!("up new{round} --size 64M --no-mount --wait 0"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut started: Vec<_> = (0..4).map(start).collect();
        let serves = |child: &mut std::process::Child| {
            let mut said = String::new();
            let mut stdout = BufReader::new(child.stdout.take().unwrap());
            while !said.contains("Ctrl-C exports") && stdout.read_line(&mut said).unwrap() > 0 {}
            said.contains("Ctrl-C exports")
        };
        let serve: Vec<_> = started.iter_mut().map(serves).collect();
        assert_eq!(serve.iter().filter(|serves| **serves).count(), 1);
        for (mut child, serves) in started.into_iter().zip(serve) {
            if serves {
                child.kill().unwrap();
                child.wait().unwrap();
                continue;
            }
            let ended = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(4), "{said}");
        }
    }
}

#[test]
fn no_folder_is_left_where_nothing_is_mounted() {
    let bench = Bench::new();
    let files = bench.path("demo/files");
    assert_eq!(bench.up(UP).interrupt(), Some(0));
    std::fs::create_dir(&files).unwrap();
    let up = bench.up(UP);
    assert!(!files.exists(), "{}", up.said);
    assert_eq!(up.interrupt(), Some(0));
    // What somebody has written stays.
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("mine"), "").unwrap();
    assert_eq!(bench.up(UP).interrupt(), Some(0));
    assert!(files.join("mine").exists());
}

#[test]
fn the_folder_of_files_goes_with_the_mount() {
    let Some(bench) = Bench::for_mounts() else { return };
    let up = bench.up_with_files(UP);
    assert!(up.said.contains("demo/files, mounted"), "{}", up.said);
    std::fs::write(bench.path("demo/files/a"), "a").unwrap();
    assert_eq!(up.interrupt(), Some(0));
    assert!(!bench.path("demo/files").exists());
    let up = bench.up_with_files(UP);
    assert_eq!(std::fs::read(bench.path("demo/files/a")).unwrap(), b"a", "{}", up.said);
    assert_eq!(up.interrupt(), Some(0));
}
