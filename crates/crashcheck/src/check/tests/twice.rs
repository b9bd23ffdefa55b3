//! The image of a new state is recovered once more.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// An operation that is not atomic: either of two lines can be there alone.
fn not_atomic() -> Vec<u8> {
    trace_of(operation(&[vec![
        Op::store(0, [1; 8]),
        Op::store(64, [1; 8]),
        Op::clwb(0),
        Op::clwb(64),
        Op::sfence(),
    ]]))
}

fn of(kind: &FindingKind, judged: &Judged) -> Vec<String> {
    let findings = judged.operations.iter().flat_map(|operation| &operation.findings);
    let states = findings.filter(|finding| finding.kind == *kind).flat_map(|finding| finding.states.clone());
    states.map(|state| String::from_utf8_lossy(&judged.states.state(state).text).into_owned()).collect()
}

#[test]
fn a_deterministic_recovery_costs_one_more_for_each_state() {
    let recoveries = AtomicUsize::new(0);
    // Four images, three states.
    let show = |lines: [u8; 4]| {
        recoveries.fetch_add(1, Ordering::Relaxed);
        shown(lines[0] + lines[1])
    };
    let judged = judged(&not_atomic(), &look(show), &[], true, 256).unwrap();
    assert_eq!(letters(&judged.operations), ["A"]);
    let images: u64 = judged.states.found().iter().map(|found| found.images).sum();
    assert_eq!((images, judged.states.found().len()), (4, 3));
    assert_eq!(recoveries.into_inner(), 4 + 3);
}

#[test]
fn a_recovery_with_another_state_each_time_is_no_operation_that_is_not_atomic() {
    let calls = AtomicUsize::new(0);
    let judged = judged(
        &not_atomic(),
        &look(|lines: [u8; 4]| shown(format_args!("{lines:?} {}", calls.fetch_add(1, Ordering::Relaxed)))),
        &[],
        true,
        256,
    );
    let judged = judged.unwrap();
    assert_eq!(letters(&judged.operations), ["N"]);
    let finding = &judged.operations[0].findings[0];
    assert_eq!((finding.states.len(), finding.crashes.len()), (4, 4), "each has a crash that shows it");
    for state in &finding.states {
        let (one, two) = (judged.states.state(*state), judged.states.again(*state).unwrap());
        assert_eq!(one.text[..12], two.text[..12], "of the same image");
        assert_ne!(one.text, two.text);
    }
}

#[test]
fn a_program_that_prints_a_random_word_or_the_time_is_found() {
    for command in ["od -An -N8 -tx8 /dev/urandom", "date +%s.%N"] {
        let file = not_atomic();
        let work = tempfile::tempdir().unwrap();
        let extract = by_command(&["sh", "-c", command], &file, work.path());
        let judged = judged(&file, &extract, &[], true, 256).unwrap();
        assert_eq!(letters(&judged.operations), ["N"], "{command}");
    }
}

#[test]
fn the_other_states_of_an_operation_are_judged_all_the_same() {
    let calls = AtomicUsize::new(0);
    // One of four images is not the same twice, and shows the second time what another one always shows.
    let show = |lines: [u8; 4]| match (lines[0], lines[1]) {
        (0, 1) if calls.fetch_add(1, Ordering::Relaxed) > 0 => shown("[0, 0]"),
        (0, 1) => shown("flickers"),
        _ => shown(format_args!("{:?}", &lines[..2])),
    };
    let found = judged(&not_atomic(), &look(show), &[], true, 256).unwrap();
    assert_eq!(letters(&found.operations), ["NA"]);
    assert!(of(&FindingKind::NotDeterministic, &found).contains(&"flickers".to_owned()));
    let mut sound = of(&FindingKind::Atomicity, &found);
    sound.sort();
    assert_eq!(sound, ["[0, 0]", "[1, 0]", "[1, 1]"]);
    // With only those before and after, it is atomic as far as anybody can say.
    calls.store(0, Ordering::Relaxed);
    let show = |lines: [u8; 4]| match (lines[0], lines[1]) {
        (0, 0) | (1, 1) => shown(lines[0]),
        _ => shown(format_args!("flickers {}", calls.fetch_add(1, Ordering::Relaxed))),
    };
    assert_eq!(letters(&judged(&not_atomic(), &look(show), &[], true, 256).unwrap().operations), ["N"]);
}

#[test]
fn how_a_recovery_ends_must_be_the_same_too() {
    let calls = AtomicUsize::new(0);
    let show = |lines: [u8; 4]| match lines[0] {
        1 => {
            let fails = calls.fetch_add(1, Ordering::Relaxed) == 1;
            State { ending: Ending::Code(i32::from(fails)), ..shown("one") }
        }
        _ => shown("none"),
    };
    let ops = operation(&[set(0)]);
    let found = judged(&trace_of(ops), &look(show), &[], true, 256).unwrap();
    assert_eq!(letters(&found.operations), ["N"]);
}
