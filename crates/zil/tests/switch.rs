//! A log whose kind is changed while it is in use: what was acknowledged is there after a crash at any
//! moment, whichever kind took the record, and nothing comes back that was overwritten.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastness_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use fastness_sync::thread;
use fastness_testkit::{Heap, HeapRange, schedules};
use fastness_zil::*;
use support::*;

const CHUNK: usize = 8192;
const CHUNKS: usize = 16;
/// Only written as a volume.
const VOLUME: u64 = 50;

type Any = DynLog<PoolRef>;

/// A pool with logs of both kinds, one of which is in use.
struct Both {
    pool: PoolRef,
    heap: Heap,
    rig: LwbRig,
    pmem: Arc<PmemLogs<HeapRange>>,
    lwb: Arc<LwbLogs<DiskSpace>>,
    zil: Arc<Zil<PoolRef, Any>>,
    seed: AtomicU64,
}

fn contents() -> Contents {
    let objects = [1, 2, 3, VOLUME].map(|object| (object, vec![0; 4096])).into();
    Contents { objects, ..Contents::default() }
}

impl Both {
    fn new() -> Both {
        let disk = Disk { contents: BTreeMap::from([(DATASET, contents())]), ..Disk::default() };
        let pool = PoolRef::new(disk);
        let heap = Heap::new(vec![0; CHUNK * CHUNKS]);
        let rig = LwbRig::roomy();
        let pmem = Arc::new(PmemLogs::format(config(1, 2), heap.chunks(CHUNK)).unwrap());
        let lwb = Arc::new(LwbLogs::new(Arc::clone(&rig.space), Txg(0)));
        let log = pmem.create(&pool, &pool.tx(), DATASET).unwrap();
        let zil = Arc::new(Zil::new(DATASET, Arc::new(pool.clone()), Arc::new(DynLog::new(log))));
        let logs = Arc::downgrade(&lwb);
        pool.sync_hook(move |txg, put| {
            if let Some(logs) = logs.upgrade() {
                logs.sync(txg, put);
            }
        });
        let of_hook = (Arc::downgrade(&pmem), Arc::downgrade(&lwb), Arc::downgrade(&zil));
        pool.hook(move |txg| {
            if let (Some(pmem), Some(lwb), Some(zil)) =
                (of_hook.0.upgrade(), of_hook.1.upgrade(), of_hook.2.upgrade())
            {
                let _ = pmem.txg_synced(txg);
                lwb.txg_synced(txg);
                zil.txg_synced(txg);
            }
        });
        pool.sync();
        Both { pool, heap, rig, pmem, lwb, zil, seed: AtomicU64::new(1) }
    }

    /// Makes a log of the other kind, with a durable header, and returns it. `looks`: after each step.
    fn prepare(&self, looks: &dyn Fn()) -> Arc<Any> {
        self.zil.kind().suspend(&self.pool).unwrap();
        looks();
        let new = match (self.zil.kind().id(), self.lwb.get(DATASET)) {
            (KindId::Lwb, _) => DynLog::new(self.pmem.get(DATASET).unwrap()),
            (KindId::Pmem, Some(log)) => DynLog::new(log),
            (KindId::Pmem, None) => {
                DynLog::new(self.lwb.create(&self.pool, &self.pool.tx(), DATASET).unwrap())
            }
        };
        new.resume(&self.pool).unwrap();
        looks();
        while new.refusal().is_some() {
            self.pool.sync();
        }
        looks();
        Arc::new(new)
    }

    fn switch(&self, looks: &dyn Fn()) {
        let new = self.prepare(looks);
        self.zil.switch_kind(new);
        looks();
    }

    fn change(&self, op: &Op) -> Txg {
        let tx = self.pool.tx();
        self.pool.apply(&tx, DATASET, op).unwrap();
        self.zil.assign(tx.txg, itx(op));
        tx.txg
    }

    fn volume_write(&self, at: usize, data: &[u8], is_fua: bool) -> (Txg, bool) {
        let tx = self.pool.tx();
        self.pool.apply(&tx, DATASET, &Op::Write(VOLUME, at, data.to_vec())).unwrap();
        (tx.txg, self.zil.log_write(tx.txg, ObjectId(VOLUME), at as u64, data, is_fua))
    }

    /// What the pool is after a crash now: the kind that its header names is imported.
    fn crashed(&self) -> Contents {
        let seed = self.seed.fetch_add(1, Ordering::SeqCst);
        let (disk, heap, image) = self.pool.between_txgs(|| {
            (self.pool.disk(), Heap::new(self.heap.bytes()), self.rig.disk.crash(seed).unwrap())
        });
        let header = disk.headers.0.get(&DATASET).cloned().unwrap();
        let stored = StoredHeader::decode(&header).unwrap();
        let lwb_rig = LwbRig::of(image, fastness_blkdev::FaultPlan::new(0), 1);
        // Without a log, either kind takes the pool.
        let is_lwb = if stored.names_no_log() { seed.is_multiple_of(2) } else { stored.kind == KindId::Lwb };
        let replayed = if is_lwb {
            let world = lwb_rig.import(disk).unwrap();
            world.replay().map(|_| world.pool.contents(DATASET))
        } else {
            let world = World::import(config(1000 + seed, 2), heap.chunks(CHUNK), disk).unwrap();
            world.replay().map(|_| world.pool.contents(DATASET))
        };
        replayed.unwrap_or_else(|error| panic!("{:?}: {error:?}", stored.kind))
    }
}

/// A place that one thread writes growing numbers to.
#[derive(Default)]
struct Slot {
    written: AtomicU64,
    acknowledged: AtomicU64,
}

fn value(contents: &Contents, object: u64, at: usize) -> u64 {
    u64::from_le_bytes(contents.objects[&object][at..at + 8].try_into().unwrap())
}

/// How often a thread does something: until it is told to stop, or a few times, where there are many
/// schedules.
const ROUNDS: u64 = if cfg!(shuttle) { 4 } else { u64::MAX };

/// Writers of files and of a volume, beside a thread that changes the kind; crashes at each step of that, and
/// between.
fn run(seed: u64, switches: usize, toggles_bypass: bool) {
    let both = Both::new();
    let is_over = AtomicBool::new(false);
    // Two threads on file 1, one on file 2; the volume at 64 times the thread, with flushes, and with FUA.
    let slots: Vec<Slot> = (0..6).map(|_| Slot::default()).collect();
    let place = |index: usize| (if index < 3 { 1 + index as u64 / 2 } else { VOLUME }, index * 64);
    let look = || {
        let acknowledged: Vec<u64> =
            slots.iter().map(|slot| slot.acknowledged.load(Ordering::SeqCst)).collect();
        let found = both.crashed();
        for (index, slot) in slots.iter().enumerate() {
            let (object, at) = place(index);
            let (found, written) = (value(&found, object, at), slot.written.load(Ordering::SeqCst));
            let least = acknowledged[index];
            assert!((least..=written).contains(&found), "slot {index}: {found} of {least}..={written}");
        }
    };
    thread::scope(|scope| {
        let (both, slots, is_over) = (&both, &slots, &is_over);
        let writers: Vec<_> = (0..6)
            .map(|index| {
                scope.spawn(move || {
                    let (object, at) = place(index);
                    let slot = &slots[index];
                    for number in 1..=ROUNDS {
                        if is_over.load(Ordering::SeqCst) {
                            break;
                        }
                        slot.written.store(number, Ordering::SeqCst);
                        let data = number.to_le_bytes();
                        if index < 3 {
                            if number.is_multiple_of(3) {
                                let tx = both.pool.tx();
                                let op = Op::Write(object, at, data.to_vec());
                                both.pool.apply(&tx, DATASET, &op).unwrap();
                                let itx = Itx::need_copy(ObjectId(object), at as u64, 8, false);
                                both.zil.assign(tx.txg, itx);
                            } else {
                                both.change(&Op::Write(object, at, data.to_vec()));
                            }
                            if number.is_multiple_of(2) {
                                both.zil.commit(ObjectId(object)).unwrap();
                                slot.acknowledged.store(number, Ordering::SeqCst);
                            }
                        } else {
                            let is_fua = index == 5 || number.is_multiple_of(7);
                            let (txg, logged) = both.volume_write(at, &data, is_fua);
                            if is_fua {
                                both.zil.after_fua(txg, logged).unwrap();
                            } else if number.is_multiple_of(2) {
                                both.zil.flush().unwrap();
                            } else {
                                continue;
                            }
                            slot.acknowledged.store(number, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        // A thread that holds transactions open over whatever happens.
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let tx = both.pool.tx();
                thread::sleep(Duration::from_micros(300));
                let op = Op::Write(VOLUME, 4000, vec![1; 8]);
                both.pool.apply(&tx, DATASET, &op).unwrap();
                both.zil.log_write(tx.txg, ObjectId(VOLUME), 4000, &[1; 8], false);
            }
        });
        let look = &look;
        let looker = scope.spawn(move || {
            for _ in 0..ROUNDS {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                look();
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..switches {
                if toggles_bypass {
                    both.zil.set_bypass(round % 3 != 1);
                }
                thread::sleep(Duration::from_micros((seed * 131 + round as u64 * 577) % 3000));
                both.switch(look);
            }
        }));
        is_over.store(true, Ordering::SeqCst);
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        looker.join().unwrap();
        results.into_iter().for_each(|result| result.unwrap());
        result.unwrap();
    });
    look();
}

#[test]
fn a_kind_that_is_changed_under_writers_loses_nothing() {
    for seed in 0..6 {
        schedules(seed, move || run(seed, if cfg!(shuttle) { 2 } else { 10 }, false));
    }
}

#[test]
fn nor_does_one_whose_bypass_comes_and_goes() {
    for seed in 0..3 {
        schedules(seed, move || run(seed, if cfg!(shuttle) { 3 } else { 12 }, true));
    }
}

/// A record that the log before has taken over and not written: what depends on it is not logged without it.
#[test]
fn records_that_the_log_before_took_over_are_not_forgotten() {
    for object in [10, 0] {
        let both = Both::new();
        for _ in 0..2 {
            let new = both.prepare(&|| ());
            both.pool.0.is_suspended.store(true, Ordering::SeqCst);
            let base = both.pool.contents(DATASET);
            let name = if base.names.is_empty() { "a" } else { "b" };
            let object = if object == 0 { 0 } else { 10 + base.names.len() as u64 };
            both.change(&Op::Create(name, 10 + base.names.len() as u64));
            assert!(both.zil.commit(ObjectId(object)).is_err(), "the log is suspended");
            both.zil.switch_kind(new);
            // With nothing new; and with a record that depends on the one before.
            assert!(both.zil.commit(ObjectId(object)).is_err());
            both.change(&Op::Write(10 + base.names.len() as u64, 0, vec![7; 8]));
            assert!(both.zil.commit(ObjectId(object)).is_err());
            assert_eq!(both.crashed(), base);
            both.pool.0.is_suspended.store(false, Ordering::SeqCst);
            assert!(matches!(both.zil.commit(ObjectId(object)).unwrap(), Committed::Synced(_)));
            both.change(&Op::Write(1, 0, vec![8; 8]));
            assert_eq!(both.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
            assert_eq!(both.crashed(), both.pool.contents(DATASET));
        }
    }
}

/// A write that is on the list when the bypass comes back is not written behind a later one of the same
/// place.
#[test]
fn a_listed_write_does_not_come_back_over_a_later_one() {
    for by_switch in [true, false] {
        let both = Both::new();
        let next = if by_switch {
            both.switch(&|| ());
            Some(both.prepare(&|| ()))
        } else {
            both.zil.set_bypass(false);
            None
        };
        both.pool.0.is_suspended.store(true, Ordering::SeqCst);
        // Copied, so that it is not read back.
        assert!(both.volume_write(0, &[1; 8], true).1);
        match next {
            Some(next) => drop(both.zil.switch_kind(next)),
            None => both.zil.set_bypass(true),
        }
        let (txg, logged) = both.volume_write(0, &[2; 8], true);
        assert!(!logged, "it must not go straight to the log");
        assert!(both.zil.after_fua(txg, logged).is_err());
        assert!(both.zil.flush().is_err());
        assert_ne!(both.crashed().objects[&VOLUME][..8], [2; 8], "nobody said that it is durable");
        both.pool.0.is_suspended.store(false, Ordering::SeqCst);
        assert!(matches!(both.zil.flush().unwrap(), Committed::Synced(_)));
        assert_eq!(both.crashed().objects[&VOLUME][..8], [2; 8]);
        // From then on the bypass is used.
        assert!(both.volume_write(0, &[3; 8], false).1);
        assert_eq!(both.zil.stats().snapshot().bypass_records, 1);
        assert_eq!(both.crashed().objects[&VOLUME][..8], [3; 8]);
    }
}

/// A write that was listed under one kind is durable when a flush, or its own FUA, has returned under the
/// other.
#[test]
fn a_listed_write_is_flushed_by_the_next_kind() {
    for is_fua in [true, false] {
        let both = Both::new();
        both.switch(&|| ());
        let next = both.prepare(&|| ());
        both.pool.0.is_suspended.store(true, Ordering::SeqCst);
        let (txg, logged) = both.volume_write(0, &[1; 8], is_fua);
        assert!(logged);
        both.zil.switch_kind(next);
        let durable = if is_fua { both.zil.after_fua(txg, logged) } else { both.zil.flush() };
        assert_eq!(durable.unwrap(), Committed::Logged);
        assert_eq!(both.crashed().objects[&VOLUME][..8], [1; 8]);
    }
}

/// A write whose transaction is open across the suspension, with either outcome of its logging.
#[test]
fn a_transaction_that_is_open_across_the_suspension_is_durable_when_it_says_so() {
    for to_lwb in [true, false] {
        let both = Both::new();
        if !to_lwb {
            both.switch(&|| ());
        }
        let tx = both.pool.tx();
        let op = Op::Write(VOLUME, 0, vec![9; 8]);
        both.pool.apply(&tx, DATASET, &op).unwrap();
        thread::scope(|scope| {
            let switcher = scope.spawn(|| both.switch(&|| ()));
            while both.zil.kind().refusal().is_none() {
                thread::yield_now();
            }
            let logged = both.zil.log_write(tx.txg, ObjectId(VOLUME), 0, &[9; 8], true);
            assert_eq!(logged, !to_lwb, "the bypass is refused, the list is not");
            let txg = tx.txg;
            drop(tx);
            both.zil.after_fua(txg, logged).unwrap();
            assert_eq!(both.crashed().objects[&VOLUME][..8], [9; 8]);
            switcher.join().unwrap();
        });
        assert_eq!(both.crashed().objects[&VOLUME][..8], [9; 8]);
    }
}

/// With the bypass off, a volume on persistent memory goes by the list, and loses nothing.
#[test]
fn the_bypass_can_be_switched_off() {
    let both = Both::new();
    both.zil.set_bypass(false);
    for number in 1..=20u8 {
        assert!(both.volume_write(0, &[number; 8], number.is_multiple_of(2)).1);
        if number.is_multiple_of(4) {
            assert_eq!(both.zil.flush().unwrap(), Committed::Logged);
            assert_eq!(both.crashed().objects[&VOLUME][..8], [number; 8]);
        }
    }
    let stats = both.zil.stats().snapshot();
    assert_eq!((stats.bypass_records, stats.records), (0, 20));
}
