//! Properties of users, when datasets were made, and what compression saves.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use fastness_pool::{
    DatasetKind, Pool, PoolError, Property, Ratio, Tx, USER_BYTES_MAX, USER_VALUE_BYTES_MAX, VdevSpec,
};
use support::{Rig, host, manual};

const BLOCK_BYTES: u64 = 16 << 10;

struct World {
    rig: Arc<Rig>,
    pool: Pool,
}

impl World {
    fn new() -> World {
        let rig = Rig::fresh(1, 64 << 20, 7);
        let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
        let world = World { rig, pool };
        world.tx(|tx| {
            let properties =
                [(Property::VolBlockSize, BLOCK_BYTES), (Property::Compression, 1), (Property::Sync, 1)];
            let dataset = world.pool.create_dataset(tx, "tank/v", DatasetKind::Volume, &properties).unwrap();
            dataset.create_object(tx).unwrap();
        });
        world
    }

    fn tx<T>(&self, change: impl FnOnce(&Tx) -> T) -> T {
        let result = change(&self.pool.begin_tx().unwrap());
        self.pool.sync().unwrap();
        result
    }

    fn set(&self, name: &str, users: &[(&str, Option<&str>)]) -> Result<(), PoolError> {
        let own = |(name, value): &(&str, Option<&str>)| ((*name).to_owned(), value.map(str::to_owned));
        let users: Vec<_> = users.iter().map(own).collect();
        self.tx(|tx| self.pool.dataset(name)?.set_all(tx, &[], &users))
    }

    fn of(&self, name: &str) -> BTreeMap<String, String> {
        self.pool.dataset(name).unwrap().user_properties().unwrap()
    }

    fn again(self) -> World {
        self.pool.export().unwrap();
        let World { rig, pool } = self;
        drop(pool);
        let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
        World { rig, pool }
    }

    fn write(&self, block: u64, bytes: &[u8]) {
        let data = self.pool.dataset("tank/v").unwrap().object(fastness_pool::ObjectId(1)).unwrap();
        self.tx(|tx| data.write(tx, block * BLOCK_BYTES, bytes).unwrap());
    }

    fn ratios(&self, name: &str) -> [(u64, u64); 2] {
        let dataset = self.pool.dataset(name).unwrap();
        [dataset.used_ratio().unwrap(), dataset.shown_ratio().unwrap()]
            .map(|Ratio { plain_bytes, stored_bytes }| (plain_bytes, stored_bytes))
    }
}

#[test]
fn values_are_kept_with_their_dataset_and_go_with_it() {
    let world = World::new();
    world.set("tank/v", &[("a:x", Some("1")), ("a:y", Some("ä = \"2\""))]).unwrap();
    world.set("tank", &[("a:x", Some(""))]).unwrap();
    world.tx(|tx| world.pool.snapshot(tx, "tank/v@s").map(drop)).unwrap();
    world.set("tank/v@s", &[("a:s", Some("of a snapshot"))]).unwrap();
    world.set("tank/v", &[("a:x", None), ("a:z", None)]).unwrap();
    let world = world.again();
    let map = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(world.of("tank"), map(&[("a:x", "")]));
    assert_eq!(world.of("tank/v"), map(&[("a:y", "ä = \"2\"")]));
    assert_eq!(world.of("tank/v@s"), map(&[("a:s", "of a snapshot")]));
    let refused = world.tx(|tx| world.pool.dataset("tank/v@s").unwrap().set(tx, Property::Sync, Some(1)));
    assert!(matches!(refused, Err(PoolError::Invalid { .. })), "a snapshot takes no others");
    world.tx(|tx| world.pool.destroy_dataset(tx, "tank/v@s")).unwrap();
    world.tx(|tx| world.pool.destroy_dataset(tx, "tank/v")).unwrap();
    while world.pool.is_freeing() {
        world.pool.sync().unwrap();
    }
    let report = world.pool.check().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn all_of_what_is_set_together_or_nothing() {
    let world = World::new();
    let long = "x".repeat(USER_VALUE_BYTES_MAX + 1);
    for wrong in [("noname", "1"), ("a:b", long.as_str()), ("A:b", "1"), ("a:b", "\n")] {
        let refused = world.set("tank/v", &[("a:x", Some("1")), (wrong.0, Some(wrong.1))]);
        assert!(matches!(refused, Err(PoolError::Invalid { .. })), "{wrong:?}");
    }
    let users = [("a:x".to_owned(), Some("1".to_owned()))];
    let dataset = world.pool.dataset("tank/v").unwrap();
    let values = [(Property::Compression, Some(2)), (Property::Reservation, Some(1 << 40))];
    let refused = world.tx(|tx| dataset.set_all(tx, &values, &users));
    assert!(matches!(refused, Err(PoolError::Reservation { .. })));
    assert_eq!(world.of("tank/v"), BTreeMap::new());
    assert_eq!(dataset.get(Property::Compression), (1, true));
}

#[test]
fn a_pool_has_room_for_so_many() {
    let world = World::new();
    let value = "x".repeat(USER_VALUE_BYTES_MAX);
    let fits = USER_BYTES_MAX / (USER_VALUE_BYTES_MAX + 10);
    for number in 0..fits {
        world.set("tank/v", &[(&format!("a:{number:03}"), Some(&value))]).unwrap();
    }
    let refused = world.set("tank", &[("a:more", Some(&value))]).unwrap_err();
    assert!(refused.to_string().contains("1 MiB at most"), "{refused}");
    world.set("tank/v", &[("a:000", None)]).unwrap();
    world.set("tank", &[("a:more", Some(&value))]).unwrap();
    assert!(world.pool.check().unwrap().is_clean());
}

/// The debug assertion of each sync that a txg takes no more than was reserved is what this is about.
#[test]
fn a_full_pool_refuses_them_before_a_txg_finds_no_room() {
    let world = World::new();
    let mut block = 0;
    let noise = |seed: u64| support::Rng::new(seed).bytes(BLOCK_BYTES as usize);
    let data = world.pool.dataset("tank/v").unwrap().object(fastness_pool::ObjectId(1)).unwrap();
    while world.tx(|tx| data.write(tx, block * BLOCK_BYTES, &noise(block))).is_ok() {
        block += 1;
    }
    let value = "x".repeat(USER_VALUE_BYTES_MAX);
    let users: Vec<_> = (0..100).map(|number| (format!("a:{number:03}"), Some(value.clone()))).collect();
    let refused = world.tx(|tx| world.pool.dataset("tank").unwrap().set_all(tx, &[], &users));
    assert!(matches!(refused, Err(PoolError::NoSpace { .. })), "{refused:?}");
    assert_eq!(world.of("tank"), BTreeMap::new());
    // Removing is possible all the same.
    world.set("tank", &[("a:x", None)]).unwrap();
}

#[test]
fn datasets_say_when_they_were_made() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    let world = World::new();
    world.tx(|tx| world.pool.snapshot(tx, "tank/v@s").map(drop)).unwrap();
    world.tx(|tx| world.pool.clone_snapshot(tx, "tank/v@s", "tank/c", &[]).map(drop)).unwrap();
    let after = now();
    let world = world.again();
    for name in ["tank", "tank/v", "tank/v@s", "tank/c"] {
        let at = world.pool.dataset(name).unwrap().created_unix_s().unwrap();
        assert!((before..=after).contains(&at), "{name}: {at}");
    }
    // As in a pool of an older program.
    world.tx(|tx| world.pool.dataset("tank/v").unwrap().put_aux(tx, b"created", None));
    assert_eq!(world.pool.dataset("tank/v").unwrap().created_unix_s(), None);
    world.tx(|tx| world.pool.dataset("tank/v").unwrap().put_aux(tx, b"created", Some(b"today")));
    assert_eq!(world.pool.dataset("tank/v").unwrap().created_unix_s(), None);
}

#[test]
fn ratios_count_each_block_once() {
    let world = World::new();
    let alike = vec![7; BLOCK_BYTES as usize];
    (0..40).for_each(|block| world.write(block, &alike));
    let block = (BLOCK_BYTES, 4096);
    let times = |count: u64| (block.0 * count, block.1 * count);
    assert_eq!(world.ratios("tank/v"), [times(40); 2]);
    world.tx(|tx| world.pool.snapshot(tx, "tank/v@s").map(drop)).unwrap();
    (0..10).for_each(|block| world.write(block, &alike));
    assert_eq!(world.ratios("tank/v"), [times(50), times(40)]);
    assert_eq!(world.ratios("tank/v@s")[1], times(40));
    let lz4 = [(Property::Compression, 1)];
    world.tx(|tx| world.pool.clone_snapshot(tx, "tank/v@s", "tank/c", &lz4).map(drop)).unwrap();
    assert_eq!(world.ratios("tank/c"), [times(0), times(40)]);
    // A row of a clone has blocks of its base, too.
    let clone = world.pool.dataset("tank/c").unwrap().object(fastness_pool::ObjectId(1)).unwrap();
    world.tx(|tx| clone.write(tx, 0, &alike).unwrap());
    assert_eq!(world.ratios("tank/c"), [times(1), times(40)]);
    // What does not get smaller: a block of noise takes as much as it is long.
    let mut noise = support::Rng::new(1);
    let noise: Vec<u8> = std::iter::repeat_with(|| noise.next().to_le_bytes()).take(2048).flatten().collect();
    world.write(100, &noise);
    let (plain, stored) = times(40);
    assert_eq!(world.ratios("tank/v")[1], (plain + BLOCK_BYTES, stored + BLOCK_BYTES));
    let data = world.pool.dataset("tank/v").unwrap().object(fastness_pool::ObjectId(1)).unwrap();
    world.tx(|tx| data.punch(tx, 0, 101 * BLOCK_BYTES).unwrap());
    assert_eq!(world.ratios("tank/v"), [times(40), times(0)]);
}
