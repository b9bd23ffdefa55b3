//! A pool in memory whose log is on regions in files, which can be cut short.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{Device, Pool, PoolOptions, Property, TxgHook, VdevSpec};
use fastness_store::{
    Consent, LogConfig, LogImportStep, NewRegion, PoolLog, RegionConfig, RegionParts, ReplayReport, Source,
    Store, StoreError,
};
use fastness_zvol::{Volume, VolumeOptions};

pub use crate::support::log;
use crate::support::{Parts, import, store_options};

pub const MIB: u64 = 1 << 20;
pub const BLOCK: u64 = 4096;
pub struct Bench {
    pub disk: Arc<MemDevice>,
    pub devices: Vec<Device>,
    dir: tempfile::TempDir,
    txg_timeout: Duration,
}

pub fn device(memory: &Arc<MemDevice>) -> Device {
    Device::new("disk", memory.clone())
}

impl Bench {
    /// A pool whose log is on these regions.
    pub fn new(regions: &[&str], txg_timeout: Duration) -> (Bench, Arc<Store>) {
        Bench::with_hook(regions, txg_timeout, |_| None)
    }

    /// With a hook that is called before the log's.
    pub fn with_hook(
        regions: &[&str],
        txg_timeout: Duration,
        hook: impl FnOnce(&Bench) -> Option<Arc<dyn TxgHook>>,
    ) -> (Bench, Arc<Store>) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let disk = Arc::new(MemDevice::from_image("disk", MemImage::zeroed(128 * MIB), 512));
        let bench = Bench { devices: vec![device(&disk)], disk, dir, txg_timeout };
        let vdevs = [VdevSpec::single(bench.devices[0].clone())];
        let pool = Pool::create("tank", &vdevs, bench.options()).unwrap();
        if let Some(hook) = hook(&bench) {
            pool.add_hook(hook);
        }
        let store = Store::create(pool, store_options(bench.options())).unwrap();
        let sides = || Ok(regions.iter().map(|name| bench.region(name)).collect());
        log(&store).add_regions(sides).unwrap();
        (bench, store)
    }

    pub fn options(&self) -> PoolOptions {
        PoolOptions { txg_timeout: self.txg_timeout, ..PoolOptions::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn region(&self, name: &str) -> NewRegion {
        let path = self.path(name);
        let region = PoolLog::create_region(&path, 16 * MIB, true).unwrap();
        NewRegion { parts: RegionParts::of(region).unwrap(), path, emulates: true }
    }

    pub fn cut(&self, name: &str, len_bytes: u64) {
        let file = std::fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_len(len_bytes).unwrap();
    }

    pub fn import(&self, consent: Consent) -> Result<(Arc<Store>, ReplayReport), StoreError> {
        self.import_telling(consent, &mut |_, _| {})
    }

    pub fn import_telling(
        &self,
        consent: Consent,
        tell: &mut dyn FnMut(&Pool, LogImportStep<'_>),
    ) -> Result<(Arc<Store>, ReplayReport), StoreError> {
        let mut parts = Telling { parts: Parts(self.devices.clone()), tell };
        import(&mut parts, &store_options(self.options()), consent)
    }
}

struct Telling<'a> {
    parts: Parts,
    tell: &'a mut dyn FnMut(&Pool, LogImportStep<'_>),
}

impl Source for Telling<'_> {
    fn devices(&mut self, known: Option<&[String]>) -> Result<Vec<Device>, StoreError> {
        self.parts.devices(known)
    }

    fn regions(
        &mut self,
        pool: &Pool,
        config: &LogConfig,
    ) -> Result<Vec<Result<RegionParts, StoreError>>, StoreError> {
        self.parts.regions(pool, config)
    }

    fn tell(&mut self, pool: &Pool, step: LogImportStep<'_>) {
        (self.tell)(pool, step);
    }
}

pub fn volume(store: &Store) -> Volume {
    let small = VolumeOptions { properties: vec![(Property::VolBlockSize, BLOCK)] };
    Volume::create(store, "tank/v", MIB, &small).unwrap()
}

pub fn open(store: &Store) -> Volume {
    Volume::open(store, "tank/v").unwrap()
}

/// Regions that the pool says are out, by name.
pub fn out(pool: &Pool) -> Vec<String> {
    let config = PoolLog::config(pool).unwrap();
    let name = |region: &RegionConfig| region.path.file_name().unwrap().to_str().unwrap().to_owned();
    config.regions.iter().filter(|region| region.is_out).map(name).collect()
}

pub fn logged(log: &PoolLog) -> u64 {
    log.stats().iter().map(|(_, stats)| stats.records + stats.bypass_records).sum()
}

pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// The pool as it was on its disk at some time.
pub fn put_back_disk(bench: &mut Bench, image: &MemImage) {
    bench.devices = vec![device(&Arc::new(MemDevice::from_image("disk", image.clone(), 512)))];
}

pub fn block(volume: &Volume, offset: u64) -> u8 {
    let mut bytes = [0; BLOCK as usize];
    volume.read(offset, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

/// Kept from before the loss, a whole side.
pub fn put_back(bench: &Bench, name: &str, bytes: &[u8]) {
    let _ = std::fs::remove_file(bench.path(name));
    std::fs::write(bench.path(name), bytes).unwrap();
}
