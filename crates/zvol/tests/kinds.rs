//! The log of a pool changes its kind and its devices while volumes are written, and nothing acknowledged is
//! lost.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastness_blkdev::MemImage;
use fastness_pool::{Device, Feature, Pool, PoolOptions, Property, VdevClass, VdevSpec};
use fastness_store::{Consent, NewRegion, PoolLog, RegionId, RegionParts, Store, StoreError};
use fastness_zil::KindId;
use fastness_zvol::{Volume, VolumeOptions};
use support::{Parts, create, log, store_options};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const THREADS: usize = 3;
const BLOCKS: usize = 40;

fn options() -> PoolOptions {
    PoolOptions { txg_timeout: Duration::from_millis(20), ..PoolOptions::default() }
}

fn memory(name: &str, len_bytes: u64) -> Device {
    support::memory(name, MemImage::zeroed(len_bytes))
}

struct Bench {
    devices: Vec<Device>,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> (Bench, Arc<Store>) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let bench = Bench { devices: vec![memory("disk", 128 * MIB)], dir };
        let store = create(&[VdevSpec::single(bench.devices[0].clone())], store_options(options()));
        (bench, store)
    }

    fn region(&self, name: &str, len_bytes: u64) -> NewRegion {
        let path = self.dir.path().join(name);
        let region = match path.exists() {
            true => PoolLog::open_region(&path, true).unwrap(),
            false => PoolLog::create_region(&path, len_bytes, true).unwrap(),
        };
        NewRegion { parts: RegionParts::of(region).unwrap(), path, emulates: true }
    }

    fn add_region(&self, log: &PoolLog, name: &str) {
        log.add_regions(|| Ok(vec![self.region(name, 16 * MIB)])).unwrap();
    }

    /// Two regions, of which the second is longer.
    fn add_mirror(&self, log: &PoolLog) {
        let sides = || Ok(vec![self.region("a", 16 * MIB), self.region("b", 24 * MIB)]);
        log.add_regions(sides).unwrap();
    }

    fn id(&self, pool: &Pool, name: &str) -> RegionId {
        let path = self.dir.path().join(name);
        let config = PoolLog::config(pool).unwrap();
        config.regions.iter().find(|region| region.path == path).unwrap().id
    }

    /// What an import finds after everything in memory is gone.
    fn import(&self) -> Arc<Store> {
        self.try_import().unwrap()
    }

    /// With whatever regions are there, also those that are out.
    fn try_import(&self) -> Result<Arc<Store>, StoreError> {
        let mut parts = Parts(self.devices.clone());
        Ok(support::import(&mut parts, &store_options(options()), Consent::NONE)?.0)
    }
}

fn volume(store: &Store, name: &str) -> Volume {
    let small = VolumeOptions { properties: vec![(Property::VolBlockSize, BLOCK)] };
    Volume::create(store, name, MIB, &small).unwrap()
}

/// What each thread was told to be durable of each of its blocks.
type Told = Vec<Vec<AtomicU64>>;

/// Writes a block with FUA, or several and a flush, until told to end.
fn write_on(volume: &Volume, thread: usize, told: &Told, is_done: &AtomicBool) {
    for round in 1.. {
        if is_done.load(Ordering::SeqCst) {
            return;
        }
        let write = |block: usize, is_fua| {
            let mut data = vec![round as u8; BLOCK as usize];
            data[..8].copy_from_slice(&(round as u64).to_le_bytes());
            volume.write((thread * BLOCKS + block) as u64 * BLOCK, &data, is_fua).unwrap();
        };
        let first = round * 7 % BLOCKS;
        if round % 3 == 0 {
            let blocks = [first, (first + 1) % BLOCKS];
            blocks.iter().for_each(|block| write(*block, false));
            volume.flush().unwrap();
            blocks.iter().for_each(|block| told[thread][*block].store(round as u64, Ordering::SeqCst));
        } else {
            write(first, true);
            told[thread][first].store(round as u64, Ordering::SeqCst);
        }
    }
}

/// Writes from several threads on two volumes, while `change` does something to the log; then all is dropped,
/// and an import must find everything that was acknowledged.
fn nothing_is_lost_while(
    bench: &mut Bench,
    store: Arc<Store>,
    change: impl FnOnce(&mut Bench, &Pool, &PoolLog),
) {
    let volumes = [volume(&store, "tank/a"), volume(&store, "tank/b")];
    let told: Told = (0..THREADS).map(|_| (0..BLOCKS).map(|_| AtomicU64::new(0)).collect()).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, told, is_done) = (&volumes[thread % 2], &told, &is_done);
            scope.spawn(move || write_on(volume, thread, told, is_done));
        }
        change(bench, &store.pool(), &log(&store));
        is_done.store(true, Ordering::SeqCst);
    });
    drop((volumes, store));
    let store = bench.import();
    let volumes = ["tank/a", "tank/b"].map(|name| Volume::open(&store, name).unwrap());
    for (thread, told) in told.iter().enumerate() {
        for (block, told) in told.iter().enumerate() {
            let (mut data, told) = (vec![0; BLOCK as usize], told.load(Ordering::SeqCst));
            volumes[thread % 2].read((thread * BLOCKS + block) as u64 * BLOCK, &mut data).unwrap();
            let found = u64::from_le_bytes(data[..8].try_into().unwrap());
            assert!(
                found >= told,
                "thread {thread}, block {block}: {told} was acknowledged, {found} is there"
            );
            assert!(data[8..].iter().all(|byte| *byte == found as u8), "a torn block");
        }
    }
    assert!(store.pool().check().unwrap().is_clean());
}

#[test]
fn the_kind_changes() {
    for last in [KindId::Pmem, KindId::Lwb] {
        let (mut bench, store) = Bench::new();
        nothing_is_lost_while(&mut bench, store, |bench, pool, log| {
            for round in 0..6 {
                std::thread::sleep(Duration::from_millis(30));
                bench.add_region(log, &format!("log {}", round % 2));
                assert_eq!(log.kind(), KindId::Pmem);
                std::thread::sleep(Duration::from_millis(30));
                if round < 5 || last == KindId::Lwb {
                    log.remove_region().unwrap();
                }
                let config = PoolLog::config(pool).unwrap();
                assert_eq!(config.kind, log.kind());
                assert_eq!(pool.is_active(Feature::LogDevice), config.kind == KindId::Pmem);
            }
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(log.kind(), last);
            let written =
                log.stats().iter().map(|(_, stats)| stats.records + stats.bypass_records).sum::<u64>();
            assert!(written > 0, "nothing was logged");
        });
    }
}

#[test]
fn devices_for_logs_come_and_go() {
    let (mut bench, store) = Bench::new();
    nothing_is_lost_while(&mut bench, store, |bench, pool, log| {
        for round in 0..4 {
            let device = memory(&format!("log {round}"), 64 * MIB);
            let id = pool.add(&VdevSpec { class: VdevClass::Log, devices: vec![device.clone()] }).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let usage = pool.log_space().usage();
            assert!(usage.iter().any(|usage| usage.vdev == id && usage.used_bytes > 0), "it is not used");
            if round < 3 {
                log.remove_vdev(id).unwrap();
            } else {
                bench.devices.push(device);
            }
        }
    });
}

#[test]
fn a_log_has_one_kind() {
    let (bench, store) = Bench::new();
    let (pool, log) = (store.pool(), log(&store));
    let id = pool.add(&VdevSpec { class: VdevClass::Log, devices: vec![memory("log", 64 * MIB)] }).unwrap();
    let path = bench.dir.path().join("region");
    let region = PoolLog::create_region(&path, 16 * MIB, true).unwrap();
    let refused = log.add_region(region, path, true).unwrap_err();
    assert!(refused.to_string().contains("one kind"), "{refused}");
    log.remove_vdev(id).unwrap();
    bench.add_region(&log, "region");
    assert!(log.remove_vdev(id).is_err());
    assert_eq!(log.kind(), KindId::Pmem);
    log.remove_region().unwrap();
    assert!(log.remove_region().is_err());
}

#[test]
fn sides_come_and_go() {
    let (mut bench, store) = Bench::new();
    nothing_is_lost_while(&mut bench, store, |bench, pool, log| {
        let wait = || std::thread::sleep(Duration::from_millis(30));
        bench.add_region(log, "c");
        for _ in 0..3 {
            log.attach_region(bench.region("b", 24 * MIB)).unwrap();
            assert_eq!(log.regions().len(), 2);
            wait();
            log.replace_region(bench.id(pool, "c"), bench.region("a", 16 * MIB)).unwrap();
            wait();
            assert!(log.attach_region(bench.region("d", 16 * MIB)).is_err(), "there are two");
            log.detach_region(bench.id(pool, "b")).unwrap();
            assert_eq!((log.kind(), log.regions().len()), (KindId::Pmem, 1));
            assert!(log.detach_region(bench.id(pool, "a")).is_err(), "it is the only one");
            wait();
            log.replace_region(bench.id(pool, "a"), bench.region("c", 16 * MIB)).unwrap();
            wait();
        }
        log.attach_region(bench.region("a", 16 * MIB)).unwrap();
        wait();
    });
}

/// What to do to a side between a crash and the import.
type Harm = fn(&std::path::Path);

#[test]
fn a_lost_or_corrupt_region_costs_nothing() {
    let remove: Harm = |path| std::fs::remove_file(path).unwrap();
    let scribble: Harm = |path| std::fs::write(path, vec![0xa5; (16 * MIB) as usize]).unwrap();
    let truncate: Harm =
        |path| std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4 * MIB).unwrap();
    let no_superblock: Harm = |path| {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0; 8192], 0).unwrap();
    };
    for (harm, what) in
        [(remove, "removed"), (scribble, "scribbled"), (truncate, "cut"), (no_superblock, "no superblock")]
    {
        for side in ["a", "b"] {
            let (mut bench, store) = Bench::new();
            bench.add_mirror(&log(&store));
            let volumes = [volume(&store, "tank/a"), volume(&store, "tank/b")];
            store.pool().sync().unwrap();
            let written = |round: u8| vec![round; BLOCK as usize];
            volumes.iter().for_each(|volume| volume.write(0, &written(1), true).unwrap());
            drop((volumes, store));
            harm(&bench.dir.path().join(side));
            let store = bench.import();
            let what = format!("side {side} {what}");
            let config = PoolLog::config(&store.pool()).unwrap();
            assert_eq!(config.regions.iter().filter(|region| region.is_out).count(), 1, "{what}");
            assert_eq!((config.in_use().count(), log(&store).regions().len()), (1, 1), "{what}");
            let open = |store: &Store| ["tank/a", "tank/b"].map(|name| Volume::open(store, name).unwrap());
            let check = |volumes: &[Volume; 2], round| {
                for volume in volumes {
                    let mut found = written(0);
                    volume.read(0, &mut found).unwrap();
                    assert_eq!(found, written(round), "{what}");
                }
            };
            let volumes = open(&store);
            check(&volumes, 1);
            store.pool().sync().unwrap();
            volumes.iter().for_each(|volume| volume.write(0, &written(2), true).unwrap());
            drop((volumes, store));
            // The other is there again, and has what it had; it is no witness, alone neither.
            let other = bench.dir.path().join(if side == "a" { "b" } else { "a" });
            let hidden = bench.dir.path().join("hidden");
            std::fs::rename(&other, &hidden).unwrap();
            let missing = bench.try_import().map(drop).unwrap_err();
            assert!(
                matches!(
                    missing,
                    StoreError::Missing { .. }
                        | StoreError::NoLog(_)
                        | StoreError::OtherLog { .. }
                        | StoreError::TooSmall { .. }
                ),
                "{what}: {missing:?}"
            );
            std::fs::rename(&hidden, &other).unwrap();
            let store = bench.import();
            let volumes = open(&store);
            check(&volumes, 2);
            let replaced = bench.id(&store.pool(), side);
            let _ = std::fs::remove_file(bench.dir.path().join(side));
            log(&store).replace_region(replaced, bench.region("new", 16 * MIB)).unwrap();
            assert!(PoolLog::config(&store.pool()).unwrap().regions.iter().all(|region| !region.is_out));
            volumes.iter().for_each(|volume| volume.write(0, &written(3), true).unwrap());
            drop((volumes, store));
            std::fs::remove_file(other).unwrap();
            let store = bench.import();
            check(&open(&store), 3);
            bench.devices.clear();
        }
    }
}

/// A side that comes back unharmed after the log went on without it is as old as that.
/// The pool's own thread looks after it, after a change of kind and after an import.
#[test]
fn an_idle_log_in_persistent_memory_counts_what_was_written_last() {
    let (bench, _) = Bench::new();
    let txg_timeout = Duration::from_secs(3600);
    let options = store_options(PoolOptions { txg_timeout, ..options() });
    let store = create(&[VdevSpec::single(bench.devices[0].clone())], options.clone());
    bench.add_region(&log(&store), "region");
    let watched = |store: &Arc<Store>, volume: &Volume| {
        store.pool().sync().unwrap();
        let entries = || log(store).medium_stats().unwrap().entries;
        let before = entries();
        volume.write(0, &[7; 4096], true).unwrap();
        let begun = std::time::Instant::now();
        while entries() < before + 2 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} {before}", entries());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let written = volume(&store, "tank/a");
    watched(&store, &written);
    drop((written, store));
    let store = support::import(&mut Parts(bench.devices.clone()), &options, Consent::NONE).unwrap().0;
    let written = Volume::open(&store, "tank/a").unwrap();
    watched(&store, &written);
}

#[test]
fn a_side_that_was_away_is_no_witness() {
    let (bench, store) = Bench::new();
    bench.add_mirror(&log(&store));
    let one = volume(&store, "tank/a");
    store.pool().sync().unwrap();
    one.write(0, &[1; 4096], true).unwrap();
    drop((one, store));
    let (a, b) = (bench.dir.path().join("a"), bench.dir.path().join("b"));
    let hidden = bench.dir.path().join("hidden");
    std::fs::rename(&b, &hidden).unwrap();
    let store = bench.import();
    let one = Volume::open(&store, "tank/a").unwrap();
    store.pool().sync().unwrap();
    one.write(0, &[2; 4096], true).unwrap();
    drop((one, store));
    std::fs::rename(&hidden, &b).unwrap();
    std::fs::rename(&a, &hidden).unwrap();
    let error = bench.try_import().map(drop).unwrap_err();
    assert!(matches!(error, StoreError::OtherLog { .. } | StoreError::Missing { .. }), "{error:?}");
    std::fs::rename(&hidden, &a).unwrap();
    let store = bench.import();
    assert_eq!(log(&store).regions().len(), 1, "the other stays out");
    let mut found = [0; 4096];
    Volume::open(&store, "tank/a").unwrap().read(0, &mut found).unwrap();
    assert_eq!(found, [2; 4096]);
    log(&store).detach_region(bench.id(&store.pool(), "b")).unwrap();
    assert_eq!(PoolLog::config(&store.pool()).unwrap().regions.len(), 1);
}
