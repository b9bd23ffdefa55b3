//! Recoveries in this process: what they store is their trace.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fastness_pm_model::{Op, Trace};
use tempfile::TempDir;

use super::*;
use crate::check::{Extract, Moment, Oracle};
use crate::process::Ending;
use crate::report::{Report, text};
use crate::run::{Analysis, ImagesConfig, Limits};
use crate::trace::record;

const LEN_BYTES: usize = 4096;

/// PM of a recovery: numbers at the beginning of lines, and what was done to them.
struct Pm {
    bytes: Vec<u8>,
    ops: Vec<Op>,
}

impl Pm {
    fn get(&self, line: u64) -> u8 {
        self.bytes[line as usize * 64]
    }

    fn set(&mut self, line: u64, value: u8) {
        self.bytes[line as usize * 64] = value;
        self.ops.push(Op::store(line * 64, [value, 0, 0, 0, 0, 0, 0, 0]));
    }

    fn persist(&mut self, lines: &[u64]) {
        self.ops.extend(lines.iter().map(|line| Op::clwb(line * 64)));
        self.ops.push(Op::sfence());
    }

    fn set_durably(&mut self, line: u64, value: u8) {
        self.set(line, value);
        self.persist(&[line]);
    }
}

/// A log of one entry, which only a recovery carries out: it is valid, and says what the values become, or
/// how much is added to them.
const VALID: u64 = 0;
const ENTRY: u64 = 1;
const VALUES: [u64; 2] = [2, 3];
/// A recovery has begun and not ended.
const RESUMED: u64 = 4;
const NOTE: u64 = 5;

fn clear(pm: &mut Pm) {
    pm.set_durably(VALID, 0);
}

fn apply(pm: &mut Pm) {
    VALUES.iter().for_each(|line| pm.set(*line, pm.get(ENTRY)));
    pm.persist(&VALUES);
}

fn correct(pm: &mut Pm) {
    if pm.get(VALID) == 1 {
        apply(pm);
        clear(pm);
    }
}

/// Adds, and so twice.
fn adding(pm: &mut Pm) {
    if pm.get(VALID) == 1 {
        VALUES.iter().for_each(|line| pm.set(*line, pm.get(*line) + pm.get(ENTRY)));
        pm.persist(&VALUES);
        clear(pm);
    }
}

/// Adds, too, and writes something beside that nobody reads.
fn adding_and_noting(pm: &mut Pm) {
    if pm.get(VALID) == 1 {
        VALUES.iter().for_each(|line| pm.set(*line, pm.get(*line) + pm.get(ENTRY)));
        pm.set(NOTE, 1);
        pm.persist(&[VALUES[0], VALUES[1], NOTE]);
        clear(pm);
    }
}

/// Clears the log before what it says is durable.
fn hasty(pm: &mut Pm) {
    if pm.get(VALID) == 1 {
        VALUES.iter().for_each(|line| pm.set(*line, pm.get(ENTRY)));
        pm.set(VALID, 0);
        pm.persist(&[VALUES[0], VALUES[1], VALID]);
    }
}

/// As it should be; but once a recovery has not ended, the next one clears the log first.
fn hasty_when_resumed(pm: &mut Pm) {
    if pm.get(VALID) == 0 {
        return;
    }
    if pm.get(RESUMED) == 0 {
        pm.set_durably(RESUMED, 1);
        apply(pm);
        clear(pm);
    } else {
        clear(pm);
        apply(pm);
    }
    pm.set_durably(RESUMED, 0);
}

struct InProcess {
    recovery: fn(&mut Pm),
    /// How often each image was recovered.
    recovered: Mutex<HashMap<ImageHash, usize>>,
    traced: Mutex<HashMap<ImageHash, usize>>,
    fails: fn(&Pm) -> bool,
    is_whole: AtomicBool,
}

impl InProcess {
    fn new(recovery: fn(&mut Pm)) -> InProcess {
        InProcess {
            recovery,
            recovered: Mutex::default(),
            traced: Mutex::default(),
            fails: |_| false,
            is_whole: AtomicBool::new(true),
        }
    }

    fn run(&self, contents: &Contents) -> (Vec<u8>, Pm) {
        let mut bytes = vec![0; LEN_BYTES];
        contents.memory.read(0, &mut bytes);
        let mut pm = Pm { bytes: bytes.clone(), ops: Vec::new() };
        (self.recovery)(&mut pm);
        (bytes, pm)
    }
}

impl Extract for InProcess {
    type Place = ();

    fn place(&self) -> Result<()> {
        Ok(())
    }

    fn extract(&self, (): &mut (), contents: &Contents) -> Result<State> {
        *self.recovered.lock().unwrap().entry(contents.hash()).or_default() += 1;
        let mut bytes = vec![0; LEN_BYTES];
        contents.memory.read(0, &mut bytes);
        let has_failed = (self.fails)(&Pm { bytes, ops: Vec::new() });
        let (_, pm) = self.run(contents);
        let text = format!("{} {}\n", pm.get(VALUES[0]), pm.get(VALUES[1])).into_bytes();
        Ok(State { ending: Ending::Code(i32::from(has_failed)), text, write: None })
    }
}

impl TraceRecovery for InProcess {
    fn trace(&self, contents: &Contents, work: &Path) -> Result<RecoveryTrace> {
        *self.traced.lock().unwrap().entry(contents.hash()).or_default() += 1;
        let (initial, pm) = self.run(contents);
        let path = work.join("trace");
        std::fs::write(&path, record(&Trace { initial, ops: pm.ops }, "pm", Vec::new())?).unwrap();
        Ok(RecoveryTrace { path: Some(path), is_whole: self.is_whole.load(Ordering::Relaxed) })
    }
}

/// Two operations, each of which only adds to the log.
fn program() -> Vec<Op> {
    let mut pm = Pm { bytes: vec![0; LEN_BYTES], ops: vec![Op::Mark(0)] };
    pm.set_durably(ENTRY, 7);
    pm.set_durably(VALID, 1);
    pm.ops.push(Op::Mark(1));
    pm.ops
}

#[derive(Clone, Copy)]
struct Asked<'a> {
    depth: usize,
    per_point: usize,
    threads: usize,
    keep: Option<&'a Path>,
    deadline: Option<Instant>,
    is_left_to_oracle: bool,
}

const ASKED: Asked<'_> =
    Asked { depth: 1, per_point: 16, threads: 3, keep: None, deadline: None, is_left_to_oracle: false };

/// Refuses a state.
struct Never(&'static [u8]);

impl Oracle for Never {
    fn refuses(&self, state: &State, _: Moment) -> Result<Option<String>> {
        Ok((state.text == self.0).then(|| "never".to_owned()))
    }
}

fn tested(recovery: &InProcess, ops: Vec<Op>, asked: Asked<'_>) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("test.trace");
    let file = record(&Trace { initial: vec![0; LEN_BYTES], ops }, "pm", Vec::new()).unwrap();
    std::fs::write(&trace, file).unwrap();
    let crashes = RecoveryCrashes {
        depth: asked.depth,
        per_point: asked.per_point,
        tracer: recovery,
        is_in_kernel: false,
        work: dir.path(),
        keep: asked.keep,
    };
    let never: Vec<Box<dyn Oracle>> = vec![Box::new(Never(b"14 14\n"))];
    let analysis = Analysis {
        name: "log",
        trace: &trace,
        images: &ImagesConfig::default(),
        extract: recovery,
        recovery: None,
        oracles: if asked.is_left_to_oracle { never } else { Vec::new() },
        has_prefix_oracle: false,
        has_operations: false,
        must_be_atomic: true,
        in_recovery: (asked.depth > 0).then_some(crashes),
        threads: asked.threads,
        exclude: &[],
        symbols: &|_, _| None,
        deadline: asked.deadline,
        limits: Limits::default(),
        progress: &|_| {},
    };
    let report = analysis.run().unwrap();
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "test.trace" || name == "explained"), "{left:?}");
    report
}

fn letters(recovery: fn(&mut Pm), depth: usize) -> String {
    let report = tested(&InProcess::new(recovery), program(), Asked { depth, ..ASKED });
    report.operations.iter().flat_map(|operation| &operation.findings).map(|finding| finding.letter).collect()
}

fn totals(report: &Report) -> crate::report::RecoveryTotals {
    report.in_recovery.clone().unwrap()
}

#[test]
fn a_correct_recovery_has_no_findings_however_often_it_crashes() {
    for depth in 0..4 {
        assert_eq!(letters(correct, depth), "", "depth {depth}");
    }
    let recovery = InProcess::new(correct);
    let report = tested(&recovery, program(), ASKED);
    let totals = totals(&report);
    assert_eq!((report.totals.images, report.states.len()), (3, 2));
    // Of the three images of the program two have a log that is not valid: their recoveries store nothing.
    assert_eq!((totals.recoveries, totals.idle, totals.incomplete), (3, 2, 0));
    // That of the other has three points: before both fences, and at the end.
    assert_eq!((totals.points, totals.cut_points), (3, 0));
    let said =
        "crashes during recovery, 1 deep: 3 recoveries traced, 2 of which store nothing; 3 failure points, ";
    assert!(text(&report).contains(said), "{}", text(&report));
}

#[test]
fn a_recovery_that_replays_by_adding_is_found_when_it_crashes() {
    assert_eq!((letters(adding, 0), letters(adding, 1)), (String::new(), "R".to_owned()));
    let report = tested(&InProcess::new(adding), program(), ASKED);
    let operation = &report.operations[0];
    // Either value, or both, twice.
    assert_eq!((operation.states.len(), operation.in_recovery.len()), (2, 3));
    let state = |name: &str| report.states.iter().find(|state| state.name == name).unwrap();
    assert!(operation.in_recovery.iter().all(|name| state(name).is_in_recovery));
    assert!(operation.states.iter().all(|name| !state(name).is_in_recovery));
    let evidence = &operation.findings[0].evidence[0];
    assert_eq!(evidence.in_recovery.len(), 1);
    // Nothing is lost: the values are durable, the log is still valid.
    let crash = evidence.in_recovery.iter().find(|crash| crash.lost.is_empty()).unwrap();
    assert_eq!((crash.lost_bytes, crash.at.is_empty()), (0, false));
    let shown = text(&report);
    for part in [
        "R: a crash during recovery leads to a state that no other crash leads to",
        "  only after a crash during recovery c",
        "    then one of its recovery, just before event ",
        "    the crash of its recovery has lost nothing",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    let page = crate::report::html(&report);
    assert!(page.contains("Then its recovery crashes, before event"), "{page}");
}

#[test]
fn a_log_that_is_cleared_before_its_effects_are_durable_is_found_when_recovery_crashes() {
    assert_eq!((letters(hasty, 0), letters(hasty, 1)), (String::new(), "R".to_owned()));
    let report = tested(&InProcess::new(hasty), program(), ASKED);
    // Nothing of it there after it had ended: a state that it has, but not then.
    let operation = &report.operations[0];
    let before = report.states.iter().find(|state| state.text == "0 0\n").unwrap();
    assert!(operation.states.contains(&before.name) && operation.in_recovery.contains(&before.name));
    assert!(!before.is_in_recovery);
    let of_before = operation.findings[0].evidence.iter().find(|evidence| evidence.state == before.name);
    let crash = &of_before.unwrap().in_recovery[0];
    let lines: Vec<u64> = crash.lost.iter().map(|line| line.offset / 64).collect();
    assert_eq!(lines, VALUES, "the values, and not the log");
    let cause = &report.causes[0];
    assert_eq!((&cause.kind[..], cause.witnesses[0].in_recovery.len()), ("lost-in-recovery", 1));
}

#[test]
fn of_crashes_during_one_recovery_that_with_the_least_losses_is_shown() {
    let report = tested(&InProcess::new(adding_and_noting), program(), ASKED);
    let twice = report.states.iter().find(|state| state.text == "14 14\n").unwrap();
    let evidence = &report.operations[0].findings[0].evidence;
    let crash = evidence.iter().find(|evidence| evidence.state == twice.name).unwrap();
    assert_eq!(crash.in_recovery[0].lost_bytes, 0, "the note need not be lost");
}

#[test]
fn a_recovery_that_only_a_second_crash_breaks_needs_depth_two() {
    let found: Vec<String> = (0..4).map(|depth| letters(hasty_when_resumed, depth)).collect();
    assert_eq!(found, ["", "", "R", "R"]);
    let report = tested(&InProcess::new(hasty_when_resumed), program(), Asked { depth: 2, ..ASKED });
    let evidence = &report.operations[0].findings[0].evidence[0];
    assert_eq!(evidence.in_recovery.len(), 2, "the chain is named");
    let deeper = tested(&InProcess::new(hasty_when_resumed), program(), Asked { depth: 4, ..ASKED });
    let chains = deeper.operations[0].findings[0].evidence.iter().map(|evidence| evidence.in_recovery.len());
    assert!(
        chains.clone().all(|crashes| crashes == 2),
        "the shortest ones: {:?}",
        chains.collect::<Vec<_>>()
    );
    assert_ne!(evidence.in_recovery[0].image, evidence.in_recovery[1].image);
}

#[test]
fn a_recovery_that_fails_after_a_crash_of_itself_is_found_as_failing() {
    let mut recovery = InProcess::new(correct);
    recovery.fails = |pm| pm.get(VALID) == 1 && pm.get(VALUES[0]) != pm.get(VALUES[1]);
    let of = |depth| {
        let report = tested(&recovery, program(), Asked { depth, ..ASKED });
        let findings = report.operations[0].findings.clone();
        findings
            .iter()
            .map(|finding| (finding.letter, finding.evidence[0].in_recovery.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!((of(0), of(1)), (vec![], vec![('E', 1)]));
    // A recovery that fails is not looked into.
    let mut recovery = InProcess::new(adding);
    recovery.fails = |pm| pm.get(VALID) == 1;
    let report = tested(&recovery, program(), ASKED);
    assert_eq!((report.operations[0].findings[0].letter, totals(&report).recoveries), ('E', 2));
}

#[test]
fn oracles_judge_states_of_crashes_during_recovery() {
    let report = tested(&InProcess::new(adding), program(), Asked { is_left_to_oracle: true, ..ASKED });
    let findings = &report.operations[0].findings;
    let letters: String = findings.iter().map(|finding| finding.letter).collect();
    assert_eq!(letters, "OR");
    assert_eq!((findings[0].states.len(), findings[0].evidence[0].in_recovery.len()), (1, 1));
}

#[test]
fn no_image_is_recovered_twice_but_the_first_of_each_state() {
    for depth in 1..4 {
        let recovery = InProcess::new(hasty_when_resumed);
        let report = tested(&recovery, program(), Asked { depth, ..ASKED });
        let recovered = recovery.recovered.lock().unwrap();
        let again: usize = recovered.values().map(|times| times - 1).sum();
        assert_eq!(again, report.states.len(), "depth {depth}: {recovered:?}");
        assert!(recovered.len() >= report.totals.images);
        assert!(recovered.len() <= report.totals.images + totals(&report).images);
    }
    // At depth 1 no recovery is traced twice, but to explain a crash; there is none.
    let recovery = InProcess::new(hasty_when_resumed);
    tested(&recovery, program(), ASKED);
    assert!(recovery.traced.lock().unwrap().values().all(|times| *times == 1));
}

#[test]
fn the_same_test_has_the_same_report_whatever_the_number_of_threads() {
    for recovery in [adding, hasty, hasty_when_resumed] {
        let report = |threads| {
            let asked = Asked { depth: 3, threads, ..ASKED };
            tested(&InProcess::new(recovery), program(), asked)
        };
        let first = report(1);
        assert!((0..5).all(|_| report(4) == first));
    }
}

#[test]
fn what_a_bound_or_the_time_or_the_tracer_has_left_out_is_said() {
    let few = tested(&InProcess::new(correct), program(), Asked { per_point: 1, ..ASKED });
    assert!(totals(&few).cut_points > 0 && totals(&few).images < 6);
    let said = "of these failure points have more images than were generated (--recovery-per-point 1)";
    assert!(text(&few).contains(said), "{}", text(&few));

    let recovery = InProcess::new(adding);
    recovery.is_whole.store(false, Ordering::Relaxed);
    let report = tested(&recovery, program(), ASKED);
    assert_eq!(totals(&report).incomplete, 3);
    assert!(text(&report).contains("3 of these recoveries could not be traced to their end"));

    let late = Asked { deadline: Some(Instant::now()), ..ASKED };
    let report = tested(&InProcess::new(adding), program(), late);
    assert_eq!((totals(&report).recoveries, report.totals.unreached_images), (0, 3));
}

#[test]
fn the_image_of_a_finding_is_kept_and_shows_it_again() {
    let keep = TempDir::new().unwrap();
    let folder = keep.path().join("log");
    let report = tested(&InProcess::new(adding), program(), Asked { keep: Some(&folder), ..ASKED });
    for evidence in &report.operations[0].findings[0].evidence {
        let crash = &evidence.in_recovery[0];
        let name = crash.kept_as.as_ref().unwrap();
        assert!(crash.image.starts_with(name.as_str()));
        let mut pm = Pm { bytes: std::fs::read(folder.join(name).join("pm0")).unwrap(), ops: Vec::new() };
        adding(&mut pm);
        let state = report.states.iter().find(|state| state.name == evidence.state).unwrap();
        assert_eq!(state.text, format!("{} {}\n", pm.get(VALUES[0]), pm.get(VALUES[1])));
    }
}
