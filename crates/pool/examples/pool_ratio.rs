//! Figures of a pool on a file, beside the plainest loop for the same bytes. `pool_ratio FOLDER [MIB]`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use fastness_pool::{DatasetKind, Device, ImportOptions, Pool, PoolOptions, Property, VdevSpec};

type Failure = Box<dyn std::error::Error>;

/// Numbers in an order that no disk likes; the same every time.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count)
}

fn per(elapsed: Duration, count: u64) -> f64 {
    elapsed.as_secs_f64() * 1e9 / count as f64
}

/// Bytes that are neither zero nor equal.
fn block(len: usize, at: u64) -> Vec<u8> {
    (0..len as u64 / 8)
        .flat_map(|word| (at * 7919 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

fn one_size(folder: &std::path::Path, len_bytes: u64, block_bytes: u64) -> Result<(), Failure> {
    let (raw_path, path) = (folder.join("ratio.raw"), folder.join("ratio.pool"));
    let blocks = len_bytes / block_bytes;
    let data = block(1 << 20, 1);
    // Both files are allocated in advance and written once before: neither pays for the other's extents.
    let raw = std::fs::File::create_new(&raw_path)?;
    let floor = |raw: &std::fs::File| -> Result<Duration, Failure> {
        let since = Instant::now();
        for offset in (0..len_bytes).step_by(1 << 20) {
            raw.write_all_at(&data, offset)?;
        }
        raw.sync_data()?;
        Ok(since.elapsed())
    };
    floor(&raw)?;
    let device = Device::create(&path, len_bytes * 3 + (64 << 20))?;
    let options = PoolOptions {
        has_txg_thread: false,
        dirty_max_bytes: len_bytes * 2,
        cache_bytes: len_bytes * 2,
        ..PoolOptions::default()
    };
    let pool = Pool::create("ratio", &[VdevSpec::single(device)], options.clone())?;
    let tx = pool.begin_tx()?;
    let dataset =
        pool.create_dataset(&tx, "ratio/v", DatasetKind::Volume, &[(Property::VolBlockSize, block_bytes)])?;
    let object = dataset.create_object(&tx)?;
    drop(tx);
    let one = block(block_bytes as usize, 3);
    for round in 0..3 {
        let since = Instant::now();
        for at in scattered(blocks) {
            let tx = pool.begin_tx()?;
            object.write(&tx, at * block_bytes, &one)?;
            tx.commit();
        }
        let write_ns = per(since.elapsed(), blocks);
        let since = Instant::now();
        pool.sync()?;
        let sync = since.elapsed();
        let raw_time = floor(&raw)?;
        println!(
            "{block_bytes:>6} B round {round}: write {write_ns:.0} ns; sync {:.0} MiB/s, floor {:.0} MiB/s, ratio {:.2}",
            len_bytes as f64 / 1048576.0 / sync.as_secs_f64(),
            len_bytes as f64 / 1048576.0 / raw_time.as_secs_f64(),
            raw_time.as_secs_f64() / sync.as_secs_f64()
        );
    }
    let mut buf = vec![0; block_bytes as usize];
    for label in ["uncached", "cached"] {
        let since = Instant::now();
        for at in scattered(blocks) {
            object.read(at * block_bytes, &mut buf)?;
        }
        println!("{block_bytes:>6} B {label} read: {:.0} ns", per(since.elapsed(), blocks));
    }
    let since = Instant::now();
    for at in scattered(blocks) {
        raw.read_exact_at(&mut buf, at * block_bytes)?;
    }
    println!("{block_bytes:>6} B floor, pread from the page cache: {:.0} ns", per(since.elapsed(), blocks));
    drop((object, dataset, pool));
    let since = Instant::now();
    let pool = Pool::import(&[Device::open(&path)?], &ImportOptions::default(), options)?;
    println!("{block_bytes:>6} B import after a crash: {:?}", since.elapsed());
    drop(pool);
    std::fs::remove_file(path)?;
    std::fs::remove_file(raw_path)?;
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("pool_ratio FOLDER [MIB]")?;
    let mib: u64 = args.next().map_or(Ok(256), |text| text.parse())?;
    one_size(folder.as_ref(), mib << 20, 4096)?;
    one_size(folder.as_ref(), mib << 20, 131_072)
}
