use super::*;
use crate::report::data::{BlocksReport, LineReport, StoreReport, Totals};
use crate::report::recovery_data::RecoveryCrashReport;
use crate::report::{Show, causes_text};

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A crash with this state that loses stores of these places.
fn crash(state: &str, places: &[&str]) -> EvidenceReport {
    EvidenceReport {
        state: state.to_owned(),
        difference: String::new(),
        expected: None,
        image: format!("{state} {places:?}"),
        event: 7,
        at: "sfence".to_owned(),
        after: None,
        lost_by: strings(places),
        is_enough_of: None,
        lost: Vec::new(),
        lost_blocks: Vec::new(),
        left_out_bytes: 0,
        kept_lines: 0,
        kept: Vec::new(),
        in_recovery: Vec::new(),
    }
}

fn finding(letter: char, evidence: Vec<EvidenceReport>) -> FindingReport {
    FindingReport {
        kind: String::new(),
        letter,
        what: format!("it is {letter}"),
        states: Vec::new(),
        evidence,
        states_without_evidence: 0,
    }
}

/// A test with an operation for each list of findings. States with `bad` in their name have failed: what they
/// say is the rest of it.
fn test(name: &str, operations: Vec<Vec<FindingReport>>) -> Report {
    let operation = |(index, findings): (usize, Vec<FindingReport>)| OperationReport {
        from: Some(index as u64),
        to: Some(index as u64 + 1),
        events: (index as u64 * 10, index as u64 * 10 + 9),
        states: Vec::new(),
        final_states: Vec::new(),
        in_recovery: Vec::new(),
        findings,
    };
    let operations: Vec<_> = operations.into_iter().enumerate().map(operation).collect();
    let evidence =
        operations.iter().flat_map(|operation| &operation.findings).flat_map(|found| &found.evidence);
    let state = |evidence: &EvidenceReport| StateReport {
        name: evidence.state.clone(),
        ending: if evidence.state.contains("bad") { "ended with exit code 32" } else { "ended well" }
            .to_owned(),
        text: evidence.state.clone(),
        images: 1,
        is_regular: false,
        is_in_recovery: false,
    };
    let states = evidence.map(state).collect();
    let totals = Totals {
        events: 100,
        points: 1,
        exhaustive_points: 1,
        cut_points: 0,
        images: 1,
        unreached_images: 0,
        stopped_by: None,
        forgotten_images: 0,
    };
    Report {
        version: 1,
        name: name.to_owned(),
        tracer: String::new(),
        regions: Vec::new(),
        totals,
        left_out: None,
        in_recovery: None,
        causes: Vec::new(),
        operations,
        states,
        patterns: Vec::new(),
    }
}

/// Letters, what it is, and how many crashes show it.
fn found(reports: &[Report]) -> Vec<(String, Vec<String>, usize)> {
    let of = |cause: Cause<'_>| (cause.letters().iter().collect(), cause.lines(), cause.witnesses.len());
    causes(reports).into_iter().map(of).collect()
}

#[test]
fn findings_of_operations_and_tests_that_lose_the_same_store_are_one_cause() {
    let one = test(
        "one",
        vec![
            vec![finding('S', vec![crash("s1", &["append (log.c:7)"])])],
            vec![finding('A', vec![crash("s2", &["append (log.c:7)"]), crash("s3", &["rename (dir.c:3)"])])],
        ],
    );
    let two = test("two", vec![vec![finding('E', vec![crash("bad 1", &["append (log.c:7)"])])]]);
    let reports = [one, two];
    let append = ("ESA".to_owned(), strings(&["append (log.c:7)"]), 3);
    assert_eq!(found(&reports), [append, ("A".to_owned(), strings(&["rename (dir.c:3)"]), 1)]);
    let causes = causes(&reports);
    let operations: Vec<_> = causes[0].operations().iter().map(|(test, of)| (*test, of.name())).collect();
    assert_eq!(operations.len(), 3);
    assert_eq!(operations[2], ("two", "checkpoint 0 to 1".to_owned()));
    let data = cause_reports(&reports);
    let tests: Vec<_> = data[0].witnesses.iter().map(|witness| witness.test.as_str()).collect();
    assert_eq!((tests, data[0].letters.as_str()), (vec!["one", "one", "two"], "ESA"));
}

#[test]
fn numbers_addresses_and_hashes_are_not_what_tells_outputs_apart() {
    for (line, same) in [
        (
            "EXT4-fs (pmem0): Checksum for group 17 failed (44391!=3)",
            "EXT4-fs (pmem0): Checksum for group # failed (#!=#)",
        ),
        ("at 0xffff8 of deadbeefcafe, entry12 blk3", "at # of #, entry# blk3"),
        ("", ""),
        ("\u{fc}1 -- (7)", "\u{fc}# -- (#)"),
    ] {
        assert_eq!(folded(line), same);
    }
}

#[test]
fn a_copy_of_a_line_is_shown_as_one() {
    let store = |number: u64, fate: &str, at: &str| StoreReport {
        event: number,
        address: number * 8,
        data: "00".repeat(8),
        non_temporal: true,
        fate: fate.to_owned(),
        at: format!("0x{number:x} {at}+{number:#x}"),
        stack: Vec::new(),
    };
    let mut crash = crash("s1", &["copy"]);
    let mut stores: Vec<_> = (0..6).map(|number| store(number, "kept", "copy")).collect();
    stores.extend([store(6, "lost", "copy"), store(7, "lost", "copy"), store(8, "lost", "put")]);
    crash.lost = vec![LineReport {
        region: "pm".to_owned(),
        offset: 0,
        address: 0,
        flushed: 0,
        stores,
        history: Vec::new(),
    }];
    let text = causes_text(&[test("one", vec![vec![finding('A', vec![crash])]])], Show::default());
    let lines: Vec<_> = text.lines().skip_while(|line| !line.contains("line 0x0")).skip(1).collect();
    let starts = [
        "        kept  event 0 ntstore 0x0 0000000000000000  at 0x0 copy+0x0",
        "        kept  and 5 more to 0x28, up to event 5, by the same",
        "        lost  event 6 ntstore 0x30",
        "        lost  event 7 ntstore 0x38",
        "        lost  event 8 ntstore 0x40",
        "    image",
    ];
    assert!(lines.len() == starts.len(), "{text}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{text}");
}

#[test]
fn tests_are_named_with_the_number_of_their_operations() {
    let of = |name| test(name, vec![vec![finding('A', vec![crash("s1", &["a"])])]; 2]);
    let reports = [of("one"), test("two", vec![vec![finding('S', vec![crash("s1", &["a"])])]])];
    let text = causes_text(&reports, Show::default());
    assert!(text.contains("\n   in one (2 operations), two\n"), "{text}");
    let text = causes_text(&reports[..1], Show::default());
    assert!(text.contains("\n   in checkpoint 0 to 1, checkpoint 1 to 2\n"), "{text}");
}

#[test]
fn a_state_that_is_wrong_in_two_ways_is_one_crash() {
    let twice = || vec![crash("s1", &["append"])];
    let reports = [test("one", vec![vec![finding('O', twice()), finding('S', twice())]])];
    assert_eq!(found(&reports), [("OS".to_owned(), strings(&["append"]), 1)]);
}

#[test]
fn crashes_that_must_lose_more_join_the_cause_that_mends_them() {
    let crashes = vec![crash("s1", &["a", "b"]), crash("s2", &["b"]), crash("s3", &["a", "c"])];
    let reports = [test("one", vec![vec![finding('A', crashes)]])];
    let expected = [("A".to_owned(), strings(&["b"]), 2), ("A".to_owned(), strings(&["a", "c"]), 1)];
    assert_eq!(found(&reports), expected);
    let text = causes_text(&reports, Show::default());
    assert!(text.contains("state s1, before event 7; loses a as well"), "{text}");
}

#[test]
fn helpers_without_a_caller_are_told_apart_by_what_the_recovery_says() {
    let crashes = |numbers: &str| {
        vec![
            crash(&format!("bad journal {numbers}"), &["__memcpy_flushcache"]),
            crash(&format!("bad superblock {numbers}"), &["__memcpy_flushcache"]),
            // Not mended by what mends the two before.
            crash("bad c", &["__memcpy_flushcache", "commit"]),
        ]
    };
    let reports = [test(
        "one",
        vec![vec![finding('E', crashes("17 of 0xab"))], vec![finding('E', crashes("4 of 0x1"))]],
    )];
    let said = |what: &str| strings(&["__memcpy_flushcache", "the recovery ended with exit code 32", what]);
    let expected = [
        ("E".to_owned(), said("bad journal # of #"), 2),
        ("E".to_owned(), said("bad superblock # of #"), 2),
        ("E".to_owned(), strings(&["__memcpy_flushcache", "commit"]), 2),
    ];
    assert_eq!(found(&reports), expected);
    assert!(causes_text(&reports, Show::default()).contains("--stacks"));
    // Blocks of a disk say no more than that.
    let mut block = crash("bad block 3", &[]);
    block.lost_blocks = vec![BlocksReport { disk: 1, offset: 512, len_bytes: 512 }];
    let reports = [test("one", vec![vec![finding('E', vec![block])]])];
    let expected = strings(&["writes to disk 1", "the recovery ended with exit code 32", "bad block #"]);
    assert_eq!(found(&reports), [("E".to_owned(), expected.clone(), 1)]);
    // Nor do those that a crash of the recovery loses.
    let lost_blocks = vec![BlocksReport { disk: 1, offset: 0, len_bytes: 512 }];
    let mut later = crash("bad block 4", &["main"]);
    later.in_recovery = vec![RecoveryCrashReport { lost_blocks, ..RecoveryCrashReport::default() }];
    let reports = [test("one", vec![vec![finding('E', vec![later])]])];
    assert_eq!(found(&reports), [("E".to_owned(), expected, 1)]);
    assert!(causes_text(&reports, Show::default()).contains("has lost:\n      512 bytes at 0x0 of disk 1\n"));
}

#[test]
fn crashes_of_a_kernel_are_told_apart_by_its_functions() {
    let panic = |trace: &str, place: &str| {
        let text = format!(
            "the kernel crashed in f: BUG\ncall trace:\n{trace}the last lines of the console:\n  bad\n"
        );
        crash(&text, &[place])
    };
    let crashes = vec![panic("  a+0x1/0x9\n", "x"), panic("  a+0x5/0x9\n", "y"), panic("  b+0x1/0x9\n", "x")];
    let reports = [test("one", vec![vec![finding('C', crashes)]])];
    let expected = [("C".to_owned(), strings(&["f", "a"]), 2), ("C".to_owned(), strings(&["f", "b"]), 1)];
    assert_eq!(found(&reports), expected);
}

#[test]
fn what_loses_nothing_is_told_apart_by_what_is_said_or_by_the_last_store() {
    let after =
        |place: &str, state: &str| EvidenceReport { after: Some(place.to_owned()), ..crash(state, &[]) };
    let again = |numbers: &str| EvidenceReport {
        difference: format!("--- s1\n+++ s1, again\n@@ -1 @@\n-time {numbers}\n+time {numbers}9\n"),
        ..crash(&format!("n{numbers}"), &[])
    };
    let reports = [test(
        "one",
        vec![
            vec![finding('E', vec![after("x", "bad 1\n\nbad 2\nworse"), after("y", "bad 3\nworse")])],
            vec![finding('A', vec![after("x", "s1"), after("x", "s2"), after("y", "s3")])],
            vec![finding('N', vec![again("12"), again("7")])],
            vec![finding('S', vec![EvidenceReport { left_out_bytes: 9, ..crash("s4", &[]) }])],
        ],
    )];
    let expected = [
        ("E".to_owned(), strings(&["the recovery ended with exit code 32", "bad #", "worse"]), 2),
        ("N".to_owned(), strings(&["-time #", "+time #"]), 2),
        ("S".to_owned(), strings(&["it is S"]), 1),
        ("A".to_owned(), strings(&["x"]), 2),
        ("A".to_owned(), strings(&["y"]), 1),
    ];
    assert_eq!(found(&reports), expected);
}

#[test]
fn the_smallest_crash_is_shown_in_full_and_the_others_in_a_line_each_unless_all_are_wanted() {
    let crashes = (0..20).map(|event| EvidenceReport {
        event: 100 - event,
        left_out_bytes: u64::from(event == 19),
        ..crash(&format!("s{event}"), if event == 19 { &[] } else { &["append"] })
    });
    let reports = [test("one", vec![vec![finding('S', crashes.collect())]])];
    let (short, long) = (causes_text(&reports, Show::default()), causes_text(&reports, Show { all: true }));
    assert!(
        short.starts_with("2 causes, shown by 20 crashes:\n\n1. S, 19 crashes in 1 operation: "),
        "{short}"
    );
    let in_full = |text: &str| text.matches(", after a crash just before event ").count();
    assert_eq!((in_full(&short), in_full(&long)), (2, 20));
    assert!(short.contains("state s18, after a crash just before event 82"), "the first in time: {short}");
    assert!(
        short.contains("   and 18 crashes more:\n     checkpoint 0 to 1, S: state s17, before event 83\n")
    );
    assert!(short.contains("... (--all shows") && short.lines().count() < 40, "{short}");
}
