//! The allocator against a set of units.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn allocator(units: &[u64]) -> Allocator {
    let mut allocator = Allocator::default();
    for (id, units) in units.iter().enumerate() {
        allocator.add_vdev(id as u16, *units);
    }
    allocator
}

#[test]
fn neighbours_lie_together_and_vdevs_take_turns() {
    let mut allocator = allocator(&[10_000, 10_000]);
    let places: Vec<_> = (0..512).map(|_| allocator.allocate_data(1).unwrap()).collect();
    assert_eq!(places[0], Place { vdev: 0, unit: 0 });
    assert_eq!(places[255], Place { vdev: 0, unit: 255 });
    assert_eq!(places[256], Place { vdev: 1, unit: 0 });
}

#[test]
fn freed_units_wait_for_the_release_and_are_freed_once() {
    let mut allocator = allocator(&[8]);
    let place = allocator.allocate_data(8).unwrap();
    assert!(allocator.allocate_data(1).is_none());
    allocator.free_data(place, 8).unwrap();
    assert!(allocator.allocate_data(1).is_none() && allocator.allocate_meta().is_none());
    assert!(allocator.free_data(place, 1).is_err());
    allocator.release();
    assert_eq!(allocator.free_bytes(), 8 * UNIT_BYTES);
    assert!(allocator.allocate_data(8).is_some());
}

#[derive(Debug, Clone)]
enum Op {
    Data(u64),
    Meta,
    Log(u64),
    FreeLog(usize),
    Free(usize),
    Release,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..40u64).prop_map(Op::Data),
        2 => Just(Op::Meta),
        3 => (1..33u64).prop_map(Op::Log),
        2 => any::<usize>().prop_map(Op::FreeLog),
        4 => any::<usize>().prop_map(Op::Free),
        1 => Just(Op::Release),
    ]
}

proptest! {
    /// Against a set of units: nothing is allocated twice, nothing is lost, rows reload to the same state.
    #[test]
    fn behaves_like_a_set(ops in vec(op(), 1..300)) {
        let sizes = [4096 * 2 + 100, 300];
        let mut allocator = allocator(&sizes);
        let mut held: Vec<(Place, u64, bool)> = Vec::new();
        let mut logs: Vec<(Place, u64)> = Vec::new();
        let (mut busy, mut waiting) = (BTreeSet::new(), Vec::new());
        let mut rows = BTreeMap::new();
        for op in ops {
            let units = match op { Op::Data(units) => units, _ => 1 };
            match op {
                Op::Log(units) => {
                    let Some(place) = allocator.allocate_log(units, &|_| true) else { continue };
                    prop_assert!(allocator.can_hold_log(place, units) && !allocator.claim_log(place, 1));
                    for unit in place.unit..place.unit + units {
                        prop_assert!(busy.insert((place.vdev, unit)), "handed out twice");
                    }
                    logs.push((place, units));
                }
                // Freed at once, unlike what a txg frees; and it can be claimed again.
                Op::FreeLog(index) if !logs.is_empty() => {
                    let (place, units) = logs.swap_remove(index % logs.len());
                    allocator.free_log(place, units);
                    prop_assert!(allocator.claim_log(place, units));
                    allocator.free_log(place, units);
                    for unit in place.unit..place.unit + units {
                        busy.remove(&(place.vdev, unit));
                    }
                }
                Op::FreeLog(_) => {}
                Op::Data(_) | Op::Meta => {
                    let is_data = matches!(op, Op::Data(_));
                    let place =
                        if is_data { allocator.allocate_data(units) } else { allocator.allocate_meta() };
                    if let Some(place) = place {
                        for unit in place.unit..place.unit + units {
                            prop_assert!(unit < sizes[usize::from(place.vdev)]);
                            prop_assert!(busy.insert((place.vdev, unit)), "handed out twice");
                        }
                        held.push((place, units, is_data));
                    }
                }
                Op::Free(index) if !held.is_empty() => {
                    let (place, units, is_data) = held.swap_remove(index % held.len());
                    if is_data { allocator.free_data(place, units).unwrap() } else { allocator.free_meta(place) }
                    waiting.push((place, units));
                }
                Op::Free(_) => {}
                Op::Release => {
                    for (vdev, region, bytes) in allocator.take_dirty() {
                        rows.insert((vdev, region), bytes);
                    }
                    allocator.release();
                    for (place, units) in waiting.drain(..) {
                        for unit in place.unit..place.unit + units {
                            busy.remove(&(place.vdev, unit));
                        }
                    }
                }
            }
            let free: u64 = sizes.iter().sum::<u64>() - busy.len() as u64;
            prop_assert_eq!(allocator.free_bytes(), free * UNIT_BYTES);
        }
        // Log blocks are in no row; everything that is busy has an owner.
        let owned = allocator.busy_units().into_iter().map(|place| (place.vdev, place.unit));
        let waiting: BTreeSet<_> = waiting
            .iter()
            .flat_map(|(place, units)| (place.unit..place.unit + units).map(|unit| (place.vdev, unit)))
            .collect();
        prop_assert!(owned.eq(busy.difference(&waiting).copied()));
        for (vdev, region, bytes) in allocator.take_dirty() {
            rows.insert((vdev, region), bytes);
        }
        let mut again = self::allocator(&sizes);
        for ((vdev, region), bytes) in &rows {
            again.load(*vdev, *region, bytes).unwrap();
        }
        prop_assert!(again.data_units().eq(allocator.data_units()));
    }
}

#[test]
fn a_vdev_that_grows_has_what_it_had_and_more() {
    // The last region is short, in all three shapes.
    for taken in [0, 3, 1000] {
        let units = REGION_UNITS + 1000;
        let mut allocator = Allocator::default();
        allocator.add_vdev(0, units);
        for unit in 0..taken {
            assert!(allocator.claim_log(Place { vdev: 0, unit: REGION_UNITS + unit }, 1));
        }
        let before = (allocator.free_bytes(), allocator.room_bytes());
        allocator.grow_vdev(0, units);
        assert_eq!((allocator.free_bytes(), allocator.room_bytes()), before, "not longer");
        let grown = 3 * REGION_UNITS + 7;
        allocator.grow_vdev(0, grown);
        let more = (grown - units) * UNIT_BYTES;
        assert_eq!(allocator.free_bytes(), before.0 + more);
        assert_eq!(allocator.room_bytes(), before.1 + more as i64);
        assert_eq!(allocator.total_bytes(), grown * UNIT_BYTES);
        // All of it can be taken, once.
        let mut units = 0;
        while allocator.allocate_data(1).is_some() {
            units += 1;
        }
        assert_eq!((units, allocator.free_bytes()), (grown - taken, 0));
    }
}
