//! A process dies, another one takes the cache up, and the power fails then.

use fastness_pm_model::{Config, Machine, Op, Recorder, Trace};

use super::history::{History, Variant, first_violation, run_recovery};

/// The process dies at operation `cut`: loads see all of its stores, and the directory has all changes.
/// Explores the recovery after it: every power cut inside it and after it.
pub fn violation_after_death(history: &History, cut: usize, variant: Variant) -> Option<String> {
    let mut machine = Machine::new(history.trace.initial.clone(), Config::default());
    let dying = &history.trace.ops[..cut];
    dying.iter().for_each(|op| machine.apply(op).unwrap());
    let mark = dying.iter().rev().find_map(|op| match op {
        Op::Mark(mark) => Some(*mark),
        _ => None,
    });
    let moment = &history.moments[mark.unwrap() as usize];
    let recorder = Recorder::with_store_bytes(machine.volatile_image(), variant.style, variant.store_bytes);
    let next = run_recovery(&recorder, &moment.backing.copied(), moment);
    let mut ops = dying.to_vec();
    ops.retain(|op| !matches!(op, Op::Mark(_)));
    ops.extend(next.trace.ops);
    let trace = Trace { initial: history.trace.initial.clone(), ops };
    first_violation(&trace, &next.moments, variant).0
}
