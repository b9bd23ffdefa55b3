//! `fastness bench cache`: synchronous random writes of 4 KiB to a file on a disk, with and without the
//! write cache in front of it.
//!
//! The origin is a file in the benchmark's folder, opened directly. Without the cache each write is followed
//! by a flush; with it a write is durable when it returns, as far as emulated PM goes. Short turns, which
//! end before the log is half full, say what a write costs; the overload, a minute of writers that never
//! pause, what is left once the disk is the limit, and how long the longest write took.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastness_blkdev::{BlockDevice, FileDevice, OpenOptions};
use fastness_pmem::{MsyncMode, OpenOptions as RegionOptions, PmRange, Region};
use fastness_wcache::{Cache, Cleaner, FileOrigin, Geometry, Options as CacheOptions, Parts};

use crate::error::{Context, Result};
use crate::folder::Folder;
use crate::measure::{Spread, in_parallel};
use crate::medium::medium_name;
use crate::{Options, Row};

const BLOCK: usize = 4096;
const ORIGIN_BYTES: u64 = 1 << 30;
const REGION_BYTES: u64 = 1 << 30;
/// Writes that fill a third of the log: none of them is delayed.
const WITH_ROOM: u64 = REGION_BYTES / 3 / (BLOCK as u64 + 256);

/// The file of the region, removed when dropped.
struct RegionFile(PathBuf);

impl Drop for RegionFile {
    fn drop(&mut self) {
        // The user can see what is left.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl RegionFile {
    fn new(folder: &Folder) -> RegionFile {
        let memory = Path::new("/dev/shm");
        let name = format!("fastness-bench-{}.cache", std::process::id());
        RegionFile(if memory.is_dir() { memory.join(name) } else { folder.join(name) })
    }

    fn cache(&self, origin: &Path) -> Result<Arc<Cache<PmRange>>> {
        let options = RegionOptions::new().msync(MsyncMode::Never);
        let region =
            Region::create_file(&self.0, REGION_BYTES, &options).context("cannot make emulated PM")?;
        region.populate().context("cannot map emulated PM")?;
        let descriptor = region.descriptor().context("cannot map emulated PM twice")?;
        let view = Region::join(descriptor, &options).context("cannot map emulated PM twice")?.into_range();
        let geometry = Geometry::dividing(REGION_BYTES, None).context("cannot divide emulated PM")?;
        let parts =
            Parts::divide(region.into_range(), view, geometry).context("cannot divide emulated PM")?;
        let cache = Cache::create(parts, Box::new(FileOrigin::new(origin)), &CacheOptions::new());
        Ok(Arc::new(cache.context("cannot make a cache")?))
    }
}

/// Blocks in an order that repeats after all of them.
struct Order(AtomicU64);

impl Order {
    fn next(&self) -> u64 {
        let blocks = ORIGIN_BYTES / BLOCK as u64;
        self.0.fetch_add(0x9e37_79b9_7f4a_7c15 | 1, Ordering::Relaxed).rotate_left(29) % blocks * BLOCK as u64
    }
}

/// Writes a second from so many threads, for so long or until there were so many of them.
fn writes_per_s(
    writers: usize,
    time: Duration,
    most: u64,
    write: impl Fn(u64, &[u8]) -> Result<()> + Sync,
) -> Result<f64> {
    let (order, done, begun) = (Order(AtomicU64::new(1)), AtomicU64::new(0), Instant::now());
    in_parallel(0..writers, |writer| {
        let data = vec![writer as u8 + 1; BLOCK];
        while begun.elapsed() < time && done.fetch_add(1, Ordering::Relaxed) < most {
            write(order.next(), &data)?;
        }
        Ok(())
    })?;
    Ok(done.into_inner().min(most) as f64 / begun.elapsed().as_secs_f64())
}

fn alone(device: &FileDevice, offset: u64, data: &[u8]) -> Result<()> {
    device.write_at(offset, data).context("cannot write to the origin")?;
    device.flush().context("cannot flush the origin")
}

/// Runs the benchmark.
///
/// # Errors
/// No space, or the disk fails.
pub(crate) fn run(options: Options) -> Result<Vec<Row>> {
    let folder = Folder::new()?;
    let path = folder.join("origin");
    let device = OpenOptions::new().create(&path, ORIGIN_BYTES).context("cannot make the origin")?;
    let is_direct = if device.info().is_direct { "direct" } else { "page-cached" };
    let medium = format!("{}; origin: {} file, {is_direct}", medium_name(), folder.file_system());
    // Blocks that were never written cost the file system more.
    let chunk = vec![0x5a; 1 << 20];
    for offset in (0..ORIGIN_BYTES).step_by(chunk.len()) {
        device.write_at(offset, &chunk).context("cannot fill the origin")?;
    }
    device.flush().context("cannot flush the origin")?;
    drop(device);

    let (turns, turn) = if options.quick { (3, 300) } else { (7, 500) };
    let turn = Duration::from_millis(turn);
    let region = RegionFile::new(&folder);
    let mut rows = Vec::new();
    for writers in if options.quick { &[1, 4][..] } else { &[1, 2, 4, 8][..] } {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            let device = OpenOptions::new().open(&path).context("cannot open the origin")?;
            without
                .push(writes_per_s(*writers, turn, WITH_ROOM, |offset, data| alone(&device, offset, data))?);
            drop(device);
            let cache = region.cache(&path)?;
            let cleaner = Cleaner::start(&cache);
            with.push(writes_per_s(*writers, turn, WITH_ROOM, |offset, data| {
                cache.write(offset, data).context("cannot write to the cache")
            })?);
            drop(cleaner);
            cache.detach().context("cannot end the cache")?;
            drop(cache);
            std::fs::remove_file(&region.0).context("cannot remove emulated PM")?;
        }
        let ratio = Spread::of(with.iter().zip(&without).map(|(with, without)| with / without).collect());
        let goal = (*writers == 1).then_some((20.0, "at least"));
        let (value, alone) = (Spread::of(with).median, Spread::of(without).median);
        rows.push(Row {
            name: format!("synchronous random writes of 4 KiB, {writers} writers, with room in the log"),
            value: Some(value),
            unit: "IOPS",
            baseline: Some(format!("the origin alone, each with a flush: {alone:.0} IOPS")),
            medium: medium.clone(),
            threads: *writers,
            ..Row::ratio(ratio, goal)
        });
    }
    rows.extend(overload(options, &region, &path, &medium)?);
    Ok(rows)
}

/// Writers that never pause: what the disk lets through, and the longest write.
fn overload(options: Options, region: &RegionFile, path: &Path, medium: &str) -> Result<Vec<Row>> {
    let time = Duration::from_secs(if options.quick { 10 } else { 60 });
    let mut rows = Vec::new();
    for writers in if options.quick { &[8][..] } else { &[1, 8][..] } {
        let device = OpenOptions::new().open(path).context("cannot open the origin")?;
        let alone = writes_per_s(*writers, Duration::from_secs(2), u64::MAX, |offset, data| {
            alone(&device, offset, data)
        })?;
        drop(device);
        let cache = region.cache(path)?;
        let cleaner = Cleaner::start(&cache);
        let write = |offset, data: &[u8]| cache.write(offset, data).context("cannot write to the cache");
        let rate = writes_per_s(*writers, time, u64::MAX, write)?;
        let status = cache.status();
        drop(cleaner);
        cache.detach().context("cannot end the cache")?;
        drop(cache);
        std::fs::remove_file(&region.0).context("cannot remove emulated PM")?;
        let longest = status.write_ns_max as f64 / 1e6;
        rows.push(Row {
            name: format!("the same for {time:?} without a pause, {writers} writers"),
            value: Some(rate),
            unit: "IOPS",
            ratio: Some(rate / alone),
            baseline: Some(format!("the origin alone, for 2 s before: {alone:.0} IOPS")),
            medium: medium.to_owned(),
            threads: *writers,
            ..Row::default()
        });
        rows.push(Row {
            name: format!(
                "longest of its writes ({} delayed, {} found the log full)",
                status.delays, status.stops
            ),
            value: Some(longest),
            unit: "ms",
            goal: Some("at most 100 ms".to_owned()),
            met: Some(longest <= 100.0),
            medium: medium.to_owned(),
            threads: *writers,
            ..Row::default()
        });
    }
    Ok(rows)
}
