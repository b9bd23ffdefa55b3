//! Latency beside another server, through the same client, turn by turn.
//!
//! ```text
//! latency OURS THEIRS [ROUNDS]      each unix:PATH=EXPORT
//! ```
//! In each round both servers get the same requests, and the order changes. Prints medians over the rounds,
//! and ratios (below 1: ours is quicker).
#![allow(clippy::print_stdout)]

use std::env;
use std::error::Error;
use std::time::Instant;

use fastness_nbd::wire::{HeaderMode, command, command_flag};
use fastness_nbd::{Client, Endpoint, Request};

/// Requests of one turn.
const REQUESTS: u64 = 4000;
const SPAN_BYTES: u64 = 32 << 20;

struct Load {
    name: &'static str,
    kind: u16,
    flags: u16,
    bytes: u64,
    depth: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [ours, theirs, rounds @ ..] = &arguments[..] else {
        return Err("usage: latency OURS THEIRS [ROUNDS]".into());
    };
    let rounds: usize = rounds.first().map_or(Ok(9), |rounds| rounds.parse())?;
    let mut servers = [connect(ours)?, connect(theirs)?];
    let load = |name, kind, flags, bytes, depth| Load { name, kind, flags, bytes, depth };
    let loads = [
        load("read 4 KiB", command::READ, 0, 4096, 1),
        load("write 4 KiB", command::WRITE, 0, 4096, 1),
        load("write 4 KiB FUA", command::WRITE, command_flag::FUA, 4096, 1),
        load("read 64 KiB", command::READ, command_flag::DF, 65536, 1),
        load("read 4 KiB", command::READ, 0, 4096, 32),
        load("write 4 KiB", command::WRITE, 0, 4096, 32),
        load("read 64 KiB", command::READ, command_flag::DF, 65536, 32),
    ];
    println!("{:<18}{:>6}{:>14}{:>14}{:>8}", "load", "depth", "ours, ns", "theirs, ns", "ratio");
    for load in &loads {
        let mut taken_ns: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for index in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let per_request_ns = turn(&mut servers[index], load)?;
                // The first round warms up.
                if round > 0 {
                    taken_ns[index].push(per_request_ns);
                }
            }
        }
        let [ours, theirs] = taken_ns.map(median);
        let ratio = ours as f64 / theirs as f64;
        println!("{:<18}{:>6}{ours:>14}{theirs:>14}{ratio:>8.2}", load.name, load.depth);
    }
    Ok(())
}

fn connect(server: &str) -> Result<Client, Box<dyn Error>> {
    let (path, name) = server
        .strip_prefix("unix:")
        .and_then(|server| server.rsplit_once('='))
        .ok_or("a server is unix:PATH=EXPORT")?;
    let mut client = Client::connect_with(&Endpoint::Unix(path.into()), name, HeaderMode::Structured)?;
    // No holes on either side.
    for offset in (0..SPAN_BYTES).step_by(1 << 20) {
        client.write(offset, &vec![0xa5; 1 << 20], false)?;
    }
    Ok(client)
}

/// Time per request.
fn turn(client: &mut Client, load: &Load) -> Result<u64, Box<dyn Error>> {
    let payload = vec![7; if load.kind == command::WRITE { load.bytes as usize } else { 0 }];
    let began = Instant::now();
    let mut answered = 0;
    for index in 0..REQUESTS + load.depth {
        if index >= load.depth {
            loop {
                let chunk = client.receive_chunk(|_| load.bytes)?;
                if chunk.error != 0 {
                    return Err(format!("a request failed with error {}", chunk.error).into());
                }
                if chunk.is_done {
                    break;
                }
            }
            answered += 1;
        }
        if index < REQUESTS {
            // Visits all blocks in an order that no cache knows.
            let offset = (index * 2_654_435_761) % (SPAN_BYTES / load.bytes) * load.bytes;
            let request =
                Request { kind: load.kind, flags: load.flags, offset, length: load.bytes, payload: &payload };
            client.send(&request)?;
        }
    }
    Ok(u64::try_from(began.elapsed().as_nanos())? / answered)
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}
