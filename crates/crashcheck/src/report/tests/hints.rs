use std::collections::BTreeSet;

use super::*;
use crate::explain::Exclusion;
use crate::generate::Recovery;

/// A recovery that reads these lines, or cannot be traced.
struct Reads(Option<BTreeSet<u64>>);

impl Recovery for Reads {
    fn lines_read(&mut self, _: &Contents) -> Result<BTreeSet<u64>> {
        self.0.clone().ok_or_else(|| crate::error::CheckError::Program {
            program: "qemu".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }
}

/// Hints of a trace, of which event N is by `fN`, or by the name that is given.
fn hints(ops: Vec<Op>, reads: Option<&mut Reads>, exclude: &[&str], symbols: &Find<'_>) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let trace = named_trace(dir.path(), ops);
    let exclude: Vec<Exclusion> = exclude.iter().map(|text| text.parse().unwrap()).collect();
    let recovery = reads.map(|reads| reads as &mut dyn Recovery);
    Analysis { recovery, exclude: &exclude, ..analysis(&marked, &trace, symbols) }.run().unwrap()
}

fn numbered(pc: u64, _: bool) -> Option<String> {
    Some(format!("f{pc} (a.c:{pc})"))
}

fn kinds(report: &Report) -> Vec<(&str, &str, Option<bool>)> {
    report.patterns.iter().map(|hint| (hint.kind.as_str(), hint.at.as_str(), hint.is_read)).collect()
}

/// Lines 5 and 6 are never flushed, 7 never fenced; a flush and a fence do nothing.
fn ops() -> Vec<Op> {
    let store = |line: u64| Op::store(line * 64, [1; 8]);
    vec![Op::Mark(0), Op::clwb(64), Op::sfence(), store(5), store(6), Op::Mark(1), store(7), Op::clwb(7 * 64)]
}

#[test]
fn what_the_recovery_reads_comes_first_and_what_only_costs_time_last() {
    let reads = |lines: &[u64]| Reads(Some(lines.iter().copied().collect()));
    let known = hints(ops(), Some(&mut reads(&[6, 7])), &[], &numbered);
    let expected = [
        ("missing-flush", "f4 (a.c:4)", Some(true)),
        ("missing-fence", "f6 (a.c:6)", Some(true)),
        ("missing-flush", "f3 (a.c:3)", Some(false)),
        ("redundant-flush", "f1 (a.c:1)", None),
        ("redundant-fence", "f2 (a.c:2)", None),
    ];
    assert_eq!(kinds(&known), expected);
    let said = text(&known);
    assert!(
        said.contains("(stored, but never flushed; the recovery reads it), first event 4, 0x180\n"),
        "{said}"
    );
    assert!(html(&known).contains("never flushed; the recovery does not read it"));
    // It is not known: without a recovery that can be traced, or if it is not to be.
    let unknown: Vec<_> = expected.iter().map(|hint| (hint.0, hint.1, None)).collect();
    let unknown = [unknown[2], unknown[0], unknown[1], unknown[3], unknown[4]];
    assert_eq!(kinds(&hints(ops(), None, &[], &numbered)), unknown);
    assert_eq!(kinds(&hints(ops(), Some(&mut Reads(None)), &[], &numbered)), unknown);
}

#[test]
fn instructions_of_one_place_are_one_hint_and_the_first_ten_are_shown() {
    // Line 40 + N is stored to by fN, or by the function of all even ones.
    let ops: Vec<Op> = (40..64).map(|line| Op::store(line * 64, [1; 8])).collect();
    let symbols = |pc: u64, _| match pc % 2 {
        0 => Some(format!("memset (b.S:{pc}) in even (a.c:9)")),
        _ => numbered(pc, false),
    };
    let report = hints(ops, None, &[], &symbols);
    let first = &report.patterns[0];
    assert_eq!((first.at.as_str(), first.count, first.instructions), ("even (a.c:9)", 12, 12));
    assert_eq!((first.first_event, first.first_address), (0, Some(40 * 64)));
    assert_eq!(report.patterns.len(), 13);
    let shown = |text: &str| text.matches(" times missing-flush").count();
    let (few, all) = (text(&report), text_with(&report, Show { all: true }));
    assert_eq!((shown(&few), shown(&all)), (10, 13));
    assert!(
        few.contains("by even (a.c:9) (12 instructions)\n") && few.contains("  ... 3 more (--all"),
        "{few}"
    );
    assert!(html(&report).contains("<summary>3 more</summary>"));
}

#[test]
fn what_is_excluded_gives_no_hints_and_crashes_all_the_same() {
    let all = hints(ops(), None, &[], &numbered);
    let places = |exclude: &[&str]| {
        let report = hints(ops(), None, exclude, &numbered);
        assert_eq!(report.totals, all.totals, "crash images are what they were");
        report.patterns.iter().map(|hint| hint.first_event).collect::<Vec<_>>()
    };
    assert_eq!(places(&[]), [3, 4, 6, 1, 2]);
    assert_eq!(places(&["0x140+64"]), [4, 6, 1, 2]);
    assert_eq!(places(&["pool:64-448", "f2"]), [6]);
    assert_eq!(places(&["other:0-4K"]), [3, 4, 6, 1, 2]);
    assert_eq!(places(&["a.c:4"]), [3, 6, 1, 2]);
    assert_eq!(places(&["a.c"]), [0; 0]);
    // A flush of an excluded line does not make a flush of another one unordered.
    let two = [Op::store(0, [1; 8]), Op::store(64, [1; 8]), Op::clwb(0), Op::clwb(64), Op::sfence()];
    assert_eq!(kinds(&hints(two.to_vec(), None, &[], &numbered))[0].0, "unordered-flushes");
    for line in ["0-64", "64-128"] {
        assert_eq!(kinds(&hints(two.to_vec(), None, &[line], &numbered)), []);
    }
}

#[test]
fn what_is_a_cause_comes_before_what_is_not() {
    // Line 2 is lost; lines before it are never flushed either, and more often.
    let store = |line: u64| Op::store(line * 64, [1; 8]);
    let ops = operation(&[vec![store(5), store(5), store(6)], set(1), unflushed(2), set(0)]);
    let report = hints(ops, None, &[], &numbered);
    assert_eq!(report.causes[0].places, ["f7 (a.c:7)"]);
    assert_eq!(report.patterns[0].at, "f7 (a.c:7)", "{:#?}", report.patterns);
}
