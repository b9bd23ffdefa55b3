//! Random histories of one owner against the list of what it appended.

mod support;

use std::convert::Infallible;

use fastness_blkdev::{Fault, FaultPlan, On, Operation, When};
use fastness_lwb::{Header, Lsn, OnLoss, Txg, claim};
use proptest::collection::vec;
use proptest::prelude::*;
use support::*;

#[derive(Debug, Clone)]
enum Op {
    /// A record of the open txg or the next.
    Append {
        len: usize,
        is_next: bool,
    },
    Commit {
        back: u64,
    },
    Sync,
    /// Nothing happens for a while.
    Idle,
    Stop,
    Resume,
    FailWrite {
        nth: u64,
    },
    FailFlush,
    TearWrite {
        nth: u64,
    },
    /// What a crash now would leave is recovered; then life goes on as if there had been none.
    Look {
        seed: u64,
    },
    /// A crash, a recovery that crashes after so many records, another one.
    Crash {
        seed: u64,
        replayed: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![4 => 0..200usize, 2 => 200..6000usize, 1 => 6000..50_000usize];
    prop_oneof![
        12 => (len, any::<bool>()).prop_map(|(len, is_next)| Op::Append { len, is_next }),
        8 => (0..3u64).prop_map(|back| Op::Commit { back }),
        4 => Just(Op::Sync),
        2 => Just(Op::Idle),
        1 => Just(Op::Stop),
        1 => Just(Op::Resume),
        1 => (1..4u64).prop_map(|nth| Op::FailWrite { nth }),
        1 => Just(Op::FailFlush),
        1 => (1..4u64).prop_map(|nth| Op::TearWrite { nth }),
        3 => any::<u64>().prop_map(|seed| Op::Look { seed }),
        2 => (any::<u64>(), 0..6usize).prop_map(|(seed, replayed)| Op::Crash { seed, replayed }),
    ]
}

/// A crash, then a new log on the same device.
fn crash(owner: &Owner, seed: u64, replayed: usize) -> Owner {
    let image = owner.disk.crash(seed).unwrap();
    let records = owner.check_image(&image).records;
    // The first recovery dies after some records: their changes and the header are durable, in one txg.
    let disk = disk(image, FaultPlan::new(seed));
    let first_txg = Txg(owner.synced.0 + 1);
    let mut claimed = claim(space(&disk), &owner.header, first_txg, OnLoss::Fail).unwrap();
    let mut header = claimed.header();
    let mut left = replayed;
    let _ = claimed.replay(|_, next| {
        left = left.checked_sub(1).ok_or(std::io::ErrorKind::Interrupted)?;
        header = Header::decode(&next.encode()).unwrap();
        Ok::<_, std::io::Error>(())
    });
    // The second one, in a later txg, gets the rest.
    let space = space(&disk);
    let mut claimed = claim(space.clone(), &header, Txg(first_txg.0 + 1), OnLoss::Fail).unwrap();
    let mut rest = Vec::new();
    claimed
        .replay(|record, _| {
            rest.push((record.lsn, record.txg, record.bytes.to_vec()));
            Ok::<_, Infallible>(())
        })
        .unwrap();
    assert_eq!(rest, records[replayed.min(records.len())..]);
    // A new log begins beside the old chain, whose space is free when the new header is durable.
    let mut next = Owner::on(disk, space, Txg(first_txg.0 + 2));
    next.log.start();
    next.header = next.log.sync_header(next.open);
    next.synced = next.open;
    next.open = Txg(next.open.0 + 1);
    next.log.synced(next.synced);
    claimed.release();
    next.check_space();
    next
}

fn run(ops: &[Op], disk_bytes: u64) {
    let mut owner = Owner::new(disk_bytes, FaultPlan::new(0));
    for (number, op) in ops.iter().enumerate() {
        match op {
            Op::Append { len, is_next } => {
                let txg = Txg(owner.open.0 + u64::from(*is_next));
                owner.append_in(txg, &Rng(number as u64).bytes(*len));
            }
            Op::Commit { back } => {
                let upto = Lsn((owner.appended.len() as u64).saturating_sub(*back));
                // An error is fine; the oracle then does not count the records.
                let _ = owner.commit(upto);
            }
            Op::Sync => owner.sync(),
            Op::Idle => (0..3).for_each(|_| _ = owner.log.witness_idle()),
            Op::Stop => owner.log.stop(),
            Op::Resume => owner.log.resume(),
            Op::FailWrite { nth } => {
                owner.disk.set_plan(FaultPlan::new(7).rule(On::Writes, When::Nth(*nth), Fault::Errno(5)));
            }
            Op::FailFlush => {
                let flush = On::Only(Operation::Flush);
                owner.disk.set_plan(FaultPlan::new(7).rule(flush, When::Nth(1), Fault::Errno(5)));
            }
            Op::TearWrite { nth } => {
                owner.disk.set_plan(FaultPlan::new(7).rule(On::Writes, When::Nth(*nth), Fault::Torn));
            }
            Op::Look { seed } => drop(owner.check_crash(*seed)),
            Op::Crash { seed, replayed } => owner = crash(&owner, *seed, *replayed),
        }
        owner.check_space();
    }
    (0..4).for_each(|seed| drop(owner.check_crash(seed)));
    // A shutdown: stopped, synced, nothing left.
    owner.log.stop();
    (0..3).for_each(|_| owner.sync());
    assert_eq!((owner.header, owner.log.space().used_bytes()), (Header::None, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn committed_records_are_replayed_in_order_and_nothing_else(ops in vec(op(), 1..60)) {
        run(&ops, 4 << 20);
    }

    /// So small that there is often no room, and every place is used again soon.
    #[test]
    fn a_small_device_leaves_a_prefix_too(ops in vec(op(), 1..60)) {
        run(&ops, 96 << 10);
    }
}
