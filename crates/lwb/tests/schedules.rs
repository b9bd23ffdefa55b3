//! Threads that commit bursts of records for each other, beside txgs, with room and without: everybody is
//! woken, and what was acknowledged is there. With real threads, or in schedules that can be repeated
//! (`scripts/shuttle`), which also find who sleeps for ever.

mod support;

use std::sync::Arc;

use fastness_blkdev::{ErrorKind, FaultPlan, MemImage};
use fastness_lwb::{Extent, Header, Log, Lsn, Options, Place, Space, SpaceError, Txg};
use fastness_sync::atomic::{AtomicU64, Ordering};
use fastness_sync::{Mutex, RwLock, lock, read, thread, write};
use fastness_testkit::schedules;
use support::*;

/// More blocks than a thread writes at a time.
const BURST: u64 = 18;
/// Fills a block of 4096 bytes.
const RECORD: usize = 3700;

/// Others may run in the middle of each operation; a write in so many fails.
struct Slow {
    inner: DiskSpace,
    writes: AtomicU64,
    fails_each: Option<u64>,
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
        thread::yield_now();
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if self.fails_each.is_some_and(|each| number.is_multiple_of(each)) {
            return Err(SpaceError::new(ErrorKind::MediaFailed, "it fails now and then"));
        }
        let result = self.inner.write(place, data);
        thread::yield_now();
        result
    }
    fn read(&self, place: Place, buf: &mut [u8]) -> Result<(), SpaceError> {
        self.inner.read(place, buf)
    }
    fn flush(&self, devices: &[u32]) -> Result<(), SpaceError> {
        // What is written from here on is not covered.
        let result = self.inner.flush(devices);
        thread::yield_now();
        result
    }
}

struct World {
    disk: Disk,
    log: Log<Slow>,
    /// The open txg; writers hold it while they append.
    open: RwLock<Txg>,
    /// What is stored, and the last synced txg.
    stored: Mutex<(Header, Txg)>,
    appended: Mutex<Vec<Appended>>,
    committed: AtomicU64,
}

impl World {
    fn new(seed: u64, units: u64, fails_each: Option<u64>) -> World {
        let disk = disk(MemImage::zeroed(units * 4096), FaultPlan::new(seed));
        let slow = Slow { inner: space(&disk), writes: AtomicU64::new(0), fails_each };
        let flushes_max = 1 + (seed % 2) as u32;
        let options = Options { block_bytes_max: 4096, flushes_max, ..Options::default() };
        let world = World {
            disk,
            log: Log::new(slow, Txg(1), options),
            open: RwLock::new(Txg(2)),
            stored: Mutex::new((Header::None, Txg(1))),
            appended: Mutex::default(),
            committed: AtomicU64::new(0),
        };
        world.log.start();
        world.sync();
        world
    }

    fn sync(&self) {
        let txg = {
            let mut open = write(&self.open);
            let txg = *open;
            open.0 += 1;
            txg
        };
        let header = self.log.sync_header(txg);
        *lock(&self.stored) = (header, txg);
        self.log.synced(txg);
    }

    /// Appends some, and commits up to any of the last ones, of whoever.
    fn write(&self, rng: &mut Rng) {
        let last = {
            let open = read(&self.open);
            let mut appended = lock(&self.appended);
            let count = if rng.below(3) == 0 { BURST } else { 1 };
            for _ in 0..count {
                let bytes = vec![rng.next() as u8; RECORD];
                let lsn = self.log.append(*open, &bytes);
                appended.push((lsn, *open, bytes));
            }
            appended.last().expect("one at least").0
        };
        let upto = Lsn(last.0.saturating_sub(rng.below(2) * rng.below(BURST)).max(1));
        if self.log.commit(upto).is_ok() {
            self.committed.fetch_max(upto.0, Ordering::SeqCst);
        }
    }

    fn look(&self, seed: u64) {
        let stored = lock(&self.stored);
        let committed = Lsn(self.committed.load(Ordering::SeqCst));
        let image = self.disk.crash(seed).unwrap();
        let (header, synced) = *stored;
        drop(stored);
        let records = recover(&image, &header, Txg(synced.0 + 1)).expect("no damage").records;
        check(&records, &lock(&self.appended), synced, committed);
    }
}

fn scenario(seed: u64, units: u64, fails_each: Option<u64>) {
    let world = Arc::new(World::new(seed, units, fails_each));
    let writer = |number: u64| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let mut rng = Rng(seed * 10 + number);
            (0..4).for_each(|_| world.write(&mut rng));
        })
    };
    let mut threads: Vec<_> = (0..3).map(writer).collect();
    let syncing = Arc::clone(&world);
    threads.push(thread::spawn(move || {
        for round in 0..6 {
            thread::yield_now();
            syncing.log.witness_idle();
            syncing.sync();
            syncing.look(seed + round);
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    world.look(seed);
    world.log.stop();
    (0..3).for_each(|_| world.sync());
    assert_eq!(world.log.space().inner.used_bytes(), 0, "nothing is left");
}

#[test]
fn bursts_of_several_threads_are_all_acknowledged() {
    (0..10).for_each(|seed| schedules(seed, move || scenario(seed, 400, None)));
}

#[test]
fn without_room_nobody_is_left_waiting() {
    (0..10).for_each(|seed| schedules(seed, move || scenario(seed, 3 + seed * 3, None)));
}

#[test]
fn when_writes_fail_nobody_is_left_waiting() {
    (0..10).for_each(|seed| schedules(seed, move || scenario(seed, 400, Some(7 + seed))));
}
