//! A kind of datasets from outside, whole: counters that survive a crash. What a front end has to write.

use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{Device, PoolOptions, VdevSpec};
use fastness_store::record::{Head, Record, Write, WriteData};
use fastness_store::{
    ChangeError, Dataset, DatasetKind, Demand, Given, Handler, Kinds, ObjectId, OpenDataset, Pool,
    ReplayError, Replaying, Store, StoreError, StoreOptions, Tx,
};

const KIND: DatasetKind = DatasetKind::Other(200);
const COUNTERS: ObjectId = ObjectId(1);

struct Replay;

impl Handler for Replay {
    fn apply(&self, on: &Replaying<'_>, tx: &Tx, _: &Head, record: &Record<'_>) -> Result<(), ReplayError> {
        let Record::Write(Write { offset, data: WriteData::Inline(data) }) = record else {
            return Err("counters have no such records".into());
        };
        Ok(on.dataset.object(COUNTERS)?.write(tx, *offset, data)?)
    }
}

fn set(counters: &OpenDataset, counter: u64, value: u64) -> Result<(), ChangeError> {
    let (at, bytes) = (counter * 8, value.to_le_bytes());
    let change = |tx: &Tx| counters.dataset().object(COUNTERS)?.write(tx, at, &bytes);
    counters.change(Demand::Now, at..at + 8, change, |log| log.write(COUNTERS, at, &bytes, true))?.wait()
}

fn get(counters: &OpenDataset, counter: u64) -> u64 {
    let mut bytes = [0; 8];
    counters.dataset().object(COUNTERS).unwrap().read(counter * 8, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// No txg ends by itself: what survives is in the log.
fn options(kinds: Kinds) -> StoreOptions {
    let pool = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
    StoreOptions { pool, kinds, ..StoreOptions::default() }
}

fn import(device: &Device, kinds: Kinds) -> Arc<Store> {
    let mut source = Given { devices: vec![device.clone()], ..Given::default() };
    Store::import(&mut source, options(kinds)).unwrap().0
}

fn crashed() -> Device {
    let memory = MemDevice::from_image("disk", MemImage::zeroed(64 << 20), 512);
    let device = Device::new("disk", Arc::new(memory));
    let pool =
        Pool::create("tank", &[VdevSpec::single(device.clone())], options(Kinds::default()).pool).unwrap();
    let store = Store::create(pool, options(Kinds::default().with(KIND, Replay))).unwrap();
    let fill = |tx: &Tx, dataset: &Dataset| dataset.create_object(tx);
    let (counters, _) = store.create_dataset("tank/counters", KIND, &[], fill).unwrap();
    (0..100).for_each(|counter| set(&counters, counter, counter + 7).unwrap());
    device
}

#[test]
fn counters_survive_a_crash() {
    let store = import(&crashed(), Kinds::default().with(KIND, Replay));
    let counters = store.dataset("tank/counters").unwrap();
    (0..100).for_each(|counter| assert_eq!(get(&counters, counter), counter + 7));
    set(&counters, 0, 1).unwrap();
}

#[test]
fn a_store_that_does_not_know_a_kind_leaves_its_datasets_and_their_logs_alone() {
    let device = crashed();
    for _ in 0..3 {
        let store = import(&device, Kinds::default());
        let error = store.dataset("tank/counters").unwrap_err();
        assert!(
            matches!(&error, StoreError::UnknownKind { dataset, kind } if dataset == "tank/counters" && *kind == KIND)
        );
        assert!(error.to_string().contains("tank/counters is a dataset of kind 200"), "{error}");
        let refused = store.create_dataset("tank/more", KIND, &[], |_, _| Ok(())).unwrap_err();
        assert!(matches!(refused, StoreError::UnknownKind { .. }), "{refused}");
        assert!(store.pool().dataset("tank/more").is_err());
        for _ in 0..3 {
            store.pool().sync().unwrap();
        }
        let report = store.pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
    let store = import(&device, Kinds::default().with(KIND, Replay));
    let counters = store.dataset("tank/counters").unwrap();
    (0..100).for_each(|counter| assert_eq!(get(&counters, counter), counter + 7));
}

/// What is open needs no store to go on: its log is told of txgs, and gives their space back.
#[test]
fn a_dataset_that_is_open_outlives_its_store() {
    let store = import(&crashed(), Kinds::default().with(KIND, Replay));
    let (pool, counters) = (store.pool(), store.dataset("tank/counters").unwrap());
    drop(store);
    (0..100).for_each(|counter| set(&counters, counter, counter + 8).unwrap());
    for _ in 0..3 {
        pool.sync().unwrap();
    }
    let report = pool.check().unwrap();
    // One block stays for an idle log.
    assert!(report.is_clean() && report.log_units <= 8, "{report:?}");
    (0..100).for_each(|counter| assert_eq!(get(&counters, counter), counter + 8));
}
