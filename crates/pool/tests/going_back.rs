//! Going back to a snapshot where there is little room: what it asks for is bounded by what has changed, and
//! is enough.

mod support;

use fastness_pool::{
    Dataset, DatasetKind, Object, ObjectId, Pool, PoolError, PoolOptions, Property, Short, TableId, Tx,
    VdevSpec,
};
use support::{Rig, Rng, manual};

const BLOCK: u64 = 4096;
/// Blocks of a row of extents.
const ROW: u64 = 32;
/// Pages that changing a row may copy.
const ROW_BYTES: u64 = 8192;
/// Roots of tables, the page map, bitmaps of free space.
const SHARED_BYTES: u64 = 160 << 10;
/// What every rollback asks for: rows of the volume itself.
const LEAST_BYTES: u64 = 5 * ROW_BYTES;
/// And for a newer snapshot that goes.
const GONE_BYTES: u64 = 12 * ROW_BYTES;

struct World {
    pool: Pool,
    rng: Rng,
}

impl World {
    fn new(kind: DatasetKind, block: u64, len_bytes: u64) -> World {
        let rig = Rig::fresh(1, len_bytes, 1);
        let options = PoolOptions { frees_per_txg: 64, ..manual() };
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], options).unwrap();
        let world = World { pool, rng: Rng::new(1) };
        world.make("tank/v", kind, block);
        world.pool.sync().unwrap();
        world
    }

    fn make(&self, name: &str, kind: DatasetKind, block: u64) -> Object {
        let property = match kind {
            DatasetKind::Volume => Property::VolBlockSize,
            _ => Property::RecordSize,
        };
        self.tx(|tx| {
            let dataset = self.pool.create_dataset(tx, name, kind, &[(property, block)]).unwrap();
            dataset.create_object(tx).unwrap()
        })
    }

    fn noise(&mut self, len_bytes: u64) -> Vec<u8> {
        (0..len_bytes / 8).flat_map(|_| self.rng.next().to_le_bytes()).collect()
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    fn dataset(&self) -> Dataset {
        self.pool.dataset("tank/v").unwrap()
    }

    fn open(&self, object: u64) -> Object {
        self.dataset().object(ObjectId(object)).unwrap()
    }

    /// Blocks of noise, in a txg of their own.
    fn write(&mut self, object: u64, block: u64, blocks: u64) {
        let data = self.noise(blocks * BLOCK);
        self.tx(|tx| self.open(object).write(tx, block * BLOCK, &data).unwrap());
    }

    fn punch(&self, block: u64, blocks: u64) {
        self.tx(|tx| self.open(1).punch(tx, block * BLOCK, blocks * BLOCK).unwrap());
    }

    /// An object that shares so many blocks of the first one.
    fn copy(&self, blocks: u64) {
        self.pool.sync().unwrap();
        let copy = self.tx(|tx| self.dataset().create_object(tx).unwrap());
        let mut buffer = vec![0; (blocks * BLOCK) as usize];
        let (len, origin) = self.open(1).read_to_copy(0, &mut buffer).unwrap();
        self.tx(|tx| copy.write_copy(tx, 0, &buffer[..len], &origin).unwrap());
    }

    fn snapshot(&self, name: &str) {
        self.tx(|tx| drop(self.pool.snapshot(tx, &format!("tank/v@{name}")).unwrap()));
        self.pool.sync().unwrap();
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let object = self.pool.dataset(name).unwrap().object(ObjectId(1)).unwrap();
        let mut bytes = vec![1; object.size_bytes() as usize];
        object.read(0, &mut bytes).unwrap();
        bytes
    }

    /// Goes back where there is no room, then where there is exactly as much as that asks for. Returns how
    /// much it is: never less than what the txg takes.
    fn goes_back(&self, what: &str) -> u64 {
        self.pool.sync().unwrap();
        let none = self.pool.squeeze(Short::Frees, 0);
        let refused = self.pool.rollback("tank/v@a", true).map(drop);
        drop(none);
        let Err(PoolError::NoSpace { wanted_bytes, .. }) = refused else { panic!("{what}: {refused:?}") };
        let before = self.bytes("tank/v@a");
        let squeezed = self.pool.squeeze(Short::Frees, wanted_bytes);
        self.pool.rollback("tank/v@a", true).unwrap();
        drop(squeezed);
        let taken = self.pool.status().unreserved_bytes_max;
        assert!(taken <= SHARED_BYTES, "{what}: {taken} bytes that nobody had reserved");
        assert!(self.bytes("tank/v") == before, "{what}: other bytes");
        assert!(self.pool.check().unwrap().is_clean(), "{what}");
        wanted_bytes
    }
}

/// Of a volume with thousands of rows, a few have changed, each in a place of its own.
#[test]
fn a_volume_with_few_changed_rows() {
    let mut world = World::new(DatasetKind::Volume, BLOCK, 512 << 20);
    for row in (0..6000).step_by(3) {
        world.write(1, row * ROW, 1);
    }
    world.snapshot("a");
    for changed in [1, 10, 300] {
        for row in 0..changed {
            world.write(1, row * 17 % 6000 * ROW, 1);
        }
        let wanted = world.goes_back(&format!("{changed} rows"));
        // The row, and what was kept of it.
        let bound = LEAST_BYTES + changed * 2 * ROW_BYTES;
        assert!(wanted <= bound, "{changed} rows: {wanted} bytes are asked for, {bound} at most");
    }
}

/// The same in a pool where copies share blocks: that few of those that go are shared is known.
#[test]
fn files_beside_copies_that_share_their_blocks() {
    let mut world = World::new(DatasetKind::Filesystem, BLOCK, 256 << 20);
    world.write(1, 0, 100 * ROW);
    world.copy(20 * ROW);
    world.snapshot("a");
    for (what, first, shared) in [("shared", 0, ROW), ("not shared", 50, 0)] {
        for row in first..first + 10 {
            world.write(1, row * ROW, ROW);
        }
        world.snapshot("b");
        for row in first..first + 10 {
            world.write(1, row * ROW, ROW);
        }
        let wanted = world.goes_back(what);
        let bound = LEAST_BYTES + GONE_BYTES + 10 * (3 + shared) * ROW_BYTES;
        assert!(wanted <= bound, "{what}: {wanted} bytes are asked for, {bound} at most");
    }
}

/// Blocks of two units where only single ones are free: each has a row of its pieces, far from that of the
/// block beside it.
#[test]
fn blocks_in_pieces() {
    let mut world = World::new(DatasetKind::Volume, 2 * BLOCK, 96 << 20);
    let fill = world.pool.status().free_bytes / BLOCK - 1500;
    let small = world.make("tank/small", DatasetKind::Volume, BLOCK);
    let noise = world.noise(BLOCK);
    for at in 0..fill {
        world.tx(|tx| small.write(tx, at * BLOCK, &noise).unwrap());
        if at % 2000 == 0 {
            world.pool.sync().unwrap();
        }
    }
    world.pool.sync().unwrap();
    for at in (0..fill).step_by(2) {
        world.tx(|tx| small.punch(tx, at * BLOCK, BLOCK).unwrap());
        if at % 2000 == 0 {
            world.pool.sync().unwrap();
        }
    }
    for _ in 0..3 {
        world.pool.sync().unwrap();
    }
    for part in 0..40 {
        for at in (part..1600).step_by(40) {
            world.write(1, at * 37 % 1600 * 2, 2);
        }
        world.pool.sync().unwrap();
    }
    world.snapshot("a");
    for at in (0..1600).step_by(5) {
        world.write(1, at * 2, 2);
    }
    world.goes_back("in pieces");
}

/// Cleared ranges that are still to be freed, of the snapshot and since.
#[test]
fn ranges_that_are_cleared() {
    let mut world = World::new(DatasetKind::Volume, BLOCK, 256 << 20);
    let rows = 1200;
    for row in 0..rows {
        world.write(1, row * ROW, 1);
    }
    world.pool.sync().unwrap();
    for row in (0..rows / 2).step_by(6) {
        world.punch(row * ROW, 3 * ROW);
    }
    world.snapshot("a");
    for row in (rows / 2..rows).step_by(6) {
        world.punch(row * ROW, 3 * ROW);
    }
    world.goes_back("cleared ranges");
}

/// Objects and rows of tables come, change and go.
#[test]
fn files_with_objects_and_rows() {
    let mut world = World::new(DatasetKind::Filesystem, BLOCK, 256 << 20);
    let table = |world: &World| world.dataset().table(TableId(0));
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    world.write(1, 0, 10);
    for number in 0..2000 {
        world.tx(|tx| table(&world).put(tx, &key(number), &[1; 100]).unwrap());
    }
    for _ in 0..200 {
        world.tx(|tx| drop(world.dataset().create_object(tx).unwrap()));
    }
    world.snapshot("a");
    for number in (0..2400).step_by(6) {
        world.tx(|tx| table(&world).put(tx, &key(number), &[2; 300]).unwrap());
    }
    for object in (3..200).step_by(2) {
        world.tx(|tx| world.dataset().destroy_object(tx, ObjectId(object)).unwrap());
        world.tx(|tx| drop(world.dataset().create_object(tx).unwrap()));
    }
    world.goes_back("files");
}

/// A pool that is full of other things: a rollback that changes little goes through.
#[test]
fn in_a_full_pool() {
    let mut world = World::new(DatasetKind::Filesystem, BLOCK, 64 << 20);
    world.write(1, 0, 30 * ROW);
    world.copy(ROW);
    world.snapshot("a");
    for row in 0..20 {
        world.write(1, row * ROW, 1);
    }
    let other = world.make("tank/w", DatasetKind::Volume, BLOCK);
    let mut at = 0;
    loop {
        let noise = world.noise(ROW * BLOCK);
        match world.tx(|tx| other.write(tx, at, &noise)) {
            Ok(()) => at += ROW * BLOCK,
            Err(PoolError::NoSpace { .. }) if world.pool.reclaim().unwrap() => {}
            Err(PoolError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let wanted = world.bytes("tank/v@a");
    world.pool.rollback("tank/v@a", false).unwrap();
    assert!(world.bytes("tank/v") == wanted);
    assert!(world.pool.check().unwrap().is_clean());
}
