//! Room for log blocks: where it is, what it may not take, what mirrors do with it, vdevs for logs that go
//! and come.

mod support;

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fastness_blkdev::{
    BlockDevice, BlockError, DeviceInfo, Fault, FaultPlan, MemDevice, MemImage, On, Operation, StatsSnapshot,
    When,
};
use fastness_pool::{
    DATA_START_BYTES, DatasetKind, DeviceState, ErrorKind, ImportOptions, LogExtent, MissingLog, Place, Pool,
    PoolError, PoolOptions, Property, UNIT_BYTES, VdevSpec,
};
use support::{Rig, Rng, degraded, host, manual};

const LEN_BYTES: u64 = 9 << 20;
const BLOCK: u32 = 32 << 10;

fn single(rig: &Arc<Rig>, index: usize) -> VdevSpec {
    VdevSpec::single(rig.device(index))
}

fn mirror(rig: &Arc<Rig>, index: usize) -> VdevSpec {
    VdevSpec::mirror([rig.device(index), rig.device(index + 1)])
}

fn extent(place: Place) -> LogExtent {
    LogExtent { place, len_bytes: BLOCK }
}

fn images(rig: &Arc<Rig>) -> Vec<MemImage> {
    rig.devices.iter().map(|device| device.inner().image()).collect()
}

/// What a device has where a log block is.
fn raw(rig: &Arc<Rig>, device: usize, place: Place) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    rig.devices[device].inner().image().read(DATA_START_BYTES + place.unit * UNIT_BYTES, &mut bytes);
    bytes
}

fn data(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..BLOCK).map(|_| rng.next() as u8).collect()
}

fn write_object(pool: &Pool, bytes: usize) {
    let tx = pool.begin_tx().unwrap();
    let object = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    object.write(&tx, 0, &data(7).repeat(bytes / BLOCK as usize)).unwrap();
}

#[test]
fn vdevs_for_logs_come_first_and_take_turns() {
    let rig = Rig::fresh(3, LEN_BYTES, 1);
    let specs = [single(&rig, 0), single(&rig, 1).log(), single(&rig, 2).log()];
    let pool = Pool::create("tank", &specs, manual()).unwrap();
    let space = pool.log_space();
    let free_bytes = pool.status().free_bytes;
    let mut places: Vec<Place> = (0..64).map(|_| space.allocate(BLOCK).unwrap()).collect();
    assert!(places[..32].iter().all(|place| place.vdev == 1), "a MiB in sequence: {places:?}");
    assert!(places[32..].iter().all(|place| place.vdev == 2));
    assert!(places[..32].windows(2).all(|pair| pair[0].unit + 8 == pair[1].unit));
    assert_eq!(pool.status().free_bytes, free_bytes, "the vdevs for data have no part in it");
    // Full: the rest goes among the data.
    while let Ok(place) = space.allocate(BLOCK) {
        places.push(place);
    }
    let among_data = places.iter().filter(|place| place.vdev == 0).count() as u64;
    assert!(among_data > 100 && pool.status().free_bytes < u64::from(BLOCK), "{among_data}");
    assert_eq!(pool.status().free_bytes, free_bytes - among_data * u64::from(BLOCK));
    let report = pool.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.log_units, places.len() as u64 * 8);
    assert_eq!(space.extents().len(), places.len());
    places.into_iter().for_each(|place| space.free(extent(place)));
    assert_eq!(pool.status().free_bytes, free_bytes);
    assert!(pool.check().unwrap().is_clean() && space.usage().iter().all(|usage| usage.used_bytes == 0));
}

#[test]
fn the_emptiest_vdev_for_logs_is_first() {
    let rig = Rig::new(
        vec![MemImage::zeroed(LEN_BYTES), MemImage::zeroed(LEN_BYTES), MemImage::zeroed(24 << 20)],
        1,
    );
    let specs = [single(&rig, 0), single(&rig, 1).log(), single(&rig, 2).log()];
    let pool = Pool::create("tank", &specs, manual()).unwrap();
    let space = pool.log_space();
    let places: Vec<Place> = (0..640).map(|_| space.allocate(BLOCK).unwrap()).collect();
    let of = |vdev| places.iter().filter(|place| place.vdev == vdev).count();
    assert!(of(1) > 100 && of(2) > 300 && of(0) == 0, "{} and {}", of(1), of(2));
}

/// The reserve for syncing, what is dirty, and reservations are not for logs.
#[test]
fn a_log_that_takes_all_it_can_get_lets_the_pool_sync() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0)], manual()).unwrap();
    let space = pool.log_space();
    let tx = pool.begin_tx().unwrap();
    let reserved = pool
        .create_dataset(&tx, "tank/reserved", DatasetKind::Filesystem, &[(Property::Reservation, 1 << 20)])
        .unwrap();
    let object = reserved.create_object(&tx).unwrap();
    let other = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    drop(tx);
    pool.sync().unwrap();
    let free_bytes = pool.status().free_bytes;
    write_object(&pool, 2 << 20);
    let mut places = Vec::new();
    let error = loop {
        match space.allocate(BLOCK) {
            Ok(place) => places.push(place),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let taken = places.len() as u64 * u64::from(BLOCK);
    assert!(taken + (3 << 20) <= free_bytes, "{taken} of {free_bytes} with 3 MiB promised");
    // What is dirty has been promised pages of tables, too.
    assert!(taken + (3 << 20) + (1 << 19) > free_bytes, "{taken} of {free_bytes} could be had");
    pool.sync().unwrap();
    // What was promised and not taken.
    while let Ok(place) = space.allocate(BLOCK) {
        places.push(place);
    }
    // The reservation can be used; others find no room.
    let tx = pool.begin_tx().unwrap();
    object.write(&tx, 0, &data(1).repeat(20)).unwrap();
    assert_eq!(other.write(&tx, 0, &data(2).repeat(14)).unwrap_err().kind(), ErrorKind::NoSpace);
    drop(tx);
    pool.sync().unwrap();
    assert!(space.allocate(BLOCK).is_err());
    assert!(pool.check().unwrap().is_clean());
    // Freed, its room is data's at once.
    places.into_iter().for_each(|place| space.free(extent(place)));
    write_object(&pool, 2 << 20);
    pool.sync().unwrap();
    assert!(pool.check().unwrap().is_clean());
}

/// Neither takes what the other has, nor what the last durable txg refers to.
#[test]
fn data_of_the_last_txg_and_log_blocks_keep_out_of_each_others_way() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0)], manual()).unwrap();
    let space = pool.log_space();
    let tx = pool.begin_tx().unwrap();
    let object = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    object.write(&tx, 0, &data(1).repeat(128)).unwrap();
    drop(tx);
    pool.sync().unwrap();
    let mut places = Vec::new();
    for round in 0..20u64 {
        let place = space.allocate(BLOCK).unwrap();
        space.write(place, &data(round)).unwrap();
        places.push(place);
        let tx = pool.begin_tx().unwrap();
        object.write(&tx, round * 65_536, &data(100 + round).repeat(2)).unwrap();
        drop(tx);
        pool.sync().unwrap();
        assert!(pool.check().unwrap().is_clean());
    }
    for (round, place) in places.iter().enumerate() {
        let mut buf = vec![0; BLOCK as usize];
        space.read(*place, &mut buf).unwrap();
        assert!(buf == data(round as u64), "block {round} was written over");
    }
}

#[test]
fn a_crash_frees_what_is_not_claimed() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), single(&rig, 1).log()], manual()).unwrap();
    write_object(&pool, 1 << 20);
    pool.sync().unwrap();
    let space = pool.log_space();
    let on_log = space.allocate(BLOCK).unwrap();
    space.retire(1).unwrap();
    let among_data = space.allocate(BLOCK).unwrap();
    assert_eq!((on_log.vdev, among_data.vdev), (1, 0));
    // A txg that stores bitmaps while they are there.
    write_object(&pool, 1 << 20);
    pool.sync().unwrap();
    drop((space, pool));
    let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
    let space = pool.log_space();
    assert!(space.extents().is_empty());
    let report = pool.check().unwrap();
    assert!(report.is_clean() && report.log_units == 0, "{report:?}");
    for place in [on_log, among_data] {
        space.claim(extent(place)).unwrap();
        assert_eq!(space.claim(extent(place)).unwrap_err().kind(), ErrorKind::Corrupt);
        let inside = LogExtent { place: Place { unit: place.unit + 7, ..place }, len_bytes: 4096 };
        assert!(space.contains(inside) && space.claim(inside).is_err());
    }
    // Data at the beginning of the vdev, metadata at seven eighths of it.
    let units = (LEN_BYTES - (516 << 10)) / UNIT_BYTES;
    for unit in [0, units / 8 * 7] {
        let used = Place { vdev: 0, unit };
        assert!(matches!(space.claim(extent(used)).unwrap_err(), PoolError::BadValue { .. }));
    }
    // Forged ones, that no unit stands for.
    let forged = [
        (0, units - 7, BLOCK),
        (1, units, 4096),
        (2, 0, 4096),
        (u16::MAX, u64::MAX, 4096),
        (0, u64::MAX, BLOCK),
    ];
    let lens = [(0, 100, 0), (0, 100, 4095), (0, 100, 132 << 10), (0, 100, u32::MAX)];
    for (vdev, unit, len_bytes) in forged.into_iter().chain(lens) {
        let extent = LogExtent { place: Place { vdev, unit }, len_bytes };
        assert!(!space.contains(extent), "{extent:?}");
        assert!(space.claim(extent).is_err());
    }
    pool.start_txgs().unwrap();
    let late = LogExtent { place: Place { unit: on_log.unit + 8, ..on_log }, len_bytes: BLOCK };
    assert_eq!(space.claim(late).unwrap_err().kind(), ErrorKind::Invalid, "txgs may have run");
    assert!(pool.check().unwrap().is_clean());
    let places: Vec<_> = (0..100).map(|_| space.allocate(BLOCK).unwrap()).collect();
    assert!(!places.contains(&on_log));
}

/// A block does not cross the border of two regions of 16 MiB: no allocation does, and bitmaps end there.
#[test]
fn a_forged_block_across_regions_is_refused() {
    let rig = Rig::fresh(1, 24 << 20, 1);
    Pool::create("tank", &[single(&rig, 0)], manual()).unwrap();
    let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
    let across = LogExtent { place: Place { vdev: 0, unit: 4095 }, len_bytes: 8192 };
    assert!(!pool.log_space().contains(across) && pool.log_space().claim(across).is_err());
}

#[test]
fn a_vdev_for_logs_is_removed_when_its_blocks_are_gone() {
    let rig = Rig::fresh(3, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), single(&rig, 1).log()], manual()).unwrap();
    let space = pool.log_space();
    let place = space.allocate(BLOCK).unwrap();
    let error = pool.remove(1).unwrap_err();
    assert!(
        matches!(&error, PoolError::LogInUse { vdev: 1, path, used_bytes } if path == "disk1" && *used_bytes == 32768)
    );
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(space.usage()[0].is_retired);
    let elsewhere = space.allocate(BLOCK).unwrap();
    assert_eq!(elsewhere.vdev, 0, "nothing new goes there");
    space.restore(1).unwrap();
    let again = space.allocate(BLOCK).unwrap();
    assert_eq!(again.vdev, 1);
    // One that is added is used at once.
    space.retire(1).unwrap();
    assert_eq!(pool.add(&single(&rig, 2).log()).unwrap(), 2);
    assert_eq!(space.allocate(BLOCK).unwrap().vdev, 2);
    space.free(extent(place));
    assert!(pool.remove(1).is_err());
    space.free(extent(again));
    pool.remove(1).unwrap();
    assert!(!space.contains(extent(place)) && space.retire(1).is_err() && space.retire(0).is_err());
    assert!(space.flush(&[1]).is_err() && space.read(place, &mut [0; 4096]).is_err());
    assert!(pool.check().unwrap().is_clean());
    drop((space, pool));
    // Before claims are over nobody knows what is on it.
    let pool = Pool::import_paused(&[rig.device(0), rig.device(2)], &host(), manual()).unwrap();
    assert!(matches!(pool.remove(2).unwrap_err(), PoolError::Busy { .. }));
    pool.start_txgs().unwrap();
    pool.remove(2).unwrap();
}

#[test]
fn a_read_only_pool_has_no_room_for_logs() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), single(&rig, 1).log()], manual()).unwrap();
    let place = pool.log_space().allocate(BLOCK).unwrap();
    pool.log_space().write(place, &data(1)).unwrap();
    pool.export().unwrap();
    assert!(matches!(pool.log_space().allocate(BLOCK).unwrap_err(), PoolError::Closed));
    assert!(pool.log_space().flush(&[1]).is_err(), "what is exported may be somebody else's");
    drop(pool);
    let before = images(&rig);
    let options = PoolOptions { is_read_only: true, ..manual() };
    let pool = Pool::import_paused(&rig.all(), &host(), options).unwrap();
    let space = pool.log_space();
    assert!(matches!(space.allocate(BLOCK).unwrap_err(), PoolError::ReadOnly(_)));
    assert!(matches!(space.claim(extent(place)).unwrap_err(), PoolError::ReadOnly(_)));
    assert!(space.write(place, &data(2)).is_err() && space.flush(&[1]).is_err());
    let mut buf = vec![0; BLOCK as usize];
    space.read(place, &mut buf).unwrap();
    assert!(buf == data(1) && images(&rig) == before);
}

/// What was acknowledged with one side only: an import never takes the other for current.
#[test]
fn labels_name_the_side_that_missed_a_block_before_a_flush_returns() {
    for (on, nth) in [(On::Writes, 1), (On::Only(Operation::Flush), 1)] {
        let rig = Rig::fresh(2, LEN_BYTES, 1);
        let pool = Pool::create("tank", &[mirror(&rig, 0)], manual()).unwrap();
        let space = pool.log_space();
        let place = space.allocate(BLOCK).unwrap();
        rig.devices[1].set_plan(FaultPlan::new(1).rule(on, When::Nth(nth), Fault::Errno(5)));
        space.write(place, &data(1)).unwrap();
        space.flush(&[0]).unwrap();
        drop((space, pool));
        let rig = Rig::new(rig.crash(5), 1);
        let probe = rig.device(0).probe().unwrap();
        assert_eq!(probe.config.vdevs[0].devices[1].state, DeviceState::Stale, "{on:?}");
        assert!(Pool::import(&[rig.device(1)], &host(), manual()).is_err(), "{on:?}");
        let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
        let mut buf = vec![0; BLOCK as usize];
        let is_it = |buf: &mut [u8]| *buf == data(1);
        assert!(pool.log_space().read_checked(place, &mut buf, &mut { is_it }).unwrap());
    }
}

/// A txg found the side wanting, and has not come to its labels yet.
#[test]
fn a_flush_waits_for_labels_that_somebody_else_owes() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[mirror(&rig, 0)], manual()).unwrap();
    let space = pool.log_space();
    let (first, second) = (space.allocate(BLOCK).unwrap(), space.allocate(BLOCK).unwrap());
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    space.write(first, &data(1)).unwrap();
    space.write(second, &data(2)).unwrap();
    // Labels cannot be written: the flush may not be acknowledged, now or later.
    rig.devices[0].set_plan(FaultPlan::new(1).rule_in(
        0..DATA_START_BYTES,
        On::Writes,
        When::From(1),
        Fault::Errno(5),
    ));
    assert!(space.flush(&[0]).is_err());
    assert!(space.flush(&[0]).is_err(), "an attempt that failed is not taken for done");
    rig.devices[0].set_plan(FaultPlan::new(1));
    space.flush(&[0]).unwrap();
    assert_eq!(rig.device(0).probe().unwrap().config.vdevs[0].devices[1].state, DeviceState::Stale);
}

#[test]
fn without_a_side_that_took_it_a_write_fails_and_a_vdev_for_logs_is_left_alone() {
    let rig = Rig::fresh(3, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), mirror(&rig, 1).log()], manual()).unwrap();
    let space = pool.log_space();
    let place = space.allocate(BLOCK).unwrap();
    for device in 1..3 {
        rig.devices[device].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    }
    assert_eq!(space.write(place, &data(1)).unwrap_err().kind(), ErrorKind::MediaFailed);
    assert!(space.usage()[0].has_failed);
    assert_eq!(space.allocate(BLOCK).unwrap().vdev, 0);
    assert!(pool.status().vdevs[1].2.iter().all(|side| !side.is_stale), "neither is better than the other");
    pool.sync().unwrap();
    space.restore(1).unwrap();
    assert_eq!(space.allocate(BLOCK).unwrap().vdev, 1);
    // Results of a batch are in its order, over all vdevs.
    let (on_log, among_data) = (space.allocate(BLOCK).unwrap(), {
        space.retire(1).unwrap();
        space.allocate(BLOCK).unwrap()
    });
    rig.devices.iter().for_each(|device| device.set_plan(FaultPlan::new(1)));
    rig.devices[0].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    let (one, two, three) = (data(1), data(2), data(3));
    let results = space.write_batch(&[(place, &one), (among_data, &two), (on_log, &three)]);
    assert!(results[0].is_ok() && results[1].is_err() && results[2].is_ok(), "{results:?}");
    assert!(raw(&rig, 1, place) == one && raw(&rig, 2, place) == one && raw(&rig, 2, on_log) == three);
}

#[test]
fn a_resilver_brings_log_blocks_too() {
    let rig = Rig::fresh(3, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[mirror(&rig, 0)], manual()).unwrap();
    let space = pool.log_space();
    let places: Vec<Place> = (0..4).map(|_| space.allocate(BLOCK).unwrap()).collect();
    space.write(places[0], &data(0)).unwrap();
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    space.write(places[1], &data(1)).unwrap();
    space.write(places[2], &data(2)).unwrap();
    space.flush(&[0]).unwrap();
    assert!(raw(&rig, 1, places[1]) != data(1));
    let sides = pool.status().vdevs[0].2.clone();
    assert!(sides[1].is_stale);
    // What it has is left alone: the other's copy may have become wrong.
    let offset = DATA_START_BYTES + places[0].unit * UNIT_BYTES;
    rig.devices[0].inner().write_at(offset, &[0; 4096]).unwrap();
    pool.resilver(sides[1].guid, |_| true).unwrap();
    let mut buf = vec![0; BLOCK as usize];
    assert!(space.read_checked(places[0], &mut buf, &mut |buf| *buf == data(0)).unwrap());
    assert!(raw(&rig, 0, places[0]) == data(0), "healed");
    assert!((0..3).all(|at| raw(&rig, 1, places[at]) == data(at as u64)));
    assert!(!pool.status().vdevs[0].2[1].is_stale);
    // A side that is new has nothing.
    pool.attach(sides[0].guid, rig.device(2), |_| true).unwrap();
    assert!((0..3).all(|at| raw(&rig, 2, places[at]) == data(at as u64)));
    // One that was away.
    pool.offline(sides[0].guid).unwrap();
    space.write(places[3], &data(3)).unwrap();
    space.flush(&[0]).unwrap();
    assert!(raw(&rig, 0, places[3]) != data(3));
    pool.online(sides[0].guid, rig.device(0)).unwrap();
    pool.resilver(sides[0].guid, |_| true).unwrap();
    assert!(raw(&rig, 0, places[3]) == data(3));
    // So any of them is enough.
    pool.sync().unwrap();
    drop((space, pool));
    for device in 0..3 {
        let rig = Rig::new(images(&rig), 1);
        let pool = Pool::import_paused(&[rig.device(device)], &degraded(), manual()).unwrap();
        for (at, place) in places.iter().enumerate() {
            let mut buf = vec![0; BLOCK as usize];
            pool.log_space().read(*place, &mut buf).unwrap();
            assert!(buf == data(at as u64), "block {at} on device {device}");
        }
    }
}

#[test]
fn a_read_tries_every_side_and_heals_only_what_is_a_log_blocks() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[mirror(&rig, 0)], manual()).unwrap();
    let space = pool.log_space();
    let place = space.allocate(BLOCK).unwrap();
    space.write(place, &data(1)).unwrap();
    space.flush(&[0]).unwrap();
    let offset = DATA_START_BYTES + place.unit * UNIT_BYTES;
    drop((space, pool));
    let mut rotten = images(&rig);
    rotten[0].write(offset + 100, b"rot");
    let rig = Rig::new(rotten, 1);
    let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
    let space = pool.log_space();
    let mut is_it = |buf: &mut [u8]| *buf == data(1);
    let mut buf = vec![0; BLOCK as usize];
    assert!(space.read_checked(place, &mut buf, &mut is_it).unwrap() && buf == data(1));
    assert!(raw(&rig, 0, place) != data(1), "it may be data, as long as it is not claimed");
    space.claim(extent(place)).unwrap();
    assert!(space.read_checked(place, &mut buf, &mut is_it).unwrap());
    assert!(raw(&rig, 0, place) == data(1));
    assert_eq!(pool.status().vdevs[0].2[0].errors.healed, 1);
    // Nobody has it, as far as is known.
    assert!(!space.read_checked(place, &mut buf, &mut |_| false).unwrap());
    let fail_reads = || FaultPlan::new(1).rule(On::Only(Operation::Read), When::From(1), Fault::Errno(5));
    rig.devices[0].set_plan(fail_reads());
    assert!(!space.read_checked(place, &mut buf, &mut |_| false).unwrap(), "the other side says so");
    rig.devices[1].set_plan(fail_reads());
    assert!(space.read_checked(place, &mut buf, &mut |_| false).is_err(), "nobody says so");
    // A stale side may have it, and may not deny it.
    rig.devices[1].set_plan(FaultPlan::new(1));
    let stale = pool.status().vdevs[0].2[1].guid;
    pool.offline(stale).unwrap();
    pool.online(stale, rig.device(1)).unwrap();
    assert!(space.read_checked(place, &mut buf, &mut is_it).unwrap());
    assert!(space.read_checked(place, &mut buf, &mut |_| false).is_err(), "a stale side cannot deny it");
}

#[test]
fn a_missing_vdev_for_logs_is_missed_until_told_otherwise() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), single(&rig, 1).log()], manual()).unwrap();
    pool.log_space().allocate(BLOCK).unwrap();
    pool.sync().unwrap();
    drop(pool);
    let error = Pool::import(&[rig.device(0)], &host(), manual()).unwrap_err();
    assert!(matches!(&error, PoolError::MissingLog { vdev: 1, path, .. } if path == "disk1"), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::MediaFailed);
    assert!(Pool::import(&[rig.device(0)], &degraded(), manual()).is_err(), "that is another consent");
    // Nothing has changed: with the device all is well.
    drop(Pool::import(&rig.all(), &host(), manual()).unwrap());
    let drops = ImportOptions { missing_log: MissingLog::Drop, ..host() };
    let pool = Pool::import(&[rig.device(0)], &drops, manual()).unwrap();
    let status = pool.status();
    assert!(!status.vdevs[1].2[0].is_present && status.vdevs[1].2[0].is_stale);
    assert_eq!(pool.log_space().allocate(BLOCK).unwrap().vdev, 0);
    write_object(&pool, 1 << 20);
    pool.sync().unwrap();
    drop(pool);
    // It was told once.
    let pool = Pool::import(&[rig.device(0)], &host(), manual()).unwrap();
    pool.remove(1).unwrap();
    assert_eq!(pool.status().vdevs.len(), 1);
    drop(pool);
    let error = Pool::import(&rig.all(), &host(), manual()).unwrap_err();
    assert!(matches!(&error, PoolError::Removed { path, .. } if path == "disk1"), "{error:?}");
}

/// The number of a removed vdev is given again; the device that had it is known by its GUID.
#[test]
fn the_next_vdev_with_its_number_is_not_taken_for_a_removed_one() {
    let rig = Rig::fresh(3, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), single(&rig, 1).log()], manual()).unwrap();
    let old = pool.log_space().allocate(BLOCK).unwrap();
    pool.log_space().write(old, &data(1)).unwrap();
    pool.sync().unwrap();
    drop(pool);
    // It is removed while it is away, so that its label stays.
    let drops = ImportOptions { missing_log: MissingLog::Drop, ..host() };
    let pool = Pool::import(&[rig.device(0)], &drops, manual()).unwrap();
    pool.remove(old.vdev).unwrap();
    assert_eq!(pool.add(&single(&rig, 2).log()).unwrap(), old.vdev);
    let space = pool.log_space();
    let new = space.allocate(BLOCK).unwrap();
    assert_eq!(new, old, "the same place on another device");
    space.write(new, &data(2)).unwrap();
    space.flush(&[new.vdev]).unwrap();
    drop((space, pool));
    for devices in [rig.all(), vec![rig.device(0), rig.device(1)]] {
        let error = Pool::import(&devices, &host(), manual()).unwrap_err();
        let is_known = matches!(&error, PoolError::Removed { path, .. } if path == "disk1");
        assert!(is_known, "{error:?}");
    }
    let pool = Pool::import_paused(&[rig.device(0), rig.device(2)], &host(), manual()).unwrap();
    let mut buf = vec![0; BLOCK as usize];
    assert!(pool.log_space().read_checked(new, &mut buf, &mut |buf| *buf == data(2)).unwrap());
}

#[test]
fn a_vdev_for_logs_that_comes_back_is_not_used_before_it_is_resilvered() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), single(&rig, 1).log()], manual()).unwrap();
    let place = pool.log_space().allocate(BLOCK).unwrap();
    pool.log_space().write(place, &data(1)).unwrap();
    pool.log_space().flush(&[1]).unwrap();
    drop(pool);
    let drops = ImportOptions { missing_log: MissingLog::Drop, ..host() };
    drop(Pool::import(&[rig.device(0)], &drops, manual()).unwrap());
    let pool = Pool::import_paused(&rig.all(), &host(), manual()).unwrap();
    let space = pool.log_space();
    assert!(pool.status().vdevs[1].2[0].is_stale && pool.status().vdevs[1].2[0].is_present);
    // If its owner still needs a block there, it is found by its proof.
    let mut buf = vec![0; BLOCK as usize];
    assert!(space.read_checked(place, &mut buf, &mut |buf| *buf == data(1)).unwrap());
    assert!(space.read_checked(place, &mut buf, &mut |_| false).is_err(), "it cannot say that there is none");
    space.claim(extent(place)).unwrap();
    pool.start_txgs().unwrap();
    assert_eq!(space.allocate(BLOCK).unwrap().vdev, 0);
    let guid = pool.status().vdevs[1].2[0].guid;
    assert!(pool.resilver(guid, |_| true).is_err(), "what is claimed there has no current copy");
    space.free(extent(place));
    pool.resilver(guid, |_| true).unwrap();
    assert_eq!(space.allocate(BLOCK).unwrap().vdev, 1);
}

#[test]
fn a_side_of_a_log_mirror_that_may_be_newer_is_missed() {
    let rig = Rig::fresh(3, LEN_BYTES, 1);
    let pool = Pool::create("tank", &[single(&rig, 0), mirror(&rig, 1).log()], manual()).unwrap();
    pool.sync().unwrap();
    drop(pool);
    let error = Pool::import(&[rig.device(0), rig.device(1)], &host(), manual()).unwrap_err();
    assert!(matches!(&error, PoolError::MissingSide { path, .. } if path == "disk2"), "{error:?}");
    let drops = ImportOptions { missing_log: MissingLog::Drop, ..host() };
    assert!(
        Pool::import(&[rig.device(0), rig.device(1)], &drops, manual()).is_err(),
        "that is another consent"
    );
    Pool::import(&[rig.device(0), rig.device(1)], &degraded(), manual()).unwrap();
}

/// A device whose n-th write waits until it is let go.
struct Stuck {
    inner: MemDevice,
    /// Writes until the one that waits; then whether it may go on.
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Stuck {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        if state.0 == 0 {
            return;
        }
        state.0 -= 1;
        if state.0 == 0 {
            state.1 = true;
            self.changed.notify_all();
            while state.1 {
                state = self.changed.wait(state).unwrap();
            }
        }
    }

    /// Whether a write waits now, or `is_done` without one.
    fn wait_for_one(&self, is_done: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.1 {
            if is_done() {
                return false;
            }
            state = self.changed.wait_timeout(state, Duration::from_millis(1)).unwrap().0;
        }
        true
    }

    fn let_go(&self) {
        self.state.lock().unwrap().1 = false;
        self.changed.notify_all();
    }
}

impl BlockDevice for Stuck {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.pass();
        self.inner.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.inner.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.pass();
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.inner.discard(offset, len_bytes)
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.inner.write_zeroes(offset, len_bytes)
    }
    fn stats(&self) -> StatsSnapshot {
        self.inner.stats()
    }
    fn is_poisoned(&self) -> bool {
        false
    }
}

/// Whichever write or flush of a txg hangs: a log block has its place at once.
#[test]
fn an_allocation_waits_for_no_io() {
    let mut hung = 0;
    for nth in 1.. {
        let device = Arc::new(Stuck {
            inner: MemDevice::new("stuck", LEN_BYTES),
            state: Mutex::new((0, false)),
            changed: Condvar::new(),
        });
        let spec = VdevSpec::single(fastness_pool::Device::new("stuck", device.clone()));
        let pool = Arc::new(Pool::create("tank", &[spec], manual()).unwrap());
        write_object(&pool, 1 << 20);
        device.state.lock().unwrap().0 = nth;
        let syncing = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.sync().map(drop))
        };
        let is_stuck = device.wait_for_one(|| syncing.is_finished());
        if is_stuck {
            hung += 1;
            let (done, is_done) = channel();
            let space = pool.log_space();
            std::thread::spawn(move || {
                let place = space.allocate(BLOCK).unwrap();
                space.free(extent(place));
                let _ = done.send(());
            });
            let allocated = is_done.recv_timeout(Duration::from_secs(20));
            device.let_go();
            assert!(allocated.is_ok(), "it waits for write {nth} of the txg");
        }
        syncing.join().unwrap().unwrap();
        if !is_stuck {
            break;
        }
    }
    assert!(hung >= 6, "{hung} operations in a txg");
}

/// Log blocks are read and replayed by the next import, and what is written over and over is in memory once:
/// only the log can tell that there is much of it.
#[test]
fn many_log_blocks_end_the_txg() {
    // Among the data, and on a vdev of their own.
    for log in [false, true] {
        let rig = Rig::fresh(2, 80 << 20, 1);
        let specs: Vec<_> =
            std::iter::once(single(&rig, 0)).chain(log.then(|| single(&rig, 1).log())).collect();
        let options = PoolOptions { txg_timeout: Duration::from_secs(3600), ..PoolOptions::default() };
        let pool = Pool::create("tank", &specs, options).unwrap();
        let (space, open) = (pool.log_space(), pool.open_txg());
        // An eighth, and not long before it.
        let few = (0..40 * 7).map(|_| space.allocate(BLOCK).unwrap());
        let mut places: Vec<_> = few.collect();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(pool.open_txg(), open);
        places.extend((0..40 * 2).map(|_| space.allocate(BLOCK).unwrap()));
        let is_over = || pool.open_txg() > open;
        let begun = std::time::Instant::now();
        while !is_over() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_over(), "nobody waits for the txg, but the log does");
        places.into_iter().for_each(|place| space.free(extent(place)));
    }
}
