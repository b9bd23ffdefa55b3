//! Snapshots of volumes whose writes are in a log: what is in them after a crash, and what is not.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use fastness_blkdev::MemImage;
use fastness_pool::{Device, PoolError, Property, VdevSpec};
use fastness_store::{Consent, Given, PoolLog, RegionParts, Store, StoreError};
use fastness_zvol::{Volume, VolumeError, VolumeOptions};
use support::{create, log, manual, memory, store_options};

const MIB: u64 = 1 << 20;

struct Bench {
    disk: Device,
    dir: tempfile::TempDir,
    store: Option<Arc<Store>>,
}

impl Bench {
    fn new(is_pmem: bool) -> Bench {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let disk = memory("disk", MemImage::zeroed(64 * MIB));
        let store = create(&[VdevSpec::single(disk.clone())], store_options(manual()));
        let bench = Bench { disk, dir, store: Some(store) };
        if is_pmem {
            let region = PoolLog::create_region(&bench.path(), 16 * MIB, true).unwrap();
            log(bench.store()).add_region(region, bench.path(), true).unwrap();
        }
        let small = VolumeOptions { properties: vec![(Property::VolBlockSize, 4096)] };
        Volume::create(bench.store(), "tank/v", MIB, &small).unwrap();
        bench.store().pool().sync().unwrap();
        bench
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn open(&self, name: &str) -> Volume {
        Volume::open(self.store(), name).unwrap()
    }

    /// Everything in memory is gone; an import follows. Returns how many records it replayed.
    fn crash(&mut self) -> u64 {
        self.store = None;
        let regions = PoolLog::open_region(&self.path(), true).map(|region| RegionParts::of(region).unwrap());
        let mut parts = Given { devices: vec![self.disk.clone()], regions: regions.into_iter().collect() };
        let (store, report) = support::import(&mut parts, &store_options(manual()), Consent::NONE).unwrap();
        self.store = Some(store);
        report.records
    }

    fn first(&self, name: &str) -> [u8; 4] {
        let mut bytes = [0xee; 4];
        self.open(name).read(0, &mut bytes).unwrap();
        bytes
    }

    fn check(&self) {
        let report = self.store().pool().check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Both kinds of logs.
fn each(test: impl Fn(Bench)) {
    [true, false].into_iter().for_each(|is_pmem| test(Bench::new(is_pmem)));
}

#[test]
fn writes_before_the_command_are_in_it_and_those_after_it_are_replayed_beside_it() {
    each(|mut bench| {
        let volume = bench.open("tank/v");
        volume.write(0, b"old.", false).unwrap();
        volume.write(0, b"flus", true).unwrap();
        volume.write(2, b"sh", false).unwrap();
        bench.store().snapshot("tank/v@a").unwrap();
        volume.write(0, b"NEW!", true).unwrap();
        drop(volume);
        assert!(bench.crash() > 0, "the last write is in the log alone");
        assert_eq!(&bench.first("tank/v@a"), b"flsh");
        assert_eq!(&bench.first("tank/v"), b"NEW!");
        bench.check();
    });
}

/// The crash comes before the txg: no snapshot, and every record is replayed.
#[test]
fn a_crash_before_its_txg_leaves_no_snapshot_and_no_write_out() {
    each(|mut bench| {
        let volume = bench.open("tank/v");
        volume.write(0, b"kept", true).unwrap();
        let pool = bench.store().pool();
        pool.snapshot(&pool.begin_tx().unwrap(), "tank/v@a").unwrap();
        drop((volume, pool));
        assert!(bench.crash() > 0);
        assert!(bench.store().pool().snapshots().is_empty());
        assert_eq!(&bench.first("tank/v"), b"kept");
        // What was replayed is in a snapshot that is asked for now.
        bench.store().snapshot("tank/v@b").unwrap();
        bench.open("tank/v").write(0, b"then", true).unwrap();
        bench.crash();
        assert_eq!((&bench.first("tank/v@b"), &bench.first("tank/v")), (b"kept", b"then"));
    });
}

#[test]
fn a_rollback_is_not_undone_by_the_log() {
    each(|mut bench| {
        let volume = bench.open("tank/v");
        volume.write(0, b"then", true).unwrap();
        bench.store().snapshot("tank/v@a").unwrap();
        volume.write(0, b"lost", true).unwrap();
        let refused = bench.store().rollback("tank/v@a", false).unwrap_err();
        assert!(matches!(refused, StoreError::Pool(PoolError::Busy { .. })), "{refused}");
        drop(volume);
        bench.store().rollback("tank/v@a", false).unwrap();
        assert_eq!(bench.crash(), 0);
        assert_eq!(&bench.first("tank/v"), b"then");
        // It has a log, as before.
        bench.open("tank/v").write(0, b"more", true).unwrap();
        assert!(bench.crash() > 0);
        assert_eq!((&bench.first("tank/v@a"), &bench.first("tank/v")), (b"then", b"more"));
        bench.check();
    });
}

#[test]
fn a_clone_has_a_log_of_its_own() {
    each(|mut bench| {
        bench.open("tank/v").write(0, b"base", true).unwrap();
        bench.store().snapshot("tank/v@a").unwrap();
        bench.store().clone_snapshot("tank/v@a", "tank/c", &[]).unwrap();
        let clone = bench.open("tank/c");
        assert_eq!((clone.size_bytes(), clone.block_bytes()), (MIB, 4096));
        clone.write(2, b"ON", true).unwrap();
        bench.open("tank/v").write(0, b"v", true).unwrap();
        drop(clone);
        assert!(bench.crash() > 1);
        assert_eq!(&bench.first("tank/c"), b"baON");
        assert_eq!(&bench.first("tank/v"), b"vase");
        assert_eq!(&bench.first("tank/v@a"), b"base");
        bench.check();
    });
}

#[test]
fn a_snapshot_is_a_volume_that_refuses_changes() {
    each(|bench| {
        bench.open("tank/v").write(0, b"then", true).unwrap();
        bench.store().snapshot("tank/v@a").unwrap();
        let snapshot = bench.open("tank/v@a");
        assert!(snapshot.is_read_only());
        assert_eq!(snapshot.size_bytes(), MIB);
        let refused = |done: Result<(), VolumeError>| {
            assert!(matches!(done, Err(VolumeError::Pool(PoolError::ReadOnly(_)))), "{done:?}");
        };
        refused(snapshot.write(0, b"x", true));
        refused(snapshot.discard(0, MIB, true));
        refused(snapshot.resize(2 * MIB));
        snapshot.flush().unwrap();
        let mut segments = Vec::new();
        snapshot.segments(0, MIB, 10, &mut segments).unwrap();
        let shape: Vec<_> = segments.iter().map(|segment| (segment.len_bytes, segment.is_hole)).collect();
        assert_eq!(shape, [(4096, false), (MIB - 4096, true)]);
    });
}

#[test]
fn all_of_a_volume_is_destroyed_in_one_step_in_any_order() {
    each(|bench| {
        let store = bench.store();
        store.snapshot("tank/v@a").unwrap();
        store.clone_snapshot("tank/v@a", "tank/c", &[]).unwrap();
        store.snapshot("tank/c@b").unwrap();
        store.clone_snapshot("tank/c@b", "tank/b", &[]).unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let refused = store.destroy_datasets(names(&["tank/v", "tank/v@a"])).unwrap_err();
        assert!(matches!(refused, StoreError::Pool(PoolError::HasClones { .. })), "{refused}");
        assert_eq!(store.pool().datasets().len(), 4, "nothing was destroyed");
        let left = store.destroy_datasets(names(&["tank/b", "tank/c", "tank/v", "tank/c@b", "tank/v@a"]));
        assert!(left.unwrap().is_empty());
        assert_eq!(store.pool().datasets().len(), 1);
        bench.check();
    });
}

/// Each number keeps its log: nothing of before is replayed into what has its number now, and what is written
/// afterwards is replayed into the right one.
#[test]
fn records_find_their_volume_after_a_promotion() {
    each(|mut bench| {
        bench.open("tank/v").write(0, b"base", true).unwrap();
        bench.store().snapshot("tank/v@a").unwrap();
        bench.store().clone_snapshot("tank/v@a", "tank/c", &[]).unwrap();
        bench.open("tank/v").write(0, b"vol1", true).unwrap();
        bench.open("tank/c").write(0, b"cln1", true).unwrap();
        bench.store().promote("tank/c").unwrap();
        // In the logs that were there before, and then in those of the next import.
        for [of_volume, of_clone] in [[b"vol2", b"cln2"], [b"vol3", b"cln3"]] {
            bench.open("tank/v").write(0, of_volume, true).unwrap();
            bench.open("tank/c").write(0, of_clone, true).unwrap();
            bench.store().pool().freeze();
            assert!(bench.crash() >= 2);
            assert_eq!([bench.first("tank/v"), bench.first("tank/c")], [*of_volume, *of_clone]);
        }
        assert_eq!(bench.first("tank/c@a"), *b"base");
        bench.check();
    });
}
