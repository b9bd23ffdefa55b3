//! One operation again and again, for a tool that counts instructions (`scripts/instructions`). Nothing here
//! is timed.

use std::time::Duration;

use fastness_store::{LogData, PoolOptions};
use fastness_zpl::WriteHow;

use crate::error::{Result, wrong};
use crate::fs::file::OneFile;
use crate::pool::Place;
use crate::sync_write::stack::{BLOCK_BYTES, Memory, Plan, Site, Stack, Writer};

const VOLUME_BYTES: u64 = 16 << 20;

/// What can be repeated.
pub const OPERATIONS: &[&str] = &[
    "sync-write-both",
    "sync-write-pm",
    "disabled-write",
    "cached-read",
    "file-write-both",
    "file-write-pm",
];

/// Runs `operation` on a block of 4 KiB of a volume, or of a file, `count` times, each time on another block,
/// after every block was written and read. What [`counted_operations`] calls is what counts.
///
/// # Errors
/// It is none of [`OPERATIONS`]; there is no room; the pool reports an error.
pub(crate) fn repeat(operation: &str, count: u64) -> Result<()> {
    let log_data = if operation.ends_with("-pm") { LogData::Pm } else { LogData::Both };
    let pool = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
    let (device_bytes, region_bytes) = (256 << 20, 64 << 20);
    let plan =
        Plan { volume_bytes: VOLUME_BYTES, device_bytes, region_bytes, log_data, pool, ..Plan::default() };
    let site = Site { place: Place::new()?, memory: Memory::new()? };
    let stack = Stack::new(&site, "operations", &plan)?;
    if operation == "disabled-write" {
        stack.disable(0)?;
    }
    let volume = &stack.volumes[0];
    let mut data = vec![0xa5; BLOCK_BYTES as usize];
    let all = || (0..VOLUME_BYTES).step_by(BLOCK_BYTES as usize);
    let places = (0..count).map(|index| index * 509 % (VOLUME_BYTES / BLOCK_BYTES) * BLOCK_BYTES);
    if operation.starts_with("file-") {
        let file = OneFile::new(&stack.store, "file")?;
        let how = WriteHow { is_sync: true, ..WriteHow::default() };
        for _ in 0..2 {
            all().try_for_each(|at| file.write(at, &data, how))?;
            stack.settle()?;
        }
        return counted(|| places.clone().try_for_each(|at| file.write(at, &data, how)));
    }
    for _ in 0..2 {
        all().try_for_each(|at| volume.write(at, &data, true))?;
        stack.settle()?;
    }
    all().try_for_each(|at| volume.read(at, &mut data))?;
    match operation {
        "sync-write-both" | "sync-write-pm" => counted(|| Writer::new(volume, 5).write(count))?,
        "disabled-write" => {
            counted(|| Ok(places.clone().try_for_each(|at| volume.write(at, &data, false))?))?;
        }
        "cached-read" => {
            counted(|| Ok(places.clone().try_for_each(|at| volume.read(at, &mut data))?))?;
        }
        _ => return Err(wrong(format!("{operation} is none of {}", OPERATIONS.join(", ")))),
    }
    Ok(())
}

/// By this name `scripts/instructions` knows what to count.
#[inline(never)]
fn counted_operations(run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    run()
}

fn counted(mut run: impl FnMut() -> Result<()>) -> Result<()> {
    counted_operations(&mut run)
}
