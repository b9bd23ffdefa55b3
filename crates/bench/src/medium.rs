//! The memory that the benchmarks write to.

use std::path::Path;

use fastness_pmem::{Medium, NoSum, OpenOptions, PmRange, Region, WriteMethod};

use crate::error::{Context, Result};

/// A region of `bytes` in tmpfs (anonymous memory where there is no `/dev/shm`), every page touched.
pub(crate) fn emulated_pm(bytes: usize, method: WriteMethod) -> Result<PmRange> {
    emulated_pm_with(bytes, &OpenOptions::new().write_method(method))
}

/// As [`emulated_pm`], with other options.
pub(crate) fn emulated_pm_with(bytes: usize, options: &OpenOptions) -> Result<PmRange> {
    let region = if Path::new("/dev/shm").is_dir() {
        let path = format!("/dev/shm/fastness-bench-{}-{bytes}", std::process::id());
        let region = Region::create_file(&path, bytes as u64, options)
            .context("cannot create emulated PM in /dev/shm")?;
        std::fs::remove_file(&path).context("cannot unlink the emulated PM")?;
        region
    } else {
        Region::anonymous_with(bytes as u64, options)?
    };
    let mut range = region.into_range();
    range.copy(0, &[], bytes, &mut NoSum);
    // PERSIST: nothing relies on it; it only keeps the cost of these stores out of the first turn.
    range.fence()?;
    Ok(range)
}

/// Name of the medium for the tables.
pub(crate) fn medium_name() -> String {
    let kind = if Path::new("/dev/shm").is_dir() { "tmpfs" } else { "anonymous memory" };
    format!("emulated PM (DRAM, {kind})")
}

/// Cuts a range into `count` equal chunks.
pub(crate) fn cut(range: PmRange, count: usize) -> Result<Vec<PmRange>> {
    let chunk_bytes = range.len_bytes() / count;
    let mut rest = range;
    let mut chunks = Vec::with_capacity(count);
    for _ in 1..count {
        let (chunk, after) = rest.split_at(chunk_bytes)?;
        chunks.push(chunk);
        rest = after;
    }
    chunks.push(rest);
    Ok(chunks)
}

/// Deals the chunks of one range out to two sides, in turns.
///
/// Pages of one machine are not all equally fast (another node, another page size of the host), and two
/// regions can differ by a factor; two sides that are compared must use the same pages.
pub(crate) fn two_sides(range: PmRange, count_each: usize) -> Result<(Vec<PmRange>, Vec<PmRange>)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (index, chunk) in cut(range, 2 * count_each)?.into_iter().enumerate() {
        if index % 2 == 0 { a.push(chunk) } else { b.push(chunk) }
    }
    Ok((a, b))
}
