//! A panic in a thread of the pool suspends it: nobody waits for ever, and an import goes on with what it had
//! in memory.

mod support;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastness_blkdev::{BlockDevice, BlockError, DeviceInfo, MemDevice, StatsSnapshot};
use fastness_pool::{
    DATA_START_BYTES, Device, ErrorKind, HookChanges, ObjectId, Pool, PoolError, PoolOptions, Property, Txg,
    TxgHook, VdevSpec,
};
use support::{host, manual};

const BLOCK: u64 = 4096;
const LEN: u64 = 6 << 20;

/// Where it panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum At {
    Never,
    HookSync,
    HookSynced,
    Write,
    Flush,
    Read,
}

#[derive(Default)]
struct Bomb(AtomicU8);

impl Bomb {
    fn arm(&self, at: At) {
        self.0.store(at as u8, Ordering::SeqCst);
    }

    fn check(&self, at: At) {
        assert!(self.0.load(Ordering::SeqCst) != at as u8, "boom at {at:?}");
    }
}

struct Hook(Arc<Bomb>, Mutex<Vec<Txg>>);

impl TxgHook for Hook {
    fn sync(&self, _: Txg, _: &mut HookChanges) -> Result<(), PoolError> {
        self.0.check(At::HookSync);
        Ok(())
    }

    fn synced(&self, txg: Txg) {
        self.1.lock().unwrap().push(txg);
        self.0.check(At::HookSynced);
    }
}

struct Wire(Arc<MemDevice>, Arc<Bomb>);

impl BlockDevice for Wire {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        self.1.check(At::Read);
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        if offset >= DATA_START_BYTES {
            self.1.check(At::Write);
        }
        self.0.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.0.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), BlockError> {
        self.1.check(At::Flush);
        self.0.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.discard(offset, len_bytes)
    }
    fn write_zeroes(&self, offset: u64, len_bytes: u64) -> Result<(), BlockError> {
        self.0.write_zeroes(offset, len_bytes)
    }
    fn stats(&self) -> StatsSnapshot {
        self.0.stats()
    }
    fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }
}

struct World {
    disk: Arc<MemDevice>,
    bomb: Arc<Bomb>,
    has_thread: bool,
}

impl World {
    fn device(&self) -> Device {
        Device::new("disk", Arc::new(Wire(self.disk.clone(), self.bomb.clone())))
    }

    fn options(&self) -> PoolOptions {
        let txg_timeout = Duration::from_secs(3600);
        PoolOptions { has_txg_thread: self.has_thread, txg_timeout, ..manual() }
    }

    fn create(has_thread: bool) -> (World, Pool) {
        let disk = Arc::new(MemDevice::new("disk", 64 << 20));
        let world = World { disk, bomb: Arc::default(), has_thread };
        let pool = Pool::create("tank", &[VdevSpec::single(world.device())], world.options()).unwrap();
        let tx = pool.begin_tx().unwrap();
        let root = pool.dataset("tank").unwrap();
        root.set(&tx, Property::RecordSize, Some(BLOCK)).unwrap();
        assert_eq!(root.create_object(&tx).unwrap().id(), ObjectId(1));
        drop(tx);
        pool.sync().unwrap();
        (world, pool)
    }
}

/// Enough for several threads that write.
fn write(pool: &Pool, byte: u8) -> Txg {
    let tx = pool.begin_tx().unwrap();
    let object = pool.dataset("tank").unwrap().object(ObjectId(1)).unwrap();
    object.write(&tx, 0, &vec![byte; LEN as usize]).unwrap();
    tx.commit()
}

fn contents(pool: &Pool) -> Vec<u8> {
    let object = pool.dataset("tank").unwrap().object(ObjectId(1)).unwrap();
    let mut bytes = vec![0xee; object.size_bytes() as usize];
    object.read(0, &mut bytes).unwrap();
    bytes
}

/// The pool says that it is suspended, and why; a new import has everything.
fn goes_on(world: &World, pool: Pool, byte: u8) {
    assert!(pool.is_suspended());
    let reason = pool.status().suspended.unwrap();
    assert!(matches!(&reason, PoolError::Suspended { reason, .. } if reason.contains("boom")), "{reason}");
    assert_eq!(pool.begin_tx().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(pool.sync().unwrap_err().kind(), ErrorKind::Closed);
    world.bomb.arm(At::Never);
    assert_eq!(contents(&pool), vec![byte; LEN as usize], "it can be read");
    let mut unsynced = pool.abandon().unwrap();
    drop(pool);
    let next = Pool::import_paused(&[world.device()], &host(), world.options()).unwrap();
    let tx = next.begin_replay_tx().unwrap();
    unsynced.apply(&next, &tx).unwrap();
    drop(tx);
    next.start_txgs().unwrap();
    assert_eq!(contents(&next), vec![byte; LEN as usize]);
    next.sync().unwrap();
    assert!(next.check().unwrap().is_clean());
}

#[test]
fn a_panic_in_a_sync_suspends_the_pool_and_tells_who_waits() {
    for has_thread in [false, true] {
        for at in [At::HookSync, At::Write, At::Flush] {
            let (world, pool) = World::create(has_thread);
            pool.add_hook(Arc::new(Hook(world.bomb.clone(), Mutex::default())));
            write(&pool, 1);
            pool.sync().unwrap();
            let txg = write(&pool, 2);
            world.bomb.arm(at);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| pool.wait_synced(txg));
                let error = waits.join().unwrap().unwrap_err();
                let text = fastness_base::chain(&error);
                assert!(text.contains("boom"), "{at:?} {has_thread}: {text}");
            });
            goes_on(&world, pool, 2);
        }
    }
}

#[test]
fn a_panic_after_the_txg_became_durable_takes_nothing_back() {
    for has_thread in [false, true] {
        let (world, pool) = World::create(has_thread);
        let hook = Arc::new(Hook(world.bomb.clone(), Mutex::default()));
        pool.add_hook(hook.clone());
        let txg = write(&pool, 3);
        world.bomb.arm(At::HookSynced);
        pool.wait_synced(txg).unwrap();
        assert_eq!(hook.1.lock().unwrap().last(), Some(&txg));
        assert_eq!(pool.synced_txg(), txg);
        goes_on(&world, pool, 3);
    }
}

/// A thread that writes to an object panics in the middle of it: the transaction ends, and txgs go on.
#[test]
fn a_panic_of_a_user_holds_up_nothing() {
    let (world, pool) = World::create(true);
    write(&pool, 4);
    pool.sync().unwrap();
    drop(pool);
    // Nothing is in the cache: a part of a block is read.
    let pool = Pool::import(&[world.device()], &host(), world.options()).unwrap();
    let object = pool.dataset("tank").unwrap().object(ObjectId(1)).unwrap();
    world.bomb.arm(At::Read);
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| object.write(&pool.begin_tx().unwrap(), 1, &[9]));
        assert!(writes.join().is_err());
    });
    world.bomb.arm(At::Never);
    write(&pool, 5);
    pool.sync().unwrap();
    assert_eq!(contents(&pool), vec![5; LEN as usize]);
}
