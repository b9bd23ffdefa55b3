//! How long a restart after a kill takes under the load that is worst for it: every write goes through the
//! log, and to the same few places, so that no txg ends because much is unsynced. `scripts/measure-restart`.

use std::fmt;
use std::time::{Duration, Instant};

use fastness_nbd::wire::{command, command_flag};
use fastness_nbd::{Client, Request};

use crate::support::Bench;

/// Requests in flight.
const DEPTH: u64 = 16;
/// Where they go.
const SPAN_BYTES: u64 = 1 << 20;

struct Row {
    name: &'static str,
    options: &'static str,
    write_bytes: u64,
}

const ROWS: [Row; 4] = [
    Row { name: "log blocks, 64 KiB", options: "--txg-timeout 5", write_bytes: 64 << 10 },
    Row { name: "log blocks, 64 KiB, txgs of 300 s", options: "--txg-timeout 300", write_bytes: 64 << 10 },
    Row { name: "log blocks, 4 KiB", options: "--txg-timeout 5", write_bytes: 4 << 10 },
    Row { name: "emulated PM, 4 KiB", options: "--txg-timeout 5 --emulate-pm", write_bytes: 4 << 10 },
];

/// Of one row.
#[derive(Default)]
struct Times {
    restarts: Vec<Duration>,
    logged_bytes: u64,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.restarts.clone();
        sorted.sort();
        let ms = |share: usize| sorted[(sorted.len() - 1) * share / 100].as_millis();
        let count = sorted.len();
        let mean_mib = (self.logged_bytes / count as u64) >> 20;
        write!(f, "{count} | {mean_mib} MiB | {} ms | {} ms | {} ms", ms(50), ms(95), ms(100))
    }
}

/// Writes with FUA for a time; how much was written.
fn hammer(client: &mut Client, write_bytes: u64, time: Duration) -> u64 {
    let payload = vec![7; write_bytes as usize];
    let (begun, mut sent, mut done) = (Instant::now(), 0u64, 0);
    while begun.elapsed() < time {
        while sent < done + DEPTH {
            let offset = sent % (SPAN_BYTES / write_bytes) * write_bytes;
            let (kind, flags) = (command::WRITE, command_flag::FUA);
            client.send(&Request { kind, flags, offset, length: write_bytes, payload: &payload }).unwrap();
            sent += 1;
        }
        let chunk = client.receive_chunk(|_| 0).unwrap();
        assert_eq!((chunk.error, chunk.is_done), (0, true));
        done += 1;
    }
    done * write_bytes
}

/// `FASTNESS_RESTART_KILLS`: kills of each row; `FASTNESS_RESTART_SECONDS`: work before each.
#[test]
fn how_long_a_restart_takes() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let Some(kills) = number("FASTNESS_RESTART_KILLS") else { return };
    let time = Duration::from_secs(number("FASTNESS_RESTART_SECONDS").unwrap_or(3));
    println!("| load | kills | written before each | median | p95 | longest |\n|---|--:|--:|--:|--:|--:|");
    for Row { name, options, write_bytes } in ROWS {
        let bench = Bench::new();
        let up = || bench.up(&format!("demo --size 512M --pool-size 8G {options}"));
        let (mut times, mut running) = (Times::default(), up());
        for _ in 0..kills {
            let mut client = bench.client("demo/volume.sock", "demo/volume");
            times.logged_bytes += hammer(&mut client, write_bytes, time);
            running.kill();
            let begun = Instant::now();
            running = up();
            times.restarts.push(begun.elapsed());
        }
        println!("| {name} | {times} |");
    }
}
