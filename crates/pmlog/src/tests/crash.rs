//! Every image that a crash can leave, at every step in the life of a log.

use std::convert::Infallible;
use std::ops::ControlFlow;

use fastness_pm_model::{Budget, Config, Persistence, Summary, Trace, explore};

use super::*;

/// A step of a history.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Append,
    Ordered,
    Trim,
    /// Later records can be trimmed without those before.
    Turn,
    /// Trim what was appended before the last turn.
    TrimTurn,
    /// Open, replay, finish.
    Recover,
    /// Open, replay, and stop.
    Replay,
    /// Create a new log over the old one.
    Overwrite,
}

/// A history: its trace, and the records in the log after each step (step 0 is the creation).
///
/// A mark says which step was acknowledged.
pub(super) struct History {
    pub(super) trace: Trace,
    pub(super) states: Vec<Vec<Vec<u8>>>,
    /// Number of operations when the step had returned.
    pub(super) ends: Vec<usize>,
}

pub(super) fn run(steps: &[Step]) -> History {
    let recorder = recorder(vec![0; SMALL]);
    let mut history = Recording { recorder: recorder.clone(), states: Vec::new(), ends: Vec::new() };
    let mut log = Some(RecordLog::create(whole(&recorder, SMALL), &create_options()).unwrap());
    let mut state: Vec<Vec<u8>> = Vec::new();
    let mut turn = None;
    history.acknowledge(&state);
    for (index, &step) in steps.iter().enumerate() {
        let next = record(index as u64);
        match step {
            Step::Append => drop(log.as_ref().unwrap().append(&next).unwrap()),
            Step::Ordered => drop(log.as_mut().unwrap().append_ordered(&next).unwrap()),
            Step::Trim => drop(log.as_mut().unwrap().trim().unwrap()),
            Step::Turn => {
                let ended = log.as_mut().unwrap().next_turn().unwrap();
                turn = Some((ended, state.len()));
            }
            Step::TrimTurn => {
                let log = log.as_mut().unwrap();
                log.trim_turns(turn.unwrap().0).unwrap();
                log.empty_trimmed().unwrap();
            }
            Step::Recover | Step::Replay => {
                drop(log.take());
                let mut recovery =
                    RecordLog::open(whole(&recorder, SMALL), &reopen_options(index as u64)).unwrap();
                recovery.replay(|_, _| Ok::<_, Infallible>(())).unwrap();
                if let Step::Recover = step {
                    log = Some(recovery.finish().unwrap());
                }
            }
            Step::Overwrite => {
                drop(log.take());
                let options = create_options().overwrite(true).open(reopen_options(index as u64));
                log = Some(RecordLog::create(whole(&recorder, SMALL), &options).unwrap());
            }
        }
        match step {
            Step::Append | Step::Ordered => state.push(next),
            Step::Trim | Step::Recover | Step::Overwrite => state.clear(),
            Step::TrimTurn => drop(state.drain(..turn.unwrap().1)),
            Step::Replay | Step::Turn => {}
        }
        history.acknowledge(&state);
    }
    drop(log);
    History { trace: recorder.trace(), states: history.states, ends: history.ends }
}

struct Recording {
    recorder: Recorder,
    states: Vec<Vec<Vec<u8>>>,
    ends: Vec<usize>,
}

impl Recording {
    fn acknowledge(&mut self, state: &[Vec<u8>]) {
        self.recorder.mark(self.states.len() as u64);
        self.states.push(state.to_vec());
        self.ends.push(self.recorder.op_count());
    }
}

/// The oracle: after a crash, the records are those after the last acknowledged step or the one after it, and
/// the log can be used. Only during the creation of a log may there be none.
fn check(
    history: &History,
    creates: impl Fn(usize) -> bool,
    image: &[u8],
    mark: Option<u64>,
) -> Result<(), String> {
    let next = mark.map_or(0, |mark| mark as usize + 1);
    let found = match open_image(image) {
        Ok(recovery) => records_of(recovery),
        Err(OpenError::NotALog | OpenError::Superblock(_)) if creates(next) => return Ok(()),
        Err(error) => return Err(format!("in step {next}: {error}: {error:?}")),
    };
    let allowed = [next.checked_sub(1), Some(next)];
    let mut allowed = allowed.into_iter().flatten().filter_map(|step| history.states.get(step));
    if !allowed.any(|state| *state == found) {
        return Err(format!("in step {next}: found {found:?}"));
    }
    go_on(image, &found)
}

/// Repeats the recovery that crashed, and uses the log.
fn go_on(image: &[u8], found: &[Vec<u8>]) -> Result<(), String> {
    let recorder = recorder(image.to_vec());
    let fail = |error: &dyn std::fmt::Display| error.to_string();
    let mut recovery =
        RecordLog::open(whole(&recorder, SMALL), &reopen_options(77)).map_err(|error| fail(&error))?;
    let mut again = Vec::new();
    let take = |_, bytes: &[u8]| {
        again.push(bytes.to_vec());
        Ok::<_, Infallible>(())
    };
    recovery.replay(take).map_err(|error| fail(&error))?;
    if again != found {
        return Err(format!("the second recovery found {again:?}"));
    }
    let log = recovery.finish().map_err(|error| fail(&error))?;
    log.append(b"after the crash").map_err(|error| fail(&error))?;
    drop(log);
    let after = open_image(&recorder.image()).map_err(|error| fail(&error))?;
    let records = records_of(after);
    if records == [b"after the crash"] { Ok(()) } else { Err(format!("then found {records:?}")) }
}

/// Checks all crash images of `trace`; returns the first failure.
pub(super) fn explore_all(
    history: &History,
    trace: &Trace,
    steps: &[Step],
    config: Config,
) -> Result<Summary, String> {
    let creates = |step: usize| step == 0 || matches!(steps.get(step - 1), Some(Step::Overwrite));
    let mut failure = None;
    let budget = Budget { exhaustive_limit: 3000, samples: 400, seed: 1 };
    let summary = explore(trace, &config, budget, &mut |point| match check(
        history,
        creates,
        point.image,
        point.last_mark,
    ) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(format!("crash before operation {}, {error}", point.op_index));
            ControlFlow::Break(())
        }
    });
    let summary = summary.expect("the trace fits its memory");
    failure.map_or(Ok(summary), Err)
}

fn survive(steps: &[Step]) -> Summary {
    let history = run(steps);
    let check = |config| explore_all(&history, &history.trace, steps, config).unwrap();
    check(Config { persistence: Persistence::Eadr, ..Config::default() });
    check(Config { strict_nt: true, ..Config::default() });
    check(Config::default())
}

#[test]
fn create_append_trim() {
    let summary =
        survive(&[Step::Append, Step::Append, Step::Ordered, Step::Append, Step::Trim, Step::Append]);
    assert!(summary.images > 900, "{summary:?}");
}

/// In chunks of their own, and in one together.
#[test]
fn turns_are_trimmed_beside_later_records() {
    let [append, turn, trim] = [Step::Append, Step::Turn, Step::TrimTurn];
    survive(&[append, append, append, append, turn, append, trim, append]);
    survive(&[append, turn, append, trim, append, turn, trim]);
}

#[test]
fn recovery_and_finish() {
    let summary = survive(&[Step::Append, Step::Ordered, Step::Replay, Step::Recover, Step::Append]);
    assert!(summary.images > 500, "{summary:?}");
}

#[test]
fn a_trim_that_empties_both_chunks() {
    let mut steps = vec![Step::Append; 6];
    steps.extend([Step::Trim, Step::Append, Step::Trim, Step::Trim]);
    survive(&steps);
}

/// Nothing is collected between the updates, so no other fence covers the header's.
#[test]
fn updates_of_the_header_in_a_row() {
    survive(&[Step::Append, Step::Recover, Step::Trim, Step::Trim]);
}

#[test]
fn creation_over_a_log_with_records() {
    survive(&[Step::Append, Step::Append, Step::Append, Step::Append, Step::Overwrite, Step::Append]);
}
