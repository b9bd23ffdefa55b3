//! Many threads on a device that delays and reorders what it completes, with txgs beside them and crashes at
//! any moment.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fastness_blkdev::{FaultPlan, MemImage};
use fastness_lwb::{Extent, Header, Log, Lsn, Options, Place, Space, SpaceError, Txg};
use support::*;

/// Delays each operation by a time from a seed, before or after it takes effect.
struct Slow {
    inner: DiskSpace,
    seed: u64,
    calls: AtomicU64,
}

impl Slow {
    fn pass<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut rng = Rng(self.seed ^ self.calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9));
        let wait = |micros| std::thread::sleep(Duration::from_micros(micros));
        let (before, after) = (rng.below(3) * rng.below(150), rng.below(3) * rng.below(150));
        wait(before);
        let result = act();
        wait(after);
        result
    }
}

impl Space for Slow {
    fn allocate(&self, len_bytes: u32) -> Result<Place, SpaceError> {
        self.inner.allocate(len_bytes)
    }
    fn free(&self, extent: Extent) {
        self.inner.free(extent);
    }
    fn claim(&self, extent: Extent) -> Result<(), SpaceError> {
        self.inner.claim(extent)
    }
    fn contains(&self, extent: Extent) -> bool {
        self.inner.contains(extent)
    }
    fn write(&self, place: Place, data: &[u8]) -> Result<(), SpaceError> {
        self.pass(|| self.inner.write(place, data))
    }
    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.inner.read(place, buf)
    }
    fn flush(&self, devices: &[u32]) -> Result<(), SpaceError> {
        // It takes effect at once and returns late: what is written meanwhile is not covered.
        let result = self.inner.flush(devices);
        self.pass(|| ());
        result
    }
}

/// What is shared by writers, the thread that syncs, and the one that looks.
struct World {
    disk: Disk,
    log: Log<Slow>,
    /// The open txg; writers hold it while they append.
    open: RwLock<Txg>,
    stored: Mutex<(Header, Txg)>,
    appended: Mutex<Vec<Appended>>,
    /// The greatest number that was acknowledged; all before it are, too, or their txgs have synced.
    committed: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    fn new(seed: u64, disk_bytes: u64) -> World {
        let disk = disk(MemImage::zeroed(disk_bytes), FaultPlan::new(seed));
        let slow = Slow { inner: space(&disk), seed, calls: AtomicU64::new(0) };
        let world = World {
            disk,
            log: Log::new(slow, Txg(1), Options { block_bytes_max: 16 << 10, ..Options::default() }),
            open: RwLock::new(Txg(2)),
            stored: Mutex::new((Header::None, Txg(1))),
            appended: Mutex::default(),
            committed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        world.log.start();
        world.sync();
        world
    }

    fn sync(&self) {
        let txg = {
            let mut open = self.open.write().unwrap();
            let txg = *open;
            open.0 += 1;
            txg
        };
        let header = self.log.sync_header(txg);
        *self.stored.lock().unwrap() = (header, txg);
        self.log.synced(txg);
    }

    fn write(&self, rng: &mut Rng) {
        let (len, again) = (rng.below(4) * rng.below(1500), rng.below(8) == 0);
        let bytes = rng.bytes(len as usize);
        let lsn = {
            let open = self.open.read().unwrap();
            // One lock for both, so that the model has the order of the log.
            let mut appended = self.appended.lock().unwrap();
            let lsn = self.log.append(*open, &bytes);
            appended.push((lsn, *open, bytes));
            lsn
        };
        let upto = if again { Lsn(lsn.0.saturating_sub(3)) } else { lsn };
        if self.log.commit(upto).is_ok() {
            self.committed.fetch_max(upto.0, Ordering::SeqCst);
        }
    }

    /// A crash now, recovered.
    fn look(&self, seed: u64) {
        let stored = self.stored.lock().unwrap();
        let committed = Lsn(self.committed.load(Ordering::SeqCst));
        let image = self.disk.crash(seed).unwrap();
        let (header, synced) = *stored;
        drop(stored);
        let records = recover(&image, &header, Txg(synced.0 + 1)).expect("no damage").records;
        check(&records, &self.appended.lock().unwrap(), synced, committed);
    }

    fn run(&self, seed: u64, threads: u64, rounds: u64) {
        std::thread::scope(|scope| {
            let writer = |number: u64| {
                move || {
                    let mut rng = Rng(seed * 100 + number);
                    (0..rounds).for_each(|_| self.write(&mut rng));
                }
            };
            let writers: Vec<_> = (0..threads).map(|number| scope.spawn(writer(number))).collect();
            let looker = scope.spawn(|| {
                let mut rng = Rng(seed);
                while !self.is_over.load(Ordering::SeqCst) {
                    self.look(rng.next());
                    std::thread::sleep(Duration::from_micros(rng.below(3000)));
                }
            });
            scope.spawn(|| {
                let mut rng = Rng(seed ^ 1);
                while !self.is_over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_micros(rng.below(8000)));
                    if rng.below(12) == 0 {
                        self.log.stop();
                        self.log.resume();
                    }
                    self.sync();
                }
            });
            scope.spawn(|| {
                while !self.is_over.load(Ordering::SeqCst) {
                    self.log.witness_idle();
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            self.is_over.store(true, Ordering::SeqCst);
            looker.join().unwrap();
            results.into_iter().for_each(|result| result.unwrap());
        });
        self.look(0);
        assert_eq!(self.log.space().inner.used_bytes(), total(&self.log.extents()));
        self.log.stop();
        self.sync();
        self.sync();
        assert_eq!(self.log.space().inner.used_bytes(), 0);
    }
}

#[test]
fn acknowledged_records_survive_a_crash_at_any_moment() {
    for seed in 0..20 {
        World::new(seed, 8 << 20).run(seed, 6, 60);
    }
}

#[test]
fn one_thread_never_waits_for_company() {
    let world = World::new(1, 8 << 20);
    let mut rng = Rng(1);
    (0..100).for_each(|_| world.write(&mut rng));
    assert_eq!(world.log.status().timeouts, 0);
}

#[test]
fn threads_share_blocks_and_flushes() {
    let world = Arc::new(World::new(3, 8 << 20));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let world = Arc::clone(&world);
            std::thread::spawn(move || {
                let mut rng = Rng(number);
                (0..50).for_each(|_| world.write(&mut rng));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let status = world.log.status();
    assert_eq!((status.commits, status.failed_commits), (400, 0));
    assert!(status.flushes < 300, "{status:?}");
}
