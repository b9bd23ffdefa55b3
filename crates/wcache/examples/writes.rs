//! Synchronous writes of 4 KiB through a cache in this process: `writes REGION ORIGIN COUNT`.
//!
//! Makes a cache in the region (what it holds is lost), writes all over the origin, and brings everything to
//! it. Prints how long a write took, and the rest, of the time in which the CPU was not idle.
//! `scripts/bench-writecache` runs it in a guest whose clock counts instructions.

#![allow(clippy::print_stdout, missing_docs, reason = "it is a program")]

use std::error::Error;
use std::fs;
use std::time::Instant;

use fastness_pmem::{OpenOptions, Region};
use fastness_wcache::{Cache, FileOrigin, Geometry, Options, Parts};

/// What a line says of how long a CPU was idle, or waited for a disk.
fn of_idleness(line: &str) -> Option<&str> {
    let line = line.trim();
    line.strip_prefix(".idle_sleeptime").or_else(|| line.strip_prefix(".iowait_sleeptime"))
}

/// Nanoseconds for which the CPUs have been idle.
fn idle() -> Result<u128, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/timer_list")?;
    let of = |line: &str| of_idleness(line)?.split_whitespace().nth(1)?.parse::<u128>().ok();
    Ok(text.lines().filter_map(of).sum::<u128>())
}

fn busy<E: Error + 'static>(work: impl FnOnce() -> Result<(), E>) -> Result<u128, Box<dyn Error>> {
    let (idle_before, begun) = (idle()?, Instant::now());
    work()?;
    let took = begun.elapsed().as_nanos();
    Ok(took - (idle()? - idle_before).min(took))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [region, origin, count] = &arguments[..] else { return Err("writes REGION ORIGIN COUNT".into()) };
    let count: u64 = count.parse()?;
    let options = OpenOptions::new();
    let region = Region::open(region, &options)?;
    let view = Region::join(region.descriptor()?, &options)?.into_range();
    let range = region.into_range();
    let geometry = Geometry::dividing(fastness_pmem::Medium::len_bytes(&range) as u64, None)?;
    let parts = Parts::divide(range, view, geometry)?;
    let options = Options::new().force(true);
    let cache =
        Cache::create(parts, Box::new(FileOrigin::new(origin.as_ref() as &std::path::Path)), &options)?;
    let (blocks, data) = (cache.len_bytes() / 4096, [0x5a; 4096]);
    let write = |index: u64| {
        let at = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % blocks * 4096;
        cache.write(at, &data)
    };
    (0..256).try_for_each(write)?;
    let writes = busy(|| (256..256 + count).try_for_each(write))?;
    let flush = busy(|| cache.flush().map(drop))?;
    println!("{} {}", writes / u128::from(count), flush / u128::from(count));
    Ok(())
}
