//! A scrub beside a pool that is nearly full: what it holds up is not given out twice.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use fastness_blkdev::{BlockDevice, BlockError, DeviceInfo, MemDevice, StatsSnapshot};
use fastness_pool::{DatasetKind, Device, ErrorKind, Object, Pool, PoolOptions, Property, VdevSpec};
use support::{Rng, manual};

const BLOCK: u64 = 4096;
/// Blocks in a row of the tables.
const ROW: u64 = 32;

/// A device whose reads by the thread `scrub` wait while it is closed.
struct Gate {
    inner: MemDevice,
    is_closed: Mutex<bool>,
    changed: Condvar,
    waits: AtomicBool,
}

impl Gate {
    fn new(len_bytes: u64) -> Arc<Gate> {
        let inner = MemDevice::new("gate", len_bytes);
        Arc::new(Gate { inner, is_closed: Mutex::default(), changed: Condvar::new(), waits: false.into() })
    }

    fn close(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.changed.notify_all();
    }
}

impl BlockDevice for Gate {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), BlockError> {
        if std::thread::current().name() == Some("scrub") {
            let mut is_closed = self.is_closed.lock().unwrap();
            while *is_closed {
                self.waits.store(true, Ordering::SeqCst);
                is_closed = self.changed.wait(is_closed).unwrap();
            }
        }
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.inner.write_at(offset, data)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), BlockError> {
        self.inner.write_fua(offset, data)
    }
    fn flush(&self) -> Result<(), BlockError> {
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
        self.inner.is_poisoned()
    }
    fn crash_point(&self, name: &'static str) {
        self.inner.crash_point(name);
    }
}

fn pool_on(gate: &Arc<Gate>, txg_timeout: Duration) -> (Pool, Object) {
    let device = Device::new("gate", Arc::clone(gate) as Arc<dyn BlockDevice>);
    let options = PoolOptions { has_txg_thread: true, txg_timeout, ..manual() };
    let pool = Pool::create("tank", &[VdevSpec::single(device)], options).unwrap();
    let tx = pool.begin_tx().unwrap();
    let properties = [(Property::VolBlockSize, BLOCK)];
    let dataset = pool.create_dataset(&tx, "tank/v", DatasetKind::Volume, &properties).unwrap();
    let object = dataset.create_object(&tx).unwrap();
    drop(tx);
    pool.sync().unwrap();
    (pool, object)
}

fn bytes(rng: &mut Rng, blocks: u64) -> Vec<u8> {
    (0..blocks * BLOCK / 8).flat_map(|_| rng.next().to_le_bytes()).collect()
}

fn scrub<'s>(scope: &'s std::thread::Scope<'s, '_>, pool: &'s Pool, is_done: &'s AtomicBool) {
    let work = || {
        while !is_done.load(Ordering::SeqCst) {
            assert!(pool.scrub(|_| !is_done.load(Ordering::SeqCst)).unwrap().lost.is_empty());
        }
    };
    std::thread::Builder::new().name("scrub".to_owned()).spawn_scoped(scope, work).unwrap();
}

fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_a_txg_took_is_gone_before_it_is_no_longer_reserved() {
    // A third of it is more than what is kept back.
    let gate = Gate::new(64 << 20);
    let (pool, object) = pool_on(&gate, Duration::from_secs(3600));
    let mut rng = Rng::new(1);
    let is_done = AtomicBool::new(false);
    let write = |rng: &mut Rng, at: u64, blocks: u64| {
        object.write(&pool.begin_tx().unwrap(), at * BLOCK, &bytes(rng, blocks))
    };
    // A third of what there is; a txg that is written as a whole leaves another third.
    let third = pool.status().free_bytes / 3 / BLOCK / ROW * ROW;
    write(&mut rng, 0, third).unwrap();
    pool.sync().unwrap();
    std::thread::scope(|scope| {
        gate.close(true);
        scrub(scope, &pool, &is_done);
        wait_for(|| gate.waits.load(Ordering::SeqCst));
        write(&mut rng, third, third).unwrap();
        pool.end_txg_soon();
        // Its layers are gone, and it waits for the scrub.
        wait_for(|| pool.status().dirty_bytes == 0);
        let mut at = 2 * third;
        let error = loop {
            match write(&mut rng, at, ROW) {
                Ok(()) => at += ROW,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        gate.close(false);
        is_done.store(true, Ordering::SeqCst);
        pool.sync().unwrap();
    });
    assert!(pool.check().unwrap().is_clean());
}

/// Writers, discards, a scrub and log blocks at a full pool, with txgs as fast as they can be.
#[test]
fn threads_at_a_full_pool_never_suspend_it() {
    for seed in 0..6 {
        let gate = Gate::new(20 << 20);
        let (pool, object) = pool_on(&gate, Duration::from_millis(1));
        let is_done = AtomicBool::new(false);
        let blocks = pool.status().total_bytes / BLOCK;
        std::thread::scope(|scope| {
            scrub(scope, &pool, &is_done);
            let logs = || {
                let space = pool.log_space();
                let mut held = Vec::new();
                while !is_done.load(Ordering::SeqCst) {
                    match space.allocate(4096 * 4) {
                        Ok(place) if held.len() < 100 => held.push(place),
                        result => {
                            held.extend(result.ok());
                            let free = |place| fastness_pool::LogExtent { place, len_bytes: 4096 * 4 };
                            held.drain(..).for_each(|place| space.free(free(place)));
                        }
                    }
                }
            };
            scope.spawn(logs);
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (pool, object) = (&pool, &object);
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed * 10 + writer);
                        let mut refused = 0;
                        for _ in 0..1500 {
                            let tx = pool.begin_tx().unwrap();
                            let (at, count) = (rng.below(blocks), rng.below(16) + 1);
                            let result = match rng.below(8) {
                                0 => object.punch(&tx, at * BLOCK + 1, count * BLOCK),
                                1 => object.punch(&tx, at * BLOCK, count * 16 * BLOCK),
                                _ => object.write(&tx, at * BLOCK, &bytes(&mut rng, count)),
                            };
                            if let Err(error) = result {
                                assert_eq!(error.kind(), ErrorKind::NoSpace);
                                refused += 1;
                            }
                        }
                        refused
                    })
                })
                .collect();
            let refused: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            assert!(refused > 10, "it was full: {refused}");
            is_done.store(true, Ordering::SeqCst);
        });
        pool.sync().unwrap();
        assert!(pool.check().unwrap().is_clean());
    }
}
