//! A server that is killed at random, again and again, under a client that remembers what was flushed.
//!
//! `FASTNESS_KILL_ROUNDS` sets the number of rounds.

mod support;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastness_nbd::Client;
use support::Bench;

const BLOCKS: u64 = 512;
const BLOCK: usize = 4096;

/// A small generator; one seed, one sequence.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Contents of a block after write number `number`; 0 is a block that was never written.
fn pattern(block: u64, number: u64) -> Vec<u8> {
    if number == 0 {
        return vec![0; BLOCK];
    }
    let word = |at: u64| (number << 20 ^ block << 9 ^ at).to_le_bytes();
    (0..BLOCK as u64 / 8).flat_map(word).collect()
}

/// What the client did: writes have numbers that count up over all rounds.
#[derive(Default)]
struct Memory {
    next: u64,
    /// By block: numbers of all writes that were sent since what is known to be there, and that one first.
    sent: BTreeMap<u64, Vec<u64>>,
    /// All writes up to this number were acknowledged by a flush.
    flushed: u64,
    /// By block: the newest write with FUA that was acknowledged.
    forced: BTreeMap<u64, u64>,
}

impl Memory {
    /// Reads everything and says what the crash left: all that was flushed, and of the rest what was sent, in any order, as
    /// a disk may. (A log that has no room leaves out writes that nobody flushed; kind lwb reads the data of a write when it
    /// is flushed, and may find that of a later one.)
    fn check(&mut self, client: &mut Client, round: u64) {
        let mut missing = u64::MAX;
        for block in 0..BLOCKS {
            let found = client.read(block * BLOCK as u64, BLOCK as u32).unwrap();
            let sent = self.sent.entry(block).or_insert_with(|| vec![0]);
            let at = sent.iter().rposition(|number| found == pattern(block, *number));
            let at = at.unwrap_or_else(|| panic!("round {round}: block {block} has what was never written"));
            let forced = self.forced.get(&block).copied().unwrap_or(0);
            assert!(sent[at] >= forced, "round {round}: write {forced} had FUA and is not in block {block}");
            missing = missing.min(sent.get(at + 1).copied().unwrap_or(u64::MAX));
            *sent = vec![sent[at]];
        }
        assert!(
            self.flushed < missing,
            "round {round}: {} is flushed, and write {missing} is not there",
            self.flushed
        );
    }

    /// Writes and flushes until the server is gone.
    fn work(&mut self, client: &mut Client, rng: &mut Rng) {
        loop {
            for _ in 0..rng.below(30) {
                let block = rng.below(BLOCKS);
                self.next += 1;
                self.sent.entry(block).or_insert_with(|| vec![0]).push(self.next);
                let is_fua = rng.below(8) == 0;
                if client.write(block * BLOCK as u64, &pattern(block, self.next), is_fua).is_err() {
                    return;
                }
                if is_fua {
                    self.forced.insert(block, self.next);
                }
            }
            if client.flush().is_err() {
                return;
            }
            self.flushed = self.next;
        }
    }
}

#[test]
fn nothing_flushed_into_log_blocks_is_lost() {
    rounds("");
}

#[test]
fn nothing_flushed_into_persistent_memory_is_lost() {
    rounds("--emulate-pm --pm-size 16M");
}

/// Rounds of work and a kill, with these options of `up`.
fn rounds(options: &str) {
    let rounds: u64 = std::env::var("FASTNESS_KILL_ROUNDS").map_or(200, |text| text.parse().unwrap());
    let bench = Bench::new();
    let mut rng = Rng(rounds);
    let mut memory = Memory::default();
    let mut flushes_seen = 0;
    for round in 0..rounds {
        if round % 8 == 7 {
            // While it starts.
            let mut child = bench
                .command("up demo --size 16M")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_micros(rng.below(30_000)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let up = bench.up(&format!("demo --size 16M --txg-timeout 1 {options}"));
        let mut client = bench.client("demo/volume.sock", "demo/volume");
        memory.check(&mut client, round);
        let before = memory.flushed;
        let pid = up.child.id().to_string();
        let after = Duration::from_micros(rng.below(80_000));
        let killer = std::thread::spawn(move || {
            let since = Instant::now();
            while since.elapsed() < after {
                std::thread::sleep(Duration::from_micros(200));
            }
            Command::new("kill").args(["-KILL", &pid]).status().unwrap()
        });
        memory.work(&mut client, &mut rng);
        assert!(killer.join().unwrap().success());
        drop(up);
        flushes_seen += u64::from(memory.flushed > before);
    }
    let _up = bench.up(&format!("demo --size 16M {options}"));
    memory.check(&mut bench.client("demo/volume.sock", "demo/volume"), rounds);
    assert!(flushes_seen > rounds / 4, "the kills came too early to test anything");
    assert_eq!(bench.json("pool check")["is_clean"], true);
}
