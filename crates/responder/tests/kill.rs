//! A process that writes through a cache is killed at any moment; the next one finds what was acknowledged.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastness_pmem::{OpenOptions, PmRange, Region, RegionError};
use fastness_responder::*;
use fastness_testkit::Rng;

const ROOT: &str = "FASTNESS_RESPONDER_KILL_ROOT";

/// The other test starts a process at times, which has a copy of our descriptors, and so of the region's
/// lock, until it runs its program.
fn region(path: &Path) -> PmRange {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match Region::open(path, &OpenOptions::new()) {
            Err(RegionError::AlreadyOpen { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap().into_range(),
        }
    }
}

/// Write number `n`, in the order in which all of them are made.
fn write_of(n: u64) -> (usize, usize, u8) {
    let mut rng = Rng(n);
    (rng.index(30_000), 1 + rng.index(9_000), n as u8)
}

/// The program: says which writes have returned.
#[test]
fn program_that_is_killed() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else { return };
    let directory = Arc::new(Directory::open(root.join("directory")).unwrap());
    let (cache, _) = Cache::open(region(&root.join("region")), directory, &Options::new()).unwrap();
    let cache = Arc::new(cache);
    let _flusher = Flusher::start(Arc::clone(&cache), Duration::from_millis(2));
    let file = cache.open_file(Path::new("file"), Some(0o600), 0).unwrap();
    let from: u64 = fs::read_to_string(root.join("next")).unwrap().parse().unwrap();
    let mut out = std::io::stdout();
    for n in from.. {
        let (at, len, byte) = write_of(n);
        cache.write(&file, at as u64, &vec![byte; len]).unwrap();
        // Not through the test's captured output.
        out.write_all(format!("acknowledged {n}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

fn kill_repeatedly(protocol: ProtocolKind, rounds: u64) {
    let temporary = tempfile::tempdir().unwrap();
    let root = temporary.path();
    fs::create_dir(root.join("directory")).unwrap();
    let made = Region::create_file(root.join("region"), 2 << 20, &OpenOptions::new()).unwrap().into_range();
    let directory = || Arc::new(Directory::open(root.join("directory")).unwrap());
    drop(Cache::create(made, directory(), &Options::new().protocol(protocol)).unwrap());
    let mut content: Vec<u8> = Vec::new();
    let mut next = 0;
    for round in 0..rounds {
        fs::write(root.join("next"), next.to_string()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "program_that_is_killed", "--nocapture"])
            .env(ROOT, root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let number = |line: String| line.rsplit_once("acknowledged ").map(|(_, n)| n.parse::<u64>().unwrap());
        let wanted = next + 1 + Rng(round).below(40);
        let mut acknowledged = None;
        while acknowledged.is_none_or(|n| n < wanted) {
            acknowledged = number(lines.next().unwrap().unwrap()).or(acknowledged);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died.
        acknowledged = lines.map_while(Result::ok).filter_map(number).last().or(acknowledged);
        let last = acknowledged.unwrap();
        let apply = |content: &mut Vec<u8>, n: u64| {
            let (at, len, byte) = write_of(n);
            content.resize(content.len().max(at + len), 0);
            content[at..at + len].fill(byte);
        };
        (next..=last).for_each(|n| apply(&mut content, n));
        let mut with_next = content.clone();
        apply(&mut with_next, last + 1);

        let (cache, _) = Cache::open(region(&root.join("region")), directory(), &Options::new()).unwrap();
        cache.flush().unwrap();
        drop(cache);
        let found = fs::read(root.join("directory/file")).unwrap();
        assert!(found == content || found == with_next, "round {round}: not as after write {last}");
        next = if found == with_next { last + 2 } else { last + 1 };
        content = found;
    }
}

#[test]
fn a_killed_process_loses_nothing_with_fr() {
    kill_repeatedly(ProtocolKind::Fr, 12);
}

#[test]
fn a_killed_process_loses_nothing_with_melo() {
    kill_repeatedly(ProtocolKind::Melo, 12);
}

#[test]
fn a_killed_process_loses_nothing_with_pmal() {
    kill_repeatedly(ProtocolKind::Pmal, 12);
}
