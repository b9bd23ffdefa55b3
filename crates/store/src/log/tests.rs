use std::time::Duration;

use fastness_blkdev::MemDevice;
use fastness_pool::{Device, PoolOptions, VdevSpec};
use fastness_zil::record::{Head, Record};

use super::*;
use crate::dataset::{Demand, Records};
use crate::handler::{Handler, Kinds, ReplayError, Replaying};
use crate::options::StoreOptions;
use crate::store::Store;

/// Nothing is replayed here.
struct NoReplay;

impl Handler for NoReplay {
    fn apply(&self, _: &Replaying<'_>, _: &Tx, _: &Head, _: &Record<'_>) -> Result<(), ReplayError> {
        unreachable!("nothing is imported")
    }
}

#[test]
fn the_log_of_a_closed_dataset_goes_when_all_that_it_had_has_synced() {
    // No txg ends by itself.
    let pool = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
    let options = StoreOptions {
        pool,
        kinds: Kinds::default().with(DatasetKind::Volume, NoReplay),
        ..Default::default()
    };
    let disk = Device::new("disk", Arc::new(MemDevice::new("disk", 64 << 20)));
    let pool = Pool::create("tank", &[VdevSpec::single(disk)], options.pool.clone()).unwrap();
    let store = Store::create(pool, options).unwrap();
    let fill = |tx: &Tx, dataset: &Dataset| dataset.create_object(tx);
    let (open, object) = store.create_dataset("tank/v", DatasetKind::Volume, &[], fill).unwrap();
    store.pool().sync().unwrap();
    let log = store.log().unwrap();
    let first = Arc::downgrade(&log.dataset_log(open.dataset().id()).unwrap());
    let data = [1; 4096];
    let change = |tx: &Tx| object.write(tx, 0, &data);
    let record = |records: Records<'_>| records.write(object.id(), 0, &data, false);
    open.change(Demand::Flush, 0..4096, change, record).unwrap().wait().unwrap();
    drop(open);
    assert!(first.upgrade().is_some(), "a flush to come needs it");
    store.pool().sync().unwrap();
    assert!(first.upgrade().is_none(), "it is kept for nothing");
    assert!(log.stats().is_empty());
}
