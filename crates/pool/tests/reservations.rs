//! A reservation is a promise: one that the pool cannot keep is refused, and takes nothing from others.

mod support;

use fastness_pool::{DatasetKind, Pool, PoolError, Property, VdevSpec};
use support::{Rig, manual};

const MIB: u64 = 1 << 20;

fn reserve(pool: &Pool, name: &str, bytes: u64) -> Result<(), PoolError> {
    let tx = pool.begin_tx()?;
    pool.dataset(name)?.set(&tx, Property::Reservation, Some(bytes))
}

#[test]
fn what_the_pool_cannot_keep_is_refused() {
    let rig = Rig::fresh(1, 64 * MIB, 4);
    let pool = Pool::create("tank", &[VdevSpec::single(rig.device(0))], manual()).unwrap();
    {
        let tx = pool.begin_tx().unwrap();
        pool.create_dataset(&tx, "tank/a", DatasetKind::Folder, &[]).unwrap();
        pool.create_dataset(&tx, "tank/b", DatasetKind::Folder, &[]).unwrap();
    }
    let free_bytes = |name: &str| pool.dataset(name).unwrap().available_bytes().0;
    let all = free_bytes("tank/a");
    let refused = reserve(&pool, "tank/a", 1 << 40).unwrap_err();
    assert!(refused.to_string().contains("tank/a"), "{refused}");
    assert!(matches!(refused, PoolError::Reservation { wanted_bytes, free_bytes, .. }
        if wanted_bytes == 1 << 40 && free_bytes <= all && free_bytes + 2 * MIB > all));
    assert!(free_bytes("tank/b") + 2 * MIB > all, "nothing was taken from others");
    reserve(&pool, "tank/a", all / 2).unwrap();
    assert!(free_bytes("tank/b") <= all / 2);
    // What is promised to one cannot be promised to another; less, or more of the rest, can.
    assert!(matches!(reserve(&pool, "tank/b", all * 3 / 4), Err(PoolError::Reservation { .. })));
    assert!(matches!(reserve(&pool, "tank", all), Err(PoolError::Reservation { .. })));
    reserve(&pool, "tank/a", all * 3 / 4).unwrap();
    reserve(&pool, "tank/a", all / 4).unwrap();
    reserve(&pool, "tank/b", all / 2).unwrap();
    {
        let tx = pool.begin_tx().unwrap();
        let values = [(Property::Reservation, all / 2)];
        let new = pool.create_dataset(&tx, "tank/c", DatasetKind::Folder, &values);
        assert!(matches!(new, Err(PoolError::Reservation { name, .. }) if name == "tank/c"));
    }
    assert!(pool.dataset("tank/c").is_err());
    pool.sync().unwrap();
}
