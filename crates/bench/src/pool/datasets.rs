//! Ten thousand datasets.

use fastness_store::{DatasetKind, Device, ImportOptions, Pool, PoolOptions};

use super::place::Place;
use crate::Row;
use crate::error::{Result, ensure};
use crate::measure::time_ns;

const DATASETS: usize = 10_000;

pub(super) fn rows(place: &Place) -> Result<Vec<Row>> {
    // Each creation reserves 40 KiB until its txg has synced.
    let pool = place.pool("datasets", 1 << 30, PoolOptions::default())?;
    let create_ns = time_ns(|| {
        for number in 0..DATASETS {
            let tx = pool.begin_tx()?;
            pool.create_dataset(&tx, &format!("bench/d{number}"), DatasetKind::Filesystem, &[])?;
        }
        Ok(pool.sync()?)
    })?;
    let mut listed = 0;
    let list_ns = time_ns(|| {
        listed = pool.datasets().len();
        Ok(())
    })?;
    ensure!(listed == DATASETS + 1, "{listed} datasets");
    drop(pool);
    let import_ns = time_ns(|| {
        let device = Device::open(place.path("datasets"))?;
        Ok(Pool::import(&[device], &ImportOptions::default(), PoolOptions::default())?)
    })?;
    place.remove("datasets")?;
    let row = |what: &str, ns: f64, goal: Option<f64>| Row {
        name: format!("{DATASETS} datasets: {what}"),
        value: Some(ns / 1e6),
        unit: "ms",
        goal: goal.map(|bound| format!("at most {bound:.0} ms")),
        met: goal.map(|bound| ns / 1e6 <= bound),
        medium: place.medium(),
        threads: 1,
        ..Row::default()
    };
    Ok(vec![
        row("create, and one sync", create_ns, None),
        row("list", list_ns, None),
        row("import after a crash", import_ns, Some(5000.0)),
    ])
}
