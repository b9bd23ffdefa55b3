//! Names without waiting for a sync: every image that a crash can leave in PM, with every part of the
//! unsynced changes that the directory may have lost.

mod support;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use fastness_pm_model::{Budget, Config, FlushKind, Machine, Op, RecordStyle, Recorder, explore};
use fastness_responder::*;
use support::death::violation_after_death;
use support::history::*;
use support::{Pm, Power, options};

const CLWB: Variant = Variant { style: RecordStyle::StoreFlush(FlushKind::Clwb), store_bytes: 8, ..NT };

fn survive(steps: &[Step]) {
    for variant in [NT, Variant { store_bytes: 64, strict_nt: true, ..NT }, CLWB] {
        let history = run(4, &["a", "b"], steps, variant);
        let (violation, summary) = history.first_violation(variant);
        assert_eq!(violation, None, "{variant:?}");
        assert!(summary.images > 20, "{summary:?}: the history explores next to nothing");
    }
}

#[test]
fn new_files_and_their_data_survive_every_crash() {
    survive(&[
        Step::Create("new"),
        Step::write("new", 0, 1, 100),
        Step::Create("other"),
        Step::write("new", 30, 2, 10),
        Step::Flush,
        Step::write("new", 90, 3, 70),
        Step::Unlink("other"),
    ]);
}

#[test]
fn directories_and_what_is_in_them_survive_every_crash() {
    survive(&[
        Step::MakeDirectory("d"),
        Step::MakeDirectory("d/e"),
        Step::Create("d/e/f"),
        Step::write("d/e/f", 0, 1, 70),
        Step::Rename("d/e", "e"),
        Step::Rename("d", "e/d"),
        Step::Unlink("e/f"),
        Step::RemoveDirectory("e/d"),
        Step::RemoveDirectory("e"),
    ]);
}

#[test]
fn a_file_that_replaces_another_survives_every_crash() {
    survive(&[
        Step::write("a", 0, 1, 70),
        Step::Create("a.new"),
        Step::write("a.new", 0, 2, 30),
        Step::Rename("a.new", "a"),
        Step::Create("a.new"),
        Step::write("a.new", 0, 3, 20),
        Step::Rename("a.new", "a"),
    ]);
}

#[test]
fn a_name_that_several_files_have_one_after_the_other_survives_every_crash() {
    survive(&[
        Step::Create("t"),
        Step::write("t", 0, 1, 70),
        Step::Unlink("t"),
        Step::Create("t"),
        Step::Unlink("t"),
        Step::MakeDirectory("t"),
        Step::RemoveDirectory("t"),
        Step::Create("t"),
        Step::write("t", 0, 2, 10),
    ]);
}

#[test]
fn links_survive_every_crash() {
    survive(&[
        Step::write("a", 0, 1, 70),
        Step::Link("a", "c"),
        Step::Unlink("a"),
        Step::Create("n"),
        Step::write("n", 0, 2, 10),
        Step::Link("n", "m"),
        Step::Unlink("n"),
        Step::Link("m", "n"),
        Step::Rename("c", "a"),
    ]);
}

#[test]
fn exchanges_survive_every_crash() {
    survive(&[
        Step::write("a", 0, 1, 70),
        Step::write("b", 0, 2, 10),
        Step::MakeDirectory("d"),
        Step::Create("d/f"),
        Step::write("d/f", 0, 3, 30),
        Step::Exchange("a", "d/f"),
        Step::Exchange("d", "b"),
        Step::Exchange("b/f", "a"),
    ]);
}

#[test]
fn permissions_survive_every_crash() {
    survive(&[
        Step::Create("n"),
        Step::Permit("n", 0o640),
        Step::write("n", 0, 1, 10),
        Step::MakeDirectory("d"),
        Step::Permit("d", 0o750),
        Step::Rename("n", "d/n"),
        Step::Permit("d/n", 0o400),
        Step::Permit("a", 0o644),
        Step::Flush,
        Step::Permit("d", 0o711),
    ]);
}

/// More records than the log has room for.
#[test]
fn a_full_log_survives_every_crash() {
    let names = ["n0", "n1", "n2"];
    let round = names.iter().flat_map(|name| [Step::Create(name), Step::write(name, 0, 7, 20)]);
    let round: Vec<Step> = round.chain(names.map(Step::Unlink)).collect();
    let steps: Vec<Step> = (0..12).flat_map(|_| round.clone()).collect();
    let history = run(4, &["a"], &steps, NT);
    let (violation, _) = history.first_violation(NT);
    assert_eq!(violation, None);
    let synced = history.moments.iter().any(|moment| moment.is_after_sync_of_names);
    assert!(synced, "the log was never full");
}

/// The recovery of what a crash has left is interrupted at any moment, and the next one goes on.
#[test]
fn interrupted_recoveries_survive_every_crash() {
    let histories: [&[Step]; 4] = [
        &[
            Step::MakeDirectory("d"),
            Step::Create("d/f"),
            Step::write("d/f", 0, 1, 100),
            Step::Permit("d/f", 0o644),
            Step::Rename("d", "e"),
        ],
        &[
            Step::write("a", 0, 1, 70),
            Step::write("b", 0, 2, 10),
            Step::Exchange("a", "b"),
            Step::Create("n"),
            Step::write("n", 0, 3, 10),
            Step::Rename("n", "a"),
        ],
        &[Step::Create("n"), Step::write("n", 0, 3, 150), Step::Truncate("n", 70), Step::Unlink("b")],
        &[
            Step::MakeDirectory("d"),
            Step::MakeDirectory("d/e"),
            Step::Rename("d/e", "e"),
            Step::Rename("d", "e/d"),
            Step::Link("a", "e/a"),
            Step::Unlink("a"),
        ],
    ];
    for steps in histories {
        let history = run(4, &["a", "b"], steps, NT);
        let last = history.moments.len() as u64 - 1;
        let (mut explored, mut crashes) = (0, 0);
        let budget = Budget { exhaustive_limit: 200, samples: 40, seed: 3 };
        explore(&history.trace, &Config::default(), budget, &mut |point| {
            let Some(mark) = point.last_mark else { return ControlFlow::Continue(()) };
            crashes += 1;
            if mark == last || crashes % 17 == 0 {
                let moment = &history.moments[mark as usize];
                for variant in [NT, CLWB] {
                    let (violation, summary) = violation_in_recovery(point.image, moment, variant);
                    assert_eq!(violation, None, "operation {} of {steps:?}", point.op_index);
                    explored += summary.images;
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(explored > 200, "{explored} {crashes}");
    }
}

/// What was written to a file is newer than its record: the next recovery does not take its time back.
#[test]
fn a_recovery_that_goes_on_keeps_newer_times() {
    let (recorder, backing) = created(4, &[], NT);
    let (cache, _) = open(&recorder, &backing).unwrap();
    let file = cache.open_file(Path::new("n"), Some(0o600), 0).unwrap();
    cache.write(&file, 0, &[1; 100]).unwrap();
    let written_ns = cache.stat(&file).unwrap().modified_ns;
    drop(cache);
    let (image, lost) = (recorder.image(), backing.crashed(|| false));
    for cut in 1.. {
        let (recorder, power) = (Recorder::new(image.clone(), NT.style), Arc::new(Power::default()));
        power.cut_in(cut);
        let (region, backing) = (Pm::whole(&recorder, &power), lost.copied());
        let has_ended = Cache::open(region, Arc::new(backing.clone()), &options(CHUNK)).is_ok();
        let backing = backing.crashed(|| true);
        drop(open(&recorder, &backing).unwrap());
        let found = backing.stat(Path::new("n")).unwrap();
        assert_eq!((found.size, found.modified_ns >= written_ns), (100, true), "cut at {cut}: {found:?}");
        if has_ended {
            assert!(cut > 10, "{cut}: the recovery has next to nothing to do");
            break;
        }
    }
}

/// A recovery after a power cut dies with its process; the next one meets what is in the CPU's caches, and
/// loses its power.
#[test]
fn what_a_recovery_left_in_caches_survives_a_later_power_cut() {
    let history = run(4, &["a"], &[Step::Create("n"), Step::write("n", 0, 3, 100)], NT);
    let moment = history.moments.last().unwrap();
    let mut machine = Machine::new(history.trace.initial.clone(), Config::default());
    history.trace.ops.iter().for_each(|op| machine.apply(op).unwrap());
    let image = machine.persistent_image().to_vec();
    let recorder = Recorder::with_store_bytes(image, CLWB.style, CLWB.store_bytes);
    let first = run_recovery(&recorder, &moment.backing.crashed(|| false), moment);
    let ops = first.trace.ops.len();
    assert!(ops > 50, "{ops}: the recovery has next to nothing to do");
    let start = first.trace.ops.iter().position(|op| matches!(op, Op::Mark(_))).unwrap() + 1;
    for cut in start..ops {
        assert_eq!(violation_after_death(&first, cut, CLWB), None, "cut at {cut} of {ops}");
    }
}
