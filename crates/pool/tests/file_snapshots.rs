//! Snapshots of file systems: what they show of rows and objects, what they take, and when that is free
//! again.

mod support;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use fastness_pool::{
    Dataset, DatasetKind, Feature, ObjectId, Pool, PoolError, PoolOptions, Property, TableId, Tx, VdevSpec,
};
use support::{Rig, host, manual};

const SHORT: TableId = TableId(2);
const LONG: TableId = TableId(128);
/// Bytes that need several rows of extents.
const LEN_BYTES: usize = 100 * 4096;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

impl World {
    fn new() -> World {
        World::with(manual())
    }

    fn with(options: PoolOptions) -> World {
        World::sized(options, 64 << 20)
    }

    fn sized(options: PoolOptions, len_bytes: u64) -> World {
        let rig = Rig::fresh(1, len_bytes, 7);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], options).unwrap();
        let world = World { rig, pool };
        world.tx(|tx| {
            let properties = [(Property::RecordSize, 4096)];
            world.pool.create_dataset(tx, "tank/f", DatasetKind::Filesystem, &properties).unwrap();
        });
        world.settle();
        world
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    /// Syncs until nothing is left to be freed; returns units in use, and rows of tables with kept ones.
    fn settle(&self) -> (u64, u64) {
        self.pool.sync().unwrap();
        while self.pool.is_freeing() {
            self.pool.sync().unwrap();
            self.check();
        }
        self.check()
    }

    fn check(&self) -> (u64, u64) {
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        (report.referenced_units, report.table_rows)
    }

    fn of(&self, name: &str) -> Dataset {
        self.pool.dataset(name).unwrap()
    }

    fn put(&self, table: TableId, key: &[u8], value: &[u8]) {
        self.tx(|tx| self.of("tank/f").table(table).put(tx, key, value).unwrap());
    }

    fn remove(&self, table: TableId, key: &[u8]) {
        self.tx(|tx| self.of("tank/f").table(table).remove(tx, key).unwrap());
    }

    fn get(&self, name: &str, table: TableId, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        self.of(name).table(table).get(key, &mut value).unwrap().then_some(value)
    }

    fn rows(&self, name: &str, table: TableId, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Rows {
        let mut rows = Vec::new();
        self.of(name)
            .table(table)
            .scan(bounds, |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
        rows
    }

    fn create(&self, salt: u8) -> ObjectId {
        self.tx(|tx| {
            let object = self.of("tank/f").create_object(tx).unwrap();
            object.write(tx, 0, &bytes(salt)).unwrap();
            object.id()
        })
    }

    fn read(&self, name: &str, id: ObjectId) -> Option<Vec<u8>> {
        let object = match self.of(name).object(id) {
            Err(PoolError::NoObject { .. }) => return None,
            object => object.unwrap(),
        };
        let mut buf = vec![0xee; object.size_bytes() as usize];
        object.read(0, &mut buf).unwrap();
        Some(buf)
    }

    fn snapshot(&self, name: &str) {
        self.tx(|tx| self.pool.snapshot(tx, name).unwrap());
        self.pool.sync().unwrap();
    }

    fn destroy(&self, name: &str) {
        self.tx(|tx| self.pool.destroy_dataset(tx, name).unwrap());
    }

    fn destroy_object(&self, id: ObjectId) {
        self.tx(|tx| self.of("tank/f").destroy_object(tx, id).unwrap());
    }

    fn import_again(self) -> World {
        let images = self.rig.crash(3);
        drop(self.pool);
        let rig = Rig::new(images, 8);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        World { rig, pool }
    }
}

fn bytes(salt: u8) -> Vec<u8> {
    (0..LEN_BYTES).map(|at| (at / 7 % 251) as u8 ^ salt ^ (at / 4096) as u8).collect()
}

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

#[test]
fn rows_stay_as_they_were() {
    let world = World::new();
    for number in 0..40_u8 {
        world.put(SHORT, &[number], &[number; 9]);
        world.put(LONG, &[number], &vec![number; usize::from(number) * 300]);
    }
    // Not synced yet.
    world.tx(|tx| world.pool.snapshot(tx, "tank/f@a").unwrap());
    world.settle();
    let (short, long) = (world.rows("tank/f", SHORT, ALL), world.rows("tank/f", LONG, ALL));
    let change = |salt: u8| {
        for number in (0..40).step_by(3) {
            world.put(SHORT, &[number], &[salt]);
            world.put(LONG, &[number], &[salt; 5000]);
            world.remove(SHORT, &[number + 1]);
            world.remove(LONG, &[number + 1]);
            world.put(SHORT, &[number, 1], b"later");
        }
        world.settle();
    };
    change(1);
    world.snapshot("tank/f@b");
    let (short_b, long_b) = (world.rows("tank/f", SHORT, ALL), world.rows("tank/f", LONG, ALL));
    assert_ne!((&short, &long), (&short_b, &long_b));
    change(2);
    // Once more, and removed and put again.
    world.put(SHORT, &[0], b"more");
    world.put(LONG, &[0], b"more");
    world.put(SHORT, &[1], b"again");
    world.settle();
    let compare = |world: &World| {
        for (name, short, long) in [("tank/f@a", &short, &long), ("tank/f@b", &short_b, &long_b)] {
            for (table, wanted) in [(SHORT, short), (LONG, long)] {
                assert_eq!(&world.rows(name, table, ALL), wanted);
                let (from, to) = ([7_u8], [25_u8]);
                for bounds in [
                    (Bound::Included(&from[..]), Bound::Excluded(&to[..])),
                    (Bound::Excluded(&from[..]), Bound::Included(&to[..])),
                    (Bound::Excluded(&from[..]), Bound::Unbounded),
                    (Bound::Unbounded, Bound::Excluded(&to[..])),
                ] {
                    use std::ops::RangeBounds;
                    let within = wanted.iter().filter(|(key, _)| {
                        let (from, to) = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
                        (from, to).contains(key)
                    });
                    let within: Rows = within.cloned().collect();
                    assert_eq!(world.rows(name, table, bounds), within, "{bounds:?}");
                }
                for number in 0..41 {
                    for key in [vec![number], vec![number, 1]] {
                        let value = wanted.iter().find(|(at, _)| *at == key).map(|(_, value)| value.clone());
                        assert_eq!(world.get(name, table, &key), value, "{key:?} of {name}");
                    }
                }
            }
        }
    };
    compare(&world);
    let world = world.import_again();
    compare(&world);
    // A scan that stops goes on where it was.
    let mut shown = Vec::new();
    let mut from = Bound::Unbounded;
    loop {
        let before = shown.len();
        let bounds = (from.as_ref().map(|key: &Vec<u8>| key.as_slice()), Bound::Unbounded);
        world
            .of("tank/f@a")
            .table(SHORT)
            .scan(bounds, |key, value| {
                shown.push((key.to_vec(), value.to_vec()));
                if shown.len() % 5 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        if shown.len() % 5 != 0 || shown.len() == before {
            break;
        }
        from = Bound::Excluded(shown[shown.len() - 1].0.clone());
    }
    assert_eq!(shown, short);
}

#[test]
fn rows_that_nothing_needs_are_removed() {
    let world = World::new();
    world.put(SHORT, b"kept", b"1");
    world.put(LONG, b"kept", &[1; 3000]);
    let (_, before) = world.settle();
    world.snapshot("tank/f@a");
    assert_eq!(world.settle().1, before, "a snapshot takes no rows");
    world.put(SHORT, b"kept", b"2");
    world.put(LONG, b"kept", b"2");
    world.put(SHORT, b"new", b"2");
    assert_eq!(world.settle().1, before + 1 + 3, "one more, and a past for each");
    world.put(SHORT, b"kept", b"3");
    world.remove(SHORT, b"new");
    assert_eq!(world.settle().1, before + 3, "each is kept once");
    world.snapshot("tank/f@b");
    world.put(SHORT, b"kept", b"4");
    world.settle();
    world.destroy("tank/f@a");
    assert_eq!(world.settle().1, before + 1, "what the other needs stays");
    assert_eq!(world.get("tank/f@b", SHORT, b"kept").unwrap(), b"3");
    world.destroy("tank/f@b");
    assert_eq!(world.settle().1, before);
}

#[test]
fn objects_stay_as_they_were_and_are_free_when_nothing_has_them() {
    let world = World::with(PoolOptions { frees_per_txg: 2, ..manual() });
    let (stays, grows, goes) = (world.create(1), world.create(2), world.create(3));
    let (before, _) = world.settle();
    world.snapshot("tank/f@a");
    let comes = world.create(4);
    world.destroy_object(goes);
    world.tx(|tx| {
        let object = world.of("tank/f").object(grows).unwrap();
        object.truncate(tx, 4096).unwrap();
        object.write(tx, 1 << 20, b"beyond").unwrap();
    });
    world.settle();
    let check = |world: &World| {
        assert_eq!(world.of("tank/f@a").synced_objects().unwrap(), [stays, grows, goes]);
        for (id, salt) in [(stays, 1), (grows, 2), (goes, 3)] {
            assert!(world.read("tank/f@a", id) == Some(bytes(salt)), "object {id}");
        }
        assert_eq!(world.read("tank/f@a", comes), None);
        assert_eq!(world.read("tank/f", goes), None);
        assert_eq!(world.read("tank/f", grows).unwrap().len(), (1 << 20) + 6);
        assert!(world.read("tank/f", comes) == Some(bytes(4)));
    };
    check(&world);
    let world = world.import_again();
    check(&world);
    let now = world.pool.snapshot_bytes("tank/f", None).unwrap().0;
    let id = world.of("tank/f@a").id();
    assert_eq!(now[&id], (LEN_BYTES + LEN_BYTES - 4096) as u64, "of one object all, of another nearly all");
    world.destroy("tank/f@a");
    let (after, rows) = world.settle();
    // One went, one came; of the third a block is left, and there is another.
    assert_eq!(after, before - 98);
    assert_eq!(rows, 0);
    world.destroy("tank/f");
    assert_eq!(world.settle(), (0, 0));
}

/// A file that was removed before a snapshot, and not yet freed, is not kept for it.
#[test]
fn what_was_destroyed_before_a_snapshot_is_freed_all_the_same() {
    let world = World::with(PoolOptions { frees_per_txg: 1, ..manual() });
    world.snapshot("tank/f@first");
    let (old, both) = (world.create(1), world.create(2));
    world.snapshot("tank/f@a");
    world.destroy_object(both);
    world.destroy_object(old);
    world.pool.sync().unwrap();
    let short = world.create(3);
    world.pool.sync().unwrap();
    world.destroy_object(short);
    world.pool.sync().unwrap();
    assert!(world.pool.is_freeing());
    world.snapshot("tank/f@b");
    let world = world.import_again();
    assert_eq!(world.settle().0, 200, "of the short life nothing is left");
    assert_eq!(world.of("tank/f@b").synced_objects().unwrap(), []);
    assert!(world.read("tank/f@a", both) == Some(bytes(2)));
    let taken = world.pool.snapshot_bytes("tank/f", None).unwrap().0;
    assert_eq!(taken[&world.of("tank/f@a").id()], 2 * LEN_BYTES as u64);
    assert_eq!(taken.get(&world.of("tank/f@b").id()), Some(&0));
    world.destroy("tank/f@a");
    assert_eq!(world.settle(), (0, 0));
}

/// What only an older snapshot has stays when a newer one goes, and the other way round.
#[test]
fn the_last_of_several_snapshots_keeps_what_it_has() {
    for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"], ["b", "c", "a"]] {
        let world = World::with(PoolOptions { frees_per_txg: 3, ..manual() });
        let one = world.create(1);
        world.put(SHORT, b"row", b"1");
        world.snapshot("tank/f@a");
        let two = world.create(2);
        world.put(SHORT, b"row", b"2");
        world.snapshot("tank/f@b");
        world.destroy_object(one);
        world.remove(SHORT, b"row");
        world.snapshot("tank/f@c");
        world.destroy_object(two);
        for gone in order {
            for (name, has) in [("a", (true, false)), ("b", (true, true)), ("c", (false, true))] {
                let name = format!("tank/f@{name}");
                if world.pool.dataset(&name).is_err() {
                    continue;
                }
                assert_eq!(world.read(&name, one).is_some_and(|found| found == bytes(1)), has.0, "{name}");
                assert_eq!(world.read(&name, two).is_some_and(|found| found == bytes(2)), has.1, "{name}");
                let row = [("a", Some(b"1")), ("b", Some(b"2")), ("c", None)];
                let (_, row) = row.iter().find(|(end, _)| name.ends_with(end)).unwrap();
                assert_eq!(world.get(&name, SHORT, b"row").as_deref(), row.map(|row| &row[..]), "{name}");
            }
            world.destroy(&format!("tank/f@{gone}"));
            world.settle();
        }
        assert_eq!(world.settle(), (0, 0), "{order:?}");
    }
}

#[test]
fn a_snapshot_is_read_only_and_kept_while_it_is_open() {
    let world = World::new();
    let id = world.create(1);
    world.put(SHORT, b"row", b"1");
    world.snapshot("tank/f@a");
    assert!(world.pool.is_active(Feature::FileSystemSnapshots));
    let snapshot = world.of("tank/f@a");
    assert_eq!(snapshot.snapshot_of(), Some(DatasetKind::Filesystem));
    assert_eq!(world.of("tank/f").snapshot_of(), None);
    let is_refused = |result: Result<(), PoolError>| matches!(result, Err(PoolError::ReadOnly(_)));
    let object = snapshot.object(id).unwrap();
    world.tx(|tx| {
        assert!(is_refused(snapshot.table(SHORT).put(tx, b"row", b"2")));
        assert!(is_refused(snapshot.table(SHORT).remove(tx, b"row")));
        assert!(is_refused(snapshot.create_object(tx).map(drop)));
        assert!(is_refused(object.write(tx, 0, b"x")));
        assert!(is_refused(object.truncate(tx, 0)));
        assert!(is_refused(snapshot.destroy_object(tx, id)));
        for name in ["tank/f@a", "tank/f"] {
            assert!(matches!(world.pool.destroy_dataset(tx, name), Err(PoolError::Busy { .. })));
        }
        let clone = world.pool.clone_snapshot(tx, "tank/f@a", "tank/g", &[]);
        assert!(matches!(clone, Err(PoolError::Invalid { .. })), "{clone:?}");
        let folder = world.pool.snapshot(tx, "tank@a");
        assert!(matches!(folder, Err(PoolError::Invalid { .. })), "{folder:?}");
    });
    drop(object);
    world.destroy("tank/f@a");
    world.destroy("tank/f");
    assert_eq!(world.settle(), (0, 0));
}

/// Objects that came are gone, those that went are there, whether they were freed or not; rows likewise.
#[test]
fn a_file_system_goes_back_to_what_it_was() {
    for frees_per_txg in [1, 4096] {
        let world = World::with(PoolOptions { frees_per_txg, ..manual() });
        let (stays, grows, goes) = (world.create(1), world.create(2), world.create(3));
        world.put(SHORT, b"changes", b"1");
        world.put(LONG, b"changes", &[1; 9000]);
        world.put(SHORT, b"goes", b"1");
        world.put(LONG, b"grows", b"1");
        let before = world.settle();
        world.snapshot("tank/f@a");
        let rows = [SHORT, LONG].map(|table| world.rows("tank/f", table, ALL));
        let short_lived = world.create(4);
        world.put(SHORT, b"between", b"2");
        world.put(SHORT, b"changes", b"between");
        world.snapshot("tank/f@b");
        world.destroy_object(short_lived);
        if frees_per_txg > 1 {
            world.settle();
        }
        world.destroy_object(goes);
        let comes = world.create(5);
        world.tx(|tx| {
            let object = world.of("tank/f").object(grows).unwrap();
            object.truncate(tx, 5000).unwrap();
            object.write(tx, 1 << 20, b"beyond").unwrap();
        });
        world.put(SHORT, b"changes", b"2");
        world.put(LONG, b"changes", b"2");
        world.put(LONG, b"grows", &[2; 9000]);
        world.remove(SHORT, b"goes");
        world.put(SHORT, b"comes", b"2");
        world.pool.sync().unwrap();
        let newer = world.pool.rollback("tank/f@a", false);
        assert!(matches!(newer, Err(PoolError::NotNewest { .. })), "{newer:?}");
        let held = world.of("tank/f").hold().unwrap();
        let busy = world.pool.rollback("tank/f@a", true);
        assert!(matches!(busy, Err(PoolError::Busy { .. })), "{busy:?}");
        drop(held);
        world.pool.rollback("tank/f@a", true).unwrap();
        let look = |world: &World| {
            for name in ["tank/f", "tank/f@a"] {
                assert_eq!([SHORT, LONG].map(|table| world.rows(name, table, ALL)), rows, "{name}");
                for (id, salt) in [(stays, 1), (grows, 2), (goes, 3)] {
                    assert!(world.read(name, id) == Some(bytes(salt)), "object {id} of {name}");
                }
                assert_eq!((world.read(name, comes), world.read(name, short_lived)), (None, None));
            }
            assert!(world.pool.dataset("tank/f@b").is_err());
        };
        look(&world);
        let world = world.import_again();
        look(&world);
        assert_eq!(world.settle(), before);
        look(&world);
        let next = world.create(6);
        assert!(next > comes, "numbers are given once");
        world.destroy("tank/f@a");
        world.settle();
        world.destroy("tank/f");
        assert_eq!(world.settle(), (0, 0));
    }
}

/// A change of a file system with snapshots takes no more than was reserved for it.
#[test]
fn what_is_kept_has_room() {
    let world = World::sized(manual(), 512 << 20);
    let objects: Vec<ObjectId> = (0..20).map(|salt| world.create(salt)).collect();
    let long = |byte| vec![byte; 60_000];
    for number in 0..60_u16 {
        world.put(LONG, &number.to_be_bytes(), &long(1));
    }
    for number in 0..2000_u16 {
        world.put(SHORT, &number.to_be_bytes(), &[1; 200]);
    }
    world.settle();
    let before = world.pool.status().unreserved_bytes_max;
    for round in 0..3_u8 {
        world.snapshot(&format!("tank/f@{round}"));
        for number in (0..2000_u16).step_by(7) {
            world.put(SHORT, &number.to_be_bytes(), &[round; 200]);
        }
        world.pool.sync().unwrap();
        for number in 0..60_u16 {
            let value = if round == 1 { b"short".to_vec() } else { vec![round; 30_000] };
            world.put(LONG, &number.to_be_bytes(), &value);
        }
        world.pool.sync().unwrap();
        for id in &objects {
            let object = world.of("tank/f").object(*id).unwrap();
            world.tx(|tx| object.write(tx, u64::from(round) * 4096, &[round; 4096]).unwrap());
        }
        world.pool.sync().unwrap();
        for id in &objects[usize::from(round) * 5..usize::from(round) * 5 + 5] {
            let object = world.of("tank/f").object(*id).unwrap();
            world.tx(|tx| object.truncate(tx, 0).unwrap());
        }
        world.settle();
    }
    let taken = world.pool.status().unreserved_bytes_max;
    assert!(taken <= before.max(160 << 10), "{taken} bytes that nobody had reserved; {before} before");
}
