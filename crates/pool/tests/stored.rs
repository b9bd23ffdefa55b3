//! Blocks that are durable in their places ahead of their txg: what becomes of them, whatever happens before
//! it syncs.

mod support;

use std::sync::{Arc, Mutex};

use fastness_blkdev::{
    BlockDevice, BlockError, DeviceInfo, Fault, FaultPlan, Faulty, MemDevice, MemImage, On, Operation,
    StatsSnapshot, When,
};
use fastness_pool::{
    CheckReport, DATA_START_BYTES, DatasetKind, Device, ErrorKind, Object, ObjectId, Pool, PoolError,
    Property, ScrubReport, StoreRequest, StoredRun, Tx, UNIT_BYTES, VdevSpec,
};
use support::{Rig, Rng, degraded, host, manual};

const LEN_BYTES: u64 = 12 << 20;
const BLOCK: u64 = 16 << 10;
/// Blocks of the object.
const COUNT: u64 = 24;

fn single(rig: &Arc<Rig>) -> VdevSpec {
    VdevSpec::single(rig.device(0))
}

fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8 | 1).collect()
}

/// An object with old contents, synced.
fn create(spec: VdevSpec) -> (Pool, Object) {
    let pool = Pool::create("tank", &[spec], manual()).unwrap();
    let tx = pool.begin_tx().unwrap();
    let properties = [(Property::RecordSize, BLOCK), (Property::Compression, 0)];
    let dataset = pool.create_dataset(&tx, "tank/data", DatasetKind::Filesystem, &properties).unwrap();
    let object = dataset.create_object(&tx).unwrap();
    object.write(&tx, 0, &bytes(1, COUNT * BLOCK)).unwrap();
    drop(tx);
    pool.sync().unwrap();
    (pool, object)
}

/// A pool of one disk, with an object whose blocks are dirty.
fn dirty() -> (Arc<Rig>, Pool, Object) {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    write(&pool, &object, 0, &bytes(2, COUNT * BLOCK));
    (rig, pool, object)
}

fn object_of(pool: &Pool) -> Object {
    pool.dataset("tank/data").unwrap().object(ObjectId(1)).unwrap()
}

fn write(pool: &Pool, object: &Object, offset: u64, data: &[u8]) {
    let tx = pool.begin_tx().unwrap();
    object.write(&tx, offset, data).unwrap();
}

fn request(object: &Object, offset: u64, len_bytes: u64) -> StoreRequest<'_> {
    StoreRequest { object, offset, len_bytes }
}

fn store(pool: &Pool, object: &Object, offset: u64, len_bytes: u64) -> Vec<StoredRun> {
    pool.store(&[request(object, offset, len_bytes)], 0).unwrap().remove(0)
}

fn contents(object: &Object) -> Vec<u8> {
    let mut found = vec![0xee; object.size_bytes() as usize];
    assert_eq!(object.read(0, &mut found).unwrap(), found.len());
    found
}

fn clean(pool: &Pool) -> CheckReport {
    let report = pool.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
    report
}

/// A seed with which a crash loses every write that was not flushed.
fn loses_all() -> u64 {
    let device = Faulty::new(MemDevice::new("probe", 1 << 20), FaultPlan::new(1));
    (0..64).for_each(|at| device.write_at(at * 4096, &[7; 4096]).unwrap());
    let is_lost = |seed: &u64| {
        let (image, mut found) = (device.crash(*seed).unwrap(), vec![1; 64 * 4096]);
        image.read(0, &mut found);
        found.iter().all(|byte| *byte == 0)
    };
    (0..).find(is_lost).unwrap()
}

/// What an import finds if the power fails now and every write that was not flushed is lost.
fn crashed(rig: &Arc<Rig>) -> Arc<Rig> {
    let images = rig.devices.iter().map(|device| device.crash(loses_all()).unwrap()).collect();
    Rig::new(images, 9)
}

fn import(rig: &Arc<Rig>) -> Pool {
    Pool::import(&rig.all(), &host(), manual()).unwrap()
}

/// Units of data that a device was given.
fn written_bytes(rig: &Arc<Rig>, index: usize) -> u64 {
    rig.devices[index].stats().of(Operation::Write).bytes
}

/// Bytes of an address: the packed place of its first block.
fn unit_of(run: &StoredRun) -> u64 {
    u64::from_le_bytes(run.address[8..16].try_into().unwrap()) & 0xffff_ffff_ffff
}

#[test]
fn a_txg_takes_over_what_is_there_already() {
    for compression in [0, 1, 2] {
        let rig = Rig::fresh(1, LEN_BYTES, 1);
        let (pool, object) = create(single(&rig));
        let tx = pool.begin_tx().unwrap();
        pool.dataset("tank/data").unwrap().set(&tx, Property::Compression, Some(compression)).unwrap();
        drop(tx);
        // Half of each block can be compressed, and the last one ends early.
        let mut data = bytes(2, COUNT * BLOCK);
        data.chunks_mut(BLOCK as usize / 2).step_by(2).for_each(|half| half.fill(7));
        let len = data.len();
        data[len - 5000..].fill(0);
        write(&pool, &object, 0, &data);
        let runs = store(&pool, &object, 0, COUNT * BLOCK);
        assert_eq!(runs.len(), 1, "one range, one address: {runs:?}");
        assert_eq!((runs[0].offset, runs[0].len_bytes), (0, COUNT * BLOCK));
        assert_eq!(clean(&pool).log_units * UNIT_BYTES, runs[0].written_bytes);
        assert!((runs[0].written_bytes < COUNT * BLOCK * 3 / 4) == (compression > 0), "{runs:?}");
        let before = written_bytes(&rig, 0);
        pool.sync().unwrap();
        assert!(written_bytes(&rig, 0) - before < COUNT * BLOCK / 3, "the data was written again");
        let report = clean(&pool);
        assert_eq!((report.log_units, report.referenced_units * UNIT_BYTES), (0, runs[0].written_bytes));
        assert_eq!(contents(&object), data);
        let pool = import(&crashed(&rig));
        assert_eq!(contents(&object_of(&pool)), data);
        assert_eq!(clean(&pool).referenced_units, report.referenced_units);
        assert!(pool.scrub(|_| true).unwrap().lost.is_empty());
    }
}

#[test]
fn only_whole_blocks_that_the_open_txg_changed_and_that_have_bytes_are_stored() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    assert_eq!(store(&pool, &object, 0, COUNT * BLOCK), [], "nothing is dirty");
    write(&pool, &object, BLOCK / 2, &bytes(2, 4 * BLOCK));
    let tx = pool.begin_tx().unwrap();
    object.punch(&tx, 2 * BLOCK, BLOCK).unwrap();
    object.write(&tx, 3 * BLOCK, &vec![0; BLOCK as usize]).unwrap();
    object.write(&tx, COUNT * BLOCK, &bytes(3, 100)).unwrap();
    drop(tx);
    let enough = |least| pool.store(&[request(&object, 0, u64::MAX)], least).unwrap()[0].len();
    assert_eq!(enough(3 * BLOCK + 1), 0, "blocks 0, 1 and 4 have bytes");
    let runs = store(&pool, &object, 100, u64::MAX);
    let ranges: Vec<_> = runs.iter().map(|run| (run.offset / BLOCK, run.len_bytes / BLOCK)).collect();
    assert_eq!(ranges, [(1, 1), (4, 1)]);
    assert_eq!(store(&pool, &object, 0, u64::MAX).len(), 1, "block 0; the others are stored already");
    let all = contents(&object);
    pool.sync().unwrap();
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(contents(&object), all);
    assert_eq!(contents(&object_of(&import(&crashed(&rig)))), all);
}

/// What can happen to stored blocks before their txg syncs.
type Change = fn(&Pool, &Tx, &Object);

const CHANGES: [(&str, Change); 7] = [
    ("a few whole blocks are written again", |_, tx, object| {
        object.write(tx, BLOCK, &bytes(5, 3 * BLOCK)).unwrap();
    }),
    ("many whole blocks are written again", |_, tx, object| {
        object.write(tx, 0, &bytes(5, 20 * BLOCK)).unwrap();
    }),
    ("parts of blocks are written", |_, tx, object| {
        object.write(tx, BLOCK / 3, &bytes(5, BLOCK)).unwrap();
        object.write(tx, 9 * BLOCK + 512, &bytes(6, 512)).unwrap();
    }),
    ("blocks are freed", |_, tx, object| object.punch(tx, BLOCK, 5 * BLOCK + 700).unwrap()),
    ("the object is cut off", |_, tx, object| object.truncate(tx, 3 * BLOCK + 99).unwrap()),
    ("the object is cut off and grows", |_, tx, object| {
        object.truncate(tx, BLOCK).unwrap();
        object.truncate(tx, COUNT * BLOCK).unwrap();
    }),
    ("blocks are freed and written", |_, tx, object| {
        object.punch(tx, 0, COUNT * BLOCK).unwrap();
        object.write(tx, 2 * BLOCK, &bytes(5, 3 * BLOCK)).unwrap();
    }),
];

#[test]
fn what_changes_later_is_what_the_txg_has() {
    for (name, change) in CHANGES {
        let (rig, pool, object) = dirty();
        let runs = store(&pool, &object, 0, COUNT * BLOCK);
        change(&pool, &pool.begin_tx().unwrap(), &object);
        let expected = contents(&object);
        assert_eq!(clean(&pool).log_units * UNIT_BYTES, runs[0].written_bytes, "{name}: all are held");
        pool.sync().unwrap();
        assert_eq!(clean(&pool).log_units, 0, "{name}");
        assert_eq!(contents(&object), expected, "{name}");
        assert_eq!(contents(&object_of(&import(&crashed(&rig)))), expected, "{name}");
    }
}

#[test]
fn what_is_destroyed_is_taken_over_by_nobody() {
    for whole_dataset in [false, true] {
        let (_rig, pool, object) = dirty();
        assert_eq!(store(&pool, &object, 0, COUNT * BLOCK).len(), 1);
        drop(object);
        let tx = pool.begin_tx().unwrap();
        match whole_dataset {
            true => pool.destroy_dataset(&tx, "tank/data").unwrap(),
            false => pool.dataset("tank/data").unwrap().destroy_object(&tx, ObjectId(1)).unwrap(),
        }
        drop(tx);
        pool.sync().unwrap();
        pool.sync().unwrap();
        let report = clean(&pool);
        assert_eq!((report.log_units, report.referenced_units), (0, 0));
    }
}

type Act = Box<dyn FnOnce() + Send>;

/// A device that does something once, just before it flushes.
struct Trap {
    device: Device,
    act: Mutex<Option<Act>>,
}

impl BlockDevice for Trap {
    fn info(&self) -> &DeviceInfo {
        self.device.device.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.device.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.device.device.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.device.device.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), BlockError> {
        let act = self.act.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        self.device.device.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.device.device.discard(offset, len_bytes)
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.device.device.write_zeroes(offset, len_bytes)
    }
    fn stats(&self) -> StatsSnapshot {
        self.device.device.stats()
    }
    fn is_poisoned(&self) -> bool {
        self.device.device.is_poisoned()
    }
}

type Meanwhile = fn(&Pool, &Object);

/// Stores all of the object while `act` happens, between the copy of its bytes and the note that they are
/// stored.
fn store_while(act: Meanwhile) -> (Arc<Rig>, Arc<Pool>, Object, Vec<StoredRun>) {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let trap = Arc::new(Trap { device: rig.device(0), act: Mutex::new(None) });
    let (pool, object) = create(VdevSpec::single(Device::new("disk0", trap.clone())));
    let pool = Arc::new(pool);
    write(&pool, &object, 0, &bytes(2, COUNT * BLOCK));
    let (inside, handle) = (Arc::downgrade(&pool), object.clone());
    *trap.act.lock().unwrap() = Some(Box::new(move || act(&inside.upgrade().unwrap(), &handle)));
    let runs = store(&pool, &object, 0, COUNT * BLOCK);
    assert!(trap.act.lock().unwrap().is_none(), "it was flushed");
    (rig, pool, object, runs)
}

#[test]
fn what_changes_while_it_is_stored_is_what_the_txg_has() {
    let acts: [(&str, Meanwhile); 4] = [
        ("written", |pool, object| write(pool, object, 7, &bytes(5, 3 * BLOCK))),
        ("cut off", |pool, object| object.truncate(&pool.begin_tx().unwrap(), 4 * BLOCK + 9).unwrap()),
        ("freed", |pool, object| object.punch(&pool.begin_tx().unwrap(), 0, 9 * BLOCK).unwrap()),
        ("stored by another", |pool, object| {
            assert_eq!(store(pool, object, 0, COUNT * BLOCK), [], "one at a time");
        }),
    ];
    for (name, act) in acts {
        let (rig, pool, object, runs) = store_while(act);
        // The record is of what was there when the storing began.
        assert_eq!(runs[0].len_bytes, COUNT * BLOCK, "{name}");
        let expected = contents(&object);
        pool.sync().unwrap();
        assert_eq!(clean(&pool).log_units, 0, "{name}");
        assert_eq!(contents(&object_of(&import(&crashed(&rig)))), expected, "{name}");
    }
}

#[test]
fn a_txg_that_ends_while_a_block_is_stored_does_not_take_it_over() {
    let (rig, pool, object, runs) = store_while(|pool, _| {
        // Another thread's, as txgs are: this one is in the middle of its I/O.
        std::thread::scope(|scope| assert!(scope.spawn(|| pool.sync().is_ok()).join().unwrap()));
    });
    let expected = contents(&object);
    let held = clean(&pool).log_units * UNIT_BYTES;
    assert_eq!(held, runs[0].written_bytes, "its record may be of a txg that is open still");
    assert_eq!(contents(&object_of(&import(&crashed(&rig)))), expected);
    pool.sync().unwrap();
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(contents(&object), expected);
}

#[test]
fn what_is_stored_while_the_txg_before_syncs_stays() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let trap = Arc::new(Trap { device: rig.device(0), act: Mutex::new(None) });
    let (pool, object) = create(VdevSpec::single(Device::new("disk0", trap.clone())));
    let (pool, runs) = (Arc::new(pool), Arc::new(Mutex::new(Vec::new())));
    write(&pool, &object, 0, &bytes(2, BLOCK));
    let (inside, handle, found) = (Arc::downgrade(&pool), object.clone(), runs.clone());
    *trap.act.lock().unwrap() = Some(Box::new(move || {
        let pool = inside.upgrade().unwrap();
        write(&pool, &handle, 0, &bytes(3, COUNT * BLOCK));
        *found.lock().unwrap() = store(&pool, &handle, 0, COUNT * BLOCK);
    }));
    pool.sync().unwrap();
    let run = runs.lock().unwrap()[0].clone();
    assert_eq!(clean(&pool).log_units * UNIT_BYTES, run.written_bytes);
    let after = crashed(&rig);
    let imported = Pool::import_paused(&after.all(), &host(), manual()).unwrap();
    imported.log_space().claim_stored(&run.address, run.len_bytes).unwrap();
    pool.sync().unwrap();
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(contents(&object_of(&import(&crashed(&rig)))), bytes(3, COUNT * BLOCK));
}

/// An import finds the bytes by their address, and nothing else takes their places.
#[test]
fn a_record_finds_its_blocks_after_a_crash_until_its_txg_has_synced() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    let data = bytes(2, COUNT * BLOCK);
    write(&pool, &object, 0, &data);
    let runs = store(&pool, &object, 0, COUNT * BLOCK);
    // Nothing of it is needed any more but by the record; others are stored meanwhile.
    for round in 3..9 {
        write(&pool, &object, 0, &bytes(round, COUNT * BLOCK));
        store(&pool, &object, 0, COUNT * BLOCK);
    }
    let after = crashed(&rig);
    let pool = Pool::import_paused(&after.all(), &host(), manual()).unwrap();
    let space = pool.log_space();
    let run = &runs[0];
    space.check_stored(&run.address, run.len_bytes).unwrap();
    space.claim_stored(&run.address, run.len_bytes).unwrap();
    let again = space.claim_stored(&run.address, run.len_bytes).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Corrupt, "{again}");
    assert!(space.check_stored(&run.address, run.len_bytes).is_err(), "in use");
    pool.start_txgs().unwrap();
    let object = object_of(&pool);
    assert_eq!(contents(&object), bytes(1, COUNT * BLOCK), "nothing was synced");
    // As much as there is room for.
    let filled = pool.dataset("tank").unwrap().create_object(&pool.begin_tx().unwrap()).unwrap();
    let mut at = 0;
    while pool.status().free_bytes > 1 << 20 {
        write(&pool, &filled, at, &bytes(at, 1 << 19));
        at += 1 << 19;
        pool.sync().unwrap();
    }
    let mut found = Vec::new();
    space.read_stored(&run.address, run.len_bytes, &mut |block| found.extend_from_slice(block)).unwrap();
    assert_eq!(found, data);
    assert_eq!(clean(&pool).log_units * UNIT_BYTES, run.written_bytes);
    let free_bytes = pool.status().free_bytes;
    space.free_stored(&run.address, run.len_bytes);
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(pool.status().free_bytes, free_bytes + run.written_bytes);
    assert!(space.claim_stored(&run.address, run.len_bytes).is_err(), "too late");
}

#[test]
fn without_a_claim_a_crash_frees_what_was_stored() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    let free_bytes = pool.status().free_bytes;
    write(&pool, &object, 0, &bytes(2, COUNT * BLOCK));
    store(&pool, &object, 0, COUNT * BLOCK);
    assert!(pool.status().free_bytes < free_bytes);
    let pool = import(&crashed(&rig));
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(pool.status().free_bytes, free_bytes);
    assert_eq!(contents(&object_of(&pool)), bytes(1, COUNT * BLOCK));
}

#[test]
fn an_address_that_is_not_what_was_stored_is_refused_and_takes_nothing() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    write(&pool, &object, 0, &bytes(2, 3 * BLOCK));
    let run = store(&pool, &object, 0, 3 * BLOCK).remove(0);
    let after = crashed(&rig);
    let pool = Pool::import_paused(&after.all(), &host(), manual()).unwrap();
    let space = pool.log_space();
    let refused = |address: &[u8], len_bytes, what: &str| {
        let claimed = space.claim_stored(address, len_bytes).unwrap_err();
        let checked = space.check_stored(address, len_bytes).unwrap_err();
        assert_eq!((claimed.kind(), checked.kind()), (ErrorKind::Corrupt, ErrorKind::Corrupt), "{what}");
        assert_eq!(clean(&pool).log_units, 0, "{what}");
    };
    let put = |at: usize, value: u64, len: usize| {
        let mut address = run.address.clone();
        address[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        address
    };
    // Of the last of three blocks, so that the first two were claimed.
    let last = 8 + 2 * 24;
    refused(&put(last, 0, 8), run.len_bytes, "the data of a synced txg, or a page");
    refused(&put(last, 1 << 40, 8), run.len_bytes, "behind the vdev");
    refused(&put(last, 7 << 48, 8), run.len_bytes, "another vdev");
    refused(&put(last, unit_of(&run), 8), run.len_bytes, "a place twice");
    refused(&put(last, unit_of(&run) + 2, 8), run.len_bytes, "places that overlap");
    refused(&put(last + 8, 0x1234, 8), run.len_bytes, "another checksum");
    refused(&put(last + 16, 0, 4), run.len_bytes, "no bytes");
    refused(&put(last + 20, 1 << 24 | BLOCK, 4), run.len_bytes, "compressed otherwise");
    refused(&put(last + 20, 9 << 24 | BLOCK, 4), run.len_bytes, "compressed in no known way");
    refused(&run.address, run.len_bytes + BLOCK, "another length");
    refused(&run.address[..20], run.len_bytes, "cut off");
    refused(&[], 0, "nothing");
    space.claim_stored(&run.address, run.len_bytes).unwrap();
}

#[test]
fn damage_is_noticed_when_the_blocks_are_claimed() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    write(&pool, &object, 0, &bytes(2, 3 * BLOCK));
    let run = store(&pool, &object, 0, 3 * BLOCK).remove(0);
    let mut image = rig.devices[0].crash(loses_all()).unwrap();
    let at = DATA_START_BYTES + unit_of(&run) * UNIT_BYTES + BLOCK + 77;
    let mut byte = [0];
    image.read(at, &mut byte);
    image.write(at, &[byte[0] ^ 4]);
    let after = Rig::new(vec![image], 1);
    let pool = Pool::import_paused(&after.all(), &host(), manual()).unwrap();
    let error = pool.log_space().claim_stored(&run.address, run.len_bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("vdev 0 unit"), "{error}");
    assert_eq!(clean(&pool).log_units, 0);
}

#[test]
fn what_finds_no_room_is_left_out_and_the_pool_can_sync() {
    let (_rig, pool, object) = dirty();
    let space = pool.log_space();
    while space.allocate(4096).is_ok() {}
    let extent = *space.extents().first().unwrap();
    (0..4).for_each(|_| space.free(*space.extents().first().unwrap()));
    let runs = store(&pool, &object, 0, COUNT * BLOCK);
    assert_eq!(runs.iter().map(|run| run.len_bytes).sum::<u64>(), BLOCK, "{extent:?}: one block finds room");
    space.extents().into_iter().for_each(|extent| {
        if u64::from(extent.len_bytes) == 4096 {
            space.free(extent);
        }
    });
    pool.sync().unwrap();
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(contents(&object), bytes(2, COUNT * BLOCK));
}

#[test]
fn what_cannot_be_written_is_left_out() {
    let (rig, pool, object) = dirty();
    rig.devices[0].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    assert_eq!(store(&pool, &object, 0, COUNT * BLOCK), []);
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(store(&pool, &object, 0, COUNT * BLOCK).len(), 1, "the next time it is stored");
    pool.sync().unwrap();
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(contents(&object), bytes(2, COUNT * BLOCK));
}

#[test]
fn a_flush_that_fails_stores_nothing_and_is_told() {
    let (rig, pool, object) = dirty();
    let flush = On::Only(Operation::Flush);
    rig.devices[0].set_plan(FaultPlan::new(1).rule(flush, When::Nth(1), Fault::Errno(5)));
    let error = pool.store(&[request(&object, 0, u64::MAX)], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MediaFailed, "{error}");
    assert_eq!(clean(&pool).log_units, 0);
    assert!(pool.sync().is_err(), "a device does not flush again after that");
    assert!(matches!(pool.store(&[request(&object, 0, u64::MAX)], 0), Ok(runs) if runs[0].is_empty()));
}

#[test]
fn with_a_vdev_for_logs_nothing_is_stored() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    write(&pool, &object, 0, &bytes(2, COUNT * BLOCK));
    pool.add(&VdevSpec::single(rig.device(1)).log()).unwrap();
    assert_eq!(store(&pool, &object, 0, COUNT * BLOCK), []);
}

/// The side that does not have a block when it is stored does not miss it as data either.
#[test]
fn a_side_that_fails_or_comes_while_a_block_is_stored_has_it_in_the_end() {
    for comes in [false, true] {
        let rig = Rig::fresh(2, LEN_BYTES, 1);
        let spec = match comes {
            true => single(&rig),
            false => VdevSpec::mirror(rig.all()),
        };
        let (pool, object) = create(spec);
        let data = bytes(2, COUNT * BLOCK);
        write(&pool, &object, 0, &data);
        if !comes {
            let plan = FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5));
            rig.devices[1].set_plan(plan);
        }
        let run = store(&pool, &object, 0, COUNT * BLOCK).remove(0);
        let sides = pool.status().vdevs[0].2.clone();
        // The walk of the resilver has passed when the txg with the blocks syncs.
        let mut is_passed = false;
        let walk = |_: &ScrubReport| {
            if !std::mem::replace(&mut is_passed, true) {
                pool.sync().unwrap();
            }
            true
        };
        if comes {
            pool.attach(sides[0].guid, rig.device(1), walk).unwrap();
        } else {
            assert!(sides[1].is_stale, "it missed a write");
            // It may be that nothing but the other side has the record's data.
            let after = crashed(&rig);
            let alone = Pool::import_paused(&[after.device(0)], &degraded(), manual()).unwrap();
            alone.log_space().claim_stored(&run.address, run.len_bytes).unwrap();
            let left = Pool::import_paused(&[after.device(1)], &degraded(), manual());
            assert!(left.is_err(), "it is called stale");
            pool.resilver(sides[1].guid, walk).unwrap();
        }
        clean(&pool);
        pool.detach(sides[0].guid).unwrap();
        pool.export().unwrap();
        let only = Rig::new(vec![rig.devices[1].inner().image()], 1);
        let pool = import(&only);
        assert_eq!(contents(&object_of(&pool)), data, "comes: {comes}");
        let report = pool.scrub(|_| true).unwrap();
        assert!(report.lost.is_empty() && report.wrong_copies == 0, "{report:?}");
    }
}

#[test]
fn while_a_side_is_stale_nothing_is_stored() {
    let rig = Rig::fresh(2, LEN_BYTES, 1);
    let (pool, object) = create(VdevSpec::mirror(rig.all()));
    rig.devices[1].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(1), Fault::Errno(5)));
    write(&pool, &object, 0, &bytes(2, COUNT * BLOCK));
    pool.sync().unwrap();
    write(&pool, &object, 0, &bytes(3, COUNT * BLOCK));
    assert_eq!(store(&pool, &object, 0, COUNT * BLOCK), []);
}

/// The bytes are in memory still: what was stored of them is of no use to the next import.
#[test]
fn a_pool_that_is_given_up_hands_out_what_was_stored() {
    let rig = Rig::fresh(1, LEN_BYTES, 1);
    let (pool, object) = create(single(&rig));
    let data = bytes(2, COUNT * BLOCK);
    write(&pool, &object, 0, &data);
    store(&pool, &object, 0, COUNT / 2 * BLOCK);
    // The data is there already, so the first writes of the sync are the tables'.
    rig.devices[0].set_plan(FaultPlan::new(1).rule(On::Writes, When::Nth(4), Fault::Errno(5)));
    assert!(pool.sync().is_err());
    let mut unsynced = pool.abandon().unwrap();
    drop((pool, object));
    let pool = import(&Rig::new(vec![rig.devices[0].inner().image()], 1));
    assert_eq!(contents(&object_of(&pool)), bytes(1, COUNT * BLOCK));
    unsynced.apply(&pool, &pool.begin_tx().unwrap()).unwrap();
    pool.sync().unwrap();
    assert_eq!(contents(&object_of(&pool)), data);
    assert_eq!(clean(&pool).log_units, 0);
}

/// Many threads write and store; a thread syncs txgs. In the end all is accounted for.
#[test]
fn many_threads_store_while_txgs_sync() {
    let image = MemImage::zeroed(64 << 20);
    let rig = Rig::new(vec![image], 1);
    let options = fastness_pool::PoolOptions {
        has_txg_thread: true,
        txg_timeout: std::time::Duration::from_millis(2),
        ..manual()
    };
    let pool = Pool::create("tank", &[single(&rig)], options).unwrap();
    let tx = pool.begin_tx().unwrap();
    let properties = [(Property::RecordSize, 4096), (Property::Compression, 1)];
    let dataset = pool.create_dataset(&tx, "tank/data", DatasetKind::Filesystem, &properties).unwrap();
    let object = dataset.create_object(&tx).unwrap();
    object.truncate(&tx, 64 * 4096).unwrap();
    drop(tx);
    let stored: u64 = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (pool, object) = (&pool, &object);
            move || {
                let mut rng = Rng::new(thread);
                let mut stored = 0;
                for _ in 0..400 {
                    let (block, count) = (rng.below(60), rng.below(4) + 1);
                    match write_some(pool, object, block * 4096, &rng.bytes((count * 4096) as usize)) {
                        Err(PoolError::NoSpace { .. }) | Ok(()) => {}
                        Err(error) => panic!("{error}"),
                    }
                    stored += store(pool, object, block * 4096, 6 * 4096).len() as u64;
                }
                stored
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(stored > 200, "{stored} runs");
    pool.sync().unwrap();
    pool.sync().unwrap();
    let expected = contents(&object);
    assert_eq!(clean(&pool).log_units, 0);
    assert_eq!(contents(&object_of(&import(&crashed(&rig)))), expected);
}

fn write_some(pool: &Pool, object: &Object, offset: u64, data: &[u8]) -> Result<(), PoolError> {
    object.write(&pool.begin_tx()?, offset, data)
}
