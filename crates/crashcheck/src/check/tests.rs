use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fastness_crashcheck_trace::Reader;
use fastness_pm_model::{Op, Trace};

use super::*;
use crate::Result;
use crate::generate::{Contents, Known, Layout, Options, generate, outline};
use crate::process::Ending;
use crate::trace::record;

mod twice;

fn trace_of(ops: Vec<Op>) -> Vec<u8> {
    record(&Trace { initial: vec![0; 4096], ops }, "pm", Vec::new()).unwrap()
}

fn layout(file: &[u8]) -> Layout {
    Layout::of(Reader::new(file).unwrap().header()).unwrap()
}

/// What an analysis of a trace has found.
struct Judged {
    operations: Vec<Operation>,
    states: States,
    depends: BTreeSet<u64>,
}

fn judged<E: Extract>(
    file: &[u8],
    extract: &E,
    oracles: &[Box<dyn Oracle + '_>],
    must_be_atomic: bool,
    images_per_point: usize,
) -> Result<Judged> {
    let outline = outline(&mut Reader::new(file).unwrap()).unwrap();
    let options = Options { outline, images_per_point, ..Options::default() };
    let (mut states, mut known) = (States::new(StateLimits::default()), Known::new(1024));
    let mut judge = Judge::new(oracles, must_be_atomic);
    Workers::run(extract, None, 3, None, &|_, _| {}, |workers| {
        let mut stream = Stream::new(workers, &mut judge, &mut states, &mut known, None, 0);
        generate(&mut Reader::new(file).unwrap(), &options, None, &mut stream)?;
        stream.finish()
    })?;
    let depends = judge.depends_on_non_temporal().clone();
    Ok(Judged { operations: judge.operations().to_vec(), states, depends })
}

fn letters(operations: &[Operation]) -> Vec<String> {
    let letters =
        |operation: &Operation| operation.findings.iter().map(|finding| finding.kind.letter()).collect();
    operations.iter().map(letters).collect()
}

/// Recovers in this process: the first bytes of the first lines, by a function.
fn look(show: impl Fn([u8; 4]) -> State + Sync) -> impl Extract {
    move |contents: &Contents| {
        Ok(show([0, 1, 2, 3].map(|line| {
            let mut byte = [0];
            contents.memory.read(line * 64, &mut byte);
            byte[0]
        })))
    }
}

/// Recovers by a program.
fn by_command(command: &[&str], file: &[u8], work: &Path) -> CommandExtract {
    CommandExtract {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        write: None,
        layout: layout(file),
        time_out: Duration::from_secs(20),
        pace: Pace::default(),
        work: work.to_owned(),
        current_dir: work.to_owned(),
    }
}

fn shown(text: impl std::fmt::Display) -> State {
    State { ending: Ending::Code(0), text: text.to_string().into_bytes(), write: None }
}

/// The findings of each operation, as its letters.
fn findings(ops: Vec<Op>, show: impl Fn([u8; 4]) -> State + Sync) -> Vec<String> {
    letters(&judged(&trace_of(ops), &look(show), &[], true, 256).unwrap().operations)
}

fn set(line: u64) -> Vec<Op> {
    vec![Op::store(line * 64, [1; 8]), Op::clwb(line * 64), Op::sfence()]
}

fn unflushed(line: u64) -> Vec<Op> {
    vec![Op::store(line * 64, [1; 8]), Op::sfence()]
}

/// Line 0 is a mark, lines 1 and 2 are what it makes valid.
fn marked(lines: [u8; 4]) -> State {
    if lines[0] == 0 { shown("nothing") } else { shown(format_args!("{:?}", &lines[1..3])) }
}

fn operation(parts: &[Vec<Op>]) -> Vec<Op> {
    [vec![Op::Mark(0)], parts.concat(), vec![Op::Mark(1)]].concat()
}

#[test]
fn a_correct_operation_has_no_findings() {
    assert_eq!(findings(operation(&[set(1), set(2), set(0)]), marked), [""]);
    // Together, with the mark after a fence.
    let both = [Op::store(64, [1; 8]), Op::store(128, [1; 8]), Op::clwb(64), Op::clwb(128), Op::sfence()];
    assert_eq!(findings(operation(&[both.to_vec(), set(0)]), marked), [""]);
}

#[test]
fn a_missing_flush_leaves_more_than_one_final_state() {
    assert_eq!(findings(operation(&[set(1), unflushed(2), set(0)]), marked), ["S"]);
    assert_eq!(findings(operation(&[set(1), set(2), unflushed(0)]), marked), ["S"]);
}

#[test]
fn a_missing_fence_is_not_atomic() {
    let together = [Op::store(64, [1; 8]), Op::store(0, [1; 8]), Op::clwb(64), Op::clwb(0), Op::sfence()];
    assert_eq!(findings(operation(&[set(2), together.to_vec()]), marked), ["A"]);
}

#[test]
fn an_error_of_the_logic_is_not_atomic_whatever_is_flushed() {
    assert_eq!(findings(operation(&[set(0), set(1), set(2)]), marked), ["A"]);
}

#[test]
fn recoveries_that_crash_or_fail_or_leave_what_cannot_be_written_are_told_apart() {
    let state = |ending, write| State { ending, text: Vec::new(), write };
    let look = |lines: [u8; 4]| match lines {
        [0, 0, ..] => shown("nothing"),
        [1, 0, ..] => state(Ending::Signal(11), None),
        [0, 1, ..] => state(Ending::Code(2), None),
        _ => state(Ending::Code(0), Some(Ending::Code(1))),
    };
    let ops = operation(&[vec![
        Op::store(0, [1; 8]),
        Op::store(64, [1; 8]),
        Op::clwb(0),
        Op::clwb(64),
        Op::sfence(),
    ]]);
    assert_eq!(findings(ops, look), ["CEW"]);
    let look = |lines: [u8; 4]| if lines[0] == 0 { shown(0) } else { state(Ending::TimedOut, None) };
    assert_eq!(findings(operation(&[set(0)]), look), ["C"]);
}

#[test]
fn operations_lie_between_checkpoints_and_without_any_the_whole_is_one() {
    let three =
        [set(5), operation(&[set(1), set(2), set(0)]), unflushed(3), vec![Op::Mark(2)], set(6)].concat();
    let look = |lines: [u8; 4]| shown(format_args!("{lines:?}"));
    // What comes before the first is not tested, what comes after the last only recovered.
    assert_eq!(findings(three.clone(), look), ["A", "S"]);
    assert_eq!(findings([set(1), set(2), set(0)].concat(), marked), [""]);
    assert_eq!(findings([set(0), set(1), set(2)].concat(), marked), ["A"]);
    assert_eq!(findings(Vec::new(), marked), [""]);
}

#[test]
fn operations_of_many_steps_need_not_be_atomic_but_durable() {
    let letters =
        |ops| letters(&judged(&trace_of(ops), &look(marked), &[], false, 256).unwrap().operations).concat();
    assert_eq!(letters(operation(&[set(0), set(1), set(2)])), "");
    assert_eq!(letters(operation(&[set(0), unflushed(1)])), "S");
}

#[test]
fn states_are_named_by_the_checkpoint_behind_which_they_appear() {
    let ops = [operation(&[set(1), set(0)]), unflushed(3), vec![Op::Mark(2)]].concat();
    let by_lines = look(|lines: [u8; 4]| shown(format_args!("{lines:?}")));
    let states = judged(&trace_of(ops), &by_lines, &[], true, 256).unwrap().states;
    let names: Vec<_> = states.found().iter().map(|found| (&found.name[..], found.is_regular)).collect();
    assert_eq!(names, [("c0s0", true), ("c0s1", true), ("c0s2", true), ("c1s0", true)]);
}

#[test]
fn oracles_judge_by_what_was_acknowledged() {
    let complete = b"one\ntwo\nthree\n".to_vec();
    let refuses = |text: &str, checkpoint| {
        Prefix { complete: complete.clone() }.refuses(&shown(text), Moment { checkpoint, event: 0 }).unwrap()
    };
    assert_eq!(refuses("one\ntwo\n", Some(2)), None);
    assert_eq!(refuses("one\ntwo\nthree\n", Some(2)), None, "one may be there already");
    assert_eq!(refuses("one\n", Some(2)).unwrap(), "2 records were acknowledged, but 1 are left");
    assert_eq!(refuses("two\n", None).unwrap(), "record 1 differs from the one that was written");
    assert!(refuses("one\ntwo\nthree\nfour\n", None).is_some());

    let at = |checkpoint| Moment { checkpoint, event: 0 };
    let script = "read line; [ \"$line\" = good ] && exit 0; echo \"not at ${CHECKPOINT:-all}\"; exit 1";
    let predicate = |script: &str| Predicate {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        time_out: Duration::from_secs(20),
    };
    assert_eq!(predicate(script).refuses(&shown("good"), at(None)).unwrap(), None);
    assert_eq!(predicate(script).refuses(&shown("bad"), at(Some(3))).unwrap().unwrap(), "not at 3");
    assert_eq!(predicate(script).refuses(&shown("bad"), at(None)).unwrap().unwrap(), "not at all");
    assert!(predicate("exit 7").refuses(&shown(""), at(None)).is_err());

    let good_or_bad = look(|lines: [u8; 4]| shown(if lines[0] == 0 { "good" } else { "bad" }));
    let oracle: Box<dyn Oracle> = Box::new(predicate(script));
    let operations =
        judged(&trace_of(operation(&[set(0)])), &good_or_bad, &[oracle], true, 256).unwrap().operations;
    let kinds: Vec<_> = operations[0].findings.iter().map(|finding| finding.kind.clone()).collect();
    assert_eq!(kinds, [FindingKind::Oracle("not at 0".to_owned())]);
}

#[test]
fn states_that_hang_on_non_temporal_stores_are_found_where_not_all_images_were_taken() {
    let line = |line: u64| (0..8).map(move |word| Op::nt_store(line * 64 + word * 8, [1; 8]));
    let ops: Vec<Op> = (0..4).flat_map(line).chain([Op::sfence()]).collect();
    let file = trace_of(ops);
    let depends = |images_per_point| {
        let by_lines = look(|lines: [u8; 4]| shown(format_args!("{lines:?}")));
        judged(&file, &by_lines, &[], true, images_per_point).unwrap().depends
    };
    assert_eq!(depends(16), BTreeSet::from([32]));
    assert_eq!(depends(10_000), BTreeSet::new());
}

#[test]
fn a_command_recovers_files_and_its_output_is_the_state() {
    let file = trace_of(operation(&[set(0)]));
    let work = tempfile::tempdir().unwrap();
    let extract = |script: &str, write: Option<&str>| {
        let sh = |script: &str| ["sh", "-c", script, "recover", "{pm}"].map(str::to_owned).to_vec();
        let extract = CommandExtract {
            command: sh(script),
            write: write.map(sh),
            layout: layout(&file),
            time_out: Duration::from_secs(20),
            pace: Pace::default(),
            work: work.path().to_owned(),
            current_dir: work.path().to_owned(),
        };
        let states = judged(&file, &extract, &[], true, 256).unwrap().states;
        let found = (0..states.found().len()).map(|index| states.state(index));
        let written =
            found.map(|state| (state.ending, String::from_utf8_lossy(&state.text).into_owned(), state.write));
        written.collect::<Vec<_>>()
    };
    // A file of its own each time: one that was changed is not seen again.
    let found = extract("od -An -tu1 -N1 $1 | tr -d ' '; wc -c <$1; echo x >$1", None);
    let both =
        [(Ending::Code(0), "0\n4096\n".to_owned(), None), (Ending::Code(0), "1\n4096\n".to_owned(), None)];
    assert_eq!(found, both);
    let found = extract("echo broken >&2; exit 4", Some("exit 0"));
    assert!(found.iter().all(|found| *found == (Ending::Code(4), "broken\n".to_owned(), None)), "{found:?}");
    let found = extract("echo $1 | wc -l", Some("exit 3"));
    assert!(found.iter().all(|found| found.2 == Some(Ending::Code(3))), "{found:?}");
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0, "files are left");
    assert!(Command::new("sh").arg("-c").arg("true").status().unwrap().success());
}

#[test]
fn a_recovery_that_is_not_there_is_an_error() {
    let file = trace_of(operation(&[set(0)]));
    let work = tempfile::tempdir().unwrap();
    let extract = by_command(&["/nonexistent/recover"], &file, work.path());
    let error = judged(&file, &extract, &[], true, 256).err().unwrap();
    assert_eq!(error.to_string(), "cannot run /nonexistent/recover");
}
