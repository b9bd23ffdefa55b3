//! What tests of volumes share: stores, and where an import finds their parts.
#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

pub mod side;

use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{Device, Pool, PoolOptions, VdevSpec};
use fastness_store::{
    Consent, DatasetKind, Kinds, LogConfig, PoolLog, RegionParts, ReplayReport, Source, Store, StoreError,
    StoreOptions,
};
use fastness_zvol::VolumeReplay;

pub fn memory(name: &str, image: MemImage) -> Device {
    Device::new(name, Arc::new(MemDevice::from_image(name, image, 512)))
}

/// Settings of a pool in which no txg ends by itself within a test.
pub fn manual() -> PoolOptions {
    PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() }
}

/// Settings of a store.
pub fn store_options(pool: PoolOptions) -> StoreOptions {
    let kinds = Kinds::default()
        .with(DatasetKind::Volume, VolumeReplay)
        .with(DatasetKind::Filesystem, fastness_zpl::FileReplay::default());
    StoreOptions { pool, kinds, ..StoreOptions::default() }
}

pub fn create(vdevs: &[VdevSpec], options: StoreOptions) -> Arc<Store> {
    let pool = Pool::create("tank", vdevs, options.pool.clone()).unwrap();
    Store::create(pool, options).unwrap()
}

pub fn import(
    source: &mut dyn Source,
    options: &StoreOptions,
    consent: Consent,
) -> Result<(Arc<Store>, ReplayReport), StoreError> {
    Store::import(source, StoreOptions { consent, ..options.clone() })
}

/// Not to be kept: it holds the pool.
pub fn log(store: &Store) -> Arc<PoolLog> {
    store.log().expect("the pool is writable")
}

/// Devices, and the regions that the pool names, as far as they can be opened.
pub struct Parts(pub Vec<Device>);

impl Source for Parts {
    fn devices(&mut self, _known: Option<&[String]>) -> Result<Vec<Device>, StoreError> {
        Ok(std::mem::take(&mut self.0))
    }

    fn regions(
        &mut self,
        _pool: &Pool,
        config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        let opened = config.regions.iter().filter_map(|region| PoolLog::open_region(&region.path, true).ok());
        Ok(opened.map(RegionParts::of).collect())
    }
}
