//! A region of the log, or the pool, that is a copy of itself from earlier: refused, with its path and its
//! age.

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use fastness_blkdev::{MemDevice, MemImage};
use fastness_pool::{
    Device, HookChanges, ImportOptions, Pool, PoolError, PoolOptions, Property, Txg, TxgHook, VdevSpec,
};
use fastness_store::{Consent, Given, PoolLog, RegionParts, Store, StoreError};
use fastness_zil::KindId;
use fastness_zvol::{Volume, VolumeOptions};
use support::{create, log, manual, store_options};

const MIB: u64 = 1 << 20;

/// A pool in memory, and regions in files.
struct World {
    dir: tempfile::TempDir,
    disk: Arc<MemDevice>,
    open: Option<(Arc<Store>, Volume)>,
}

/// Everything that was on the media at one time.
struct Copy {
    disk: MemImage,
    regions: Vec<Vec<u8>>,
}

impl World {
    fn new(regions: usize) -> World {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let disk = Arc::new(MemDevice::from_image("disk", MemImage::zeroed(64 * MIB), 512));
        let spec = VdevSpec::single(Device::new("disk", disk.clone()));
        let store = create(&[spec], store_options(manual()));
        let mut world = World { dir, disk, open: None };
        log(&store).add_regions(|| (0..regions).map(|index| world.new_region(index)).collect()).unwrap();
        let small = VolumeOptions { properties: vec![(Property::VolBlockSize, 4096)] };
        let volume = Volume::create(&store, "tank/v", MIB, &small).unwrap();
        world.open = Some((store, volume));
        world
    }

    fn path(&self, index: usize) -> PathBuf {
        self.dir.path().join(format!("region{index}"))
    }

    fn new_region(&self, index: usize) -> Result<fastness_store::NewRegion, StoreError> {
        let path = self.path(index);
        let region = PoolLog::create_region(&path, 16 * MIB, true)?;
        Ok(fastness_store::NewRegion { parts: RegionParts::of(region)?, path, emulates: true })
    }

    fn store(&self) -> &Store {
        &self.open.as_ref().unwrap().0
    }

    fn pool(&self) -> Arc<Pool> {
        self.store().pool()
    }

    fn volume(&self) -> &Volume {
        &self.open.as_ref().unwrap().1
    }

    fn regions(&self) -> Vec<PathBuf> {
        (0..2).map(|index| self.path(index)).filter(|path| path.exists()).collect()
    }

    fn copy(&self) -> Copy {
        let regions = self.regions().iter().map(|path| std::fs::read(path).unwrap()).collect();
        Copy { disk: self.disk.image(), regions }
    }

    /// The process dies.
    fn crash(&mut self) {
        self.open = None;
    }

    fn put_back_region(&self, index: usize, copy: &Copy) {
        std::fs::write(self.path(index), &copy.regions[index]).unwrap();
    }

    fn put_back_disk(&mut self, copy: &Copy) {
        self.disk = Arc::new(MemDevice::from_image("disk", copy.disk.clone(), 512));
    }

    fn import(&mut self, consent: Consent) -> Result<(), StoreError> {
        let open = |path: &PathBuf| RegionParts::of(PoolLog::open_region(path, true).unwrap()).unwrap();
        let regions = self.regions().iter().map(open).collect();
        let mut parts = Given { devices: vec![Device::new("disk", self.disk.clone())], regions };
        let (store, _) = support::import(&mut parts, &store_options(manual()), consent)?;
        let volume = Volume::open(&store, "tank/v").unwrap();
        self.open = Some((store, volume));
        Ok(())
    }

    fn write(&self, block: u64, fill: u8) {
        self.volume().write(block * 4096, &[fill; 4096], true).unwrap();
    }

    fn block(&self, block: u64) -> u8 {
        let mut bytes = [0; 4096];
        self.volume().read(block * 4096, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }
}

fn refusal(result: Result<(), StoreError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, StoreError::Copy { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn an_older_copy_of_the_region_is_refused_by_path_and_age() {
    let mut world = World::new(1);
    world.write(0, 1);
    let copy = world.copy();
    (2..5).for_each(|fill| {
        world.write(0, fill);
        world.pool().sync().unwrap();
    });
    world.write(1, 9);
    world.crash();
    world.put_back_region(0, &copy);
    let text = refusal(world.import(Consent::NONE));
    assert!(text.contains("region0") && text.contains("3 before the pool's"), "{text}");
    // What the pool has, it has; what was in the log alone is lost, by consent.
    world.import(Consent { missing: true, ..Consent::NONE }).unwrap();
    assert_eq!((world.block(0), world.block(1)), (4, 0));
    assert_eq!(log(world.store()).kind(), KindId::Lwb);
}

#[test]
fn an_older_copy_of_one_side_costs_nothing() {
    for side in [0, 1] {
        let mut world = World::new(2);
        let copy = world.copy();
        world.pool().sync().unwrap();
        world.write(1, 9);
        world.crash();
        world.put_back_region(side, &copy);
        world.import(Consent::NONE).unwrap();
        assert_eq!(world.block(1), 9);
        // It is out, alone neither.
        let config = PoolLog::config(&world.pool()).unwrap();
        let out: Vec<_> = config.regions.iter().map(|region| region.is_out).collect();
        assert_eq!(out, [side == 0, side == 1]);
    }
}

#[test]
fn an_older_copy_of_the_pool_is_refused_beside_its_region() {
    for lag in [1, 4] {
        let mut world = World::new(1);
        let copy = world.copy();
        for fill in 0..lag {
            world.write(0, fill);
            world.pool().sync().unwrap();
        }
        world.crash();
        world.put_back_disk(&copy);
        let text = refusal(world.import(Consent::NONE));
        assert!(text.contains("its devices are a copy from earlier (disk"), "{text}");
        world.import(Consent { missing: true, ..Consent::NONE }).unwrap();
        assert_eq!(world.block(0), 0);
    }
}

/// The side that fits the copy was lost before it could note what the other has seen.
#[test]
fn an_older_copy_of_the_pool_is_refused_although_one_side_fits_it() {
    for side in [0, 1] {
        let mut world = World::new(2);
        world.pool().sync().unwrap();
        let copy = world.copy();
        world.write(0, 1);
        world.pool().sync().unwrap();
        world.write(1, 9);
        world.crash();
        world.put_back_disk(&copy);
        world.put_back_region(side, &copy);
        let text = refusal(world.import(Consent::NONE));
        assert!(text.contains("its devices are a copy from earlier (disk"), "{text}");
    }
}

#[test]
fn a_region_of_another_history_is_refused_although_the_txgs_agree() {
    let mut world = World::new(1);
    world.crash();
    let copy = world.copy();
    let mut histories = Vec::new();
    for fill in [1, 2] {
        world.put_back_disk(&copy);
        world.put_back_region(0, &copy);
        world.import(Consent::NONE).unwrap();
        world.write(0, fill);
        world.pool().sync().unwrap();
        world.write(1, fill);
        histories.push((world.pool().synced_txg(), world.copy()));
        world.crash();
    }
    assert_eq!(histories[0].0, histories[1].0);
    world.put_back_region(0, &histories[0].1);
    let text = refusal(world.import(Consent::NONE));
    assert!(text.contains("another import"), "{text}");
    world.put_back_region(0, &histories[1].1);
    world.import(Consent::NONE).unwrap();
    assert_eq!((world.block(0), world.block(1)), (2, 2));
}

#[test]
fn a_flipped_bit_in_a_mark_is_harmless_and_two_copies_of_it_are_a_refusal() {
    let mut world = World::new(1);
    world.write(0, 1);
    world.pool().sync().unwrap();
    world.write(1, 2);
    let txg = world.pool().synced_txg().0;
    world.crash();
    let whole = world.copy();
    let slots = [8192, 12288].map(|copy| copy + (txg % 2) as usize * 64);
    for byte in 0..64 {
        let mut one = whole.regions[0].clone();
        one[slots[byte % 2] + byte] ^= 0x10;
        let mut both = one.clone();
        both[slots[(byte + 1) % 2] + 63 - byte] ^= 0x10;
        world.put_back_disk(&whole);
        world.put_back_region(0, &Copy { disk: whole.disk.clone(), regions: vec![one] });
        world.import(Consent::NONE).unwrap();
        assert_eq!((world.block(0), world.block(1)), (1, 2));
        world.crash();
        world.put_back_disk(&whole);
        world.put_back_region(0, &Copy { disk: whole.disk.clone(), regions: vec![both] });
        refusal(world.import(Consent::NONE));
    }
}

/// Stops each txg in the middle of its sync, until it is let go.
#[derive(Default)]
struct Stop {
    is_armed: AtomicBool,
    stopped: Mutex<Option<u64>>,
    changed: Condvar,
}

impl Stop {
    fn wait(&self, until: impl Fn(Option<u64>) -> bool) -> Option<u64> {
        let stopped = self.stopped.lock().unwrap();
        *self.changed.wait_while(stopped, |stopped| !until(*stopped)).unwrap()
    }

    fn set(&self, txg: Option<u64>) {
        *self.stopped.lock().unwrap() = txg;
        self.changed.notify_all();
    }
}

struct Stopper(Arc<Stop>);

impl TxgHook for Stopper {
    fn sync(&self, txg: Txg, _: &mut HookChanges) -> Result<(), PoolError> {
        if self.0.is_armed.load(Ordering::SeqCst) {
            self.0.set(Some(txg.0));
            self.0.wait(|stopped| stopped != Some(txg.0));
        }
        Ok(())
    }

    fn synced(&self, _: Txg) {}
}

/// The log leaves its region in a txg while the one before is being synced; the power fails when that is
/// durable. The pool names the region still.
#[test]
fn a_region_that_the_log_is_leaving_hears_of_each_txg_that_names_it() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let disk = Arc::new(MemDevice::from_image("disk", MemImage::zeroed(64 * MIB), 512));
    let spec = VdevSpec::single(Device::new("disk", disk.clone()));
    let pool = Pool::create("tank", &[spec], manual()).unwrap();
    let stop = Arc::new(Stop::default());
    // Before the log's own, so that it is called first.
    pool.add_hook(Arc::new(Stopper(stop.clone())));
    let store = Store::create(pool, store_options(manual())).unwrap();
    let path = dir.path().join("region");
    let region = PoolLog::create_region(&path, 16 * MIB, true).unwrap();
    log(&store).add_region(region, path.clone(), true).unwrap();
    stop.is_armed.store(true, Ordering::SeqCst);
    let (image, bytes) = std::thread::scope(|scope| {
        scope.spawn(|| store.pool().sync().unwrap());
        let first = stop.wait(|stopped| stopped.is_some()).unwrap();
        let leaving = scope.spawn(|| log(&store).remove_region().unwrap());
        while log(&store).kind() == KindId::Pmem {
            std::thread::yield_now();
        }
        stop.set(None);
        stop.wait(|stopped| stopped == Some(first + 1));
        let crash = (disk.image(), std::fs::read(&path).unwrap());
        stop.is_armed.store(false, Ordering::SeqCst);
        stop.set(None);
        leaving.join().unwrap();
        crash
    });
    drop(store);
    std::fs::write(&path, bytes).unwrap();
    let devices = vec![Device::new("disk", Arc::new(MemDevice::from_image("disk", image, 512)))];
    let read_only = PoolOptions { is_read_only: true, ..manual() };
    let pool = Pool::import(&devices, &ImportOptions::default(), read_only).unwrap();
    assert_eq!(PoolLog::config(&pool).unwrap().in_use().count(), 1);
    drop(pool);
    let regions = vec![RegionParts::of(PoolLog::open_region(&path, true).unwrap()).unwrap()];
    support::import(&mut Given { devices, regions }, &store_options(manual()), Consent::NONE).unwrap();
}
