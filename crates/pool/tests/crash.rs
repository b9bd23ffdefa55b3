//! Seeded simulation: random operations and syncs, in one txg or in two that are open at one time; devices
//! that fail, lie and vanish; the power fails at a random write or flush; import; compare with what the last
//! synced txg should be. Again and again on the same images. Some pools are filled to the last byte, and some
//! free little in each txg; a scrub runs while txgs sync.
//!
//! What must hold: what was acknowledged is there. A txg that was not is there as a whole, and only if its
//! uberblock was being written, or not at all. On a mirror no fault of one side makes a sync fail. No sync
//! fails for lack of room, and in a full pool something can always be freed.
//!
//! `FASTNESS_POOL_SEEDS=FROM..TO` runs others than the default 0..200; one seed is one schedule.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastness_pool::{ErrorKind, ObjectId, Pool, PoolError, PoolOptions, Property, Txg};
use support::{
    Faults, History, Met, Model, Rig, Rng, Shape, compare_synced, free_some, host, manual, new_model,
    punch_odd, step_in, store_some,
};

const ROUNDS: u64 = 4;
/// Small, so that freed space is soon used again.
const LENS_BYTES: [u64; 3] = [9 << 20, 12 << 20, 24 << 20];

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_POOL_SEEDS") else { return 0..200 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

/// Some free little in each txg, so that it takes many.
fn options(seed: u64) -> PoolOptions {
    let frees_per_txg = [1, 3, 10, 4096][seed as usize % 4];
    PoolOptions { frees_per_txg, ..manual() }
}

struct World<'a> {
    met: &'a Met,
    shape: Shape,
    rig: Arc<Rig>,
    pool: Pool,
    rng: Rng,
    /// Draws what is stored ahead of its txg.
    stores: Rng,
    /// What can be seen.
    model: Model,
    acknowledged: Txg,
    /// What may be found after a crash now.
    history: History,
}

impl World<'_> {
    /// Leaves so little room that what is freed is needed again at once, or none at all.
    fn fill(&mut self) {
        let block = [512, 4096, 16 << 10, 128 << 10][self.rng.below(4) as usize];
        let tx = self.pool.begin_tx().unwrap();
        let root = self.pool.dataset("tank").unwrap();
        root.set(&tx, Property::RecordSize, Some(block)).unwrap();
        let object = root.create_object(&tx).unwrap();
        drop(tx);
        let mut bytes = Vec::new();
        let rest = if self.rng.below(2) == 0 { 0 } else { 300_000 + self.rng.below(1_000_000) };
        loop {
            let before = bytes.len();
            let tx = self.pool.begin_tx().unwrap();
            while self.pool.status().free_bytes > rest && bytes.len() < before + 262_144 {
                let part: Vec<u8> = (0..block).map(|_| self.rng.next() as u8).collect();
                if object.write(&tx, bytes.len() as u64, &part).is_err() {
                    break;
                }
                bytes.extend(part);
            }
            drop(tx);
            self.pool.sync().unwrap();
            if bytes.len() == before {
                break;
            }
        }
        assert_eq!(object.id(), ObjectId(1));
        let root = self.model.get_mut("tank").unwrap();
        root.properties.insert(Property::RecordSize, block);
        root.objects.insert(1, bytes);
        root.next = 2;
        self.acknowledged = self.pool.synced_txg();
    }

    fn uberblocks_begun(&self) -> u64 {
        let points = self.rig.devices.iter().map(|device| device.crash_points());
        points.flatten().filter(|(name, _)| *name == "sync_after_flush").map(|(_, count)| count).sum()
    }

    /// Some operations in the open txg; whether there was no room for one.
    fn steps(&mut self, count: u64) -> bool {
        let mut is_full = false;
        for _ in 0..count {
            let tx = self.pool.begin_tx().unwrap();
            let done = step_in(&self.pool, &tx, &mut self.model, None, &mut self.rng);
            is_full |= self.rig.check(done) == Some(false);
            drop(tx);
            if self.stores.below(3) == 0 {
                Met::note(&self.met.stored, store_some(&self.pool, &self.model, &mut self.stores));
            }
        }
        Met::note(&self.met.no_space, u64::from(is_full));
        is_full
    }

    /// Works until a sync fails or the steps are done.
    fn work(&mut self, faults: Faults) {
        self.history = [(self.acknowledged, self.model.clone())].into();
        for _ in 0..self.rng.below(8) + 1 {
            let count = self.rng.below(25);
            let is_full = self.steps(count);
            if !self.sync_some(faults) {
                break;
            }
            // In a pool that is full, what it accepts can be synced, and something can always be freed.
            if is_full && self.rng.below(2) == 0 {
                let tx = self.pool.begin_tx().unwrap();
                let count = self.rng.below(3000);
                let done = punch_odd(&self.pool, &tx, &mut self.model, count, &mut self.rng);
                self.rig.check(done);
                drop(tx);
                if !self.sync_some(faults) {
                    break;
                }
            }
            if is_full && self.rng.below(2) == 0 {
                let tx = self.pool.begin_tx().unwrap();
                let done = free_some(&self.pool, &tx, &mut self.model, &mut self.rng);
                self.rig.check(done);
                Met::note(&self.met.freed_when_full, 1);
            }
            if self.rng.below(3) == 0 {
                self.rig.devices.iter().for_each(|device| device.come_back());
            }
        }
        self.note_sides();
    }

    /// Syncs a txg, or two. False: it failed, as it may.
    fn sync_some(&mut self, faults: Faults) -> bool {
        let begun = self.uberblocks_begun();
        let (txg, result) = if self.rng.below(3) == 0 { self.sync_with_two_txgs() } else { self.sync() };
        match result {
            Ok(synced) => {
                assert_eq!(synced, txg);
                self.acknowledged = txg;
                self.history.retain(|other, _| *other >= txg);
                Met::note(&self.met.left_to_free, u64::from(self.pool.is_freeing()));
                true
            }
            Err(error) => {
                let is_cut = self.rig.devices[0].is_power_cut();
                let may_fail = is_cut || faults == Faults::Loud && !self.shape.is_mirrored();
                // After a failed write what is new goes to other vdevs, which may be too small for all of it.
                let is_short = error.kind() == ErrorKind::NoSpace && faults != Faults::Loud;
                assert!(may_fail && !is_short, "{faults:?}: {error:?}");
                Met::note(if is_cut { &self.met.cuts } else { &self.met.failed_syncs }, 1);
                let pool = &self.pool;
                assert!(pool.begin_tx().is_err() && pool.sync().is_err(), "a failed pool is suspended");
                if self.uberblocks_begun() == begun {
                    self.history.remove(&txg);
                }
                false
            }
        }
    }

    /// A scrub of a pool that goes on: txgs sync between its steps.
    fn scrub_beside(&mut self) {
        let World { met, pool, rng, model, .. } = self;
        let report = pool.scrub(|_| {
            if rng.below(3) == 0 {
                for _ in 0..rng.below(8) {
                    let tx = pool.begin_tx().unwrap();
                    step_in(pool, &tx, model, None, rng).unwrap();
                }
                pool.sync().unwrap();
                Met::note(&met.beside_scrubs, 1);
            }
            true
        });
        assert!(report.unwrap().lost.is_empty());
        self.acknowledged = self.pool.sync().unwrap();
    }

    fn note_sides(&self) {
        for (_, _, sides) in &self.pool.status().vdevs {
            Met::note(&self.met.healed, sides.iter().map(|side| side.errors.healed).sum());
            Met::note(&self.met.stale_sides, sides.iter().filter(|side| side.is_stale).count() as u64);
            assert!(sides.iter().any(|side| !side.is_stale), "a vdev keeps a current side");
        }
    }

    fn sync(&mut self) -> (Txg, Result<Txg, PoolError>) {
        let txg = self.pool.open_txg();
        self.history.insert(txg, self.model.clone());
        (txg, self.pool.sync())
    }

    /// Syncs a txg after more was done in it and in the next, in any order.
    fn sync_with_two_txgs(&mut self) -> (Txg, Result<Txg, PoolError>) {
        let World { met, rig, pool, model, rng, stores, .. } = self;
        let mut older = model.clone();
        let old = pool.begin_tx().unwrap();
        let txg = old.txg();
        let result = std::thread::scope(|scope| {
            let sync = scope.spawn(|| pool.sync());
            // It waits for the old transaction and does no I/O before that ends: the schedule is the seed's.
            while pool.open_txg() == txg {
                std::thread::sleep(Duration::from_micros(20));
            }
            let new = pool.begin_tx().unwrap();
            for _ in 0..rng.below(20) {
                if rng.below(2) == 0 {
                    match step_in(pool, &old, model, Some(&mut older), rng) {
                        Err(PoolError::Overtaken { .. }) => Met::note(&met.overtaken, 1),
                        other => drop(rig.check(other)),
                    }
                } else {
                    rig.check(step_in(pool, &new, model, None, rng));
                }
                if stores.below(3) == 0 {
                    Met::note(&met.stored, store_some(pool, model, stores));
                }
            }
            drop((new, old));
            sync.join().expect("a sync does not panic")
        });
        Met::note(&met.two_txgs, 1);
        self.history.insert(txg, older);
        (txg, result)
    }

    /// The power is gone; what the devices hold is imported, and compared.
    fn crash_and_import(self, seed: u64) -> Self {
        let World { met, shape, rig, pool, mut rng, stores, acknowledged, mut history, .. } = self;
        drop(pool);
        let mut images = rig.crash(rng.next());
        // An import that dies changes nothing that the next one needs.
        while rng.below(2) == 0 {
            let dying = Rig::new(images, seed);
            dying.cut_at.store(1 + rng.below(12), Ordering::SeqCst);
            let died = Pool::import(&dying.all(), &host(), options(seed));
            Met::note(&met.cuts_of_imports, u64::from(died.is_err()));
            drop(died);
            images = dying.crash(rng.next());
        }
        let rig = Rig::new(images, seed);
        let imported = Pool::import(&rig.all(), &host(), options(seed));
        let pool = imported.unwrap_or_else(|error| panic!("{error:?}"));
        let synced = pool.synced_txg();
        assert!(synced >= acknowledged, "{acknowledged} was acknowledged, {synced} found");
        Met::note(if synced == acknowledged { &met.found_last } else { &met.found_next }, 1);
        let model = history.remove(&synced);
        let model = model.unwrap_or_else(|| panic!("{synced} cannot have become durable"));
        compare_synced(&pool, &model);
        World { met, shape, rig, pool, rng, stores, model, acknowledged: synced, history: History::new() }
    }

    /// All copies are right, or become so.
    fn scrub(&mut self, faults: Faults) {
        let report = self.pool.scrub(|_| true).unwrap();
        assert!(report.lost.is_empty(), "{report:?}");
        if faults != Faults::Silent {
            assert_eq!(report.wrong_copies, 0, "a copy that is called current is not");
        }
        Met::note(&self.met.wrong_copies, report.wrong_copies);
        for (_, _, sides) in self.pool.status().vdevs {
            for side in sides.iter().filter(|side| side.is_stale) {
                if self.rng.below(2) == 0 {
                    self.pool.resilver(side.guid, |_| true).unwrap();
                    Met::note(&self.met.resilvers, 1);
                }
            }
        }
        assert_eq!(self.pool.scrub(|_| true).unwrap().wrong_copies, 0, "everything was healed");
        // What was healed is durable after a sync.
        self.acknowledged = self.pool.sync().unwrap();
    }
}

fn run(seed: u64, met: &Met) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let shape = Shape::ALL[rng.below(4) as usize];
    let rig = Rig::fresh(shape.count(), LENS_BYTES[rng.below(3) as usize], seed);
    let pool = Pool::create("tank", &shape.specs(rig.all()), options(seed)).unwrap();
    let acknowledged = pool.synced_txg();
    let (model, history) = (new_model(), History::new());
    let stores = Rng::new(!seed);
    let mut world = World { met, shape, rig, pool, rng, stores, model, acknowledged, history };
    if shape.count() < 4 && world.rig.devices[0].inner().image().len_bytes() < LENS_BYTES[2] {
        world.fill();
    }
    let mut trace = Vec::new();
    for round in 0..ROUNDS {
        let faults = Faults::draw(shape, &mut world.rng);
        faults.plant(&world.rig, shape, &world.pool, &mut world.rng);
        // With the power on, a fault has more time to do harm.
        if faults == Faults::None || world.rng.below(2) == 0 {
            let now = world.rig.ops.load(Ordering::SeqCst);
            world.rig.cut_at.store(now + 1 + world.rng.below(320), Ordering::SeqCst);
        }
        world.work(faults);
        trace.extend(world.rig.devices.iter().map(|device| device.op_count()));
        world = world.crash_and_import(seed + round + 1);
        trace.push(world.acknowledged.0);
        world.scrub(faults);
        world.scrub_beside();
    }
    trace
}

#[test]
fn a_crash_leaves_exactly_the_last_synced_txg() {
    let (seeds, met) = (seeds(), Met::default());
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(panic) = std::panic::catch_unwind(|| run(seed, &met)) {
                next.store(seeds.end, Ordering::Relaxed);
                let text = panic.downcast_ref::<String>().map(String::as_str);
                panic!("seed {seed}: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        // So that the message with the seed is this test's.
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
    });
    if seeds.end - seeds.start >= 200 {
        met.assert_all();
    }
}

#[test]
fn one_seed_is_one_schedule() {
    for seed in 3..9 {
        assert_eq!(run(seed, &Met::default()), run(seed, &Met::default()), "seed {seed}");
    }
}
