//! Copies that share their blocks: when they do, and that each block stays as long as anything names it.

mod support;

use std::sync::Arc;

use fastness_pool::{Dataset, DatasetKind, Feature, Object, Pool, Property, Tx};
use support::{Rig, host, manual};

const BLOCK_BYTES: usize = 16 << 10;
const BLOCKS: usize = 40;
const LEN_BYTES: usize = BLOCKS * BLOCK_BYTES;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
}

impl World {
    fn new() -> World {
        let rig = Rig::fresh(1, 64 << 20, 7);
        let specs = [fastness_pool::VdevSpec::single(rig.device(0))];
        let pool = Pool::create("tank", &specs, manual()).unwrap();
        let made = |tx: &Tx| {
            let blocks = [(Property::RecordSize, BLOCK_BYTES as u64)];
            pool.create_dataset(tx, "tank/files", DatasetKind::Filesystem, &blocks).unwrap();
        };
        made(&pool.begin_tx().unwrap());
        pool.sync().unwrap();
        World { rig, pool }
    }

    fn dataset(&self) -> Dataset {
        self.pool.dataset("tank/files").unwrap()
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        change(&self.pool.begin_tx().unwrap())
    }

    fn sync(&self) {
        self.pool.sync().unwrap();
    }

    /// An object with bytes that tell where they are, synced.
    fn source(&self) -> Object {
        let object = self.tx(|tx| {
            let object = self.dataset().create_object(tx).unwrap();
            object.write(tx, 0, &bytes(1)).unwrap();
            object
        });
        self.sync();
        object
    }

    fn empty(&self) -> Object {
        self.tx(|tx| self.dataset().create_object(tx).unwrap())
    }

    /// Units of data that are in use; the check finds nothing wrong.
    fn units(&self) -> u64 {
        let report = self.pool.check().unwrap();
        assert!(report.is_clean(), "{report:?}");
        report.referenced_units
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
    (0..LEN_BYTES).map(|at| (at / 7 % 251) as u8 ^ salt ^ (at / BLOCK_BYTES) as u8).collect()
}

fn read(object: &Object) -> Vec<u8> {
    let mut buf = vec![0; object.size_bytes() as usize];
    object.read(0, &mut buf).unwrap();
    buf
}

fn copy(tx: &Tx, from: &Object, to: &Object) {
    let mut buf = vec![0; LEN_BYTES];
    let (len, origin) = from.read_to_copy(0, &mut buf).unwrap();
    to.write_copy(tx, 0, &buf[..len], &origin).unwrap();
}

#[test]
fn a_copy_takes_no_space_and_lives_as_long_as_either() {
    let world = World::new();
    let source = world.source();
    let units = world.units();
    assert!(!world.pool.is_active(Feature::SharedBlocks));
    let [first, second] = [world.empty(), world.empty()];
    world.tx(|tx| [&first, &second].map(|to| copy(tx, &source, to)));
    world.sync();
    assert_eq!(world.units(), units, "nothing was written again");
    assert!(world.pool.is_active(Feature::SharedBlocks));
    let ids = [&source, &first, &second].map(Object::id);
    drop((source, first, second));

    let world = world.import_again();
    assert_eq!(world.units(), units);
    let [source, first, second] = ids.map(|id| world.dataset().object(id).unwrap());
    assert_eq!([&first, &second].map(read), [bytes(1), bytes(1)]);
    // One goes, one changes, and the third has what it had.
    drop(source);
    world.tx(|tx| {
        world.dataset().destroy_object(tx, ids[0]).unwrap();
        first.write(tx, 0, &bytes(2)).unwrap();
    });
    world.sync();
    world.sync();
    assert_eq!(world.units(), 2 * units);
    assert_eq!((read(&first), read(&second)), (bytes(2), bytes(1)));
    world.tx(|tx| {
        second.punch(tx, 0, LEN_BYTES as u64).unwrap();
        first.truncate(tx, BLOCK_BYTES as u64).unwrap();
    });
    (0..3).for_each(|_| world.sync());
    assert_eq!(world.units(), units / BLOCKS as u64, "what nothing names is free");
    assert_eq!(read(&second), vec![0; LEN_BYTES]);
}

/// The source changes after it was copied, in the same txg, in an older one that is still open, or is gone.
#[test]
fn a_source_that_changes_leaves_the_copy_what_it_was() {
    for how in 0..4 {
        let world = World::new();
        let (source, to) = (world.source(), world.empty());
        let older = world.pool.begin_tx().unwrap();
        let id = source.id();
        match how {
            0 => world.tx(|tx| {
                copy(tx, &source, &to);
                source.write(tx, 0, &bytes(9)).unwrap();
            }),
            1 => world.tx(|tx| {
                copy(tx, &source, &to);
                source.punch(tx, 0, LEN_BYTES as u64).unwrap();
            }),
            2 => {
                // Unsynced bytes are copied as they are.
                world.tx(|tx| source.write(tx, 0, &bytes(9)).unwrap());
                world.tx(|tx| copy(tx, &source, &to));
            }
            _ => world.tx(|tx| {
                copy(tx, &source, &to);
                world.dataset().destroy_object(tx, id).unwrap();
            }),
        }
        drop(older);
        world.sync();
        assert_eq!(read(&to), bytes(if how == 2 { 9 } else { 1 }), "{how}");
        (0..3).for_each(|_| world.sync());
        world.units();
        let to = to.id();
        let world = world.import_again();
        assert_eq!(read(&world.dataset().object(to).unwrap()), bytes(if how == 2 { 9 } else { 1 }), "{how}");
    }
}

/// In the same txg: what is written last counts.
#[test]
fn a_copy_that_changes_again_is_written() {
    let world = World::new();
    let (source, to) = (world.source(), world.empty());
    let changed = 5 * BLOCK_BYTES + 100;
    world.tx(|tx| {
        copy(tx, &source, &to);
        to.write(tx, changed as u64, &[0xee; 50]).unwrap();
        to.punch(tx, 0, BLOCK_BYTES as u64).unwrap();
    });
    world.sync();
    world.units();
    let to = to.id();
    let world = world.import_again();
    let mut expected = bytes(1);
    expected[changed..changed + 50].fill(0xee);
    expected[..BLOCK_BYTES].fill(0);
    assert_eq!(read(&world.dataset().object(to).unwrap()), expected);
}

/// A txg that is older than the copy's changes the source after that, and syncs first.
#[test]
fn an_older_txg_may_free_what_was_copied() {
    let world = World::new();
    let (source, to) = (world.source(), world.empty());
    world.sync();
    let older = world.pool.begin_tx().unwrap();
    std::thread::scope(|scope| {
        // Waits for the older transaction; the next one is in the next txg.
        let syncing = scope.spawn(|| world.sync());
        let newer = loop {
            let tx = world.pool.begin_tx().unwrap();
            if tx.txg() > older.txg() {
                break tx;
            }
            drop(tx);
            std::thread::yield_now();
        };
        copy(&newer, &source, &to);
        source.write(&older, 0, &bytes(9)).unwrap();
        drop(older);
        syncing.join().unwrap();
        // Takes what the older txg has freed.
        let other = world.dataset().create_object(&newer).unwrap();
        other.write(&newer, 0, &bytes(4)).unwrap();
        drop(newer);
    });
    world.sync();
    assert_eq!((read(&to), read(&source)), (bytes(1), bytes(9)));
    world.units();
}

#[test]
fn only_whole_blocks_of_equal_size_in_equal_places_are_shared() {
    let world = World::new();
    let source = world.source();
    let units = world.units();
    let other =
        world.tx(|tx| world.dataset().create_object_with(tx, fastness_pool::ObjectId(99), 8192).unwrap());
    let shifted = world.empty();
    world.tx(|tx| {
        copy(tx, &source, &other);
        let mut buf = vec![0; LEN_BYTES];
        let (_, origin) = source.read_to_copy(0, &mut buf).unwrap();
        shifted.write_copy(tx, 512, &buf, &origin).unwrap();
    });
    world.sync();
    assert!(world.units() > 3 * units - 4, "both were written");
    // Odd ends share what is between them.
    let before = world.units();
    let odd = world.empty();
    world.tx(|tx| {
        let mut buf = vec![0; 3 * BLOCK_BYTES];
        let (_, origin) = source.read_to_copy(5000, &mut buf).unwrap();
        odd.write_copy(tx, BLOCK_BYTES as u64 + 5000, &buf, &origin).unwrap();
    });
    world.sync();
    // Of four blocks the two in the middle are shared; the last one has 5,000 bytes.
    assert_eq!(world.units() - before, (BLOCK_BYTES / 4096) as u64 + 2);
    let mut read_back = vec![0; 3 * BLOCK_BYTES];
    odd.read(BLOCK_BYTES as u64 + 5000, &mut read_back).unwrap();
    assert_eq!(read_back, bytes(1)[5000..5000 + 3 * BLOCK_BYTES]);
}
