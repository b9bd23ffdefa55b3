//! A clone and the volume that it began in change places: what each then shows, takes and owns.

mod support;

use std::sync::Arc;

use fastness_pool::{
    Dataset, DatasetKind, Object, ObjectId, Pool, PoolError, PoolOptions, Property, Tx, VdevSpec,
};
use support::{Rig, host, manual};

const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 100;
const UNIT: u64 = BLOCK_BYTES as u64;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
}

/// Blocks of a volume, each full of one number.
type Blocks = Vec<u8>;

impl World {
    fn with(options: PoolOptions) -> World {
        let rig = Rig::fresh(1, 64 << 20, 7);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], options).unwrap();
        let world = World { rig, pool };
        world.tx(|tx| {
            let properties = [(Property::VolBlockSize, UNIT), (Property::Compression, 0)];
            let volume = world.pool.create_dataset(tx, "tank/v", DatasetKind::Volume, &properties).unwrap();
            volume.create_object(tx).unwrap().write(tx, 0, &vec![1; BLOCKS * BLOCK_BYTES]).unwrap();
        });
        world.settle();
        world
    }

    /// A volume with snapshots `a`, `b` and `c`, and a clone of `b` with one of its own, `d`. Each has
    /// changed before and after each of them.
    fn branched(options: PoolOptions) -> World {
        let world = World::with(options);
        world.snapshot("tank/v@a");
        world.write("tank/v", 0, 40, 2);
        world.snapshot("tank/v@b");
        world.make_clone("tank/v@b", "tank/c");
        world.write("tank/v", 10, 40, 3);
        world.snapshot("tank/v@c");
        world.write("tank/v", 80, 10, 4);
        world.write("tank/c", 20, 10, 5);
        world.snapshot("tank/c@d");
        world.write("tank/c", 25, 40, 6);
        world.tx(|tx| {
            world.open("tank/c").write(tx, (BLOCKS * BLOCK_BYTES) as u64, &[9; BLOCK_BYTES]).unwrap();
        });
        world.settle();
        world
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    fn settle(&self) -> u64 {
        self.pool.sync().unwrap();
        while self.pool.is_freeing() {
            self.pool.sync().unwrap();
            self.check();
        }
        self.check()
    }

    fn check(&self) -> u64 {
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        report.referenced_units
    }

    fn dataset(&self, name: &str) -> Dataset {
        self.pool.dataset(name).unwrap()
    }

    fn open(&self, name: &str) -> Object {
        self.dataset(name).object(ObjectId(1)).unwrap()
    }

    fn read(&self, name: &str) -> Blocks {
        let object = self.open(name);
        let mut buf = vec![0xee; object.size_bytes() as usize];
        object.read(0, &mut buf).unwrap();
        buf.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
    }

    fn write(&self, name: &str, block: u64, blocks: usize, salt: u8) {
        let data = vec![salt; blocks * BLOCK_BYTES];
        self.tx(|tx| self.open(name).write(tx, block * UNIT, &data).unwrap());
    }

    fn snapshot(&self, name: &str) {
        self.tx(|tx| self.pool.snapshot(tx, name).unwrap());
        self.pool.sync().unwrap();
    }

    fn make_clone(&self, snapshot: &str, name: &str) {
        self.tx(|tx| self.pool.clone_snapshot(tx, snapshot, name, &[]).unwrap());
        self.pool.sync().unwrap();
    }

    fn promote(&self, name: &str) {
        self.pool.promote(name, |key| key == b"stays").unwrap();
        self.check();
    }

    fn destroy(&self, name: &str) {
        self.tx(|tx| self.pool.destroy_dataset(tx, name).unwrap());
    }

    fn import_again(self) -> World {
        let images = self.rig.crash(3);
        drop(self.pool);
        let rig = Rig::new(images, 8);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        World { rig, pool }
    }

    fn snapshots(&self) -> Vec<String> {
        self.pool.snapshots().into_iter().map(|info| info.name).collect()
    }
}

fn blocks(parts: &[(usize, usize, u8)]) -> Blocks {
    let mut all = vec![1; BLOCKS];
    for (first, count, salt) in parts {
        all[*first..first + count].fill(*salt);
    }
    all
}

fn assert_branched(world: &World, prefixes: [&str; 4]) {
    let [a, b, c, d] = prefixes;
    assert_eq!(world.read(&format!("tank/{a}@a")), blocks(&[]));
    assert_eq!(world.read(&format!("tank/{b}@b")), blocks(&[(0, 40, 2)]));
    assert_eq!(world.read(&format!("tank/{c}@c")), blocks(&[(0, 40, 2), (10, 40, 3)]));
    assert_eq!(world.read(&format!("tank/{d}@d")), blocks(&[(0, 40, 2), (20, 10, 5)]));
    assert_eq!(world.read("tank/v"), blocks(&[(0, 40, 2), (10, 40, 3), (80, 10, 4)]));
    let mut clone = blocks(&[(0, 40, 2), (20, 10, 5), (25, 40, 6)]);
    clone.push(9);
    assert_eq!(world.read("tank/c"), clone);
}

#[test]
fn snapshots_up_to_the_origin_go_to_the_clone() {
    let world = World::branched(manual());
    let before = world.check();
    assert_eq!(world.dataset("tank/c").used_bytes(), 51 * UNIT);
    world.promote("tank/c");
    assert_eq!(world.settle(), before, "no data was copied or freed");
    let names = ["tank/c@a", "tank/c@b", "tank/c@d", "tank/v@c"];
    let world = world.import_again();
    assert_eq!(world.snapshots(), names);
    assert_branched(&world, ["c", "c", "v", "c"]);
    assert_eq!(world.dataset("tank/v").origin().as_deref(), Some("tank/c@b"));
    assert_eq!(world.dataset("tank/c").origin(), None);
    assert_eq!(world.dataset("tank/v").used_bytes(), 50 * UNIT, "what the volume changed since `b`");
    assert_eq!(world.dataset("tank/c").shown_bytes().unwrap(), 101 * UNIT);
    assert_eq!(world.dataset("tank/v").shown_bytes().unwrap(), 100 * UNIT);
    // The other way round it is as before.
    world.promote("tank/v");
    assert_eq!(world.snapshots(), ["tank/c@d", "tank/v@a", "tank/v@b", "tank/v@c"]);
    assert_branched(&world, ["v", "v", "v", "c"]);
    assert_eq!(world.dataset("tank/c").origin().as_deref(), Some("tank/v@b"));
    assert_eq!(world.dataset("tank/c").used_bytes(), 51 * UNIT);
    assert_eq!(world.settle(), before);
}

/// What promotion is for: the volume that was replaced can go, with all that only it has.
#[test]
fn the_former_volume_can_be_destroyed() {
    let world = World::branched(manual());
    world.promote("tank/c");
    world.destroy("tank/v@c");
    world.destroy("tank/v");
    // `a` has 40 blocks alone, `b` 10, `d` 5; 10 are of `b` and `d`, 25 of all three.
    assert_eq!(world.settle(), 101 + 40 + 10 + 5 + 10 + 25);
    world.destroy("tank/c@a");
    world.destroy("tank/c@b");
    world.destroy("tank/c@d");
    assert_eq!(world.settle(), 101);
    let mut clone = blocks(&[(0, 40, 2), (20, 10, 5), (25, 40, 6)]);
    clone.push(9);
    assert_eq!(world.read("tank/c"), clone);
    world.destroy("tank/c");
    assert_eq!(world.settle(), 0);
}

#[test]
fn both_go_on_with_snapshots_and_rollbacks_and_clones() {
    let world = World::branched(manual());
    world.make_clone("tank/v@c", "tank/of-c");
    world.make_clone("tank/c@d", "tank/of-d");
    world.promote("tank/c");
    assert_eq!(world.read("tank/of-c"), blocks(&[(0, 40, 2), (10, 40, 3)]));
    assert_eq!(world.read("tank/of-d"), blocks(&[(0, 40, 2), (20, 10, 5)]));
    for name in ["tank/v", "tank/c", "tank/of-c", "tank/of-d"] {
        world.write(name, 30, 30, 7);
        world.snapshot(&format!("{name}@e"));
        world.write(name, 50, 10, 8);
        world.settle();
    }
    world.pool.rollback("tank/v@c", true).unwrap();
    assert_eq!(world.read("tank/v"), blocks(&[(0, 40, 2), (10, 40, 3)]));
    world.destroy("tank/of-d@e");
    world.destroy("tank/of-d");
    world.settle();
    world.pool.rollback("tank/c@b", true).unwrap();
    assert_eq!(world.read("tank/c"), blocks(&[(0, 40, 2)]));
    assert_eq!(world.snapshots(), ["tank/c@a", "tank/c@b", "tank/of-c@e", "tank/v@c"]);
    // A clone of a clone: its origin is the volume's, which is a clone itself.
    world.promote("tank/of-c");
    let world = world.import_again();
    assert_eq!(world.dataset("tank/v").origin().as_deref(), Some("tank/of-c@c"));
    assert_eq!(world.dataset("tank/of-c").origin().as_deref(), Some("tank/c@b"));
    for name in ["tank/v", "tank/of-c@e", "tank/of-c@c", "tank/of-c", "tank/c@b", "tank/c@a", "tank/c"] {
        world.destroy(name);
        world.settle();
    }
    assert_eq!(world.check(), 0);
}

/// Ranges that were cleared and are not free yet, and snapshots that are being pruned.
#[test]
fn what_is_being_freed_is_no_obstacle() {
    for frees_per_txg in [1, 3, 4096] {
        let world = World::with(PoolOptions { frees_per_txg, ..manual() });
        world.snapshot("tank/v@a");
        world.tx(|tx| world.open("tank/v").punch(tx, 0, 90 * UNIT).unwrap());
        world.snapshot("tank/v@b");
        world.make_clone("tank/v@b", "tank/c");
        world.tx(|tx| world.open("tank/v").punch(tx, 91 * UNIT, 9 * UNIT).unwrap());
        world.tx(|tx| world.open("tank/c").punch(tx, 90 * UNIT, UNIT).unwrap());
        world.snapshot("tank/v@x");
        world.write("tank/v", 30, 5, 2);
        world.destroy("tank/v@x");
        world.pool.sync().unwrap();
        world.promote("tank/c");
        world.settle();
        let holes = blocks(&[(0, 90, 0)]);
        assert_eq!(world.read("tank/c@a"), blocks(&[]));
        assert_eq!(world.read("tank/c@b"), holes);
        let mut clone = holes.clone();
        clone[90] = 0;
        assert_eq!(world.read("tank/c"), clone);
        let mut volume = blocks(&[(0, 100, 0), (30, 5, 2)]);
        volume[90] = 1;
        assert_eq!(world.read("tank/v"), volume);
        world.destroy("tank/c@a");
        assert_eq!(world.settle(), 10 + 5);
    }
}

#[test]
fn ranges_of_many_rows_are_freed_before_rows_change_places() {
    for frees_per_txg in [1, 3] {
        let world = World::with(PoolOptions { frees_per_txg, ..manual() });
        world.snapshot("tank/v@a");
        world.make_clone("tank/v@a", "tank/c");
        world.write("tank/v", 0, 95, 2);
        world.write("tank/c", 0, 95, 3);
        world.pool.sync().unwrap();
        world.tx(|tx| world.open("tank/v").punch(tx, 0, 90 * UNIT).unwrap());
        world.tx(|tx| world.open("tank/c").punch(tx, 5 * UNIT, 90 * UNIT).unwrap());
        world.promote("tank/c");
        let volume = blocks(&[(0, 90, 0), (90, 5, 2)]);
        let clone = blocks(&[(0, 5, 3), (5, 90, 0)]);
        assert_eq!([world.read("tank/v"), world.read("tank/c")], [volume.clone(), clone.clone()]);
        // What either has, but for the blocks that both have from the snapshot, which has all of its own.
        assert_eq!(world.settle(), 100 + 5 + 5);
        let world = world.import_again();
        assert_eq!([world.read("tank/v"), world.read("tank/c")], [volume, clone]);
        assert_eq!(world.read("tank/c@a"), blocks(&[]));
        world.check();
    }
}

#[test]
fn values_go_with_their_names() {
    let world = World::branched(manual());
    let put = |name: &str, key: &[u8], value: &[u8]| {
        world.tx(|tx| world.dataset(name).put_aux(tx, key, Some(value)));
    };
    for (name, key, value) in
        [("tank/v", "k", "of v"), ("tank/v", "one", "1"), ("tank/c", "k", "of c"), ("tank/c", "stays", "s")]
    {
        put(name, key.as_bytes(), value.as_bytes());
    }
    world.tx(|tx| world.dataset("tank/v").set(tx, Property::Quota, Some(1 << 30)).unwrap());
    world.pool.sync().unwrap();
    let (of_v, of_c) = (world.dataset("tank/v").id(), world.dataset("tank/c").id());
    world.promote("tank/c");
    assert_eq!((world.dataset("tank/v").id(), world.dataset("tank/c").id()), (of_c, of_v));
    let world = world.import_again();
    let value = |name: &str, key: &[u8]| {
        world.dataset(name).synced_aux(key).unwrap().map(|value| String::from_utf8(value).unwrap())
    };
    assert_eq!(value("tank/v", b"k").as_deref(), Some("of v"));
    assert_eq!(value("tank/v", b"one").as_deref(), Some("1"));
    assert_eq!(value("tank/c", b"one"), None);
    assert_eq!(value("tank/c", b"k").as_deref(), Some("of c"));
    assert_eq!(value("tank/v", b"stays").as_deref(), Some("s"), "with its number");
    assert_eq!(world.dataset("tank/v").get(Property::Quota), (1 << 30, true));
    assert_eq!(world.dataset("tank/c").get(Property::Quota), (0, false));
}

#[test]
fn what_cannot_be_promoted_is_refused() {
    let world = World::branched(manual());
    let refused = |name: &str| world.pool.promote(name, |_| false).unwrap_err();
    assert!(matches!(refused("tank/v"), PoolError::Invalid { .. }));
    assert!(matches!(refused("tank/v@b"), PoolError::Invalid { .. }));
    assert!(matches!(refused("tank/none"), PoolError::NoDataset(_)));
    for name in ["tank/v", "tank/c"] {
        let open = world.open(name);
        assert!(matches!(refused("tank/c"), PoolError::Busy { name: busy, .. } if busy == name));
        drop(open);
    }
    // A snapshot that is in use is none in the way.
    let open = world.open("tank/v@c");
    world.snapshot("tank/c@a");
    assert!(matches!(refused("tank/c"), PoolError::Exists(name) if name == "tank/c@a"));
    assert_branched(&world, ["v", "v", "v", "c"]);
    world.destroy("tank/c@a");
    world.promote("tank/c");
    let mut block = [0];
    open.read(85 * UNIT, &mut block).unwrap();
    assert_eq!(block, [1]);
    drop(open);
    assert_branched(&world, ["c", "c", "v", "c"]);
}

/// Damage that a scrub found is that of the volume that has the block.
#[test]
fn damage_stays_with_its_volume() {
    let world = World::branched(manual());
    let device = &world.rig.devices[0];
    let mut all = vec![0; 64 << 20];
    fastness_blkdev::BlockDevice::read_at(&**device, 0, &mut all).unwrap();
    for (at, _) in all
        .chunks(BLOCK_BYTES)
        .enumerate()
        .filter(|(_, unit)| **unit == [4; BLOCK_BYTES] || **unit == [6; BLOCK_BYTES])
    {
        fastness_blkdev::BlockDevice::write_at(&**device, at as u64 * UNIT, &[0x5a; 512]).unwrap();
    }
    world.pool.scrub(|_| true).unwrap();
    let damaged = |name: &str| {
        let owner = Some((world.dataset(name).id(), ObjectId(1)));
        world.pool.damaged().0.iter().filter(|block| block.owner == owner).count()
    };
    assert_eq!((damaged("tank/v"), damaged("tank/c")), (10, 40));
    world.promote("tank/c");
    assert_eq!((damaged("tank/v"), damaged("tank/c")), (10, 40));
}
