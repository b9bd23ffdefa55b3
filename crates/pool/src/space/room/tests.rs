use std::sync::atomic::AtomicU64;

use super::*;
use fastness_sync::order::lock;

const MIB: i64 = 1 << 20;

fn room(free: i64, slop: u64) -> Room {
    let room = Room::default();
    room.set_free(free, slop);
    room
}

#[test]
fn each_claim_leaves_its_part() {
    let room = room(100 * MIB, 8 << 20);
    assert_eq!(room.usable_bytes(), 92 << 20);
    assert_eq!(room.take(92 * MIB, Claim::Data, 1), Err((92 << 20) - 1));
    room.take(92 * MIB, Claim::Data, 0).unwrap();
    assert_eq!(room.take(1, Claim::Data, 0), Err(0));
    room.take(4 * MIB, Claim::Part, 0).unwrap();
    assert_eq!(room.take(1, Claim::Part, 0), Err(0));
    room.take(2 * MIB, Claim::Free, 0).unwrap();
    assert_eq!(room.take(1, Claim::Free, 0), Err(0));
    // What was accepted once is never refused.
    room.take(50 * MIB, Claim::Replay, 0).unwrap();
    assert_eq!(room.reserved(), 148 * MIB);
    room.give(148 * MIB);
    room.set_datasets(1024);
    assert_eq!(room.left(Claim::Data), 88 * MIB);
    assert_eq!([1, 200].map(|some| room.take_some(some * MIB)), [MIB, 87 * MIB / 2]);
    assert_eq!(room.left(Claim::Data), 87 * MIB / 2);
    room.take(87 * MIB / 2, Claim::Data, 0).unwrap();
    assert_eq!(room.take_some(MIB), 0);
}

/// Threads that take and give back: never more is taken than exists, and at the end nothing is taken.
#[test]
fn threads_do_not_take_what_others_have() {
    for free in [3 * MIB, 400 * MIB] {
        let room = room(free, 0);
        let (taken, refused) = (AtomicI64::new(0), AtomicU64::new(0));
        let most = std::sync::Mutex::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (room, taken, refused, most) = (&room, &taken, &refused, &most);
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let bytes = (thread * 7919 + round * 104_729) % (2 * GRAIN) + 1;
                        if room.take(bytes, Claim::Data, 0).is_err() {
                            refused.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                        let now = taken.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        let mut most = lock(most);
                        *most = now.max(*most);
                        drop(most);
                        // Most of it is kept for a while, so that the room is full now and then.
                        if round % 16 != 0 || free > 100 * MIB {
                            taken.fetch_sub(bytes, Ordering::SeqCst);
                            room.give(bytes);
                        } else if taken.load(Ordering::SeqCst) > free - GRAIN {
                            let all = taken.swap(0, Ordering::SeqCst);
                            room.give(all);
                        }
                    }
                });
            }
        });
        assert!(*lock(&most) <= free, "{} of {free}", *lock(&most));
        assert_eq!(free > 100 * MIB, refused.load(Ordering::SeqCst) == 0);
        room.give(taken.load(Ordering::SeqCst));
        assert_eq!((room.reserved(), room.left(Claim::Data)), (0, free));
    }
}

#[test]
fn a_charge_is_what_a_change_may_take() {
    const K4: i64 = 4096;
    let block = |bytes| (Charge::block(bytes).data / K4, Charge::block(bytes).meta / K4);
    // Less than a unit takes one; a longer block may be in pieces, or have been.
    assert_eq!([512, 4096].map(block), [(1, 0), (1, 0)]);
    assert_eq!([8192, 16 << 10, 128 << 10, 1 << 20].map(block), [(2, 4), (4, 4), (32, 4), (256, 8)]);
    assert_eq!(Charge::freed(4096).total(), 0);
    assert_eq!(Charge::freed(1 << 20).total() / K4, 4);
    assert_eq!((Charge::rows(3).meta, Charge::object().meta), (6 * K4, 4 * K4));
    assert_eq!((rows_of(&(31..33)), rows_of(&(32..64))), ((0, 1), (1, 1)));
}
