//! Import after a crash, of a small pool and of a large one.

use std::sync::Arc;

use fastness_blkdev::OpenOptions;
use fastness_store::{DatasetKind, Device, ImportOptions, Pool, PoolOptions, VdevSpec};

use super::forget::{Forgetful, MARK};
use super::place::{Place, write_one};
use crate::error::Result;
use crate::measure::{Spread, by_turns, time_ns};
use crate::{Options, Row};

/// Both pools are of this length; the files are sparse.
const POOL_BYTES: u64 = 128 << 30;

pub(super) fn row(place: &Place, options: Options) -> Result<Row> {
    let large_gib: u64 = if options.quick { 20 } else { 100 };
    fill(place, "small", 1 << 30)?;
    fill(place, "large", large_gib << 30)?;
    let import = |name| {
        let mut pool = None;
        let ns = time_ns(|| {
            let device = device(place, name)?;
            pool = Some(Pool::import(&[device], &ImportOptions::default(), PoolOptions::default())?);
            Ok(())
        });
        // Dropped without an export: the next import finds a crashed pool again.
        drop(pool);
        ns
    };
    let pair = by_turns(if options.quick { 21 } else { 61 }, 1, || import("large"), || import("small"))?;
    place.remove("small")?;
    place.remove("large")?;
    let ms = |times: &[f64]| Spread::of(times.to_vec()).median / 1e6;
    Ok(Row {
        name: format!("import after a crash, {large_gib} GiB of data in blocks of 128 KiB"),
        value: Some(ms(&pair.a)),
        unit: "ms",
        baseline: Some(format!("1 GiB of data, {:.1} ms", ms(&pair.b))),
        medium: format!("{}; sparse, data not kept", place.medium()),
        ..Row::ratio(pair.ratio(), Some((1.2, "at most")))
    })
}

fn device(place: &Place, name: &str) -> Result<Device> {
    let device = OpenOptions::new().open(place.path(name))?;
    Ok(Device::new(name, Arc::new(Forgetful(device))))
}

/// A pool with so much data, crashed with the last of it synced.
fn fill(place: &Place, name: &str, len_bytes: u64) -> Result<()> {
    std::fs::File::create_new(place.path(name))?.set_len(POOL_BYTES)?;
    let pool = Pool::create("bench", &[VdevSpec::single(device(place, name)?)], PoolOptions::default())?;
    let tx = pool.begin_tx()?;
    let object = pool.create_dataset(&tx, "bench/f", DatasetKind::Filesystem, &[])?.create_object(&tx)?;
    drop(tx);
    let block: Vec<u8> = MARK.iter().copied().cycle().take(object.block_bytes() as usize).collect();
    for offset in (0..len_bytes).step_by(block.len()) {
        write_one(&pool, &object, offset, &block)?;
    }
    pool.sync()?;
    Ok(())
}
