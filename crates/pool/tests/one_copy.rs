//! Blocks that only a log has: what is read of them, what becomes of them in a sync, and when the log has
//! lost them.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fastness_base::{LogPlace, LostInLog, ReadLogged};
use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
use fastness_pool::{
    DatasetKind, DeviceErrors, HookChanges, LogData, Object, ObjectId, Pool, PoolError, Property, Tx, Txg,
    TxgHook, VdevSpec,
};
use support::{Rig, Rng, host, manual};

const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 40;
/// Of a record, before the data.
const FRONT_BYTES: usize = 64;

/// A log in memory, emptied as a real one is: when the hooks of a txg are called.
#[derive(Debug, Default)]
struct Log {
    records: Mutex<BTreeMap<u64, Record>>,
    number: Mutex<u32>,
}

#[derive(Debug)]
struct Record {
    txg: Txg,
    body: Vec<u8>,
    is_lost: bool,
}

impl Log {
    fn put(&self, txg: Txg, data: &[u8]) -> LogPlace {
        let mut records = self.records.lock().unwrap();
        let offset = records.keys().next_back().map_or(512, |last| last + 1);
        let body = [&[0xdd; FRONT_BYTES], data].concat();
        records.insert(offset, Record { txg, body, is_lost: false });
        LogPlace { log: *self.number.lock().unwrap(), offset, sum: offset ^ 77 }
    }

    fn lose_last(&self) {
        self.records.lock().unwrap().values_mut().next_back().unwrap().is_lost = true;
    }

    fn len(&self) -> usize {
        self.records.lock().unwrap().len()
    }
}

impl ReadLogged for Log {
    fn read(&self, place: LogPlace, within: usize, out: &mut [u8]) -> Result<(), LostInLog> {
        let lost = |why: &str| LostInLog { offset: place.offset, why: why.to_owned() };
        assert_eq!(place.sum, place.offset ^ 77);
        let records = self.records.lock().unwrap();
        let record = records.get(&place.offset).ok_or_else(|| lost("it was emptied"))?;
        if record.is_lost {
            return Err(lost("it is damaged"));
        }
        out.copy_from_slice(&record.body[within..within + out.len()]);
        Ok(())
    }
}

impl TxgHook for Log {
    fn sync(&self, _: Txg, _: &mut HookChanges) -> fastness_pool::Result<()> {
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        self.records.lock().unwrap().retain(|_, record| record.txg > txg);
    }
}

struct World {
    rig: Arc<Rig>,
    pool: Pool,
    log: Arc<Log>,
}

impl World {
    fn new(len_bytes: u64) -> World {
        let rig = Rig::fresh(1, len_bytes, 7);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        let world = World::of(rig, pool);
        world.tx(|tx| {
            let own = [(Property::VolBlockSize, BLOCK_BYTES as u64), (Property::Compression, 0)];
            let volume = world.pool.create_dataset(tx, "tank/v", DatasetKind::Volume, &own).unwrap();
            volume.create_object(tx).unwrap().truncate(tx, (BLOCKS * BLOCK_BYTES) as u64).unwrap();
        });
        world.pool.sync().unwrap();
        world
    }

    fn of(rig: Arc<Rig>, pool: Pool) -> World {
        let log = Arc::new(Log::default());
        *log.number.lock().unwrap() = pool.add_log(log.clone());
        pool.add_hook(log.clone());
        World { rig, pool, log }
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    fn data(&self) -> Object {
        self.pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap()
    }

    fn write_logged(&self, tx: &Tx, offset: usize, data: &[u8]) -> Result<(), PoolError> {
        let log = || ((), Some(self.log.put(tx.txg(), data)));
        self.data().overwrite_logged(tx, offset as u64, data, FRONT_BYTES as u32, log)
    }

    fn bytes(&self) -> Vec<u8> {
        let object = self.data();
        let mut bytes = vec![0xee; object.size_bytes() as usize];
        object.read(0, &mut bytes).unwrap();
        bytes
    }

    fn read_block(&self, block: usize) -> Result<u8, PoolError> {
        let mut bytes = vec![0xee; BLOCK_BYTES];
        self.data().read((block * BLOCK_BYTES) as u64, &mut bytes)?;
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        Ok(bytes[0])
    }
}

/// One change of the volume and of the model.
fn change(world: &World, tx: &Tx, model: &mut Vec<u8>, rng: &mut Rng) {
    let object = world.data();
    let blocks = model.len() / BLOCK_BYTES;
    match rng.below(12) {
        10.. => {
            let first = rng.below(BLOCKS as u64) as usize;
            let count = (rng.below(5) as usize + 1).min(BLOCKS - first);
            let (at, data) = (first * BLOCK_BYTES, rng.bytes(count * BLOCK_BYTES));
            let log = || ((), Some(world.log.put(tx.txg(), &data)));
            object.write_logged(tx, at as u64, &data, FRONT_BYTES as u32, log).unwrap();
            model.resize(model.len().max(at + data.len()), 0);
            model[at..at + data.len()].copy_from_slice(&data);
        }
        0..6 if blocks > 0 => {
            let first = rng.below(blocks as u64) as usize;
            let count = (rng.below(5) as usize + 1).min(blocks - first);
            let (at, data) = (first * BLOCK_BYTES, rng.bytes(count * BLOCK_BYTES));
            world.write_logged(tx, at, &data).unwrap();
            model[at..at + data.len()].copy_from_slice(&data);
        }
        6 | 7 if blocks > 0 => {
            let at = rng.below(model.len() as u64) as usize;
            let len = (rng.below(9000) as usize + 1).min(model.len() - at);
            let data = rng.bytes(len);
            object.overwrite(tx, at as u64, &data).unwrap();
            model[at..at + data.len()].copy_from_slice(&data);
        }
        8 if blocks > 0 => {
            let at = rng.below(model.len() as u64) as usize;
            let len = (rng.below(20_000) as usize + 1).min(model.len() - at);
            object.punch(tx, at as u64, len as u64).unwrap();
            model[at..at + len].fill(0);
        }
        _ => {
            let len = (rng.below(BLOCKS as u64) as usize + 1) * BLOCK_BYTES - rng.below(2) as usize * 512;
            object.truncate(tx, len as u64).unwrap();
            model.resize(len, 0);
        }
    }
}

#[test]
fn what_only_the_log_has_reads_like_any_other_block() {
    for seed in 0..60 {
        let (mut rng, mut world) = (Rng::new(seed), World::new(32 << 20));
        let mut model = vec![0; BLOCKS * BLOCK_BYTES];
        for _ in 0..rng.below(12) + 3 {
            if rng.below(3) > 0 {
                for _ in 0..rng.below(12) {
                    world.tx(|tx| change(&world, tx, &mut model, &mut rng));
                }
            } else {
                overlap(&world, &mut model, &mut rng);
            }
            assert!(world.bytes() == model, "seed {seed}: before the sync");
            world.pool.sync().unwrap();
            assert_eq!(world.log.len(), 0, "nothing is in the log any more");
            assert!(world.bytes() == model, "seed {seed}: after it");
            assert!(world.pool.check().unwrap().is_clean());
        }
        let images = world.rig.crash(seed);
        let rig = Rig::new(images, seed);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        world = World::of(rig, pool);
        assert!(world.bytes() == model, "seed {seed}: imported");
    }
}

/// Changes in two txgs that are open at one time, of which the older then syncs.
fn overlap(world: &World, model: &mut Vec<u8>, rng: &mut Rng) {
    let old = world.pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| world.pool.sync().unwrap());
        while world.pool.open_txg() == old.txg() {
            std::thread::yield_now();
        }
        let new = world.pool.begin_tx().unwrap();
        for _ in 0..rng.below(16) {
            change(world, if rng.below(2) == 0 { &old } else { &new }, model, rng);
        }
        assert!(world.bytes() == *model, "with two txgs");
        drop((old, new));
        sync.join().unwrap();
    });
}

#[test]
fn a_block_that_the_log_has_lost_is_an_error_until_it_is_written_again() {
    for syncs in [false, true] {
        let world = World::new(32 << 20);
        world.tx(|tx| world.write_logged(tx, 0, &[1; 2 * BLOCK_BYTES]).unwrap());
        world.pool.sync().unwrap();
        world.tx(|tx| world.write_logged(tx, BLOCK_BYTES, &[2; BLOCK_BYTES]).unwrap());
        world.log.lose_last();
        world.tx(|tx| world.write_logged(tx, 5 * BLOCK_BYTES, &[5; BLOCK_BYTES]).unwrap());
        let is_lost = |result: Result<u8, PoolError>| match result {
            Err(PoolError::LostInLog(lost)) => assert_eq!(lost.offset, BLOCK_BYTES as u64),
            other => panic!("{other:?}"),
        };
        is_lost(world.read_block(1));
        let part = world.tx(|tx| world.data().overwrite(tx, BLOCK_BYTES as u64 + 7, &[3]));
        is_lost(part.map(|()| 0));
        if syncs {
            world.pool.sync().unwrap();
            let result = world.read_block(1);
            assert!(matches!(result, Err(PoolError::DamagedBlock { offset: 4096, .. })), "{result:?}");
            let (listed, unlisted) = world.pool.damaged();
            assert_eq!((listed.len(), listed[0].offset, unlisted), (1, 4096, 0));
            // The device gives what was written to it, and is not blamed.
            world.pool.scrub(|_| true).unwrap();
            let status = world.pool.status();
            let errors: Vec<_> =
                status.vdevs.iter().flat_map(|(.., sides)| sides).map(|side| side.errors).collect();
            assert!(errors.iter().all(|errors| *errors == DeviceErrors::default()), "{errors:?}");
            // It is on the medium as that, too.
            let pool = Pool::import(&Rig::new(world.rig.crash(1), 2).all(), &host(), manual()).unwrap();
            let object = pool.dataset("tank/v").unwrap().object(ObjectId(1)).unwrap();
            let result = object.read(4096, &mut [0; 10]);
            assert!(matches!(result, Err(PoolError::DamagedBlock { offset: 4096, .. })), "{result:?}");
        }
        assert_eq!((world.read_block(0).unwrap(), world.read_block(5).unwrap()), (1, 5), "others are there");
        world.tx(|tx| world.data().overwrite(tx, BLOCK_BYTES as u64, &[4; BLOCK_BYTES]).unwrap());
        world.pool.sync().unwrap();
        assert_eq!(world.read_block(1).unwrap(), 4);
        assert!(world.pool.damaged().0.is_empty());
    }
}

#[test]
fn what_was_cached_is_not_taken_for_what_the_log_had() {
    let world = World::new(32 << 20);
    world.tx(|tx| world.data().overwrite(tx, 0, &[1; BLOCK_BYTES]).unwrap());
    world.pool.sync().unwrap();
    assert_eq!(world.read_block(0).unwrap(), 1);
    world.tx(|tx| world.write_logged(tx, 0, &[2; BLOCK_BYTES]).unwrap());
    assert_eq!(world.read_block(0).unwrap(), 2);
    world.pool.sync().unwrap();
    assert_eq!(world.read_block(0).unwrap(), 2);
}

#[test]
fn what_has_no_room_or_no_place_is_not_logged() {
    let world = World::new(12 << 20);
    let beyond = world.tx(|tx| world.write_logged(tx, (BLOCKS - 1) * BLOCK_BYTES, &[1; 2 * BLOCK_BYTES]));
    assert!(matches!(beyond, Err(PoolError::BeyondEnd { .. })), "{beyond:?}");
    let filler = world.tx(|tx| world.pool.dataset("tank/v").unwrap().create_object(tx).unwrap());
    let mut at = 0;
    while world.tx(|tx| filler.write(tx, at, &[7; BLOCK_BYTES])).is_ok() {
        at += BLOCK_BYTES as u64;
    }
    let full = world.tx(|tx| world.write_logged(tx, 0, &[1; 2 * BLOCK_BYTES]));
    assert!(matches!(full, Err(PoolError::NoSpace { .. })), "{full:?}");
    assert_eq!(world.log.len(), 0);
}

/// The record is in the log, and the object has become shorter since there was room for the write.
#[test]
fn what_shrinks_while_it_is_logged_stays_short_and_keeps_no_room() {
    let world = World::new(12 << 20);
    let (object, at) = (world.data(), ((BLOCKS - 2) * BLOCK_BYTES) as u64);
    let data = [1; 2 * BLOCK_BYTES];
    // More than the pool has, if each kept its room.
    for _ in 0..1500 {
        let refused = world.tx(|tx| {
            object.truncate(tx, (BLOCKS * BLOCK_BYTES) as u64).unwrap();
            object.overwrite_logged(tx, at, &data, FRONT_BYTES as u32, || {
                object.truncate(tx, at).unwrap();
                ((), Some(world.log.put(tx.txg(), &data)))
            })
        });
        assert!(matches!(refused, Err(PoolError::BeyondEnd { .. })), "{refused:?}");
    }
    assert_eq!((object.size_bytes(), world.log.len()), (at, 1500));
    let dataset = world.pool.dataset("tank/v").unwrap();
    let gone = world.tx(|tx| {
        let object = dataset.create_object(tx).unwrap();
        object.write_logged(tx, 0, &data, FRONT_BYTES as u32, || {
            dataset.destroy_object(tx, object.id()).unwrap();
            ((), Some(world.log.put(tx.txg(), &data)))
        })
    });
    assert!(matches!(gone, Err(PoolError::NoObject { .. })), "{gone:?}");
    world.pool.sync().unwrap();
    assert!(world.pool.check().unwrap().is_clean());
}

#[test]
fn a_pool_that_is_given_up_hands_over_what_only_the_log_had() {
    for seed in 0..40 {
        let (mut rng, world) = (Rng::new(seed), World::new(32 << 20));
        let mut model = vec![0; BLOCKS * BLOCK_BYTES];
        for _ in 0..rng.below(20) + 2 {
            world.tx(|tx| change(&world, tx, &mut model, &mut rng));
        }
        let disk = &world.rig.devices[0];
        disk.set_plan(FaultPlan::new(seed).rule(On::Only(Operation::Flush), When::From(1), Fault::Errno(5)));
        assert!(world.pool.sync().is_err());
        assert!(world.bytes() == model, "it can be read");
        let mut unsynced = world.pool.abandon().unwrap();
        // The regions of the log are closed, and opened by the next import.
        assert_eq!(Arc::strong_count(&world.log), 1, "nobody keeps them");
        world.log.records.lock().unwrap().clear();
        disk.set_plan(FaultPlan::new(0));
        disk.reopen(seed).unwrap();
        let next = Pool::import(&world.rig.all(), &host(), manual()).unwrap();
        let tx = next.begin_replay_tx().unwrap();
        unsynced.apply(&next, &tx).unwrap();
        drop(tx);
        next.sync().unwrap();
        let world = World::of(world.rig.clone(), next);
        assert!(world.bytes() == model, "seed {seed}");
        assert!(world.pool.check().unwrap().is_clean());
    }
}

#[test]
fn where_the_data_is_to_be_is_remembered() {
    let world = World::new(12 << 20);
    assert_eq!(world.pool.log_data(), LogData::Both);
    world.tx(|tx| world.pool.set_log_data(tx, LogData::Pm).unwrap());
    assert_eq!(world.pool.log_data(), LogData::Pm);
    world.pool.sync().unwrap();
    let pool = Pool::import(&Rig::new(world.rig.crash(1), 2).all(), &host(), manual()).unwrap();
    assert_eq!(pool.log_data(), LogData::Pm);
    assert!("none".parse::<LogData>().is_err());
    assert_eq!("pm".parse::<LogData>().unwrap().to_string(), "pm");
}
