//! A process dies, another one takes the cache up, and the power fails then.

use fastness_pm_model::{Config, Machine, Op, RecordStyle, Recorder, Trace};

use super::history::{History, Variant, first_violation, run_recovery};

/// A process that died: loads see all of its stores, and the directory has all changes.
pub struct Death {
    initial: Vec<u8>,
    ops: Vec<Op>,
    /// The last mark before it.
    pub mark: usize,
}

impl Death {
    /// At operation `cut` of a trace; with it PM as the next process finds it.
    pub fn at(trace: &Trace, cut: usize, style: RecordStyle, store_bytes: usize) -> (Death, Recorder) {
        let mut machine = Machine::new(trace.initial.clone(), Config::default());
        let mut ops = trace.ops[..cut].to_vec();
        ops.iter().for_each(|op| machine.apply(op).unwrap());
        let mark = ops.iter().rev().find_map(|op| match op {
            Op::Mark(mark) => Some(*mark as usize),
            _ => None,
        });
        ops.retain(|op| !matches!(op, Op::Mark(_)));
        let recorder = Recorder::with_store_bytes(machine.volatile_image(), style, store_bytes);
        (Death { initial: trace.initial.clone(), ops, mark: mark.unwrap() }, recorder)
    }

    /// Everything up to the end of `next`, the trace of the next process.
    pub fn and_then(mut self, next: Trace) -> Trace {
        self.ops.extend(next.ops);
        Trace { initial: self.initial, ops: self.ops }
    }
}

/// The process dies at operation `cut`. Explores the recovery after it: every power cut inside it and after
/// it.
pub fn violation_after_death(history: &History, cut: usize, variant: Variant) -> Option<String> {
    let (death, recorder) = Death::at(&history.trace, cut, variant.style, variant.store_bytes);
    let moment = &history.moments[death.mark];
    let next = run_recovery(&recorder, &moment.backing.copied(), moment);
    first_violation(&death.and_then(next.trace), &next.moments, variant).0
}
