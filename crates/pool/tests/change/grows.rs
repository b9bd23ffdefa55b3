//! Devices that become larger.

use std::sync::Arc;

use fastness_blkdev::MemImage;
use fastness_pool::{Pool, PoolError, VdevSpec};

use crate::support::{Rig, compare_synced};
use crate::{assert_both, crash_everywhere, filled, guid, import, mirror};

/// The images of devices that have grown meanwhile.
fn longer(images: &[MemImage], more_bytes: u64) -> Vec<MemImage> {
    let longer = |image: &MemImage| {
        let mut longer = MemImage::zeroed(image.len_bytes() + more_bytes);
        longer.write(0, &image.to_vec());
        longer
    };
    images.iter().map(longer).collect()
}

#[test]
fn devices_that_have_grown_are_used_when_that_is_asked_for() {
    let (images, model) = filled(mirror, 2);
    let total = |pool: &Pool| pool.status().total_bytes;
    let before = total(&import(&Rig::new(images.clone(), 1)).unwrap());
    let images = longer(&images, 24 << 20);
    let change = |_: &Arc<Rig>, pool: &Pool| {
        let more = pool.expand(guid(pool, "disk0").unwrap())?;
        assert!(more == 24 << 20 || pool.is_suspended(), "{more}");
        Ok(())
    };
    let has_changed = |pool: &Pool| {
        assert!([before, before + (24 << 20)].contains(&total(pool)));
        total(pool) > before
    };
    assert_both(crash_everywhere(&images, &model, change, has_changed));
    // It is really there, and the next import knows it.
    let rig = Rig::new(images, 1);
    let pool = import(&rig).unwrap();
    change(&rig, &pool).unwrap();
    assert_eq!(pool.expand(guid(&pool, "disk1").unwrap()).unwrap(), 0, "not twice");
    let free = pool.usable_bytes();
    assert!(free > 20 << 20, "{free}");
    let tx = pool.begin_tx().unwrap();
    let object = pool.dataset("tank").unwrap().create_object(&tx).unwrap();
    drop(tx);
    for block in 0..16u64 {
        let tx = pool.begin_tx().unwrap();
        object.write(&tx, block << 20, &vec![block as u8 ^ 0x5a; 1 << 20]).unwrap();
        drop(tx);
        pool.sync().unwrap();
    }
    let id = object.id();
    drop(object);
    pool.export().unwrap();
    drop(pool);
    let pool = import(&rig).unwrap();
    let object = pool.dataset("tank").unwrap().object(id).unwrap();
    for block in 0..16u64 {
        let mut found = vec![0; 1 << 20];
        object.read(block << 20, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == block as u8 ^ 0x5a), "block {block}");
    }
    assert!(pool.check().unwrap().is_clean());
}

#[test]
fn what_cannot_grow_is_refused_with_the_reason() {
    let specs = |rig: &Arc<Rig>| {
        let log = VdevSpec::single(rig.device(2)).log();
        [mirror(rig), vec![log]].concat()
    };
    let (images, model) = filled(specs, 3);
    // Of two sides, only one has grown.
    let mut uneven = longer(&images, 4 << 20);
    uneven[1] = images[1].clone();
    let rig = Rig::new(uneven, 1);
    let pool = import(&rig).unwrap();
    assert_eq!(pool.expand(guid(&pool, "disk0").unwrap()).unwrap(), 0);
    drop(pool);
    let rig = Rig::new(longer(&images, 4 << 20), 1);
    let pool = import(&rig).unwrap();
    assert!(matches!(pool.expand(guid(&pool, "disk2").unwrap()), Err(PoolError::Invalid { .. })));
    let first = guid(&pool, "disk0").unwrap();
    pool.offline(guid(&pool, "disk1").unwrap()).unwrap();
    assert!(matches!(pool.expand(first), Err(PoolError::Busy { name, .. }) if name == "disk1"));
    // It is there again, and lacks what it missed.
    let second = pool.status().vdevs[0].2[1].guid;
    pool.online(second, rig.device(1)).unwrap();
    assert!(matches!(pool.expand(first), Err(PoolError::Busy { name, .. }) if name == "disk1"));
    pool.resilver(second, |_| true).unwrap();
    assert_eq!(pool.expand(first).unwrap(), 4 << 20);
    compare_synced(&pool, &model);
}
