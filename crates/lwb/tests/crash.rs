//! The power fails at every write and flush; every state that a crash may leave is recovered.

mod support;

use std::convert::Infallible;
use std::sync::Arc;

use fastness_blkdev::{CrashScope, Fault, FaultPlan, MemImage, On, When};
use fastness_lwb::{Header, Lsn, OnLoss, Txg, claim};
use support::*;

const DISK_BYTES: u64 = 512 << 10;

/// Runs a script until the power fails; returns whether it did.
fn run(owner: &mut Owner, script: impl Fn(&mut Owner) -> Result<(), fastness_lwb::CommitError>) -> bool {
    let result = script(owner);
    assert!(result.is_ok() || owner.disk.is_power_cut(), "{result:?}");
    owner.disk.is_power_cut()
}

fn at_every_operation(script: impl Fn(&mut Owner) -> Result<(), fastness_lwb::CommitError>) {
    let mut states = 0;
    for nth in 1.. {
        let plan = FaultPlan::new(nth).rule(On::Any, When::Nth(nth), Fault::PowerCut);
        let mut owner = Owner::new(DISK_BYTES, plan);
        let is_cut = run(&mut owner, &script);
        for scope in [CrashScope::Writes, CrashScope::Units] {
            let shown =
                owner.disk.for_each_crash_state(scope, 300, |image| drop(owner.check_image(image))).unwrap();
            states += shown.states;
        }
        if !is_cut {
            break;
        }
    }
    assert!(states > 500, "{states} states");
}

#[test]
fn commits_survive_every_crash() {
    at_every_operation(|owner| {
        for len in [0, 1, 100, 4096, 9000] {
            owner.write(&Rng(len).bytes(len as usize))?;
        }
        Ok(())
    });
}

#[test]
fn uncommitted_records_and_long_ones_survive_every_crash_whole_or_not_at_all() {
    at_every_operation(|owner| {
        owner.append(b"first");
        owner.append(&Rng(1).bytes(40_000));
        let lsn = owner.append(b"third");
        owner.append(b"fourth");
        owner.commit(lsn)?;
        owner.append(b"never committed");
        owner.write(&Rng(2).bytes(20_000)).map(drop)
    });
}

#[test]
fn txgs_between_commits_survive_every_crash() {
    at_every_operation(|owner| {
        for round in 0..6u64 {
            owner.write(&Rng(round).bytes(3000))?;
            let next = Txg(owner.open.0 + 1);
            let lsn = owner.append_in(next, b"of the next txg");
            owner.append(b"of this one, later");
            if round % 2 == 0 {
                owner.commit(lsn)?;
            }
            owner.sync();
            owner.write(b"behind")?;
        }
        Ok(())
    });
}

#[test]
fn witnesses_between_commits_survive_every_crash() {
    at_every_operation(|owner| {
        for round in 0..5u64 {
            owner.write(&Rng(round).bytes(3000))?;
            // Once it is too early, in every other round.
            (0..1 + round % 2 * 3).for_each(|_| _ = owner.log.witness_idle());
            if round == 3 {
                let lsn = owner.append_in(Txg(owner.open.0 + 1), b"of the next txg");
                owner.commit(lsn)?;
                (0..3).for_each(|_| _ = owner.log.witness_idle());
                owner.sync();
                (0..3).for_each(|_| _ = owner.log.witness_idle());
            }
        }
        Ok(())
    });
}

/// A device so small that freed blocks are written again at once: stale blocks everywhere.
#[test]
fn stale_blocks_of_the_same_chain_are_not_taken() {
    for nth in (1..120).step_by(1) {
        let plan = FaultPlan::new(nth).rule(On::Any, When::Nth(nth), Fault::PowerCut);
        let mut owner = Owner::new(64 << 10, plan);
        run(&mut owner, |owner| {
            for round in 0..30u64 {
                owner.write(&Rng(round).bytes(100))?;
                owner.write(&Rng(round).bytes(5000))?;
                owner.sync();
            }
            Ok(())
        });
        (0..20).for_each(|seed| drop(owner.check_crash(seed)));
    }
}

/// Scenarios 14 and 18: a crash after any number of replayed records, with what was written since.
#[test]
fn replay_goes_on_where_it_was_after_any_crash() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(1));
    for len in [10, 30_000, 20, 0, 5000, 7] {
        owner.write(&Rng(len).bytes(len as usize)).unwrap();
    }
    owner.append(b"not committed");
    let image = owner.disk.crash(1).unwrap();
    let first_txg = Txg(owner.synced.0 + 1);
    let whole = owner.check_image(&image).records;
    assert_eq!(whole.len(), 6);
    for count in 0..=whole.len() {
        let space = space(&disk(image.clone(), FaultPlan::new(2)));
        let mut claimed = claim(Arc::clone(&space), &owner.header, first_txg, OnLoss::Fail).unwrap();
        let mut stored = Header::decode(&claimed.header().encode()).unwrap();
        let mut left = count;
        let result = claimed.replay(|record, header| {
            if left == 0 {
                return Err(std::io::Error::other("the power fails here"));
            }
            left -= 1;
            assert_eq!(record.bytes, whole[count - 1 - left].2);
            stored = Header::decode(&header.encode()).unwrap();
            Ok(())
        });
        assert_eq!(result.is_err(), count < whole.len());
        // A later txg, a second crash: what is claimed is what was claimed before, less what was replayed.
        let again = recover(&image, &stored, Txg(first_txg.0 + 7)).unwrap();
        assert_eq!(again.records, whole[count..]);
        // In the same process, too.
        let rest = claimed.replay(|_, _| Ok::<_, Infallible>(())).unwrap();
        assert_eq!(rest.records as usize, whole.len() - count);
        claimed.release();
        assert_eq!(space.used_bytes(), 0);
    }
}

/// A block that was not claimed does not come back, even if it is there later.
#[test]
fn a_tail_that_reappears_after_claim_is_left_out() {
    let mut owner = Owner::new(DISK_BYTES, FaultPlan::new(1));
    owner.write(b"one").unwrap();
    let without = MemImage::of_device(owner.disk.inner()).unwrap();
    owner.write(b"two").unwrap();
    let with = MemImage::of_device(owner.disk.inner()).unwrap();
    let first_txg = Txg(owner.synced.0 + 1);
    let recovered = recover(&without, &owner.header, first_txg).unwrap();
    assert_eq!(recovered.records.len(), 1);
    let unreplayed = match recovered.claimed.header() {
        Header::Claimed(claim) => Header::Claimed(fastness_lwb::Claim { replayed: Lsn(0), ..claim }),
        other => other,
    };
    let again = recover(&with, &unreplayed, first_txg).unwrap();
    assert_eq!(again.records, recovered.records);
}
