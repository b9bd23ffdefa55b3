//! What the fault-injecting wrapper says a crash may leave.

use std::collections::BTreeSet;

use fastness_blkdev::{
    BlockDevice, Cause, CrashScope, Enumerated, Fault, FaultPlan, Faulty, MemDevice, MemImage, On, Operation,
    Request, When,
};
use proptest::collection::vec;
use proptest::prelude::*;

const SECTOR: usize = 512;

fn faulty(sectors: usize, plan: FaultPlan) -> Faulty<MemDevice> {
    Faulty::new(MemDevice::new("crashing", (sectors * SECTOR) as u64), plan)
}

/// The first byte of each sector; the tests fill sectors with one byte.
fn sectors(image: &MemImage) -> Vec<u8> {
    image
        .to_vec()
        .chunks(SECTOR)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never mixed");
            sector[0]
        })
        .collect()
}

fn states(device: &Faulty<MemDevice>, scope: CrashScope) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let mut shown = 0;
    let enumerated = device.for_each_crash_state(scope, 100_000, |image| {
        let is_new = seen.insert(sectors(image));
        assert!(is_new || scope == CrashScope::Writes, "each state once");
        shown += 1;
    });
    assert_eq!(enumerated.unwrap(), Enumerated { states: shown, is_complete: true });
    seen
}

fn set<const N: usize>(states: &[[u8; N]]) -> BTreeSet<Vec<u8>> {
    states.iter().map(|state| state.to_vec()).collect()
}

#[test]
fn an_unflushed_write_is_old_new_or_torn() {
    let device = faulty(3, FaultPlan::new(0));
    device.write_at(0, &[1; 2 * SECTOR]).unwrap();
    let all = set(&[[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]);
    assert_eq!(states(&device, CrashScope::Units), all);
    assert_eq!(states(&device, CrashScope::Writes), set(&[[0, 0, 0], [1, 1, 0]]));
    device.flush().unwrap();
    assert_eq!(states(&device, CrashScope::Units), set(&[[1, 1, 0]]));
    assert_eq!(device.unflushed_units(), 0);
}

#[test]
fn writes_to_one_sector_reach_the_medium_in_any_order() {
    let device = faulty(2, FaultPlan::new(0));
    device.write_at(0, &[1; SECTOR]).unwrap();
    device.write_at(0, &[2; SECTOR]).unwrap();
    device.write_at(512, &[3; SECTOR]).unwrap();
    let all = set(&[[0, 0], [1, 0], [2, 0], [0, 3], [1, 3], [2, 3]]);
    assert_eq!(states(&device, CrashScope::Units), all);
}

#[test]
fn a_fua_write_is_there_and_says_nothing_about_others() {
    let device = faulty(2, FaultPlan::new(0));
    device.write_at(0, &[1; 2 * SECTOR]).unwrap();
    device.write_fua(0, &[2; SECTOR]).unwrap();
    assert_eq!(states(&device, CrashScope::Units), set(&[[2, 0], [2, 1]]));
}

#[test]
fn a_greater_tear_unit_is_kept_whole() {
    let device = faulty(4, FaultPlan::new(0).tear_bytes(1024));
    device.write_at(0, &[1; 4 * SECTOR]).unwrap();
    device.write_fua(0, &[2; SECTOR]).unwrap();
    let all = set(&[[2, 0, 0, 0], [2, 1, 0, 0], [2, 0, 1, 1], [2, 1, 1, 1]]);
    assert_eq!(states(&device, CrashScope::Units), all);
}

#[test]
fn discards_and_zeroes_wait_for_the_flush_too() {
    let device = faulty(2, FaultPlan::new(0));
    device.write_at(0, &[1; 2 * SECTOR]).unwrap();
    device.flush().unwrap();
    device.write_zeroes(0, 512).unwrap();
    device.discard(512, 512).unwrap();
    assert_eq!(states(&device, CrashScope::Units), set(&[[1, 1], [0, 1], [1, 0], [0, 0]]));
}

#[test]
fn too_many_states_are_sampled() {
    let device = faulty(64, FaultPlan::new(0));
    device.write_at(0, &[1; 64 * SECTOR]).unwrap();
    let mut shown = 0;
    let enumerated = device.for_each_crash_state(CrashScope::Units, 1000, |_| shown += 1).unwrap();
    assert_eq!((enumerated.states, enumerated.is_complete, shown), (1000, false, 1000));
}

#[derive(Debug, Clone)]
enum Op {
    Write { sector: usize, sectors: usize, fua: bool },
    Flush,
    Zeroes { sector: usize, sectors: usize },
}

fn op(count: usize) -> impl Strategy<Value = Op> {
    let range = (0..count, 1..4usize);
    prop_oneof![
        4 => (range.clone(), (0..5u8)).prop_map(|((sector, sectors), roll)| {
            Op::Write { sector, sectors, fua: roll == 0 }
        }),
        1 => Just(Op::Flush),
        1 => range.prop_map(|(sector, sectors)| Op::Zeroes { sector, sectors }),
    ]
}

/// What each sector may be, by the specification and without the wrapper's bookkeeping.
fn allowed(ops: &[Op], count: usize) -> (Vec<BTreeSet<u8>>, Vec<u8>) {
    let mut newest = vec![0; count];
    let mut allowed = vec![BTreeSet::from([0]); count];
    for (index, op) in ops.iter().enumerate() {
        let fill = index as u8 + 1;
        match *op {
            Op::Write { sector, sectors, fua } => {
                for at in sector..(sector + sectors).min(count) {
                    newest[at] = fill;
                    if fua {
                        allowed[at].clear();
                    }
                    allowed[at].insert(fill);
                }
            }
            Op::Zeroes { sector, sectors } => {
                for at in sector..(sector + sectors).min(count) {
                    newest[at] = 0;
                    allowed[at].insert(0);
                }
            }
            Op::Flush => allowed = newest.iter().map(|fill| BTreeSet::from([*fill])).collect(),
        }
    }
    (allowed, newest)
}

fn apply(device: &dyn BlockDevice, ops: &[Op], count: usize) {
    for (index, op) in ops.iter().enumerate() {
        let fill = index as u8 + 1;
        let len = |sector: usize, sectors: usize| (sector + sectors).min(count) * SECTOR - sector * SECTOR;
        match *op {
            Op::Write { sector, sectors, fua } => {
                let data = vec![fill; len(sector, sectors)];
                let write = if fua { BlockDevice::write_fua } else { BlockDevice::write_at };
                write(&device, (sector * SECTOR) as u64, &data).unwrap();
            }
            Op::Zeroes { sector, sectors } => {
                device.write_zeroes((sector * SECTOR) as u64, len(sector, sectors) as u64).unwrap();
            }
            Op::Flush => device.flush().unwrap(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// The enumeration is exactly the product of what each sector may be; a seed gives one of its members.
    #[test]
    fn crash_states_are_exactly_those_allowed(ops in vec(op(4), 0..6)) {
        let device = faulty(4, FaultPlan::new(7));
        apply(&device, &ops, 4);
        let (allowed, newest) = allowed(&ops, 4);
        prop_assert_eq!(sectors(&device.inner().image()), newest);
        let all = states(&device, CrashScope::Units);
        let total: usize = allowed.iter().map(BTreeSet::len).product();
        prop_assert_eq!(all.len(), total);
        for state in &all {
            prop_assert!(state.iter().zip(&allowed).all(|(fill, some)| some.contains(fill)));
        }
        prop_assert!(states(&device, CrashScope::Writes).is_subset(&all));
        for seed in 0..64 {
            let image = device.crash(seed).unwrap();
            prop_assert!(all.contains(&sectors(&image)));
            prop_assert!(image == device.crash(seed).unwrap(), "one seed, one state");
            prop_assert!(image == device.crash_image(seed), "the same without errors");
        }
    }

    /// On large histories, and after recovery on the crash image, what was flushed is there.
    #[test]
    fn flushed_data_is_there(ops in vec(op(40), 0..60), seeds in vec(any::<u64>(), 8)) {
        let device = faulty(40, FaultPlan::new(7));
        apply(&device, &ops, 40);
        let (allowed, _) = allowed(&ops, 40);
        for seed in seeds {
            let image = sectors(&device.crash(seed).unwrap());
            prop_assert!(image.iter().zip(&allowed).all(|(fill, some)| some.contains(fill)));
        }
        device.reopen(3).unwrap();
        let image = sectors(&device.inner().image());
        prop_assert!(image.iter().zip(&allowed).all(|(fill, some)| some.contains(fill)));
        prop_assert_eq!(device.unflushed_units(), 0);
    }
}

#[test]
fn seeds_reach_every_state() {
    let device = faulty(4, FaultPlan::new(0));
    device.write_at(0, &[1; 3 * SECTOR]).unwrap();
    device.write_at(512, &[2; SECTOR]).unwrap();
    let reached: BTreeSet<_> = (0..500).map(|seed| sectors(&device.crash(seed).unwrap())).collect();
    assert_eq!(reached, states(&device, CrashScope::Units));
}

/// A commit of two sectors under a header, with the flush in between or without.
fn commit(device: &dyn BlockDevice, is_careful: bool) -> Option<()> {
    device.write_at(512, &[1; 2 * SECTOR]).ok()?;
    device.crash_point("commit_after_body");
    if is_careful {
        device.flush().ok()?;
    }
    device.write_fua(0, &[1; SECTOR]).ok()?;
    device.crash_point("commit_after_header");
    Some(())
}

/// Whether every crash at every point leaves a header only over a whole body. This is how a user tests.
fn survives(is_careful: bool) -> bool {
    let probe = faulty(3, FaultPlan::new(0));
    commit(&probe, is_careful).unwrap();
    assert_eq!(probe.crash_points(), [("commit_after_body", 1), ("commit_after_header", 1)]);
    let mut plans: Vec<_> = (1..=probe.op_count())
        .map(|n| FaultPlan::new(0).rule(On::Any, When::Nth(n), Fault::PowerCut))
        .collect();
    plans.extend(probe.crash_points().iter().map(|(point, _)| FaultPlan::new(0).power_cut_at(point, 1)));
    let mut is_good = true;
    for plan in plans {
        let device = faulty(3, plan);
        let outcome = commit(&device, is_careful);
        assert!(device.is_power_cut());
        let enumerated = device.for_each_crash_state(CrashScope::Units, 100, |image| {
            let state = sectors(image);
            is_good &= state[0] == 0 || state[1..] == [1, 1];
            is_good &= outcome.is_none() || state == [1, 1, 1];
        });
        assert!(enumerated.unwrap().is_complete);
    }
    is_good
}

#[test]
fn a_missing_flush_is_found() {
    assert!(survives(true));
    assert!(!survives(false));
}

#[test]
fn nothing_gets_through_after_a_power_cut() {
    let device = faulty(8, FaultPlan::new(0).rule(On::Writes, When::Nth(2), Fault::PowerCut));
    device.write_at(0, &[1; SECTOR]).unwrap();
    let error = device.write_fua(512, &[2; SECTOR]).unwrap_err();
    assert!(error.is_gone());
    assert_eq!(states(&device, CrashScope::Units).len(), 4, "the FUA write in flight may be there or not");
    for outcome in [device.flush(), device.write_at(0, &[9; SECTOR]), device.read_at(0, &mut [0; SECTOR])] {
        assert!(outcome.unwrap_err().is_gone());
    }
    device.come_back();
    assert!(device.flush().unwrap_err().is_gone(), "power is not a cable");
    device.reopen(1).unwrap();
    device.flush().unwrap();
}

#[test]
fn a_power_cut_in_a_flush_leaves_everything_open() {
    let device = faulty(2, FaultPlan::new(0).rule(On::Only(Operation::Flush), When::Nth(1), Fault::PowerCut));
    device.write_at(0, &[1; 2 * SECTOR]).unwrap();
    device.flush().unwrap_err();
    assert_eq!(states(&device, CrashScope::Units).len(), 4);
}

#[test]
fn one_seed_is_one_schedule() {
    let run = |seed| {
        let plan = FaultPlan::new(seed).rule(On::Writes, When::PerMillion(200_000), Fault::Torn).rule(
            On::Any,
            When::PerMillion(100_000),
            Fault::Errno(libc::EIO),
        );
        let device = faulty(64, plan);
        let mut outcomes = Vec::new();
        for round in 0..50u8 {
            let data = [round; 4 * SECTOR];
            let mut batch: Vec<_> = (0..4)
                .map(|at| Request::Write { offset: at * 8192, data: &data, fua: at == 3 && round % 16 == 15 })
                .collect();
            let failed = |error: fastness_blkdev::BlockError| error.to_string();
            outcomes.extend(device.run_batch(&mut batch).into_iter().map(|result| result.map_err(failed)));
        }
        (outcomes, device.crash(seed).unwrap().to_vec())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
}

#[test]
fn a_failed_flush_loses_what_a_later_one_would_claim() {
    let plan = || FaultPlan::new(0).rule(On::Only(Operation::Flush), When::Nth(1), Fault::Errno(libc::EIO));
    let lost = (0..64).any(|seed| {
        let device = faulty(2, plan());
        device.write_at(0, &[1; SECTOR]).unwrap();
        assert!(matches!(device.flush().unwrap_err().cause, Cause::Media(_)));
        assert!(device.is_poisoned());
        for outcome in [device.flush(), device.write_at(0, &[2; SECTOR]), device.write_fua(0, &[2; SECTOR])] {
            assert!(matches!(outcome.unwrap_err().cause, Cause::Poisoned));
        }
        device.read_at(0, &mut [0; SECTOR]).unwrap();
        device.reopen(seed).unwrap();
        device.flush().unwrap();
        let mut sector = [9; SECTOR];
        device.read_at(0, &mut sector).unwrap();
        sector == [0; SECTOR]
    });
    assert!(lost);
}
