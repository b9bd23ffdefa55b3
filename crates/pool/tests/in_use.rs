//! Datasets and pools that are in use, and what is refused because of it: a dataset that is held is not
//! destroyed, an exported pool is not read.

mod support;

use fastness_pool::{DatasetKind, ErrorKind, ObjectId, Pool, PoolError, Property, RowChange, TableId};
use support::{Rig, host, manual};

fn pool(rig: &std::sync::Arc<Rig>) -> Pool {
    Pool::create("tank", &support::Shape::Single.specs(rig.all()), manual()).unwrap()
}

#[test]
fn what_is_held_is_not_destroyed() {
    let rig = Rig::fresh(1, 16 << 20, 0);
    let pool = pool(&rig);
    let tx = pool.begin_tx().unwrap();
    let dataset = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    let holds = [dataset.hold().unwrap(), pool.dataset("tank/a").unwrap().hold().unwrap()];
    for hold in holds {
        let refused = pool.destroy_dataset(&tx, "tank/a").unwrap_err();
        assert_eq!(refused.to_string(), "tank/a is busy: it is open");
        assert_eq!(refused.kind(), ErrorKind::Retry);
        assert!(matches!(dataset.check_unused(), Err(PoolError::Busy { .. })));
        drop(hold);
    }
    dataset.check_unused().unwrap();
    let object = dataset.create_object(&tx).unwrap();
    assert!(matches!(dataset.check_unused(), Err(PoolError::Busy { .. })));
    drop(object);
    // What is only looked at does not keep it, and cannot begin to.
    pool.destroy_dataset(&tx, "tank/a").unwrap();
    assert!(matches!(dataset.hold(), Err(PoolError::NoDataset(_))));
    assert!(matches!(dataset.check_unused(), Err(PoolError::NoDataset(_))));
    drop(tx);
    pool.sync().unwrap();
    assert!(pool.check().unwrap().is_clean());
}

#[test]
fn an_exported_pool_is_not_read() {
    let rig = Rig::fresh(1, 16 << 20, 0);
    let pool = pool(&rig);
    let tx = pool.begin_tx().unwrap();
    let dataset = pool.create_dataset(&tx, "tank/a", DatasetKind::Filesystem, &[]).unwrap();
    let (object, table) = (dataset.create_object(&tx).unwrap(), dataset.table(TableId(1)));
    object.write(&tx, 0, &[7; 4096]).unwrap();
    dataset
        .change_rows(&tx, &[RowChange { table: table.id(), key: b"a", value: Some(b"1") }], false)
        .unwrap();
    drop(tx);
    pool.sync().unwrap();
    let (mut buf, mut value, mut segments) = ([0; 4096], Vec::new(), Vec::new());
    // Now it is cached.
    assert_eq!(object.read(0, &mut buf).unwrap(), 4096);
    pool.export().unwrap();
    let results = [
        ("read", object.read(0, &mut buf).map(drop)),
        ("read past the end", object.read(1 << 20, &mut buf).map(drop)),
        ("read to copy", object.read_to_copy(0, &mut buf).map(drop)),
        ("segments", object.segments(0, 4096, 1, &mut segments)),
        ("row", table.get(b"a", &mut value).map(drop)),
        ("rows", {
            let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
            table.scan(all, |_, _| std::ops::ControlFlow::Continue(()))
        }),
        ("open an object", dataset.object(ObjectId(1)).map(drop)),
        ("objects", dataset.synced_objects().map(drop)),
        ("hold", dataset.hold().map(drop)),
        ("begin", pool.begin_tx().map(drop)),
        ("sync", pool.sync().map(drop)),
        ("export again", pool.export()),
    ];
    for (what, result) in results {
        assert!(matches!(result, Err(PoolError::Closed)), "{what}: {result:?}");
    }
    // What it is like can still be asked.
    assert_eq!((pool.name(), dataset.name()), ("tank".to_owned(), "tank/a".to_owned()));
    assert_eq!((pool.datasets().len(), object.size_bytes()), (2, 4096));
    assert_eq!(dataset.get(Property::Sync), (0, false));
    drop((object, table, dataset, pool));
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    let object = pool.dataset("tank/a").unwrap().object(ObjectId(1)).unwrap();
    assert_eq!(object.read(0, &mut buf).unwrap(), 4096);
}

#[test]
fn a_kind_of_another_owner_has_a_number_of_its_own() {
    let rig = Rig::fresh(1, 16 << 20, 0);
    let pool = pool(&rig);
    let tx = pool.begin_tx().unwrap();
    for (number, known) in [(0, "folder"), (1, "volume"), (2, "filesystem")] {
        let refused = pool.create_dataset(&tx, "tank/a", DatasetKind::Other(number), &[]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(
            refused.to_string(),
            format!("invalid kind of a dataset: number {number}, which is that of kind {known}")
        );
    }
    for number in [3, 255] {
        let name = format!("tank/{number}");
        pool.create_dataset(&tx, &name, DatasetKind::Other(number), &[]).unwrap();
    }
    drop(tx);
    pool.export().unwrap();
    drop(pool);
    let pool = Pool::import(&rig.all(), &host(), manual()).unwrap();
    let kinds: Vec<_> = pool.datasets().into_iter().map(|info| info.kind).collect();
    assert_eq!(kinds, [DatasetKind::Folder, DatasetKind::Other(255), DatasetKind::Other(3)]);
}
