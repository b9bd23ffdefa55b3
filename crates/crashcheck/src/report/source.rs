//! What a report is made of, and how it names and shows that.

use std::path::Path;

use fastness_pm_model::Config;

use super::place::UNKNOWN;
use crate::check::{
    Counts, LeftOut, Operation, Passed, RecoveryCounts, RecoveryCrashes, Shrink, State, States,
};
use crate::explain::{Exclusion, Pattern};
use crate::symbols::Find;

/// Most bytes of a state, and of a difference.
const TEXT_MAX_BYTES: usize = 64 << 10;

/// What a report is about, and where it comes from.
pub struct Source<'a> {
    /// Name of the test.
    pub name: &'a str,
    /// The trace.
    pub trace: &'a Path,
    /// The machine.
    pub config: Config,
    /// Most bytes of PM.
    pub memory_max_bytes: u64,
    /// Looks up where an instruction comes from.
    pub symbols: &'a Find<'a>,
    /// Failure points, in numbers.
    pub counts: Counts,
    /// The points where images were left out.
    pub left_out: &'a LeftOut,
    /// How many events the trace has.
    pub events: u64,
    /// Most images of a failure point.
    pub per_point: usize,
    /// Microseconds of a recovery: of all of them the time that passed, by their number.
    pub recovery_us: u64,
    /// Images, in numbers.
    pub passed: Passed,
    /// How many images were forgotten, and would have been taken for new ones.
    pub forgotten: u64,
    /// Their states.
    pub states: &'a States,
    /// The operations.
    pub operations: &'a [Operation],
    /// What the trace hints at, by instruction.
    pub patterns: &'a [Pattern],
    /// Functions and files that no hint is about.
    pub exclude: &'a [Exclusion],
    /// Crashes during recovery, if they are tested, and what there was of them.
    pub in_recovery: Option<(RecoveryCrashes<'a>, RecoveryCounts)>,
    /// There is time for more recoveries.
    pub may_recover: bool,
    /// Reduces the losses of crashes.
    pub shrink: Shrink<'a>,
}

/// Text, cut at a length that people can read.
pub(super) fn readable(text: &[u8]) -> String {
    let cut = &text[..text.len().min(TEXT_MAX_BYTES)];
    let mut readable = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < text.len() {
        readable.push_str(&format!("\n... {} bytes more\n", text.len() - cut.len()));
    }
    readable
}

/// An instruction, and where it comes from.
pub(super) fn place(symbols: &Find<'_>, pc: Option<u64>, is_kernel: bool) -> String {
    let Some(pc) = pc else { return UNKNOWN.to_owned() };
    match symbols(pc, is_kernel) {
        Some(symbol) => format!("{pc:#x} {symbol}"),
        None => format!("{pc:#x}"),
    }
}

/// How a state differs from another.
pub(super) fn difference(source: &Source<'_>, expected: usize, state: usize) -> String {
    let (found, states) = (source.states.found(), source.states);
    let (one, two) = (states.state(expected), states.state(state));
    difference_of(one, two, &found[expected].name, &found[state].name)
}

/// How what an image has shown the second time differs from a state; empty if it does not.
pub(super) fn difference_again(source: &Source<'_>, state: usize) -> String {
    let Some(again) = source.states.again(state) else { return String::new() };
    let (first, name) = (source.states.state(state), &source.states.found()[state].name);
    let mut text = difference_of(first, again, name, &format!("{name}, recovered again"));
    let (one, two) = (ending(first), ending(again));
    if one != two {
        text = format!("the first recovery {one}, the second one {two}\n{text}");
    }
    text
}

fn difference_of(one: &State, two: &State, one_name: &str, two_name: &str) -> String {
    let (one, two) = (readable(&one.text), readable(&two.text));
    let difference = similar::TextDiff::from_lines(&one, &two);
    let text = difference.unified_diff().context_radius(2).header(one_name, two_name).to_string();
    readable(text.as_bytes())
}

/// How the recovery of a state ended.
pub(super) fn ending(state: &State) -> String {
    match state.write {
        Some(write) => format!("{}; a write to it {write}", state.ending),
        None => state.ending.to_string(),
    }
}
