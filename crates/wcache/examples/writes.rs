//! Synchronous writes of 4 KiB through a cache in this process: `writes REGION ORIGIN COUNT`.
//!
//! Makes a cache in the region (what it holds is lost), writes all over the origin, and brings everything to
//! it. Prints how long a write took, and the rest, of the time in which the CPU was not idle.
//! `scripts/bench-writecache` runs it in a guest whose clock counts instructions.

#![allow(clippy::print_stdout, missing_docs, reason = "it is a program")]

use std::error::Error;

use fastness_pmem::{OpenOptions, Region};
use fastness_wcache::{Cache, FileOrigin, Geometry, Options, Parts};

#[path = "../../../scripts/bench-writecache.d/busy.rs"]
mod busy;

use busy::{busy, place};

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
    let write = |index: u64| cache.write(place(index, blocks), &data);
    (0..256).try_for_each(write)?;
    let (written, writes) = busy(|| (256..256 + count).try_for_each(write));
    written?;
    let (flushed, flush) = busy(|| cache.flush().map(drop));
    flushed?;
    println!("{} {}", writes / u128::from(count), flush / u128::from(count));
    Ok(())
}
