//! A txg that ends, as a whole, before each lock that a lookup or a scan takes: rows are in the layers, or in
//! the tables, and never in neither.

mod support;

use std::cell::{Cell, RefCell};
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;

use fastness_pool::{Pool, Table, TableId};
use fastness_sync::turns::{Decider, decide_by};
use support::{Rig, Shape, manual};

thread_local! {
    /// Locks that this thread still takes before the txg ends; `None`: it does not end.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    static POOL: RefCell<Option<Rc<Pool>>> = const { RefCell::new(None) };
}

fn take(_: bool) {
    let left = LEFT.get().expect("only then is this thread asked");
    LEFT.set(left.checked_sub(1));
    if left == 0 {
        let pool = POOL.with_borrow(|pool| pool.clone().expect("set before"));
        pool.sync().unwrap();
    }
}

/// Runs `read` with a sync before its lock number `at`; returns whether it took so many.
fn at_lock<T>(at: u32, read: impl FnOnce() -> T) -> (T, bool) {
    LEFT.set(Some(at));
    let found = read();
    (found, LEFT.take().is_none())
}

fn rows(table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let show = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    table.scan((Bound::Unbounded, Bound::Unbounded), show).unwrap();
    rows
}

#[test]
fn a_txg_that_ends_during_a_read_hides_nothing() {
    decide_by(Decider {
        is_one: || LEFT.get().is_some(),
        take,
        now: || None,
        sleep: |_| false,
        number: || None,
    });
    let rig = Rig::fresh(1, 24 << 20, 1);
    let pool = Rc::new(Pool::create("tank", &Shape::Single.specs(rig.all()), manual()).unwrap());
    POOL.set(Some(pool.clone()));
    let table = pool.dataset("tank").unwrap().table(TableId(0));
    // One that is new in each txg, one that changes, one that goes.
    let prepare = |round: u32| {
        let tx = pool.begin_tx().unwrap();
        table.remove(&tx, b"new").unwrap();
        table.put(&tx, b"gone", b"1").unwrap();
        drop(tx);
        pool.sync().unwrap();
        let tx = pool.begin_tx().unwrap();
        table.put(&tx, b"new", b"1").unwrap();
        table.put(&tx, b"changed", &round.to_le_bytes()).unwrap();
        table.remove(&tx, b"gone").unwrap();
    };
    let get = |key: &[u8]| {
        let mut value = Vec::new();
        table.get(key, &mut value).unwrap().then_some(value)
    };
    let (mut in_gets, mut in_scans) = (0, 0);
    for at in 0..40_u32 {
        let value = at.to_le_bytes().to_vec();
        let expected =
            [(&b"new"[..], Some(b"1".to_vec())), (b"changed", Some(value.clone())), (b"gone", None)];
        for (key, expected) in expected {
            prepare(at);
            let (found, is_done) = at_lock(at, || get(key));
            assert_eq!(found, expected, "{} at lock {at}", key.escape_ascii());
            in_gets += u32::from(is_done);
        }
        prepare(at);
        let (found, is_done) = at_lock(at, || rows(&table));
        assert_eq!(found, [(b"changed".to_vec(), value), (b"new".to_vec(), b"1".to_vec())], "at lock {at}");
        in_scans += u32::from(is_done);
    }
    assert!(in_gets >= 3 && in_scans > 16, "{in_gets} {in_scans}");
    POOL.take();
}
