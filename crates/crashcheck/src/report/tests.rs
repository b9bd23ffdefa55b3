use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use fastness_crashcheck_trace::{Event, Origin, Reader, Writer};
use fastness_pm_model::{Op, Trace};

use super::*;
use crate::Result;
use crate::check::{Extract, FindingKind, State, StateLimits, Step};
use crate::generate::Contents;
use crate::process::Ending;
use crate::run::{Analysis, ImagesConfig, Limits};
use crate::symbols::Find;
use crate::trace::record;

mod hints;

/// Recovers in this process: a mark in line 0 makes lines 1 and 2 valid.
fn marked(contents: &Contents) -> Result<State> {
    let byte = |line: u64| {
        let mut byte = [0];
        contents.memory.read(line * 64, &mut byte);
        byte[0]
    };
    let text = match byte(0) {
        0 => "nothing\n".to_owned(),
        _ => format!("one {}\ntwo <{}>\n", byte(1), byte(2)),
    };
    let ending = if byte(1) == 9 { Ending::Signal(11) } else { Ending::Code(0) };
    Ok(State { ending, text: text.into_bytes(), write: None })
}

fn set(line: u64) -> Vec<Op> {
    vec![Op::store(line * 64, [line as u8 + 1; 8]), Op::clwb(line * 64), Op::sfence()]
}

fn unflushed(line: u64) -> Vec<Op> {
    vec![Op::store(line * 64, [line as u8 + 1; 8]), Op::sfence()]
}

fn operation(parts: &[Vec<Op>]) -> Vec<Op> {
    [vec![Op::Mark(0)], parts.concat(), vec![Op::Mark(1)]].concat()
}

fn trace_of(dir: &Path, ops: Vec<Op>) -> PathBuf {
    let path = dir.join("test.trace");
    let file = record(&Trace { initial: vec![0; 4096], ops }, "/some/where/pool", Vec::new()).unwrap();
    std::fs::write(&path, file).unwrap();
    path
}

fn report(ops: Vec<Op>) -> Report {
    report_with(ops, &ImagesConfig::default())
}

fn report_with(ops: Vec<Op>, images: &ImagesConfig) -> Report {
    report_and_tell(ops, images, &|_| {})
}

fn report_and_tell(ops: Vec<Op>, images: &ImagesConfig, progress: &(dyn Fn(&Step<'_>) + Sync)) -> Report {
    report_within(ops, images, Limits::default(), progress)
}

fn report_within(
    ops: Vec<Op>,
    images: &ImagesConfig,
    limits: Limits,
    progress: &(dyn Fn(&Step<'_>) + Sync),
) -> Report {
    report_of(&marked, ops, images, limits, progress)
}

fn report_of(
    extract: &impl Extract,
    ops: Vec<Op>,
    images: &ImagesConfig,
    limits: Limits,
    progress: &(dyn Fn(&Step<'_>) + Sync),
) -> Report {
    let dir = tempfile::tempdir().unwrap();
    report_of_trace(extract, &trace_of(dir.path(), ops), images, limits, &|_, _| None, progress)
}

fn report_of_trace(
    extract: &impl Extract,
    trace: &Path,
    images: &ImagesConfig,
    limits: Limits,
    symbols: &Find<'_>,
    progress: &(dyn Fn(&Step<'_>) + Sync),
) -> Report {
    let analysis = Analysis { images, limits, progress, ..analysis(extract, trace, symbols) };
    analysis.run().unwrap()
}

fn analysis<'a, E: Extract>(extract: &'a E, trace: &'a Path, symbols: &'a Find<'a>) -> Analysis<'a, E> {
    Analysis {
        name: "journal",
        trace,
        images: &DEFAULT,
        extract,
        recovery: None,
        oracles: Vec::new(),
        has_prefix_oracle: false,
        has_operations: false,
        must_be_atomic: true,
        in_recovery: None,
        threads: 2,
        exclude: &[],
        symbols,
        deadline: None,
        limits: Limits::default(),
        progress: &|_| {},
    }
}

static DEFAULT: std::sync::LazyLock<ImagesConfig> = std::sync::LazyLock::new(ImagesConfig::default);

/// A trace in which the instruction of each event is its number, and each has two callers.
fn named_trace(dir: &Path, ops: Vec<Op>) -> PathBuf {
    let bytes = std::fs::read(trace_of(dir, ops)).unwrap();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut writer = Writer::new(Vec::new(), reader.header()).unwrap();
    loop {
        let number = reader.count();
        let Some(event) = reader.next().unwrap() else { break };
        let stack = Some(&[100 + number, 1000][..]);
        let origin = Origin { pc: Some(number), stack, ..Origin::default() };
        writer.push(&Event { origin, ..event }).unwrap();
    }
    let path = dir.join("named.trace");
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

#[test]
fn a_correct_test_is_clean() {
    let report = report(operation(&[set(1), set(2), set(0)]));
    assert!(report.is_clean());
    let text = text(&report);
    assert!(text.starts_with("test journal: 11 events, "), "{text}");
    assert!(text.ends_with("\njournal: ok\n"), "{text}");
    assert_eq!(report.regions[0].name, "pool", "no paths of the machine");
    assert!(html(&report).contains("<span class=ok>ok</span>"));
    assert!(junit(&[report]).contains("tests=\"1\" failures=\"0\""));
}

#[test]
fn failures_are_told_once_as_they_come_and_states_are_counted() {
    let nine = vec![Op::store(64, [9; 8]), Op::clwb(64), Op::sfence()];
    let steps = std::sync::Mutex::new(Vec::new());
    let tell = |step: &Step<'_>| {
        let failure = step.failure.as_ref().map(|failure| (failure.kind.clone(), failure.event > 0));
        steps.lock().unwrap().push((step.done, step.event <= step.events, step.states, failure));
    };
    // The mark first: the recovery looks at the rest.
    let report =
        report_and_tell(operation(&[set(0), nine, unflushed(2), set(3)]), &ImagesConfig::default(), &tell);
    let steps = steps.into_inner().unwrap();
    let failures: Vec<_> = steps.iter().filter_map(|(.., failure)| failure.clone()).collect();
    let crashed = report.states.iter().filter(|state| state.ending.contains("signal")).count();
    assert!(crashed > 0 && report.operations[0].findings.iter().any(|finding| finding.letter == 'C'));
    assert_eq!(failures, vec![(FindingKind::RecoveryCrash, true); crashed]);
    // The image of each state is recovered once more.
    let all = report.totals.images + report.states.len();
    assert!(steps.len() == all && steps.iter().any(|(done, ..)| *done == all), "{steps:?}");
    assert!(steps.iter().all(|(_, is_inside, ..)| *is_inside));
    assert_eq!(steps.iter().map(|(_, _, states, _)| *states).max(), Some(report.states.len()));
}

#[test]
fn what_differs_when_an_image_is_recovered_again_is_shown() {
    let calls = AtomicUsize::new(0);
    let flickers = |contents: &Contents| {
        let mut state = marked(contents)?;
        state.text.extend(format!("call {}\n", calls.fetch_add(1, Ordering::Relaxed)).into_bytes());
        Ok(state)
    };
    // Several lines may be lost: the least that matters could be looked for.
    let ops = operation(&[unflushed(1), unflushed(2), unflushed(4), set(0)]);
    let report = report_of(&flickers, ops, &ImagesConfig::default(), Limits::default(), &|_| {});
    let [finding] = &report.operations[0].findings[..] else { panic!("{report:#?}") };
    assert_eq!((finding.letter, finding.kind.as_str()), ('N', "not-deterministic"));
    assert_eq!(calls.into_inner(), 2 * report.totals.images, "none to find out what must be lost");
    for evidence in &finding.evidence {
        assert_eq!(evidence.expected.as_ref(), Some(&evidence.state));
        assert!(evidence.difference.contains("\n-call ") && evidence.difference.contains("\n+call "));
        assert!(evidence.difference.contains(", recovered again\n"), "{}", evidence.difference);
    }
    let text = text(&report);
    assert!(
        text.contains("  N: the recovery is not deterministic") && text.contains("      +call "),
        "{text}"
    );
}

#[test]
fn a_missing_flush_is_shown_with_the_store_that_was_lost() {
    let report = report(operation(&[set(1), unflushed(2), set(0)]));
    let operation = &report.operations[0];
    assert_eq!(operation.findings.len(), 1);
    let finding = &operation.findings[0];
    assert_eq!((finding.letter, finding.evidence.len()), ('S', 1));
    let evidence = &finding.evidence[0];
    assert_eq!(evidence.expected.as_deref(), Some("c0s1"), "{report:#?}");
    assert!(
        evidence.difference.contains("-two <3>") && evidence.difference.contains("+two <0>"),
        "{evidence:#?}"
    );
    // The store to line 2 is the fourth after the checkpoint.
    let [line] = &evidence.lost[..] else { panic!("{evidence:#?}") };
    assert_eq!((line.offset, line.flushed, line.stores[0].event), (128, 0, 4));
    assert_eq!(line.stores[0].fate, "lost");
    let history: Vec<_> = line.history.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(history, ["checkpoint", "sfence", "store", "sfence", "sfence"]);
    let patterns: Vec<_> =
        report.patterns.iter().map(|pattern| (pattern.kind.as_str(), pattern.first_event)).collect();
    assert_eq!(patterns, [("missing-flush", 4), ("redundant-fence", 5)]);
    let text = text(&report);
    for part in [
        "S: several states are possible after it",
        "line 0x80 of pool, never flushed",
        "lost  event 4 store 0x80 0303030303030303",
        "-two <3>",
        "journal: 1 of 1 operations are not crash-consistent",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_cause_is_the_place_of_what_is_lost_or_of_the_last_store_before_the_crash() {
    let dir = tempfile::tempdir().unwrap();
    let report = |ops| {
        let path = named_trace(dir.path(), ops);
        let symbols = |pc, _| match pc {
            0..99 => Some("memcpy (memcpy.S:7)".to_owned()),
            // The call before the return address.
            99..=999 => Some(format!("put{} (pm.h:3) in main (log.c:9)", pc - 99)),
            _ => Some("main (log.c:9)".to_owned()),
        };
        report_of_trace(&marked, &path, &ImagesConfig::default(), Limits::default(), &symbols, &|_| {})
    };
    let lost = report(operation(&[set(1), unflushed(2), set(0)]));
    let evidence = &lost.operations[0].findings[0].evidence[0];
    assert_eq!((&evidence.lost_by[..], &evidence.after), (&["put4 (pm.h:3)".to_owned()][..], &None));
    assert_eq!(lost.causes[0].places, ["put4 (pm.h:3)"]);
    // The mark before what it makes valid: the stores to lines 0, 1 and 2 are events 1, 4 and 7.
    let logic = report(operation(&[set(0), set(1), set(2)]));
    let [one, two] = &logic.causes[..] else { panic!("{:#?}", logic.causes) };
    assert_eq!((one.kind.as_str(), one.letters.as_str()), ("logic", "A"));
    assert_eq!([&one.places[..], &two.places], [["put1 (pm.h:3)"], ["put4 (pm.h:3)"]]);
}

#[test]
fn of_states_that_are_not_looked_into_the_report_says_how_many() {
    // The mark comes first: seven values after it are neither the state before nor the last one.
    let put = |value| vec![Op::store(64, [value; 8]), Op::clwb(64), Op::sfence()];
    let ops = operation(&[set(0), (1..8).flat_map(put).collect()]);
    let report = report(ops);
    let [finding] = &report.operations[0].findings[..] else { panic!("{report:#?}") };
    let wrong = report.states.len() - 2;
    assert_eq!((finding.evidence.len(), wrong), (4, 7), "{report:#?}");
    assert_eq!(finding.states_without_evidence, 3);
    assert!(text(&report).contains("  A: it is not atomic (and 3 more states that were not looked into)\n"));
}

#[test]
fn a_missing_fence_is_shown_with_what_was_lost_and_what_was_kept() {
    let together = [Op::store(64, [2; 8]), Op::store(0, [1; 8]), Op::clwb(64), Op::clwb(0), Op::sfence()];
    let report = report(operation(&[set(2), together.to_vec()]));
    let finding = &report.operations[0].findings[0];
    assert_eq!(finding.letter, 'A');
    let evidence = &finding.evidence[0];
    assert_eq!((evidence.lost.len(), evidence.kept_lines), (1, 1));
    assert_eq!((evidence.lost[0].offset, evidence.kept[0].offset), (64, 0));
    assert!(text(&report).contains("kept, out of 1 other pending lines"));
}

#[test]
fn of_many_lost_lines_those_are_shown_that_are_enough() {
    let others = (3..40).map(|line| vec![Op::store(line * 64, [7; 8])]);
    let ops = operation(&[others.collect::<Vec<_>>().concat(), set(1), unflushed(2), set(0)]);
    // Too few for one that lacks line 2 alone.
    let images = ImagesConfig { per_point: 6, reads: false, ..ImagesConfig::default() };
    let evidence = |shrink| {
        let report = report_with(ops.clone(), &ImagesConfig { shrink, ..images.clone() });
        (report.operations[0].findings[0].evidence[0].clone(), text(&report))
    };
    let (as_it_is, without) = evidence(0);
    let (shrunk, with) = evidence(64);
    assert!(as_it_is.lost.len() > 1 && as_it_is.is_enough_of.is_none() && without.contains(" lost:"));
    assert_eq!(shrunk.lost.iter().map(|line| line.offset).collect::<Vec<_>>(), [128]);
    let of = shrunk.is_enough_of.unwrap();
    let said = format!("lost (enough for this state; the image lacks {of} lines and blocks in all):");
    assert!(of > 1 && with.contains(&said));
    assert_eq!((shrunk.image, shrunk.state), (as_it_is.image, as_it_is.state));
    // With an order across lines a mix may be impossible.
    let ordered = [ops, vec![Op::store(0, [1; 8]), Op::clflush(0), Op::Mark(2)]].concat();
    let report = report_with(ordered, &ImagesConfig { shrink: 64, ..images });
    let evidence = report.operations.iter().flat_map(|operation| &operation.findings);
    let last = evidence.last().unwrap().evidence.last().unwrap();
    assert!(last.lost.len() > 1 && last.is_enough_of.is_none(), "{last:#?}");
}

#[test]
fn more_states_than_may_be_end_the_recoveries_and_the_report_says_so() {
    let ops = || operation(&[set(0), (3..12).flat_map(unflushed).collect(), set(1), unflushed(2), set(1)]);
    let images = ImagesConfig::default();
    let whole = report(ops());
    let limited = |states, text_bytes| {
        let limits = Limits { states: StateLimits { states, text_bytes }, ..Limits::default() };
        report_within(ops(), &images, limits, &|_| {})
    };
    for cut in [limited(2, 1 << 20), limited(100, 20)] {
        let totals = &cut.totals;
        assert!(totals.unreached_images > 0 && totals.images > 0, "{totals:?}");
        assert_eq!(totals.images + totals.unreached_images, whole.totals.images);
        assert!(totals.exhaustive_points < totals.points, "{totals:?}");
        let why = "there are too many different states";
        assert!(totals.stopped_by.as_deref().is_some_and(|said| said.starts_with(why)));
        assert!(text(&cut).contains(why) && html(&cut).contains(why));
    }
    assert_eq!(limited(100, 1 << 20), whole);
}

#[test]
fn images_that_are_forgotten_are_recovered_again_and_nothing_else_changes() {
    let ops = || operation(&[(3..14).flat_map(unflushed).collect(), set(1), unflushed(2), set(0)]);
    let images = ImagesConfig { per_point: 1 << 13, ..ImagesConfig::default() };
    let whole = report_with(ops(), &images);
    let again = report_within(ops(), &images, Limits { known_images: 0, ..Limits::default() }, &|_| {});
    assert!(whole.totals.forgotten_images == 0 && again.totals.forgotten_images > 0);
    assert!(again.totals.images > whole.totals.images, "{:?}", again.totals);
    assert_eq!(again.operations, whole.operations);
    assert!(text(&again).contains("images were forgotten to save memory"));
}

#[test]
fn of_crashes_with_one_state_that_with_the_least_losses_is_shown() {
    // Lines before and behind line 2, none of which matters, are lost in most of its crashes.
    let ops = operation(&[(3..6).flat_map(unflushed).collect(), set(1), unflushed(2), set(0), unflushed(7)]);
    let report = report_with(ops, &ImagesConfig { shrink: 0, ..ImagesConfig::default() });
    let finding = &report.operations[0].findings[0];
    assert_eq!((finding.letter, finding.evidence.len()), ('S', 1));
    let lost: Vec<_> = finding.evidence[0].lost.iter().map(|line| line.offset).collect();
    assert_eq!(lost, [128]);
}

#[test]
fn losses_that_are_too_large_to_be_kept_are_not_said_to_be_nothing() {
    let mut report = report(operation(&[set(1), unflushed(2), set(0)]));
    let evidence = &mut report.operations[0].findings[0].evidence[0];
    evidence.lost.clear();
    evidence.left_out_bytes = 4711;
    assert!(text(&report).contains("lost: 4711 bytes, too many to be kept and shown"));
    assert!(html(&report).contains("Lost: 4711 bytes"));
}

#[test]
fn an_error_of_the_logic_is_said_to_have_lost_nothing() {
    let report = report(operation(&[set(0), set(1), set(2)]));
    let evidence = &report.operations[0].findings[0].evidence[0];
    assert!(evidence.lost.is_empty(), "{evidence:#?}");
    assert!(text(&report).contains("nothing was lost"));
}

#[test]
fn a_recovery_that_crashes_is_shown_with_its_end() {
    let report = report(operation(&[vec![Op::store(64, [9; 8]), Op::clwb(64), Op::sfence()]]));
    assert_eq!(report.operations[0].findings[0].letter, 'C');
    assert!(text(&report).contains("the recovery was killed by signal 11"), "{}", text(&report));
}

#[test]
fn a_report_is_data_and_the_same_again() {
    let ops = operation(&[set(1), unflushed(2), set(0)]);
    let (one, two) = (report(ops.clone()), report(ops));
    assert_eq!(one, two);
    let json = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), one);
}

#[test]
fn pages_and_xml_hold_any_text() {
    let mut report = report(operation(&[set(1), unflushed(2), set(0)]));
    report.name = "<script>&\"".to_owned();
    report.states[0].text = "\u{0}\u{1b}[31m</pre><script>alert(1)</script>".to_owned();
    report.operations[0].findings[0].evidence[0].lost_by = vec!["put<script> (a.h:1)".to_owned()];
    let page = html(&report);
    assert!(page.contains("<h2>Causes</h2>") && page.contains("<pre>put&lt;script&gt; (a.h:1)</pre>"));
    assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"));
    assert!(page.contains("<svg") && page.contains("two &lt;3&gt;"), "{page}");
    let xml = junit(&[report]);
    assert!(xml.contains("failures=\"1\"") && xml.contains("&lt;script&gt;&amp;&quot;"));
    assert!(xml.chars().all(|char| char == '\n' || !char.is_control()));
}

#[test]
fn several_reports_are_a_table() {
    let good = report(operation(&[set(1), set(2), set(0)]));
    let bad = Report { name: "bad".to_owned(), ..report(operation(&[set(1), unflushed(2), set(0)])) };
    let table = table(&[good, bad]);
    let lines: Vec<_> =
        table.lines().take(2).map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert_eq!(lines, [["journal", "ok"], ["bad", "S"]]);
}

#[test]
fn what_a_bound_has_left_out_is_told_with_what_all_of_it_would_cost() {
    // Ten lines that are lost in any mix: 1,024 images at each point after them.
    let ops = || operation(&[(3..13).flat_map(unflushed).collect(), set(1), unflushed(2), set(0)]);
    let cut = report_with(ops(), &ImagesConfig { per_point: 16, ..ImagesConfig::default() });
    let left_out = cut.left_out.as_ref().unwrap();
    let totals = &cut.totals;
    assert_eq!(left_out.points as usize, totals.points - totals.exhaustive_points);
    let possible: Vec<u64> = left_out.largest.iter().map(|point| point.possible).collect();
    assert!(possible == [4096, 2048, 2048, 2048], "{possible:?}");
    let used: usize = left_out.largest.iter().map(|point| point.used).sum();
    assert!(left_out.largest.iter().all(|point| point.used <= 18 && point.used >= 8 && point.is_cut));
    assert_eq!(left_out.images, possible.iter().sum::<u64>() - used as u64);
    let last = left_out.steps.last().unwrap();
    assert_eq!((last.per_point, last.points, last.images), (4096, left_out.points, left_out.images));
    assert!(left_out.largest.iter().any(|point| point.at.starts_with("sfence") && point.event > 0));
    let said = text(&cut);
    let whole = format!("all images would be up to {} more: ", super::left_out::number(left_out.images, 0));
    assert!(said.contains(&whole) && said.contains("--per-point 4096 takes all images of "), "{said}");
    let of = |text: &str| text.matches(" images (the bound)").count();
    let all = text_with(&cut, Show { all: true });
    assert_eq!((of(&said), of(&all), of(&html(&cut))), (3, possible.len(), possible.len()));
    // What is drawn can be the image with everything, or with nothing: it counts once.
    let one =
        report_with(operation(&[unflushed(3)]), &ImagesConfig { per_point: 1, ..ImagesConfig::default() });
    let twice = one.left_out.unwrap();
    let of_two = |point: &CutPointReport| (point.used, point.possible) == (2, 2);
    assert!(twice.images == 0 && twice.largest.iter().all(of_two), "{twice:#?}");
    // What it says is right: with that bound nothing is left out.
    let whole = report_with(ops(), &ImagesConfig { per_point: 4096, ..ImagesConfig::default() });
    assert_eq!(whole.left_out, None);
    assert!(whole.totals.images <= totals.images + left_out.images as usize);
    assert!(whole.totals.images > 4096);
}
