//! Seeded simulation of snapshots of file systems: rows of short and of long values, objects that come,
//! change and go, snapshots, rollbacks, destruction, in one txg or in two that are open at one time; the
//! power fails at a random operation of a device, and the pool is imported again.
//!
//! What must hold: after a crash the pool is as one txg left it, with whole snapshots of exactly what their
//! file systems were; the full check finds nothing wrong at any txg; when all is destroyed, no space is in
//! use.
//!
//! `FASTNESS_SNAPSHOT_SEEDS=FROM..TO` runs others than the default 0..40; one seed is one schedule.

mod support;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastness_pool::{
    DatasetId, DatasetKind, ObjectId, Pool, PoolError, PoolOptions, Property, Result, TableId, Tx, Txg,
    VdevSpec,
};
use support::{Rig, Rng, host, manual};

const ROUNDS: u64 = 5;
const SIZE_MAX: u64 = 150 * 4096;
const SHORT: TableId = TableId(2);
const LONG: TableId = TableId(128);

/// File systems and snapshots by name.
type Model = BTreeMap<String, Entry>;
type Entry = (DatasetId, Files);

/// What a file system has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Files {
    rows: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
    objects: BTreeMap<ObjectId, Vec<u8>>,
}

struct World {
    rig: Arc<Rig>,
    pool: Pool,
    rng: Rng,
    model: Model,
    /// What may be found after a crash: by the first txg that is so.
    history: BTreeMap<Txg, Model>,
    met: Met,
}

/// What a run has met, so that none of it is left out unnoticed.
#[derive(Debug, Default)]
struct Met(BTreeMap<&'static str, u64>);

impl Met {
    fn meet(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn add(&mut self, other: &Met) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
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

/// One of the names that are wanted.
fn pick(model: &Model, rng: &mut Rng, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let names: Vec<&String> = model.keys().filter(|name| wanted(name)).collect();
    let at = rng.below(names.len().max(1) as u64) as usize;
    names.get(at).map(|name| (*name).clone())
}

impl World {
    fn create(&mut self, tx: &Tx) -> Result<()> {
        let name = format!("tank/f{}", self.rng.below(4));
        if self.model.contains_key(&name) {
            return Ok(());
        }
        let record = [512, 4096, 16384][self.rng.below(3) as usize];
        let own = [(Property::RecordSize, record), (Property::Compression, self.rng.below(2))];
        let dataset = self.pool.create_dataset(tx, &name, DatasetKind::Filesystem, &own)?;
        self.model.insert(name, (dataset.id(), Files::default()));
        Ok(())
    }

    fn snapshot(&mut self, tx: &Tx) -> Result<()> {
        if snapshot(&self.pool, tx, &mut self.model, &mut self.rng)?.is_some() {
            self.met.meet("snapshot");
        }
        Ok(())
    }

    fn destroy(&mut self, tx: &Tx) -> Result<()> {
        let Some(name) = pick(&self.model, &mut self.rng, |_| true) else { return Ok(()) };
        match self.pool.destroy_dataset(tx, &name) {
            Err(PoolError::Busy { .. }) => {
                let has_snapshots = self.model.keys().any(|other| other.starts_with(&format!("{name}@")));
                assert!(has_snapshots, "{name} is not in use");
            }
            result => {
                result?;
                self.model.remove(&name);
                self.met.meet(if is_snapshot(&name) { "snapshot gone" } else { "gone" });
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
        let Some(name) = pick(&self.model, &mut self.rng, is_snapshot) else { return true };
        let open = self.pool.open_txg();
        if self.pool.snapshots().iter().any(|info| info.name == name && info.txg >= open) {
            return true;
        }
        fill_in(&self.pool, open, &mut self.model);
        self.history.insert(open, self.model.clone());
        let of = name.split('@').next().unwrap().to_owned();
        let (at, files) = self.model[&name].clone();
        let mut then = self.model.clone();
        then.retain(|other, (id, _)| !other.starts_with(&format!("{of}@")) || *id <= at);
        then.get_mut(&of).unwrap().1 = files;
        self.history.insert(Txg(open.0 + 1), then.clone());
        match self.pool.rollback(&name, true) {
            Err(PoolError::NoSpace { .. }) => {
                self.history.remove(&Txg(open.0 + 1));
                true
            }
            result => {
                if self.rig.check(result).is_none() {
                    return false;
                }
                self.model = then;
                self.met.meet("rollback");
                true
            }
        }
    }

    /// One operation; false: the power is gone.
    fn step(&mut self) -> bool {
        let Ok(tx) = self.pool.begin_tx() else { return false };
        let done = match self.rng.below(100) {
            0..4 => self.create(&tx),
            4..11 => self.snapshot(&tx),
            11..16 => self.destroy(&tx),
            16..18 => {
                drop(tx);
                return self.roll_back();
            }
            _ => change(&self.pool, &tx, &mut self.model, None, &mut self.rng, &mut self.met),
        };
        drop(tx);
        if matches!(done, Err(PoolError::NoSpace { .. })) {
            self.met.meet("no space");
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
            for _ in 0..rng.below(25) {
                let done = match (rng.below(12), rng.below(2)) {
                    (0, 0) => snapshot(pool, &old, model, rng).map(|made| {
                        older.extend(made);
                    }),
                    (0, _) => snapshot(pool, &new, model, rng).map(drop),
                    (_, 0) => change(pool, &old, model, Some(&mut older), rng, met),
                    _ => change(pool, &new, model, None, rng, met),
                };
                match done {
                    Err(PoolError::NoSpace { .. }) => met.meet("no space"),
                    Err(PoolError::Overtaken { .. }) => met.meet("overtaken"),
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
        self.met.meet("two txgs");
        self.rig.check(synced).is_some()
    }

    fn compare(&mut self) {
        for (name, (id, files)) in &self.model {
            let dataset = self.pool.dataset(name).unwrap();
            assert_eq!(dataset.id(), *id, "{name}");
            let found = read_files(&dataset);
            let keys = |files: &Files| files.rows.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(&found), keys(files), "rows of {name} ({id})");
            assert_eq!(found.rows, files.rows, "values of {name} ({id})");
            let objects = |files: &Files| {
                files.objects.iter().map(|(id, bytes)| (*id, bytes.len())).collect::<Vec<_>>()
            };
            assert_eq!(objects(&found), objects(files), "objects of {name} ({id})");
            for (object, bytes) in &files.objects {
                let differs = found.objects[object].iter().zip(bytes).position(|(a, b)| a != b);
                assert_eq!(differs, None, "first wrong byte of {object} of {name} ({id})");
            }
            if is_snapshot(name) {
                self.met.meet("compared");
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
            for _ in 0..self.rng.below(40) {
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
        if self.rig.devices[0].is_power_cut() {
            self.met.meet("crash");
        }
        let images = self.rig.crash(seed);
        drop(self.pool);
        let rig = Rig::new(images, seed);
        let pool = Pool::import(&rig.all(), &host(), options(seed)).unwrap();
        let synced = pool.synced_txg();
        let (_, model) = self.history.range(..=synced).next_back().unwrap();
        let model = model.clone();
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
        assert_eq!((last.referenced_units, last.rows, last.table_rows), (0, 0, 0));
    }
}

fn read_files(dataset: &fastness_pool::Dataset) -> Files {
    let mut files = Files::default();
    for id in [SHORT, LONG] {
        let table = dataset.table(id);
        table
            .scan((Bound::Unbounded, Bound::Unbounded), |key, value| {
                files.rows.insert((id.0, key.to_vec()), value.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        let mut value = Vec::new();
        for ((_, key), wanted) in files.rows.iter().filter(|((table, _), _)| *table == id.0) {
            assert!(table.get(key, &mut value).unwrap() && value == *wanted, "a lookup is like the scan");
        }
        for key in (0..40).map(key_of) {
            let is_there = table.get(&key, &mut value).unwrap();
            assert_eq!(is_there, files.rows.contains_key(&(id.0, key)));
        }
    }
    for id in dataset.synced_objects().unwrap() {
        let object = dataset.object(id).unwrap();
        let mut bytes = vec![0xaa; object.size_bytes() as usize];
        object.read(0, &mut bytes).unwrap();
        files.objects.insert(id, bytes);
    }
    files
}

/// Makes a snapshot of some file system. What it shows is filled in when its txg ends.
fn snapshot(pool: &Pool, tx: &Tx, model: &mut Model, rng: &mut Rng) -> Result<Option<(String, Entry)>> {
    let Some(of) = pick(model, rng, |name| !is_snapshot(name)) else { return Ok(None) };
    let name = format!("{of}@s{}", rng.below(30));
    if model.contains_key(&name) {
        return Ok(None);
    }
    let entry = (name.clone(), (pool.snapshot(tx, &name)?.id(), Files::default()));
    model.extend([entry.clone()]);
    Ok(Some(entry))
}

/// Snapshots of a txg show their file systems as they are.
fn fill_in(pool: &Pool, txg: Txg, model: &mut Model) {
    for info in pool.snapshots().into_iter().filter(|info| info.txg == txg) {
        let files = model[info.name.split('@').next().unwrap()].1.clone();
        model.get_mut(&info.name).unwrap().1 = files;
    }
}

/// Keys of several lengths, some of which begin alike.
fn key_of(number: u64) -> Vec<u8> {
    match number % 4 {
        0 => number.to_be_bytes().to_vec(),
        1 => vec![number as u8; 1],
        2 => vec![7; number as usize],
        _ => [&[number as u8; 30][..], b"long"].concat(),
    }
}

/// Changes some file system, and the model of an older txg if the transaction is of that.
fn change(
    pool: &Pool,
    tx: &Tx,
    model: &mut Model,
    older: Option<&mut Model>,
    rng: &mut Rng,
    met: &mut Met,
) -> Result<()> {
    let Some(name) = pick(model, rng, |name| !is_snapshot(name)) else { return Ok(()) };
    let (id, files) = (model[&name].0, &model[&name].1);
    let dataset = pool.dataset_by_id(id)?;
    let known: Vec<ObjectId> = files.objects.keys().copied().collect();
    let object = known.get(rng.below(known.len().max(1) as u64) as usize).copied();
    let table = if rng.below(3) == 0 { LONG } else { SHORT };
    let key = key_of(rng.below(40));
    let apply: Box<dyn Fn(&mut Files)> = match (rng.below(20), object) {
        (0..5, _) => {
            let long = [0, 1, 1000, 1024, 2500, 20_000][rng.below(6) as usize];
            let short = rng.below(200) as usize;
            let value = rng.bytes(if table == LONG { long } else { short });
            dataset.table(table).put(tx, &key, &value)?;
            met.meet(if table == LONG { "long row" } else { "row" });
            Box::new(move |files| drop(files.rows.insert((table.0, key.clone()), value.clone())))
        }
        (5..8, _) => {
            dataset.table(table).remove(tx, &key)?;
            met.meet("row removed");
            Box::new(move |files| drop(files.rows.remove(&(table.0, key.clone()))))
        }
        (8..10, _) | (_, None) => {
            let object = dataset.create_object(tx)?.id();
            met.meet("created");
            Box::new(move |files| drop(files.objects.insert(object, Vec::new())))
        }
        (10..12, Some(object)) => {
            dataset.destroy_object(tx, object)?;
            met.meet("destroyed");
            Box::new(move |files| drop(files.objects.remove(&object)))
        }
        (roll, Some(id)) => {
            let object = dataset.object(id)?;
            let unit = [1, 512, 4096, 16384][rng.below(4) as usize];
            let offset = rng.below(SIZE_MAX / unit) * unit;
            let (long, short) = (rng.below(200_000) + 1, rng.below(20_000) + 1);
            let data = rng.bytes(if roll < 14 { long } else { short } as usize);
            let cleared = rng.below(SIZE_MAX);
            match roll {
                12..17 => object.write(tx, offset, &data)?,
                17 => object.truncate(tx, offset)?,
                _ => object.punch(tx, offset, cleared)?,
            }
            Box::new(move |files| {
                let Some(bytes) = files.objects.get_mut(&id) else { return };
                let (at, len) = (offset as usize, bytes.len());
                match roll {
                    12..17 => {
                        bytes.resize(len.max(at + data.len()), 0);
                        bytes[at..at + data.len()].copy_from_slice(&data);
                    }
                    17 => bytes.resize(at, 0),
                    _ if at < len => bytes[at..len.min(at + cleared as usize)].fill(0),
                    _ => {}
                }
            })
        }
    };
    apply(&mut model.get_mut(&name).unwrap().1);
    if let Some((_, files)) = older.and_then(|model| model.values_mut().find(|(at, _)| *at == id)) {
        apply(files);
    }
    Ok(())
}

fn run(seed: u64) -> Met {
    let mut rng = Rng::new(seed ^ 0xf1_1e5);
    let rig = Rig::fresh(1, [12 << 20, 24 << 20, 64 << 20][rng.below(3) as usize], seed);
    let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], options(seed)).unwrap();
    let (model, history, met) = (Model::new(), BTreeMap::new(), Met::default());
    let mut world = World { rig, pool, rng, model, history, met };
    for round in 0..ROUNDS {
        world.work();
        world = world.crash(seed * ROUNDS + round);
        world.compare();
    }
    world.end();
    world.met
}

#[test]
fn snapshots_of_files_are_whole_and_exact_after_a_crash() {
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
        for what in [
            "snapshot",
            "snapshot gone",
            "rollback",
            "gone",
            "compared",
            "crash",
            "two txgs",
            "no space",
            "overtaken",
            "row",
            "long row",
            "row removed",
            "created",
            "destroyed",
        ] {
            assert!(all.0.get(what).is_some_and(|count| *count >= 10), "{what}: {all:?}");
        }
    }
}
