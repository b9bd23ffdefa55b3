//! Datasets, properties, quotas and reservations against a model, with exports and imports in between.

mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;

use fastness_pool::{
    DatasetKind, ErrorKind, ImportOptions, ObjectId, Pool, PoolError, PoolOptions, Property, Result, VdevSpec,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use support::{Rig, Shape, host, manual};

const BLOCK: u64 = 4096;

#[derive(Debug, Clone)]
enum Op {
    Create(String, Property, u64),
    Destroy(String),
    Rename(String, String),
    Set(String, Property, Option<u64>),
    /// Writes this many blocks at the beginning of the dataset's object.
    Write(String, u64),
    Reimport,
}

fn name() -> impl Strategy<Value = String> {
    proptest::collection::vec(0..2u8, 0..4).prop_map(|parts| {
        parts.into_iter().fold("tank".to_owned(), |name, part| format!("{name}/{}", (b'a' + part) as char))
    })
}

fn own() -> impl Strategy<Value = (Property, u64)> {
    // Some values are none that the property can have.
    let word = (0..Property::ALL.len(), 0..4u64).prop_map(|(at, value)| (Property::ALL[at], value));
    let bytes = (0..2usize, 0..40u64)
        .prop_map(|(at, units)| ([Property::Quota, Property::Reservation][at], units * 200_000));
    prop_oneof![word, bytes]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (name(), own()).prop_map(|(name, (property, value))| Op::Create(name, property, value)),
        1 => name().prop_map(Op::Destroy),
        2 => (name(), name()).prop_map(|(from, to)| Op::Rename(from, to)),
        5 => (name(), own(), any::<bool>())
            .prop_map(|(name, (property, value), is_own)| Op::Set(name, property, is_own.then_some(value))),
        8 => (name(), 1..700u64).prop_map(|(name, blocks)| Op::Write(name, blocks)),
        1 => Just(Op::Reimport),
    ]
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    own: BTreeMap<Property, u64>,
    blocks: u64,
}

#[derive(Debug, Default)]
struct Model(BTreeMap<String, Node>);

/// The kinds of refusal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    None,
    Missing,
    Exists,
    Busy,
    Invalid,
    NoSpace,
    ReadOnly,
}

fn refusal<T>(result: &Result<T>) -> Refusal {
    match result {
        Ok(_) => Refusal::None,
        Err(PoolError::NoDataset(_)) => Refusal::Missing,
        Err(PoolError::Exists(_)) => Refusal::Exists,
        Err(PoolError::Busy { .. }) => Refusal::Busy,
        Err(PoolError::Invalid { .. }) => Refusal::Invalid,
        Err(PoolError::ReadOnly(_)) => Refusal::ReadOnly,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
            Refusal::NoSpace
        }
    }
}

fn parent(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(parent, _)| parent)
}

fn is_below(name: &str, top: &str) -> bool {
    name == top || name.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

fn can_be(property: Property, value: u64) -> bool {
    match property {
        // The last one is for volumes.
        Property::RecordSize | Property::VolBlockSize | Property::RefReservation => false,
        Property::LogBias | Property::ReadOnly => value < 2,
        Property::Sync | Property::Compression => value < 3,
        _ => true,
    }
}

impl Model {
    fn used(&self, top: &str) -> u64 {
        self.0.iter().filter(|(name, _)| is_below(name, top)).map(|(_, node)| node.blocks * BLOCK).sum()
    }

    fn value(&self, name: &str, property: Property) -> (u64, bool) {
        if let Some(value) = self.0[name].own.get(&property) {
            return (*value, true);
        }
        match parent(name).filter(|_| property.is_inherited()) {
            Some(parent) => (self.value(parent, property).0, false),
            None => (property.default_value(), false),
        }
    }

    fn has_room(&self, name: &str, wanted: u64, free: u64) -> bool {
        let mut above = Some(name);
        while let Some(at) = above {
            let quota = self.value(at, Property::Quota).0;
            if quota > 0 && self.used(at) + wanted > quota {
                return false;
            }
            above = parent(at);
        }
        let others = self.0.iter().filter(|(other, _)| !is_below(name, other));
        let reserved = others.map(|(other, node)| {
            node.own.get(&Property::Reservation).unwrap_or(&0).saturating_sub(self.used(other))
        });
        free.saturating_sub(reserved.sum()) >= wanted
    }

    fn create(&mut self, name: &str, property: Property, value: u64) -> Refusal {
        match parent(name) {
            None => Refusal::Invalid,
            _ if !can_be(property, value) => Refusal::Invalid,
            Some(parent) if !self.0.contains_key(parent) => Refusal::Missing,
            _ if self.0.contains_key(name) => Refusal::Exists,
            _ => {
                let own = [(Property::RecordSize, BLOCK), (property, value)].into();
                self.0.insert(name.to_owned(), Node { own, blocks: 0 });
                Refusal::None
            }
        }
    }

    fn destroy(&mut self, name: &str) -> Refusal {
        if !self.0.contains_key(name) {
            return Refusal::Missing;
        }
        if parent(name).is_none() || self.0.keys().any(|other| other != name && is_below(other, name)) {
            return Refusal::Busy;
        }
        self.0.remove(name);
        Refusal::None
    }

    fn rename(&mut self, from: &str, to: &str) -> Refusal {
        if !self.0.contains_key(from) {
            return Refusal::Missing;
        }
        let Some(above) = parent(to).filter(|_| parent(from).is_some()) else { return Refusal::Invalid };
        if !self.0.contains_key(above) {
            return Refusal::Missing;
        }
        if is_below(above, from) {
            return Refusal::Invalid;
        }
        if self.0.contains_key(to) {
            return Refusal::Exists;
        }
        let moved: Vec<_> = self.0.keys().filter(|name| is_below(name, from)).cloned().collect();
        for name in moved {
            let node = self.0.remove(&name).expect("listed");
            self.0.insert(format!("{to}{}", &name[from.len()..]), node);
        }
        Refusal::None
    }

    fn set(&mut self, name: &str, property: Property, value: Option<u64>) -> Refusal {
        let Some(node) = self.0.get_mut(name) else { return Refusal::Missing };
        if property == Property::VolBlockSize || value.is_some_and(|value| !can_be(property, value)) {
            return Refusal::Invalid;
        }
        // The size of a block stays what it is, so that what is used can be told.
        match value {
            Some(value) => node.own.insert(property, value),
            None => node.own.remove(&property),
        };
        Refusal::None
    }

    fn write(&mut self, name: &str, blocks: u64, free: u64) -> Refusal {
        if !self.0.contains_key(name) {
            return Refusal::Missing;
        }
        if self.value(name, Property::ReadOnly).0 == 1 {
            return Refusal::ReadOnly;
        }
        if !self.has_room(name, blocks * BLOCK, free) {
            return Refusal::NoSpace;
        }
        let node = self.0.get_mut(name).expect("found");
        node.blocks = node.blocks.max(blocks);
        Refusal::None
    }
}

/// Writes blocks that do not compress; the dataset's only object comes into being with the first write.
fn write(pool: &Pool, name: &str, blocks: u64) -> Result<()> {
    let dataset = pool.dataset(name)?;
    let tx = pool.begin_tx()?;
    let object = match dataset.object(ObjectId(1)) {
        Ok(object) => object,
        Err(_) => dataset.create_object(&tx)?,
    };
    let mut rng = support::Rng::new(blocks);
    let data: Vec<u8> = (0..blocks * BLOCK / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    object.write(&tx, 0, &data)
}

/// A reservation that the pool cannot keep: the model does not know how much that is (`reservations.rs`).
fn is_more_than_there_is<T>(result: &Result<T>) -> bool {
    matches!(result, Err(PoolError::Reservation { .. }))
}

fn run(ops: &[Op], met: &mut BTreeMap<Refusal, u64>) {
    let rig = Rig::fresh(1, 16 << 20, 0);
    let mut pool = Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap();
    let tx = pool.begin_tx().unwrap();
    pool.dataset("tank").unwrap().set(&tx, Property::RecordSize, Some(BLOCK)).unwrap();
    drop(tx);
    pool.sync().unwrap();
    let mut model = Model::default();
    model.0.insert("tank".to_owned(), Node { own: [(Property::RecordSize, BLOCK)].into(), blocks: 0 });
    for op in ops {
        let tx = pool.begin_tx().unwrap();
        let (found, expected) = match op {
            Op::Create(name, property, value) => {
                let own = [(Property::RecordSize, BLOCK), (*property, *value)];
                let result = pool.create_dataset(&tx, name, DatasetKind::Filesystem, &own);
                if is_more_than_there_is(&result) {
                    continue;
                }
                (refusal(&result), model.create(name, *property, *value))
            }
            Op::Destroy(name) => (refusal(&pool.destroy_dataset(&tx, name)), model.destroy(name)),
            Op::Rename(from, to) => (refusal(&pool.rename_dataset(&tx, from, to)), model.rename(from, to)),
            Op::Set(_, Property::RecordSize, _) => continue,
            Op::Set(name, property, value) => {
                let result = pool.dataset(name).and_then(|dataset| dataset.set(&tx, *property, *value));
                if is_more_than_there_is(&result) {
                    continue;
                }
                (refusal(&result), model.set(name, *property, *value))
            }
            Op::Write(name, blocks) => {
                drop(tx);
                pool.sync().unwrap();
                // Rows of the tables may take room, too: two pages for each row of 32 blocks, for the object,
                // and its dataset.
                let rows = blocks.div_ceil(32) + 2;
                let free = pool.status().free_bytes.saturating_sub(rows * 2 * 4096);
                let result = write(&pool, name, *blocks);
                pool.sync().unwrap();
                let expected = model.write(name, *blocks, free);
                assert_eq!(refusal(&result), expected, "{op:?}");
                *met.entry(expected).or_default() += 1;
                continue;
            }
            Op::Reimport => {
                drop(tx);
                pool.export().unwrap();
                drop(pool);
                pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
                continue;
            }
        };
        drop(tx);
        assert_eq!(found, expected, "{op:?} on {model:?}");
        *met.entry(expected).or_default() += 1;
        let listed: Vec<_> = pool.datasets().into_iter().map(|info| info.name).collect();
        assert!(listed.iter().all(|name| model.0.contains_key(name)) && listed.len() == model.0.len());
        for name in &listed {
            let dataset = pool.dataset(name).unwrap();
            assert_eq!(dataset.name(), *name);
            for property in Property::ALL {
                assert_eq!(dataset.get(property), model.value(name, property), "{name} {property:?}");
            }
        }
    }
    // What was destroyed is freed.
    pool.sync().unwrap();
    pool.sync().unwrap();
    for info in pool.datasets() {
        assert_eq!(info.used_bytes, model.used(&info.name), "{}", info.name);
    }
    assert!(pool.check().unwrap().is_clean());
}

#[test]
fn datasets_behave_like_the_model() {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let met = RefCell::new(BTreeMap::new());
    // The same cases every time, so that what they meet is known; PROPTEST_CASES asks for more.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config, rng)
        .run(&proptest::collection::vec(op(), 20..70), |ops| {
            run(&ops, &mut met.borrow_mut());
            Ok(())
        })
        .unwrap();
    let met = met.into_inner();
    assert!(met.len() == 7 && met.values().all(|count| *count > 2), "every outcome was met: {met:?}");
}

/// Files have numbers before they have objects, and some never have one.
#[test]
fn numbers_that_were_allotted_are_not_given_again() {
    use fastness_pool::{ObjectId, RowChange, TableId};

    let device =
        fastness_pool::Device::new("a", std::sync::Arc::new(fastness_blkdev::MemDevice::new("a", 32 << 20)));
    let pool = Pool::create("tank", &[VdevSpec::single(device.clone())], PoolOptions::default()).unwrap();
    let tx = pool.begin_tx().unwrap();
    let dataset = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    assert_eq!(dataset.create_object_with(&tx, ObjectId(7), 4096).unwrap().block_bytes(), 4096);
    drop(tx);
    pool.sync().unwrap();
    assert_eq!((dataset.allot_object(), dataset.allot_object()), (ObjectId(8), ObjectId(9)));
    let tx = pool.begin_tx().unwrap();
    let change = RowChange { table: TableId(1), key: b"key", value: Some(b"9") };
    dataset.change_rows(&tx, &[change], false).unwrap();
    drop(tx);
    pool.export().unwrap();
    drop((dataset, pool));
    let pool = Pool::import(&[device], &ImportOptions::default(), PoolOptions::default()).unwrap();
    let dataset = pool.dataset("tank/a").unwrap();
    assert_eq!(dataset.allot_object(), ObjectId(10));
    let tx = pool.begin_tx().unwrap();
    for (id, block_bytes) in [(7, 4096), (11, 0), (11, 1000), (11, u32::MAX)] {
        let refused = dataset.create_object_with(&tx, ObjectId(id), block_bytes);
        assert_eq!(refused.unwrap_err().kind(), fastness_pool::ErrorKind::Invalid, "{id} {block_bytes}");
    }
}

/// As the first write to a file that fails for want of room, and then another one that does not.
#[test]
fn an_object_that_is_created_again_after_a_failure_stays() {
    for is_of_one_txg in [true, false] {
        let device = std::sync::Arc::new(fastness_blkdev::MemDevice::new("a", 32 << 20));
        let device = fastness_pool::Device::new("a", device);
        let pool = Pool::create("tank", &[VdevSpec::single(device.clone())], manual()).unwrap();
        let root = pool.dataset("tank").unwrap();
        let id = root.allot_object();
        let tx = pool.begin_tx().unwrap();
        root.create_object_with(&tx, id, BLOCK as u32).unwrap().write(&tx, 0, &[1; 9000]).unwrap();
        root.destroy_object(&tx, id).unwrap();
        drop(tx);
        if !is_of_one_txg {
            pool.sync().unwrap();
        }
        let tx = pool.begin_tx().unwrap();
        let object = root.create_object_with(&tx, id, BLOCK as u32).unwrap();
        object.write(&tx, 4096, &[2; 4096]).unwrap();
        drop((tx, object));
        for _ in 0..4 {
            pool.transact(|tx| root.create_object(tx).map(drop)).unwrap();
            pool.sync().unwrap();
        }
        drop((root, pool));
        let pool = Pool::import(&[device], &host(), manual()).unwrap();
        let object = pool.dataset("tank").unwrap().object(id).unwrap();
        let mut buf = [7; 8192];
        object.read(0, &mut buf).unwrap();
        assert!(buf[..4096] == [0; 4096] && buf[4096..] == [2; 4096]);
    }
}

/// What is freed is found by its number: the new object would be freed as well. Debug builds refuse it,
/// before the sync that lists the old object and after it.
#[cfg(debug_assertions)]
#[test]
fn a_number_is_not_given_again_before_its_object_was_freed() {
    for is_synced in [false, true] {
        let options = PoolOptions { frees_per_txg: 1, ..manual() };
        let device = std::sync::Arc::new(fastness_blkdev::MemDevice::new("a", 32 << 20));
        let device = fastness_pool::Device::new("a", device);
        let pool = Pool::create("tank", &[VdevSpec::single(device)], options).unwrap();
        let root = pool.dataset("tank").unwrap();
        let id = root.allot_object();
        let made = pool.transact(|tx| {
            let object = root.create_object_with(tx, id, BLOCK as u32)?;
            (0..200).try_for_each(|block| object.write(tx, block << 20, &[1; 4096]))
        });
        made.unwrap();
        pool.sync().unwrap();
        pool.transact(|tx| root.destroy_object(tx, id)).unwrap();
        if is_synced {
            pool.sync().unwrap();
        }
        let again = std::panic::AssertUnwindSafe(|| {
            let tx = pool.begin_tx().unwrap();
            root.create_object_with(&tx, id, BLOCK as u32).map(drop)
        });
        assert!(std::panic::catch_unwind(again).is_err(), "after a sync: {is_synced}");
    }
}

#[test]
fn an_object_says_how_much_it_takes() {
    let device =
        fastness_pool::Device::new("a", std::sync::Arc::new(fastness_blkdev::MemDevice::new("a", 64 << 20)));
    let pool = Pool::create("tank", &[VdevSpec::single(device.clone())], PoolOptions::default()).unwrap();
    let tx = pool.begin_tx().unwrap();
    let dataset = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    let object = dataset.create_object_with(&tx, fastness_pool::ObjectId(1), 4096).unwrap();
    object.write(&tx, 1 << 30, &vec![7; 1 << 20]).unwrap();
    assert_eq!(object.taken_bytes().unwrap(), 1 << 20);
    drop(tx);
    pool.sync().unwrap();
    assert_eq!(object.taken_bytes().unwrap(), 1 << 20);
    let tx = pool.begin_tx().unwrap();
    object.punch(&tx, 1 << 30, 1 << 19).unwrap();
    object.write(&tx, 0, &[7; 4096]).unwrap();
    drop(tx);
    // What is cleared is freed in steps.
    for _ in 0..4 {
        pool.sync().unwrap();
    }
    assert_eq!(object.taken_bytes().unwrap(), (1 << 19) + 4096);
    pool.export().unwrap();
    drop((object, dataset, pool));
    let pool = Pool::import(&[device], &ImportOptions::default(), PoolOptions::default()).unwrap();
    let object = pool.dataset("tank/a").unwrap().object(fastness_pool::ObjectId(1)).unwrap();
    assert_eq!(object.taken_bytes().unwrap(), (1 << 19) + 4096);
}
