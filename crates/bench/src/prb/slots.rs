//! What taking and releasing a commit slot costs without contention.

use std::hint::black_box;

use fastness_prb::CommitSlots;

use crate::error::Result;
use crate::measure::{Spread, time_ns};
use crate::{Options, Row};

const ROUNDS: usize = 200_000;
const GOAL_NS: f64 = 60.0;

pub(super) fn acquire_release(options: Options) -> Result<Row> {
    let slots = CommitSlots::new([0u64; 4]);
    let turns = options.turns();
    let turn = || {
        time_ns(|| {
            for _ in 0..ROUNDS {
                *black_box(slots.acquire()) += 1;
            }
            Ok(())
        })
    };
    let ns = (0..turns).map(|_| Ok(turn()? / ROUNDS as f64)).collect::<Result<Vec<_>>>()?;
    let value = Spread::of(ns).median;
    Ok(Row {
        name: "commit slot, acquire + release, uncontended".to_owned(),
        value: Some(value),
        unit: "ns",
        goal: Some(format!("at most {GOAL_NS} ns")),
        met: Some(value <= GOAL_NS),
        medium: "none".to_owned(),
        threads: 1,
        ..Row::default()
    })
}
