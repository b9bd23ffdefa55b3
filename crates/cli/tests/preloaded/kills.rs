//! Programs, their children and the process that serves the cache are killed at any moment.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::Duration;

use fastness_testkit::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::{file, is_leased};
use crate::{bench, program, root};

const OPTIONS: &str = "run --pm pm --size 2M --flush-ms 5 --dir dir --";
const PLACES: u64 = 97;
const RECORD: u64 = 6000;

/// Content of a record: its number, over and over.
fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD as usize / 8)
}

/// Writes records in two forked processes, each to files of its own, and says which writes have returned.
#[test]
fn program_that_is_killed() {
    let Some(root) = root() else { return };
    let first: u64 = std::env::var("FIRST").unwrap().parse().unwrap();
    // SAFETY: both go on below, and never return.
    let child = unsafe { libc::fork() };
    let name = if child == 0 { "child" } else { "parent" };
    let mut out = std::io::stdout();
    out.write_all(format!("\npid {}\n", std::process::id()).as_bytes()).unwrap();
    let kept = file(&root.join(name));
    let log =
        fs::OpenOptions::new().create(true).append(true).open(root.join(format!("{name}.log"))).unwrap();
    assert!(is_leased(&kept) && is_leased(&log));
    for number in first.. {
        let done = kept
            .write_all_at(&record(number), number * 31 % PLACES * RECORD)
            .and_then(|()| (&log).write_all(format!("{number:015}\n").as_bytes()));
        if done.is_err() || out.write_all(format!("{name} {number}\n").as_bytes()).is_err() {
            // SAFETY: ends it.
            unsafe { libc::_exit(3) };
        }
    }
}

#[derive(Default)]
struct Acknowledged {
    /// Newest record of each place.
    places: Vec<u64>,
    logged: Vec<u64>,
}

#[test]
fn what_was_acknowledged_survives_every_kill() {
    let Some(bench) = bench() else { return };
    let mut all = [("parent", Acknowledged::default()), ("child", Acknowledged::default())];
    let mut total = 0;
    for round in 0..12_u64 {
        let mut rng = Rng(round);
        let first = 1 + (round << 24);
        let mut command = program(&bench, OPTIONS, "preloaded::kills::program_that_is_killed");
        command.env("FIRST", first.to_string()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let server = Pid::from_child(&child);
        let (mut pids, mut count, mut is_killed) = (Vec::new(), 0, false);
        let wanted = 5 + rng.index(150);
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["pid", pid] => pids.push(Pid::from_raw(pid.parse().unwrap()).unwrap()),
                [who @ ("parent" | "child"), number] => {
                    let number: u64 = number.parse().unwrap();
                    let found = &mut all.iter_mut().find(|(name, _)| *name == who).unwrap().1;
                    found.places.resize(PLACES as usize, 0);
                    found.places[(number * 31 % PLACES) as usize] = number;
                    found.logged.push(number);
                    count += 1;
                }
                _ => {}
            }
            if count >= wanted && pids.len() == 2 && !is_killed {
                is_killed = true;
                // One of the two, which the other and the server survive for a while; both; or the server.
                let victims = match round % 4 {
                    0 => vec![pids[0]],
                    1 => vec![pids[1]],
                    2 => pids.clone(),
                    _ => vec![server],
                };
                let wait = Duration::from_millis(rng.below(30));
                for pid in victims {
                    let _ = kill_process(pid, Signal::KILL);
                }
                let rest = [pids.clone(), vec![server]].concat();
                std::thread::spawn(move || {
                    std::thread::sleep(wait);
                    for pid in rest {
                        let _ = kill_process(pid, Signal::KILL);
                    }
                });
            }
        }
        child.wait().unwrap();
        bench.ok("responder recover pm");
        for (name, acknowledged) in &all {
            let kept = fs::read(bench.path(&format!("dir/{name}"))).unwrap_or_default();
            for (place, &number) in acknowledged.places.iter().enumerate().filter(|(_, number)| **number > 0)
            {
                let found = kept.get(place * RECORD as usize..).and_then(|rest| rest.get(..RECORD as usize));
                let found = found.unwrap_or_else(|| panic!("round {round}: {name} is too short"));
                let now = u64::from_le_bytes(found[..8].try_into().unwrap());
                // At most one write of each had not returned, and it is there or not.
                assert!(now >= number, "round {round}: {name} has lost {number} at {place}: {now}");
                assert!(found == record(now), "round {round}: {name} has a torn record at {place}");
            }
            let logged = fs::read_to_string(bench.path(&format!("dir/{name}.log"))).unwrap_or_default();
            let found: std::collections::BTreeSet<u64> =
                logged.lines().map(|line| line.parse().unwrap()).collect();
            let lost = acknowledged.logged.iter().find(|&number| !found.contains(number));
            assert_eq!(lost, None, "round {round}: lost from {name}.log");
        }
        total += count;
    }
    assert!(total > 300, "{total}");
}
