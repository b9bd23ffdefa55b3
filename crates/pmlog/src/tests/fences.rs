//! Each fence of this crate is needed: a trace without it has a crash image that breaks the oracle.

use fastness_pm_model::Config;

use super::crash::{History, Step, explore_all, run};

/// Index of the step to which an operation belongs.
fn step_of(history: &History, op: usize) -> usize {
    history.ends.iter().take_while(|&&end| end <= op).count()
}

#[test]
fn print() {
    let steps = [Step::Append, Step::Trim, Step::Append, Step::Trim, Step::Append, Step::Replay, Step::Recover, Step::Append,
        Step::Overwrite, Step::Append];
    let history = run(&steps);
    for (nth, fence) in history.trace.fences().into_iter().enumerate() {
        let result = explore_all(&history, &history.trace.without_op(fence), &steps, Config::default());
        eprintln!("fence {nth} op {fence} step {} {:?}", step_of(&history, fence), result.err());
    }
}
