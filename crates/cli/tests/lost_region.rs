//! Persistent memory that goes away under the program: the file below the mapping is cut short while clients
//! write.

mod support;

use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Bench, connect};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 300;
const CLIENTS: u64 = 2;

fn cut(bench: &Bench, name: &str, len_bytes: u64) {
    File::options().write(true).open(bench.path(name)).unwrap().set_len(len_bytes).unwrap();
}

/// What `line --json` says; the exit code is 0 or, if the pool needs attention, 1.
fn said(bench: &Bench, line: &str) -> Value {
    serde_json::from_str(&bench.ok_or_found(&format!("{line} --json"))).unwrap()
}

fn states(bench: &Bench) -> Vec<String> {
    let status = said(bench, "status");
    let regions = status[0]["log"]["regions"].as_array().unwrap().iter();
    regions.map(|region| region["state"].as_str().unwrap().to_owned()).collect()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The newest round of each block that a client was told to be durable.
type Told = Vec<Mutex<Vec<u8>>>;

/// Writes through several connections while `harm` does something.
fn under_load(bench: &Bench, socket: &str, volume: &str, harm: impl FnOnce()) -> Told {
    let told: Told = (0..CLIENTS).map(|_| Mutex::new(vec![0; BLOCKS as usize])).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, told) in told.iter().enumerate() {
            let (is_done, socket) = (&is_done, bench.path(socket));
            scope.spawn(move || {
                let mut client = connect(&socket, volume);
                for number in 0_u64.. {
                    if is_done.load(Ordering::SeqCst) {
                        return;
                    }
                    let (block, round) = (number * 7 % BLOCKS, (number / BLOCKS % 250 + 1) as u8);
                    let at = (index as u64 * BLOCKS + block) * BLOCK;
                    client.write(at, &[round; BLOCK as usize], number % 4 != 0).unwrap();
                    if number % 4 == 0 {
                        client.flush().unwrap();
                    }
                    told.lock().unwrap()[block as usize] = round;
                }
            });
        }
        harm();
        is_done.store(true, Ordering::SeqCst);
    });
    told
}

fn check(bench: &Bench, socket: &str, volume: &str, told: &Told) {
    let mut client = bench.client(socket, volume);
    for (index, told) in told.iter().enumerate() {
        for (block, told) in told.lock().unwrap().iter().enumerate() {
            let found = client.read((index as u64 * BLOCKS + block as u64) * BLOCK, BLOCK as u32).unwrap();
            assert!(found.iter().all(|byte| *byte == found[0]), "client {index}, block {block} is torn");
            // Rounds that were not acknowledged any more may be there.
            assert!(found[0] >= *told, "client {index}, block {block}: {} there, {told} told", found[0]);
        }
    }
}

fn kill(bench: &Bench) {
    let pid = said(bench, "status")[0]["pid"].as_u64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while bench.run("status --json").stdout.trim_ascii() != b"[]" {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_log_that_is_cut_makes_writers_wait_and_loses_nothing() {
    let bench = Bench::new();
    let line = "data --size 16M --pool-size 128M --emulate-pm --pm-size 16M --txg-timeout 300";
    let up = bench.up(line);
    let told = under_load(&bench, "data/volume.sock", "data/volume", || {
        std::thread::sleep(Duration::from_millis(200));
        cut(&bench, "data/pm.log", 2 << 20);
        eventually("it is lost", || states(&bench) == ["lost"]);
        std::thread::sleep(Duration::from_millis(200));
    });
    let status = bench.run("status");
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "{text}");
    for word in ["degraded", "lost in use", "cut short", "pool replace", "pool remove", "wait for txgs"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    check(&bench, "data/volume.sock", "data/volume", &told);
    up.kill();
    // Nothing in the region is needed any more: an import does not ask for it.
    let _up = bench.up("data --txg-timeout 300");
    check(&bench, "data/volume.sock", "data/volume", &told);
    assert_eq!(states(&bench), [""; 0]);
}

/// The process dies before a txg has what only the region had.
#[test]
fn a_log_that_is_lost_with_its_process_is_asked_for() {
    let bench = Bench::new();
    let line = "data --size 16M --pool-size 128M --emulate-pm --pm-size 16M --txg-timeout 300";
    let up = bench.up(line);
    let mut client = bench.client("data/volume.sock", "data/volume");
    client.write(0, &[1; BLOCK as usize], true).unwrap();
    up.kill();
    cut(&bench, "data/pm.log", 2 << 20);
    let output = bench.run(&format!("up {line}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("it needs"), "{said}");
    let _up = bench.up(&format!("{line} --drop-log"));
}

#[test]
fn a_cut_side_of_a_mirror_is_out_and_is_replaced() {
    for (cut_short, other) in [("pm1", "pm2"), ("pm2", "pm1")] {
        let bench = Bench::new();
        bench.ok("pool create tank disk --file-size 128M log mirror pm1 pm2 --emulate-pm --pm-size 16M --txg-timeout 300");
        bench.ok("volume create tank/v 8M -b 4K");
        bench.ok(&format!("volume serve tank/v --socket {}", bench.text("v.sock")));
        let told = under_load(&bench, "v.sock", "tank/v", || {
            std::thread::sleep(Duration::from_millis(100));
            cut(&bench, cut_short, 0);
            eventually("it is out", || states(&bench).contains(&"out".to_owned()));
            assert!(states(&bench).contains(&"online".to_owned()));
            std::thread::sleep(Duration::from_millis(200));
        });
        let text = bench.ok_or_found("status");
        for word in ["degraded", "lost in use", "goes on without it", "pool replace", "pool detach"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        kill(&bench);
        // Long enough again, and empty.
        cut(&bench, cut_short, 16 << 20);
        bench.ok("pool import tank");
        check(&bench, "v.sock", "tank/v", &told);
        assert!(states(&bench).contains(&"out".to_owned()));
        bench.ok(&format!("pool replace tank {} {}", bench.text(cut_short), bench.text("pm3")));
        assert_eq!(states(&bench), ["online", "online"]);
        check(&bench, "v.sock", "tank/v", &told);
        kill(&bench);
        std::fs::remove_file(bench.path(other)).unwrap();
        bench.ok("pool import tank");
        check(&bench, "v.sock", "tank/v", &told);
    }
}

/// Repaired in place, without ending the program: the file is made again and takes its own place.
#[test]
fn a_lost_region_can_be_replaced_by_a_file_of_the_same_name() {
    let bench = Bench::new();
    bench.ok("pool create tank disk --file-size 96M log pm --emulate-pm --pm-size 16M");
    bench.ok("volume create tank/v 8M -b 4K");
    bench.ok(&format!("volume serve tank/v --socket {}", bench.text("v.sock")));
    let mut client = bench.client("v.sock", "tank/v");
    cut(&bench, "pm", 0);
    client.write(0, &[1; 4096], true).unwrap();
    assert_eq!(states(&bench), ["lost"]);
    std::fs::remove_file(bench.path("pm")).unwrap();
    let pm = bench.text("pm");
    bench.ok(&format!("pool replace tank {pm} {pm}"));
    assert_eq!(said(&bench, "status")[0]["state"], "online");
    client.write(4096, &[2; 4096], true).unwrap();
    drop(client);
    kill(&bench);
    bench.ok("pool import tank");
    let mut client = bench.client("v.sock", "tank/v");
    assert_eq!(client.read(0, 4096).unwrap(), [1; 4096]);
    assert_eq!(client.read(4096, 4096).unwrap(), [2; 4096]);
}
