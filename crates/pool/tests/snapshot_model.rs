//! Seeded simulation of snapshots and clones: random writes, discards and sizes, snapshots, clones,
//! rollbacks, promotions, receiving, destruction, in one txg or in two that are open at one time; the power
//! fails at a random operation of a device, and the pool is imported again.
//!
//! What must hold: after a crash the pool is as one txg left it, with whole snapshots of exactly what their
//! volumes were; the full check finds nothing wrong at any txg; when all is destroyed, no space is in use.
//!
//! `FASTNESS_SNAPSHOT_SEEDS=FROM..TO` runs others than the default 0..40; one seed is one schedule.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_pool::{
    DatasetId, DatasetKind, Guid, ObjectId, Pool, PoolError, PoolOptions, Property, RECEIVED, Result, Tx,
    Txg, VdevSpec,
};
use support::{Rig, Rng, host, manual};

const DATA: ObjectId = ObjectId(1);
const ROUNDS: u64 = 5;
const SIZE_MAX: u64 = 300 * 4096;

/// Volumes and snapshots by name: number, bytes.
type Model = BTreeMap<String, Entry>;
type Entry = (DatasetId, Vec<u8>);

struct World {
    rig: Arc<Rig>,
    pool: Pool,
    rng: Rng,
    model: Model,
    /// What may be found after a crash: by the first txg that is so.
    history: BTreeMap<Txg, Model>,
    /// A clone that is being promoted, its number then, and the model then.
    promoting: Option<(String, DatasetId, Model)>,
    /// A snapshot that is being received, and the model then.
    arriving: Option<(String, Model)>,
    met: Met,
}

/// What a run has met, so that none of it is left out unnoticed.
#[derive(Debug, Default)]
struct Met {
    snapshots: u64,
    clones: u64,
    rollbacks: u64,
    promoted: u64,
    received: u64,
    crashes: u64,
    older: u64,
    gone: u64,
    no_space: u64,
}

impl Met {
    fn add(&mut self, other: &Met) {
        self.snapshots += other.snapshots;
        self.clones += other.clones;
        self.rollbacks += other.rollbacks;
        self.promoted += other.promoted;
        self.received += other.received;
        self.crashes += other.crashes;
        self.older += other.older;
        self.gone += other.gone;
        self.no_space += other.no_space;
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FASTNESS_SNAPSHOT_SEEDS") else { return 0..40 };
    let (from, to) = text.split_once("..").expect("FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

fn options(seed: u64) -> PoolOptions {
    PoolOptions { frees_per_txg: [1, 3, 20, 4096][seed as usize % 4], ..manual() }
}

fn is_snapshot(name: &str) -> bool {
    name.contains('@')
}

impl World {
    fn pick(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let names: Vec<&String> = self.model.keys().filter(|name| wanted(name)).collect();
        let at = self.rng.below(names.len().max(1) as u64) as usize;
        names.get(at).map(|name| (*name).clone())
    }

    fn fresh_name(&mut self, prefix: &str) -> Option<String> {
        let name = format!("{prefix}{}", self.rng.below(30));
        (!self.model.contains_key(&name)).then_some(name)
    }

    fn create(&mut self, tx: &Tx) -> Result<()> {
        let Some(name) = self.fresh_name("tank/v") else { return Ok(()) };
        let block = [512, 4096, 4096, 16384][self.rng.below(4) as usize];
        let compression = (Property::Compression, self.rng.below(2));
        let own = [(Property::VolBlockSize, block), compression];
        let dataset = self.pool.create_dataset(tx, &name, DatasetKind::Volume, &own)?;
        let object = match dataset.create_object(tx) {
            Ok(object) => object,
            Err(error) => {
                self.pool.destroy_dataset(tx, &name)?;
                return Err(error);
            }
        };
        assert_eq!(object.id(), DATA);
        self.model.insert(name, (dataset.id(), Vec::new()));
        Ok(())
    }

    fn snapshot(&mut self, tx: &Tx) -> Result<()> {
        let made = snapshot(&self.pool, tx, &mut self.model, &mut self.rng)?;
        self.met.snapshots += u64::from(made.is_some());
        Ok(())
    }

    fn make_clone(&mut self, tx: &Tx) -> Result<()> {
        let Some(from) = self.pick(is_snapshot) else { return Ok(()) };
        let Some(name) = self.fresh_name("tank/c") else { return Ok(()) };
        match self.pool.clone_snapshot(tx, &from, &name, &[]) {
            Err(PoolError::Busy { why: "it is being made", .. }) => Ok(()),
            made => {
                let bytes = self.model[&from].1.clone();
                self.model.insert(name, (made?.id(), bytes));
                self.met.clones += 1;
                Ok(())
            }
        }
    }

    fn destroy(&mut self, tx: &Tx) -> Result<()> {
        let Some(name) = self.pick(|_| true) else { return Ok(()) };
        match self.pool.destroy_dataset(tx, &name) {
            Err(PoolError::Busy { .. }) => {
                let has_snapshots = self.model.keys().any(|other| other.starts_with(&format!("{name}@")));
                assert!(has_snapshots, "{name} is not in use");
            }
            Err(PoolError::HasClones { .. }) => {}
            result => {
                result?;
                self.model.remove(&name);
                self.met.gone += 1;
            }
        }
        Ok(())
    }

    /// Changes no snapshot of the txg after this. Returns whether the power is still there.
    fn sync(&mut self) -> bool {
        let txg = self.pool.open_txg();
        fill_in(&self.pool, txg, &mut self.model);
        self.history.insert(txg, self.model.clone());
        let synced = self.pool.sync();
        self.rig.check(synced).is_some()
    }

    fn roll_back(&mut self) -> bool {
        let Some(name) = self.pick(is_snapshot) else { return true };
        let is_new =
            self.pool.snapshots().iter().any(|info| info.name == name && info.txg >= self.pool.open_txg());
        if is_new {
            return true;
        }
        let first = self.pool.open_txg();
        fill_in(&self.pool, first, &mut self.model);
        self.history.insert(first, self.model.clone());
        let mut then = self.model.clone();
        let volume = name.split('@').next().unwrap().to_owned();
        let (id, bytes) = (self.model[&volume].0, self.model[&name].1.clone());
        then.insert(volume.clone(), (id, bytes));
        let at = self.model[&name].0;
        then.retain(|other, (id, _)| !other.starts_with(&format!("{volume}@")) || *id <= at);
        self.history.insert(Txg(first.0 + 1), then.clone());
        match self.pool.rollback(&name, true) {
            Err(PoolError::HasClones { .. } | PoolError::NoSpace { .. }) => {
                self.history.remove(&Txg(first.0 + 1));
                true
            }
            result => {
                if self.rig.check(result).is_none() {
                    return false;
                }
                self.model = then;
                self.met.rollbacks += 1;
                true
            }
        }
    }

    /// A clone changes places with its volume. Returns whether the power is still there.
    fn promote(&mut self) -> bool {
        let Some(name) = self.pick(|name| !is_snapshot(name)) else { return true };
        let clone = self.pool.dataset(&name).unwrap();
        let Some(origin) = clone.origin() else { return true };
        let snapshots = self.pool.snapshots();
        let at = snapshots.iter().find(|info| info.name == origin).unwrap().txg;
        let first = self.pool.open_txg();
        fill_in(&self.pool, first, &mut self.model);
        self.history.insert(first, self.model.clone());
        let volume = origin.split('@').next().unwrap().to_owned();
        let mut then = self.model.clone();
        let (of_volume, of_clone) = (then[&volume].0, then[&name].0);
        then.get_mut(&volume).unwrap().0 = of_clone;
        then.get_mut(&name).unwrap().0 = of_volume;
        let of_volume_alone =
            |info: &&fastness_pool::SnapshotInfo| info.name.starts_with(&format!("{volume}@"));
        for info in snapshots.iter().filter(of_volume_alone).filter(|info| info.txg <= at) {
            let entry = then.remove(&info.name).unwrap();
            let is_double = then.insert(info.name.replacen(&volume, &name, 1), entry).is_some();
            if is_double {
                let refused = self.pool.promote(&name, |_| false);
                assert!(
                    matches!(
                        refused,
                        Err(PoolError::Exists(_))
                            | Err(PoolError::Busy { why: "it is being made", .. })
                            | Err(PoolError::Device(_))
                            | Err(PoolError::Suspended { .. })
                    ),
                    "{refused:?}"
                );
                return self.rig.check(refused.or(Ok::<_, PoolError>(first))).is_some()
                    && !self.pool.is_suspended();
            }
        }
        drop(clone);
        self.promoting = Some((name.clone(), of_volume, then.clone()));
        match self.pool.promote(&name, |_| false) {
            Err(PoolError::NoSpace { .. } | PoolError::Busy { why: "it is being made", .. }) => {
                self.promoting = None;
                true
            }
            result => {
                if self.rig.check(result).is_none() {
                    return false;
                }
                self.promoting = None;
                self.model = then.clone();
                self.history.insert(self.pool.synced_txg(), then);
                self.met.promoted += 1;
                true
            }
        }
    }

    /// A volume gets an increment on one of its snapshots. Returns whether the power is still there.
    fn receive(&mut self) -> bool {
        let Some(on) = self.pick(is_snapshot) else { return true };
        let volume = on.split('@').next().unwrap().to_owned();
        let Some(name) = self.fresh_name(&format!("{volume}@r")) else { return true };
        if !self.sync() {
            return false;
        }
        let mut bytes = self.model[&on].1.clone();
        let made = self.pool.transact(|tx| self.pool.receive_onto(tx, &on));
        if matches!(made, Err(PoolError::NoSpace { .. })) {
            return true;
        }
        if self.rig.check(made).is_none() || !self.sync() {
            return false;
        }
        let received = format!("{volume}/{RECEIVED}");
        let mut is_full = false;
        let object = self.pool.dataset(&received).unwrap().object(DATA).unwrap();
        for _ in 0..self.rng.below(6) {
            let (offset, len) = (self.rng.below(SIZE_MAX), self.rng.below(60_000) as usize + 1);
            let data = self.rng.bytes(len);
            let is_cut = self.rng.below(3) == 0;
            let Ok(tx) = self.pool.begin_tx() else { return false };
            let done = match is_cut {
                true => object.punch(&tx, offset, len as u64),
                false => object.write(&tx, offset, &data),
            };
            drop(tx);
            match done {
                Err(PoolError::NoSpace { .. }) => is_full = true,
                Ok(()) if is_cut => {
                    let end = bytes.len().min(offset as usize + len);
                    bytes.get_mut(offset as usize..end).into_iter().for_each(|part| part.fill(0));
                }
                done => {
                    if self.rig.check(done).is_none() {
                        return false;
                    }
                    let end = offset as usize + len;
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[offset as usize..end].copy_from_slice(&data);
                }
            }
        }
        drop(object);
        let is_forced = self.rng.below(3) > 0;
        let mut then = self.model.clone();
        let at = self.model[&on].0;
        then.retain(|other, (id, _)| !other.starts_with(&format!("{volume}@")) || *id <= at);
        then.get_mut(&volume).unwrap().1.clone_from(&bytes);
        let next = DatasetId(self.pool.dataset(&received).unwrap().id().0 + 1);
        then.insert(name.clone(), (next, bytes));
        if !is_full {
            self.arriving = Some((name.clone(), then.clone()));
            match self.pool.absorb(&name, Guid(7), is_forced) {
                Err(PoolError::NotNewest { .. } | PoolError::ChangedSince(_)) if !is_forced => {}
                Err(PoolError::HasClones { .. } | PoolError::NoSpace { .. }) => {}
                result => {
                    if self.rig.check(result).is_none() {
                        return false;
                    }
                    self.arriving = None;
                    self.model = then.clone();
                    self.history.insert(self.pool.synced_txg(), then);
                    self.met.received += 1;
                    return true;
                }
            }
            self.arriving = None;
        }
        let gone = self.pool.transact(|tx| self.pool.destroy_dataset(tx, &received));
        self.rig.check(gone).is_some() && self.sync()
    }

    /// One operation; false: the power is gone.
    fn step(&mut self) -> bool {
        let tx = match self.pool.begin_tx() {
            Ok(tx) => tx,
            Err(_) => return false,
        };
        let done = match self.rng.below(100) {
            0..6 => self.create(&tx),
            6..16 => self.snapshot(&tx),
            16..20 => self.make_clone(&tx),
            20..27 => self.destroy(&tx),
            27..30 => {
                drop(tx);
                return self.roll_back();
            }
            30..34 => {
                drop(tx);
                return self.promote();
            }
            34..37 => {
                drop(tx);
                return self.receive();
            }
            _ => change(&self.pool, &tx, &mut self.model, None, &mut self.rng),
        };
        drop(tx);
        self.settle_step(done)
    }

    fn settle_step(&mut self, done: Result<()>) -> bool {
        if matches!(done, Err(PoolError::NoSpace { .. })) {
            self.met.no_space += 1;
            return true;
        }
        self.rig.check(done).is_some()
    }

    /// Operations in two txgs at one time, the older of which then syncs.
    fn overlap(&mut self) -> bool {
        let Ok(old) = self.pool.begin_tx() else { return false };
        let World { rig, pool, model, rng, met, .. } = self;
        let (txg, mut older) = (old.txg(), model.clone());
        let synced = std::thread::scope(|scope| {
            let sync = scope.spawn(|| pool.sync());
            // It waits for the old transaction and does no I/O before that ends: the schedule is the seed's.
            while pool.open_txg() == txg {
                std::thread::yield_now();
            }
            let new = pool.begin_tx().unwrap();
            for _ in 0..rng.below(12) {
                let done = match (rng.below(8), rng.below(2)) {
                    (0, 0) => snapshot(pool, &old, model, rng).map(|made| {
                        older.extend(made);
                    }),
                    (0, _) => snapshot(pool, &new, model, rng).map(drop),
                    (_, 0) => change(pool, &old, model, Some(&mut older), rng),
                    _ => change(pool, &new, model, None, rng),
                };
                match done {
                    Err(PoolError::NoSpace { .. }) => met.no_space += 1,
                    Err(PoolError::Overtaken { .. }) => {}
                    done => drop(rig.check(done)),
                }
            }
            drop((new, old));
            sync.join().expect("a sync does not panic")
        });
        // Snapshots of the older txg show what it left.
        fill_in(&self.pool, txg, &mut older);
        for info in self.pool.snapshots().into_iter().filter(|info| info.txg == txg) {
            self.model.get_mut(&info.name).unwrap().1.clone_from(&older[&info.name].1);
        }
        self.history.insert(txg, older);
        self.met.older += 1;
        self.rig.check(synced).is_some()
    }

    fn compare(&self) {
        for (name, (id, bytes)) in &self.model {
            let dataset = self.pool.dataset(name).unwrap();
            assert_eq!(dataset.id(), *id, "{name}");
            let object = match dataset.object(DATA) {
                Err(PoolError::NoObject { .. }) => panic!("{name} has no data"),
                object => object.unwrap(),
            };
            assert_eq!(object.size_bytes(), bytes.len() as u64, "size of {name}");
            let mut found = vec![0xaa; bytes.len()];
            object.read(0, &mut found).unwrap();
            if let Some(at) = found.iter().zip(bytes).position(|(a, b)| a != b) {
                panic!("{name} ({id}) differs at byte {at}: {} instead of {}", found[at], bytes[at]);
            }
        }
        let count = self.pool.datasets().len() - 1 + self.pool.snapshots().len();
        assert_eq!(count, self.model.len(), "none is left over");
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    fn work(&mut self) {
        self.history = [(self.pool.synced_txg(), self.model.clone())].into();
        if self.rng.below(3) > 0 {
            let at = self.rig.ops.load(Ordering::SeqCst) + self.rng.below(600);
            self.rig.cut_at.store(at, Ordering::SeqCst);
        }
        for _ in 0..self.rng.below(10) + 1 {
            for _ in 0..self.rng.below(15) {
                if !self.step() {
                    return;
                }
            }
            let is_overlapping = self.rng.below(3) == 0;
            if !(if is_overlapping { self.overlap() } else { self.sync() }) {
                return;
            }
            if self.rng.below(3) == 0 {
                if !self.sync() {
                    return;
                }
                self.compare();
            }
        }
    }

    /// The power fails, or the process ends; the pool is imported again.
    fn crash(mut self, seed: u64) -> World {
        self.met.crashes += u64::from(self.rig.devices[0].is_power_cut());
        let images = self.rig.crash(seed);
        drop(self.pool);
        let rig = Rig::new(images, seed);
        let pool = Pool::import(&rig.all(), &host(), options(seed)).unwrap();
        let synced = pool.synced_txg();
        let (_, model) = self.history.range(..=synced).next_back().unwrap();
        let mut model = model.clone();
        // How many txgs a promotion waits for is not known before; that it is whole is compared.
        if let Some((name, id, then)) = self.promoting.take()
            && pool.dataset(&name).is_ok_and(|clone| clone.id() == id)
        {
            model = then;
        }
        if let Some((_, then)) = self.arriving.take().filter(|(name, _)| pool.dataset(name).is_ok()) {
            model = then;
        }
        drop_received(&pool);
        World { rig, pool, model, ..self }
    }

    /// Destroys everything: no space is in use then.
    fn end(&mut self) {
        self.rig.cut_at.store(u64::MAX, Ordering::SeqCst);
        while !self.model.is_empty() {
            for name in self.model.keys().cloned().collect::<Vec<_>>() {
                let tx = self.pool.begin_tx().unwrap();
                if self.pool.destroy_dataset(&tx, &name).is_ok() {
                    self.model.remove(&name);
                }
            }
            self.pool.sync().unwrap();
        }
        let mut last = self.pool.check().unwrap();
        while self.pool.is_freeing() {
            self.pool.sync().unwrap();
            last = self.pool.check().unwrap();
            assert!(last.is_clean(), "{last:?}");
        }
        assert_eq!((last.referenced_units, last.rows), (0, 0));
    }
}

/// What was being received in a crash goes.
fn drop_received(pool: &Pool) {
    for info in pool.datasets().into_iter().filter(|info| info.kind == DatasetKind::Receiving) {
        pool.transact(|tx| pool.destroy_dataset(tx, &info.name)).unwrap();
    }
    pool.sync().unwrap();
}

/// Makes a snapshot of some volume. What it shows is filled in when its txg ends.
fn snapshot(pool: &Pool, tx: &Tx, model: &mut Model, rng: &mut Rng) -> Result<Option<(String, Entry)>> {
    let volumes: Vec<&String> = model.keys().filter(|name| !is_snapshot(name)).collect();
    if volumes.is_empty() {
        return Ok(None);
    }
    let name = format!("{}@s{}", volumes[rng.below(volumes.len() as u64) as usize], rng.below(30));
    if model.contains_key(&name) {
        return Ok(None);
    }
    let entry = (name.clone(), (pool.snapshot(tx, &name)?.id(), Vec::new()));
    model.extend([entry.clone()]);
    Ok(Some(entry))
}

/// Snapshots of a txg show their volumes as they are.
fn fill_in(pool: &Pool, txg: Txg, model: &mut Model) {
    for info in pool.snapshots().into_iter().filter(|info| info.txg == txg) {
        let bytes = model[info.name.split('@').next().unwrap()].1.clone();
        model.get_mut(&info.name).unwrap().1 = bytes;
    }
}

/// Changes the bytes of some volume, and those of the model of an older txg if the transaction is of that.
fn change(pool: &Pool, tx: &Tx, model: &mut Model, older: Option<&mut Model>, rng: &mut Rng) -> Result<()> {
    let volumes: Vec<&String> = model.keys().filter(|name| !is_snapshot(name)).collect();
    if volumes.is_empty() {
        return Ok(());
    }
    let name = volumes[rng.below(volumes.len() as u64) as usize].clone();
    let unit = [1, 512, 4096, 16384][rng.below(4) as usize];
    let offset = rng.below(SIZE_MAX / unit) * unit;
    let (id, roll) = (model[&name].0, rng.below(10));
    let (long, short) = (rng.below(200_000) + 1, rng.below(20_000) + 1);
    let data = rng.bytes(if roll < 2 { long } else { short } as usize);
    let cleared = rng.below(SIZE_MAX);
    let object = match pool.dataset_by_id(id)?.object(DATA) {
        // A clone that is not synced yet.
        Err(PoolError::NoObject { .. }) => return Ok(()),
        object => object?,
    };
    match roll {
        0..6 => object.write(tx, offset, &data)?,
        6 => object.truncate(tx, offset)?,
        _ => object.punch(tx, offset, cleared)?,
    }
    let apply = |bytes: &mut Vec<u8>| {
        let (at, len) = (offset as usize, bytes.len());
        match roll {
            0..6 => {
                bytes.resize(len.max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(&data);
            }
            6 => bytes.resize(at, 0),
            _ if at < len => bytes[at..len.min(at + cleared as usize)].fill(0),
            _ => {}
        }
    };
    apply(&mut model.get_mut(&name).unwrap().1);
    if let Some((_, bytes)) = older.and_then(|model| model.values_mut().find(|(at, _)| *at == id)) {
        apply(bytes);
    }
    Ok(())
}

fn run(seed: u64) -> Met {
    let mut rng = Rng::new(seed ^ 0x5a_95);
    let rig = Rig::fresh(1, [12 << 20, 24 << 20, 64 << 20][rng.below(3) as usize], seed);
    let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], options(seed)).unwrap();
    let (model, history, met) = (Model::new(), BTreeMap::new(), Met::default());
    let mut world = World { rig, pool, rng, model, history, promoting: None, arriving: None, met };
    for round in 0..ROUNDS {
        world.work();
        world = world.crash(seed * ROUNDS + round);
        world.compare();
    }
    world.end();
    world.met
}

#[test]
fn snapshots_are_whole_and_exact_after_a_crash() {
    let (seeds, mut all) = (seeds(), Met::default());
    let half = |odd: u64| {
        let mut sum = Met::default();
        for seed in seeds.clone().filter(|seed| seed % 2 == odd) {
            match std::panic::catch_unwind(|| run(seed)) {
                Ok(met) => sum.add(&met),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                    panic!("seed {seed}: {text}");
                }
            }
        }
        sum
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(|| half(0)), scope.spawn(|| half(1))];
        // So that the message with the seed is this test's.
        threads
            .into_iter()
            .for_each(|it| all.add(&it.join().unwrap_or_else(|p| std::panic::resume_unwind(p))));
    });
    if seeds.end - seeds.start >= 40 {
        let Met { snapshots, clones, rollbacks, promoted, received, crashes, older, gone, no_space } = all;
        let met = [snapshots, clones, rollbacks, promoted, received, crashes, older, gone, no_space];
        assert!(met.iter().all(|count| *count >= 20), "{all:?}");
    }
}
