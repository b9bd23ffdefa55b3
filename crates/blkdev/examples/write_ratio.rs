//! Ratios of the ways to write batches of random 4 KiB blocks to one file: each way's time over psync's, in
//! one run, interleaved, the median of several rounds.
//!
//! `cargo run --release -p fastness-blkdev --example write_ratio -- [FOLDER] [MIB] [ROUNDS]`
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastness_blkdev::{AlignedBuf, BlockDevice, Direct, EngineChoice, FileDevice, OpenOptions, Request};

const BLOCK_BYTES: u64 = 4096;
const BATCH: usize = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let len_bytes = arguments.next().map_or(Ok(256), |mib| mib.parse::<u64>())? << 20;
    let rounds = arguments.next().map_or(Ok(9), |rounds| rounds.parse::<usize>())?;
    let path = folder.join(format!("write_ratio.{}", std::process::id()));
    let created = OpenOptions::new().create(&path, len_bytes).map(drop);
    let outcome = created.map_err(Into::into).and_then(|()| compare(&path, len_bytes, rounds));
    std::fs::remove_file(&path)?;
    outcome
}

fn options() -> Vec<(&'static str, OpenOptions)> {
    let ways = [
        ("psync", EngineChoice::Psync, Direct::Off),
        ("uring", EngineChoice::Uring, Direct::Off),
        ("psync O_DIRECT", EngineChoice::Psync, Direct::On),
        ("uring O_DIRECT", EngineChoice::Uring, Direct::On),
    ];
    ways.into_iter()
        .map(|(name, engine, direct)| {
            let options = OpenOptions::new().engine(engine).direct(direct);
            (name, options.logical_block_bytes(4096))
        })
        .collect()
}

fn compare(path: &std::path::Path, len_bytes: u64, rounds: usize) -> Result<(), Box<dyn Error>> {
    // First writes to a fresh file convert its extents; that is not what is compared.
    let filler = options()[0].1.open(path)?;
    let mib = AlignedBuf::zeroed(1 << 20, 4096);
    for offset in (0..len_bytes).step_by(1 << 20) {
        filler.write_at(offset, &mib)?;
    }
    filler.flush()?;
    drop(filler);
    let mut times: Vec<(&str, Vec<Duration>)> = Vec::new();
    for round in 0..rounds {
        for (index, (name, options)) in options().into_iter().enumerate() {
            let device = match options.open(path) {
                Ok(device) => device,
                Err(error) => {
                    if round == 0 {
                        println!("{name}: {error}");
                    }
                    continue;
                }
            };
            let time = write_batches(&device, round as u64 * 8 + index as u64)?;
            match times.iter_mut().find(|(known, _)| *known == name) {
                Some((_, times)) => times.push(time),
                None => times.push((name, vec![time])),
            }
        }
    }
    println!("{:<16} {:>8}   (time of batches of {BATCH} and one flush, over psync's)", "way", "ratio");
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    let floor = median(&mut times[0].1);
    for (name, times) in &mut times {
        println!("{name:<16} {:>8.2}", median(times) / floor);
    }
    Ok(())
}

/// Batches of random blocks, then a flush.
fn write_batches(device: &FileDevice, seed: u64) -> Result<Duration, Box<dyn Error>> {
    let data = AlignedBuf::copy_of(&[seed as u8; BLOCK_BYTES as usize], 4096);
    let blocks = device.len_bytes() / BLOCK_BYTES;
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let since = Instant::now();
    for _ in 0..32 {
        let mut batch: Vec<_> = (0..BATCH)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                Request::Write { offset: random % blocks * BLOCK_BYTES, data: &data, fua: false }
            })
            .collect();
        for result in device.run_batch(&mut batch) {
            result?;
        }
    }
    device.flush()?;
    Ok(since.elapsed())
}
