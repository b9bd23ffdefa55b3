//! Kind lwb on a device that loses power, fails and forgets: what was acknowledged is there, and no error is
//! an acknowledgement. The numbers are those of the reference of intent log behaviour, section 4.

#[macro_use]
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastness_blkdev::{BlockDevice, CrashScope, Fault, FaultPlan, MemImage, On, Operation, When};
use fastness_zil::*;
use support::*;

const DISK_BYTES: u64 = 2 << 20;

fn objects() -> Contents {
    let objects = (1..=3).map(|object| (object, vec![0; 4096])).collect();
    Contents { objects, ..Contents::default() }
}

fn write(object: u64, nth: usize) -> Op {
    Op::Write(object, nth * 8, vec![(object as usize * 16 + nth) as u8 | 1; 8])
}

fn recovered(image: &MemImage, disk: &Disk) -> Result<Contents, String> {
    let rig = LwbRig::of(image.clone(), FaultPlan::new(0), 99);
    let world = rig.import(disk.clone()).map_err(|error| error.to_string())?;
    world.replay().map_err(|error| format!("{error:?}"))?;
    Ok(world.pool.contents(DATASET))
}

/// A world whose pool loses its power with the log's device.
fn world(rig: &LwbRig) -> World<LwbLogs<DiskSpace>> {
    let world = rig.world(objects());
    let disk = Arc::clone(&rig.disk);
    world.pool.dies_with(move || disk.is_power_cut());
    world
}

/// One thread and the power.
struct Run {
    rig: LwbRig,
    world: World<LwbLogs<DiskSpace>>,
    history: History,
    acknowledged: Vec<u64>,
}

impl Run {
    fn new(plan: FaultPlan) -> Self {
        let rig = LwbRig::new(DISK_BYTES, plan);
        let world = world(&rig);
        Self { rig, world, history: History::default(), acknowledged: Vec::new() }
    }

    fn change(&mut self, op: Op) {
        self.world.change(&op);
        self.history.ops.push(op);
    }

    fn change_without_copy(&mut self, op: Op) {
        let Op::Write(object, at, data) = &op else { panic!("{op:?}") };
        self.world.change_without_copy(*object, *at, data);
        self.history.ops.push(op);
    }

    fn commit(&mut self, object: u64) {
        let commit = self.history.commit(object);
        if self.world.zil.commit(ObjectId(object)).is_ok() {
            self.acknowledged.push(commit);
        }
    }

    fn check(&self, image: &MemImage) {
        let disk = self.world.pool.disk();
        let found = recovered(image, &disk).unwrap_or_else(|error| panic!("{error}"));
        let explained = self.history.explains(&self.acknowledged, &found);
        explained.unwrap_or_else(|error| panic!("{:?}: {error}\n{found:?}", self.acknowledged));
    }
}

fn at_every_operation(script: impl Fn(&mut Run)) {
    let mut states = 0;
    for nth in 1.. {
        let mut run = Run::new(FaultPlan::new(nth).rule(On::Any, When::Nth(nth), Fault::PowerCut));
        script(&mut run);
        for scope in [CrashScope::Writes, CrashScope::Units] {
            let shown = run.rig.disk.for_each_crash_state(scope, 200, |image| run.check(image)).unwrap();
            states += shown.states;
        }
        if !run.rig.disk.is_power_cut() {
            break;
        }
    }
    assert!(states > 80, "{states} states");
}

#[test]
fn commits_survive_every_crash() {
    at_every_operation(|run| {
        run.change(Op::Create("a", 10));
        run.change(write(10, 0));
        run.change(write(1, 0));
        run.commit(10);
        run.change_without_copy(write(1, 1));
        run.change(write(2, 0));
        run.commit(1);
        run.change(Op::Create("b", 11));
        run.change_without_copy(write(11, 0));
        run.change_without_copy(Op::Write(3, 0, vec![5; 3000]));
        run.commit(0);
        run.change(Op::Write(3, 3000, vec![6; 1000]));
        run.commit(3);
    });
}

#[test]
fn commits_between_txgs_survive_every_crash() {
    at_every_operation(|run| {
        for round in 0..4 {
            run.change(write(1, round));
            run.world.pool.open_next();
            run.change_without_copy(write(2, round));
            run.commit(2);
            run.change(write(1, 10 + round));
            run.change_without_copy(Op::Write(3, round * 700, vec![5 + round as u8; 700]));
            if round % 2 == 0 {
                run.commit(0);
            }
            run.world.pool.sync();
        }
    });
}

/// What the threads of a run share.
struct Shared {
    rig: LwbRig,
    world: World<LwbLogs<DiskSpace>>,
    history: Mutex<History>,
    acknowledged: Mutex<Vec<u64>>,
    logged: std::sync::atomic::AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    fn write(&self, thread: u64, rounds: usize) {
        for round in 0..rounds {
            let object = if round % 3 == 2 { 1 } else { 10 + thread };
            let commit = {
                // One lock for both, so that the model has the order of the list.
                let mut history = self.history.lock().unwrap();
                if round == 0 {
                    let create = Op::Create(["a", "b", "c", "d"][thread as usize], object);
                    self.world.change(&create);
                    history.ops.push(create);
                }
                let op = write(object, thread as usize * 100 + round);
                match &op {
                    Op::Write(object, at, data) if round % 2 == 0 => {
                        self.world.change_without_copy(*object, *at, data);
                    }
                    op => self.world.change(op),
                }
                history.ops.push(op);
                history.commit(object)
            };
            if let Committed::Logged = self.world.zil.commit(ObjectId(object)).unwrap() {
                self.logged.fetch_add(1, Ordering::SeqCst);
            }
            self.acknowledged.lock().unwrap().push(commit);
        }
    }

    /// A crash now, recovered.
    fn look(&self, seed: u64) {
        let (acknowledged, disk, image) = self.world.pool.between_txgs(|| {
            let acknowledged = self.acknowledged.lock().unwrap().clone();
            (acknowledged, self.world.pool.disk(), self.rig.disk.crash(seed).unwrap())
        });
        let found = recovered(&image, &disk).unwrap_or_else(|error| panic!("{error}"));
        let history = self.history.lock().unwrap();
        history.explains(&acknowledged, &found).unwrap_or_else(|error| panic!("{error}"));
    }

    fn run(plan: FaultPlan, seed: u64, suspends: bool) -> u64 {
        let rig = LwbRig::new(DISK_BYTES, plan);
        let shared = Self {
            world: rig.world(objects()),
            rig,
            history: Mutex::default(),
            acknowledged: Mutex::default(),
            logged: 0.into(),
            is_over: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            let shared = &shared;
            let writers: Vec<_> =
                (0..4).map(|thread| scope.spawn(move || shared.write(thread, 40))).collect();
            scope.spawn(move || {
                for round in 0.. {
                    if shared.is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros((seed * 7 + round * 613) % 3000));
                    shared.world.pool.open_next();
                    shared.world.pool.sync();
                    if suspends && round % 4 == 0 {
                        shared.world.zil.kind().suspend(&shared.world.pool).unwrap();
                        shared.world.zil.kind().resume(&shared.world.pool).unwrap();
                    }
                }
            });
            let looker = scope.spawn(move || {
                let mut round = seed;
                while !shared.is_over.load(Ordering::SeqCst) {
                    round += 1;
                    shared.look(round);
                }
            });
            let results: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            shared.is_over.store(true, Ordering::SeqCst);
            looker.join().unwrap();
            results.into_iter().for_each(|result| result.unwrap());
        });
        shared.look(seed);
        let kind = shared.world.zil.kind();
        kind.suspend(&shared.world.pool).unwrap();
        assert_eq!(kind.pending_entries(), 0);
        assert_eq!(shared.rig.space.used_bytes(), 0, "nothing leaks");
        shared.logged.into_inner()
    }
}

#[test]
fn threads_lose_nothing_at_any_moment() {
    for seed in 0..6 {
        assert!(Shared::run(FaultPlan::new(seed), seed, false) > 40);
    }
}

/// 7: suspends beside commits.
#[test]
fn threads_lose_nothing_while_the_log_is_suspended_and_resumed() {
    for seed in 0..4 {
        assert!(Shared::run(FaultPlan::new(seed), seed, true) > 0);
    }
}

/// 1 and 4: writes that fail now and then.
#[test]
fn threads_lose_nothing_on_a_device_whose_writes_fail() {
    for seed in 0..6 {
        let plan = FaultPlan::new(seed).rule(On::Writes, When::PerMillion(50_000), Fault::Errno(5));
        assert!(Shared::run(plan, seed, false) > 0);
    }
}

fn fails(operation: Operation, when: When) -> FaultPlan {
    FaultPlan::new(3).rule(On::Only(operation), when, Fault::Errno(5))
}

/// 1, 2 and 4: the error reaches who waits for the record, whoever wrote it, and who needs it later; all wait
/// for the txg. The next txg brings a new chain.
#[test]
fn a_write_error_reaches_every_waiter_and_they_fall_back_to_the_txg() {
    let rig = LwbRig::new(DISK_BYTES, fails(Operation::Write, When::Nth(2)));
    let world = rig.world(objects());
    world.change(&write(1, 0));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    world.pool.0.is_suspended.store(true, Ordering::SeqCst);
    world.change(&write(1, 1));
    assert!(world.zil.commit(ObjectId(1)).is_err());
    // With nothing new, and of another object.
    assert!(world.zil.commit(ObjectId(1)).is_err());
    world.change(&write(2, 0));
    assert!(world.zil.commit(ObjectId(2)).is_err());
    assert_eq!(world.zil.kind().refusal(), Some(LogCause::Failed));
    assert!(world.zil.kind().last_error().is_some());
    world.pool.0.is_suspended.store(false, Ordering::SeqCst);
    let txg = world.pool.tx().txg;
    assert_eq!(world.zil.commit(ObjectId(2)).unwrap(), Committed::Synced(txg));
    world.change(&write(1, 2));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged, "a new chain");
    let crashed = rig.crash(&world);
    assert_eq!(crashed.replay().unwrap().records, 1);
    assert_eq!(crashed.pool.contents(DATASET), world.pool.contents(DATASET));
}

/// Two commits wait for one block whose write fails.
#[test]
fn a_failed_write_is_told_to_both_of_two_commits() {
    for seed in 0..20 {
        let rig = LwbRig::new(DISK_BYTES, fails(Operation::Write, When::From(1)));
        let world = rig.world(objects());
        world.pool.0.is_suspended.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for object in 1..=3 {
                let world = &world;
                scope.spawn(move || {
                    world.change(&write(object, seed));
                    assert!(world.zil.commit(ObjectId(object)).is_err());
                });
            }
        });
        assert_eq!(world.zil.stats().snapshot().errors, 3);
    }
}

/// 3: a good write and a bad flush.
#[test]
fn a_flush_that_fails_is_never_an_acknowledgement() {
    let rig = LwbRig::new(DISK_BYTES, fails(Operation::Flush, When::Nth(2)));
    let world = rig.world(objects());
    world.change(&write(1, 0));
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    for nth in 1..20 {
        world.change(&write(1, nth));
        let committed = world.zil.commit(ObjectId(1)).unwrap();
        assert!(matches!(committed, Committed::Synced(_)), "{nth}: the device stays poisoned");
        let crashed = rig.crash(&world);
        crashed.replay().unwrap();
        assert_eq!(crashed.pool.contents(DATASET), world.pool.contents(DATASET));
    }
    // A volume, too.
    world.volume_write(2, 0, &[1; 8]);
    assert!(matches!(world.zil.flush().unwrap(), Committed::Synced(_)));
    assert!(matches!(world.volume_write_fua(2, 0, &[2; 8]).unwrap(), Committed::Synced(_)));
    assert_eq!(world.zil.stats().snapshot().fallbacks_of(LogCause::Failed), 1 + 19 + 1);
}

/// A device that is gone costs commits their speed, and nothing else; when it is back, so is the log.
#[test]
fn a_device_that_vanishes_and_comes_back() {
    let rig = LwbRig::new(DISK_BYTES, FaultPlan::new(1));
    let world = rig.world(objects());
    for (nth, is_there) in [true, false, false, true, true].into_iter().enumerate() {
        if is_there {
            rig.disk.come_back();
        } else {
            rig.disk.vanish();
        }
        world.pool.sync();
        world.change(&write(1, nth));
        let committed = world.zil.commit(ObjectId(1)).unwrap();
        assert_eq!(committed == Committed::Logged, is_there, "{nth}");
        world.pool.sync();
    }
    assert!(rig.disk.flush().is_ok());
}

/// A long write of which some could not be read back: what was appended is not appended again.
#[test]
fn a_read_back_that_fails_over_and_over_takes_no_memory() {
    let rig = LwbRig::new(8 << 20, FaultPlan::new(1));
    let world = rig.world(Contents::volume(1, 300 << 10));
    let data = vec![7; 300 << 10];
    world.change_without_copy(1, 0, &data);
    world.pool.fail_read_backs_from(Some(200 << 10));
    world.pool.0.is_suspended.store(true, Ordering::SeqCst);
    for _ in 0..50 {
        assert!(world.zil.commit(ObjectId(1)).is_err());
    }
    world.pool.fail_read_backs_from(None);
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
    assert!(world.zil.kind().chain().status().block_bytes < 400 << 10);
    world.pool.0.is_suspended.store(false, Ordering::SeqCst);
    let crashed = rig.crash(&world);
    crashed.replay().unwrap();
    assert!(crashed.pool.contents(DATASET).objects[&1] == data);
}

/// 5 and 16: claim reports what is damaged, with what can be done; two datasets with one chain.
#[test]
fn damage_is_reported_and_the_operator_chooses() {
    let rig = LwbRig::new(DISK_BYTES, FaultPlan::new(1));
    let world = rig.world(objects());
    for nth in 0..5 {
        world.change(&write(1, nth));
        world.zil.commit(ObjectId(1)).unwrap();
    }
    let disk = world.pool.disk();
    let mut image = rig.disk.inner().image();
    let text = image.to_vec();
    // The third record's block: later ones say that it was durable.
    let Op::Write(_, _, third) = write(1, 2) else { unreachable!() };
    let at = text.windows(8).position(|bytes| bytes == third).unwrap() as u64;
    image.write(at, &[0xee]);
    let problem = LwbRig::of(image.clone(), FaultPlan::new(1), 1).import(disk.clone()).err().unwrap();
    assert!(
        matches!(problem.cause, ClaimCause::Chain(_)) && problem.kind() == ErrorKind::Corrupt,
        "{problem}"
    );
    let damaged = LwbRig::of(image, FaultPlan::new(1), 1);
    let mut summaries = Vec::new();
    let world = World::imported(disk.clone(), |pool, first, headers| {
        let (logs, found) = damaged.claim(pool, first, headers, &mut |_| Some(Choice::DropTail))?;
        summaries = found;
        Ok(logs)
    });
    assert_eq!(world.unwrap().replay().unwrap().records, 2);
    assert!(summaries[0].loss.is_some() && summaries[0].records == 2);
    // A damaged header, and one of another kind.
    for (at, kind) in [(40, ErrorKind::Corrupt), (2, ErrorKind::Invalid)] {
        let mut bad = disk.clone();
        bad.headers.0.get_mut(&DATASET).unwrap()[at] ^= 3;
        let problem = rig.crashed().import(bad.clone()).err().unwrap();
        assert_eq!(problem.kind(), kind, "{problem}");
        let world = World::imported(bad, |pool, first, headers| {
            let choose = &mut |_: &ClaimProblem| Some(Choice::DropTail);
            rig.crashed().claim(pool, first, headers, choose).map(|(logs, _)| logs)
        });
        assert_eq!(world.unwrap().replay().unwrap().records, 0);
    }
    let mut twice = disk;
    twice.contents.insert(DatasetId(8), objects());
    let header = twice.headers.0[&DATASET].clone();
    twice.headers.0.insert(DatasetId(8), header);
    let problem = rig.crashed().import(twice).err().unwrap();
    assert_eq!(problem.dataset, DatasetId(8));
}

/// What claim has found is kept while txgs pass, until it is replayed, or given up, or goes with its dataset.
#[test]
fn claimed_blocks_are_held_until_no_durable_header_names_them() {
    let rig = LwbRig::new(DISK_BYTES, FaultPlan::new(1));
    let world = rig.world(objects());
    world.change(&write(1, 0));
    world.zil.commit(ObjectId(1)).unwrap();
    for end in 0..3 {
        let rig = rig.crashed();
        let world = rig.import(world.pool.disk()).unwrap();
        world.pool.sync();
        world.pool.sync();
        let held = rig.space.used_bytes();
        assert!(held > 0);
        let again = rig.crash(&world);
        assert_eq!(
            again.zil.kind().unreplayed_records(),
            1,
            "of a txg that had not synced at the first crash"
        );
        world.pool.open_next();
        match end {
            0 => drop(world.replay().unwrap()),
            1 => assert_eq!(world.zil.kind().drop_tail(&world.pool).unwrap(), 1),
            _ => world.logs.destroy(&world.pool, &world.pool.tx(), DATASET).unwrap(),
        }
        world.pool.sync();
        assert_eq!(rig.space.used_bytes(), held, "the header of the last txg names them");
        world.pool.sync();
        let chain = world.zil.kind().chain().extents();
        let used: u64 = chain.iter().map(|extent| u64::from(extent.len_bytes)).sum();
        assert_eq!(rig.space.used_bytes(), used);
        assert_eq!(used == 0, end == 2);
    }
}

/// A log has no header before its dataset is there, and is not written to before it has one. A txg that the
/// pool could not sync is asked for again, and gets its headers again; what is durable is not stored again.
#[test]
fn headers_are_stored_with_the_right_txg_and_until_they_are_durable() {
    let rig = LwbRig::new(DISK_BYTES, FaultPlan::new(1));
    let pool = PoolRef::new(Disk { synced: 4, ..Disk::default() });
    let logs = LwbLogs::new(Arc::clone(&rig.space), Txg(4));
    pool.open_next();
    let log = logs.create(&pool, &pool.tx(), DATASET).unwrap();
    let stored = |txg: u64| {
        let mut stored = Vec::new();
        logs.sync(Txg(txg), &mut |dataset, header| stored.push((dataset, header.unwrap().to_vec())));
        stored
    };
    assert_eq!(stored(5), []);
    logs.txg_synced(Txg(5));
    assert_eq!(log.refusal(), Some(LogCause::Starting));
    let first = stored(6);
    assert_eq!((first.len(), stored(6)), (1, first));
    logs.txg_synced(Txg(6));
    assert_eq!((stored(7), log.refusal()), (vec![], None));
    logs.txg_synced(Txg(7));
}

/// Volumes: nothing is written before a flush, and then it is read back; a write with FUA is copied.
#[test]
fn a_volume_writes_at_its_flush() {
    let rig = LwbRig::new(DISK_BYTES, FaultPlan::new(1));
    let world = rig.world(objects());
    let operations = rig.disk.op_count();
    for nth in 0..10usize {
        assert!(world.volume_write(1, nth * 8, &[1; 8]).1);
    }
    assert_eq!(rig.disk.op_count(), operations);
    assert_eq!(world.zil.flush().unwrap(), Committed::Logged);
    let flushed = rig.crash(&world);
    assert_eq!(flushed.replay().unwrap().records, 10);
    assert_eq!(world.volume_write_fua(1, 800, &[2; 8]).unwrap(), Committed::Logged);
    let stats = world.zil.stats().snapshot();
    assert_eq!((stats.assigned[0], stats.assigned[1], stats.bypass_records), (1, 10, 0));
    let crashed = rig.crash(&world);
    assert_eq!(crashed.replay().unwrap().records, 11);
    assert_eq!(crashed.pool.contents(DATASET), world.pool.contents(DATASET));
}

fn assign_indirect<L: Logs>(world: &World<L>) {
    let tx = world.pool.tx();
    let data = record::WriteData::Indirect { len_bytes: 4096, address: &[3; 32] };
    let write = record::Record::Write(record::Write { offset: 0, data });
    world.zil.assign(tx.txg, Itx::sync(ObjectId(1), &write, &[]));
    drop(tx);
    assert_eq!(world.zil.commit(ObjectId(1)).unwrap(), Committed::Logged);
}

/// A record whose data is elsewhere, where nobody has it: of kind lwb the claim says so, of kind pmem, which
/// has no such records, replay does.
#[test]
fn a_record_whose_data_nobody_has_is_damage() {
    let rig = LwbRig::new(DISK_BYTES, FaultPlan::new(1));
    let world = rig.world(objects());
    world.change(&write(1, 7));
    world.zil.commit(ObjectId(1)).unwrap();
    assign_indirect(&world);
    let disk = world.pool.disk();
    let problem = rig.crashed().import(disk.clone()).map(drop).unwrap_err();
    assert_eq!(problem.kind(), ErrorKind::Corrupt);
    assert!(problem.to_string().contains("the data of record 2 cannot be had"), "{problem}");
    let tail = |pool: &PoolRef, first, headers| {
        let choose = &mut |_: &ClaimProblem| Some(Choice::DropTail);
        rig.crashed().claim(pool, first, headers, choose).map(|(logs, _)| logs)
    };
    let kept = World::imported(disk, tail).unwrap();
    assert_eq!(kept.replay().unwrap().records, 1, "what is before it");

    let rig = PmRig::roomy();
    let world = rig.world(objects());
    assign_indirect(&world);
    let disk = world.pool.disk();
    let failure = rig.crashed().import(disk).unwrap().replay().unwrap_err();
    assert!(matches!(failure.cause, ReplayCause::Elsewhere), "{failure:?}");
    assert_eq!(failure.kind(), ErrorKind::Corrupt);
}
